//! What the server writes about its requests.
//!
//! - [`log`]: the access log and the error log; files, syslog and the journal.
//! - [`traces`]: receives, propagates and exports the trace of a request.

#![forbid(unsafe_code)]

pub mod log;
pub mod traces;

#[cfg(test)]
#[path = "../../howdah-site/src/testing.rs"]
mod testing;
