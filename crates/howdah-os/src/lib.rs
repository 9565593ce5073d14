//! What several of the programs ask of the operating system, with one safe function each. Decides
//! nothing.
//!
//! - [`account`]: users and groups, and becoming one.
//! - [`machine`]: how much memory it has, or the control group may use.
//! - [`process`]: what a process denies to others of its user.
//! - [`files`]: whether a file has changed, and names for new ones.
//! - [`output`]: lines that several processes write to one file.
//! - [`shares`]: room that clients share, which asks nothing of the system; several programs count by it.
//! - [`signals`]: signals as a descriptor.
//! - [`descriptors`]: descriptors that survive an exec, and programs that end with their parent.
//! - [`mapping`]: memory shared with other processes, and files mapped to be read.
//!
//! The last two have the `unsafe` of this crate.

#![deny(unsafe_code)]

pub mod account;
pub mod descriptors;
pub mod files;
pub mod machine;
pub mod mapping;
pub mod output;
pub mod process;
pub mod shares;
pub mod signals;
