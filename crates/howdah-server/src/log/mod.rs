//! The access log and the error log. Neither ever makes a request wait: lines go to memory, and a
//! thread of the log's own writes them.
//!
//! - [`access`]: one line a request: common, combined, extended or JSON.
//! - [`error`]: one line a problem, PHP's messages tied to their request, repeats held back.
//! - [`sink`]: the buffers, the writing thread, reopening.
//! - [`escape`]: what a client or a script wrote, made safe for a line.
//! - [`daemon`]: the words by which a log is sent to syslog or the journal.
//! - [`message`]: a line as a message to one of them.
//! - [`clock`]: dates as text.

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
pub use sink::{LogTarget, News, Sink};
