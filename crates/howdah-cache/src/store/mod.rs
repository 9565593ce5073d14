//! The stores for responses.
//!
//! - [`memory`]: weighted by bytes and resistant to scans. [`disk`]: below the memory, and outlives the process.

pub mod disk;
pub mod memory;

pub use memory::{MemoryStore, PageLookup};
