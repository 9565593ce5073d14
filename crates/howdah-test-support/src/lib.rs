//! The parts of the operating system that the tests of several crates use. The product contains none of this code.
//!
//! - [`scratch`]: private directories, and where built programs are.
//! - [`process`]: a started program: its process group, its output and its exit.
//! - [`process_tree`]: the processes below a program.
//! - [`executable`]: programs that a test writes and then starts.
//! - [`php`]: the PHP program that hosts `howdah-php`, and its library.

pub mod executable;
pub mod php;
pub mod process;
pub mod process_tree;
pub mod scratch;
