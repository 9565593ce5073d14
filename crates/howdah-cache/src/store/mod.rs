//! Where stored responses are.
//!
//! - [`memory`]: byte-weighted and resistant to scans. [`disk`]: below it, and outlives the process.

pub mod disk;
pub mod memory;

pub use memory::{Found, Memory};
