//! The access log and the error log. Neither ever makes a request wait: lines go to memory, and each log has a thread
//! that writes them.
//!
//! - [`access`]: one line for each request: common, combined, extended or JSON.
//! - [`error`]: one line for each problem; PHP's messages are tied to their request, and repeats are held back.
//! - [`sink`]: the buffers, the writing thread, reopening.
//! - [`escape`]: escapes the text of clients and scripts.
//! - [`daemon`]: parses the options that send a log to syslog or the journal.
//! - [`message`]: sends a line as a message to one of them.
//! - [`clock`]: dates as text.
//! - [`repeats`]: holds repeated messages back.

pub mod access;
pub mod clock;
pub mod daemon;
pub mod error;
pub mod escape;
pub mod message;
pub mod repeats;
pub mod sink;

pub use access::{AccessEntry, AccessFormat, AccessLog};
pub use daemon::DaemonTarget;
pub use error::{ErrorLog, ErrorStyle};
pub use sink::{LogSink, LogTarget, SinkEvent};
