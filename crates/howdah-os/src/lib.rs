//! Safe functions for the operating system services that several of the programs use. This crate makes no decisions.
//!
//! - [`account`]: users and groups, and switching to one.
//! - [`clock`]: the clocks, which a simulation can replace.
//! - [`machine`]: the memory of the machine, or the limit of the control group.
//! - [`package_manager`]: whether one is changing the machine's files.
//! - [`process`]: what a process denies to other processes of its user.
//! - [`files`]: detecting that a file has changed, and names for new files; [`new_files`]: writing several files or
//!   none; [`file_patterns`]: the files that a pattern names.
//! - [`output`]: the output of commands, and lines that several processes write to one file; [`shell`]: quoted words.
//! - [`client_quota`]: capacity that clients share. It makes no system call; it is here because several programs use
//!   it.
//! - [`safe_path`]: files that root writes where other users may have put links.
//! - [`signals`]: signals as a descriptor.
//! - [`descriptors`]: descriptors that survive an exec, and programs that exit with their parent.
//! - [`mapping`]: memory that is shared with other processes, and files that are mapped for reading.
//! - [`shared_ports`]: listening sockets of two servers at one address.
//!
//! Only the last three modules contain `unsafe` code.

#![deny(unsafe_code)]

pub mod account;
pub mod client_quota;
pub mod clock;
pub mod descriptors;
pub mod file_patterns;
pub mod files;
pub mod machine;
pub mod mapping;
pub mod new_files;
pub mod output;
pub mod package_manager;
pub mod process;
pub mod safe_path;
pub mod shared_ports;
pub mod shell;
pub mod signals;
