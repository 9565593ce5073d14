//! The HTTP front: accepts, routes, serves files, asks an executor, answers, logs, drains. No PHP
//! in it.
//!
//! - [`http`]: messages, and HTTP/1.1 on a socket: framing, limits, time-outs.
//! - `site`: which site, which route, which file; the only way from a URL to a path.
//! - `script`: a request becomes a script request, a run becomes a response.
//! - `log`: access log and error log.

#![deny(unsafe_code)]

pub mod http;
