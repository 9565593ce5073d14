//! The HTTP front: accepts, routes, serves files, asks an executor, answers, logs, drains. No PHP
//! in it.
//!
//! - [`http`]: messages, and HTTP/1.1 on a socket: framing, limits, time-outs.
//! - [`listener`]: sockets, accepting, front threads, the graceful end.
//! - [`request`]: what happens to a request, from top to bottom; [`server_config`]: by what.
//! - [`site`]: which site, which route, which file; the only way from a URL to a path.
//! - [`static_file`]: how a file is sent: validators, ranges, precompressed files, memory.
//! - [`client_address`]: who the client is, behind proxies that are trusted.
//! - [`script`]: a request becomes a script request, a run becomes a response.
//! - [`cache`]: pages that need no script.
//! - [`encoding`]: gzip, brotli and zstd on the fly.
//! - [`respond`]: the one place that turns a failure into a response.
//! - [`memory`]: one bound for all that the front keeps.
//! - [`admin`]: counters and status.
//! - [`log`]: access log and error log.
//! - [`turn`]: how long a task may keep a front thread.

#![deny(unsafe_code)]

pub mod admin;
pub mod cache;
pub mod client_address;
pub mod encoding;
mod gather;
pub mod http;
pub mod listener;
pub mod log;
pub mod memory;
pub mod request;
pub mod respond;
pub mod script;
pub mod server_config;
pub mod site;
pub mod static_file;
mod sys;
#[cfg(test)]
mod testing;
pub mod turn;
