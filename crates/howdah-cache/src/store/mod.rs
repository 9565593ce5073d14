//! Where stored responses are.
//!
//! - [`memory`]: byte-weighted and resistant to scans.

pub mod memory;

pub use memory::{Found, Memory};
