//! The HTTP front above its connections (`howdah-http`): it routes requests, serves files, has scripts run by an
//! executor, sends the responses and writes the logs. There is no PHP in this crate.
//!
//! - [`front_thread`]: work that the connection threads do besides their connections.
//! - [`request`]: the handling of a request from top to bottom; [`server_config`]: the configuration it is handled
//!   with; [`process_state`]: what all configurations share; [`site_service`]: what is prepared once for each site.
//! - [`docroot`]: turns the bytes of a URL into a file. It is the only way from a URL to a path.
//! - [`site`]: chooses the site, the route, and the file or script.
//! - [`static_file`]: sends files: validators, ranges, precompressed files, the in-memory cache.
//! - [`client_address`]: determines the client's address behind trusted proxies.
//! - [`limiter`]: limits how much one client may request.
//! - [`authentication`]: checks names and passwords; [`watched_file`]: files that are read again when they change;
//!   `blocking`: operations that take long; `thread_pool`: the threads for these and for compression.
//! - [`script`]: turns a request into a script request, and a run into a response.
//! - [`cache`]: serves pages without running a script; [`cache_config`]: the cache settings of a site.
//! - [`encoding`]: gzip, brotli and zstd on the fly.
//! - [`failure`], [`refusal`]: every failure and refusal, by name; [`respond`]: the one place that turns them into
//!   responses.
//! - [`admin`]: counters and status; [`status_listener`]: a listener for them and for probes; [`dashboard`]: a page
//!   that shows them.
//! - [`proxy_config`]: the servers that a rule forwards requests to, as configured; [`proxy`]: the connections to them.
//! - [`log`]: the access log and the error log.
//! - [`traces`]: receives, propagates and exports the trace of a request.
//!
//! No two modules import each other, directly or in a cycle (`tests/module_graph.rs`).

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
pub mod process_state;
pub mod proxy;
pub mod proxy_config;
pub mod refusal;
pub mod request;
pub mod respond;
pub mod script;
pub mod server_config;
mod sharded_counter;
pub mod site;
pub mod site_service;
pub mod static_file;
pub mod status_listener;
mod sys;
#[cfg(test)]
mod testing;
mod thread_pool;
pub mod traces;
pub mod watched_file;
