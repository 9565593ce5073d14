//! The HTTP front above its connections (`howdah-http`): routes, serves files, asks an executor,
//! answers, logs. No PHP in it.
//!
//! - [`front_thread`]: what the threads of the connections do besides.
//! - [`request`]: what happens to a request, from top to bottom; [`server_config`]: by what;
//!   [`site_service`]: what is made ready for a site.
//! - [`docroot`]: from the bytes of a URL to a file; the only way from a URL to a path.
//! - [`site`]: which site, which route, which file or script.
//! - [`static_file`]: how a file is sent: validators, ranges, precompressed files, memory.
//! - [`client_address`]: who the client is, behind proxies that are trusted.
//! - [`limiter`]: how much one client may ask for.
//! - [`authentication`]: who the client is by name and password; [`watched_file`]: files that are read
//!   again when they change; `blocking`: threads for what takes long.
//! - [`script`]: a request becomes a script request, a run becomes a response.
//! - [`cache`]: pages that need no script; [`cache_config`]: what a site has configured of that.
//! - [`encoding`]: gzip, brotli and zstd on the fly.
//! - [`failure`], [`refusal`]: every no, by name; [`respond`]: the one place that turns it into a response.
//! - [`admin`]: counters and status; [`status_listener`]: a listener for them and for probes;
//!   [`dashboard`]: a page that shows them.
//! - [`log`]: access log and error log.
//! - [`traces`]: the trace of a request, taken, passed on and exported.
//!
//! No two modules import each other, directly or in a ring (`tests/module_graph.rs`).

#![deny(unsafe_code)]

pub mod admin;
pub mod authentication;
mod blocking;
pub mod cache;
pub mod cache_config;
pub mod client_address;
pub mod dashboard;
pub mod docroot;
pub mod encoding;
pub mod failure;
pub mod front_thread;
mod gather;
pub mod limiter;
pub mod log;
pub mod proxy;
pub mod refusal;
pub mod request;
pub mod respond;
pub mod script;
pub mod server_config;
pub mod site;
pub mod site_service;
pub mod static_file;
pub mod status_listener;
mod sys;
mod tally;
#[cfg(test)]
mod testing;
pub mod traces;
pub mod watched_file;
