//! The stores for responses.
//!
//! - [`memory`]: weighted by bytes and resistant to scans. [`disk`]: below the memory, and outlives the process.
//! - [`private`]: responses for one visitor alone, in memory only.

pub mod disk;
pub mod memory;
pub mod private;

pub use memory::{MemoryStore, PageLookup};
pub use private::PrivateStore;
