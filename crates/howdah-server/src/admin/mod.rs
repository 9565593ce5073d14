//! Information about the server: counters, the status as data, and the status in several formats. Nothing here changes
//! the server; `howdah reload` and `stop` are handled by the control socket.
//!
//! - [`counters`]: requests, statuses, failures by name; a share per thread.
//! - [`history`]: samples of the counters of the last hour.
//! - [`status`]: [`ServerStatus`], the data of the status page and of `howdah status`.
//! - [`render`]: selects the format for a client; [`text`], [`openmetrics`], `compatible`: the formats.
//! - [`metrics`]: the names of metrics, with labels and help.
//! - [`format`]: helpers for both formats.
//! - [`backends`]: FastCGI backends and proxied servers in both formats.
//! - `limits`: limits of clients in both formats.
//! - [`jobs`]: background jobs, as reported by the process that runs them, in both formats.
//! - [`cache`], [`cache_disk`]: the page cache, and its pages on disk, in both formats.

mod backends;
mod cache;
mod cache_disk;
mod compatible;
pub mod counters;
mod fleet;
mod format;
pub mod history;
pub mod jobs;
mod limits;
pub mod metrics;
mod openmetrics;
mod render;
pub mod status;
mod text;

pub use counters::RequestCounters;
pub use format::duration;
pub use history::{History, HistoryStatus};
pub use limits::{LimitRow, LimitsStatus};
pub use render::StatusForm;
pub use status::{
    Connections, ServerStatus, StatusListenerCounts, StatusPage, TurnsStatus, UsageAndLimit,
};
