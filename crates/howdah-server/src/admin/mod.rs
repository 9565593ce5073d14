//! What the server knows about itself: counters, the status as data, and its forms for people
//! and programs. Changes nothing; `howdah reload` and `stop` are the control socket's.
//!
//! - [`counters`]: requests, statuses, failures by name; a share per thread.
//! - [`status`]: [`ServerStatus`], the data of the status page and of `howdah status`.
//! - [`render`]: which form a client gets; [`text`], [`openmetrics`]: two of them.
//! - [`metrics`]: the names of metrics, with labels and help.
//! - [`format`]: what they are put together with.
//! - [`backends`]: what of both is about FastCGI backends and proxied servers.
//! - `limits`: what of both is about limits of clients.
//! - [`jobs`]: background jobs, as the process that runs them says; what of both is about them.
//! - [`cache`], [`cache_disk`]: what of both is about the page cache, and its pages on disk.

mod backends;
mod cache;
mod cache_disk;
pub mod counters;
mod fleet;
mod format;
pub mod jobs;
mod limits;
pub mod metrics;
mod openmetrics;
mod render;
pub mod status;
mod text;

pub use counters::Counters;
pub use format::duration;
pub use limits::{LimitRow, Limits};
pub use render::StatusForm;
pub use status::{Bounded, Connections, ServerStatus, StatusListenerCounts, StatusPage, Turns};
