//! What the server knows about itself: counters, the status as data, and its forms for people
//! and programs. Changes nothing; `howdah reload` and `stop` are the control socket's.
//!
//! - [`counters`]: requests, statuses, failures by name; a share per thread.
//! - [`status`]: [`ServerStatus`], the data of the status page and of `howdah status`.
//! - [`render`]: text, JSON, OpenMetrics; [`cache_disk`], [`cache_tables`]: what of it is about
//!   pages on disk, and table versions.

mod cache_disk;
mod cache_tables;
pub mod counters;
pub mod render;
pub mod status;

pub use counters::Counters;
pub(crate) use counters::Tally;
pub use render::StatusForm;
pub use status::{Bounded, Connections, ServerStatus, StatusPage, Turns};
