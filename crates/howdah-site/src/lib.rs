//! Sites: this crate decides which site and which rules apply to a request, which file or script it names, whether the
//! client may have that, and how much one client may request. It does not depend on connections or on the executor, and
//! it logs nothing.
//!
//! - [`site`]: chooses the site, the route, and the file or script; its `.htaccess` files.
//! - [`docroot`]: turns the bytes of a URL into a file. It is the only way from a URL to a path.
//! - [`static_file`]: sends files: validators, ranges, precompressed files, the in-memory cache.
//! - [`encoding`]: gzip, brotli and zstd on the fly.
//! - [`client_address`]: determines the client's address behind trusted proxies.
//! - [`limiter`]: limits how much one client may request.
//! - [`authentication`]: checks names and passwords.
//! - [`proxy_config`]: the servers that a rule forwards requests to, as configured.
//! - [`cache_config`]: the cache settings of a site.
//! - [`refusal`]: every refusal, by name.
//! - [`watched_file`]: files that are read again when they change; `blocking`: operations that take long;
//!   `thread_pool`: the threads for these and for compression.
//! - [`sharded_counter`]: counters that many threads increment.
//!
//! No two modules import each other, directly or in a cycle (`howdah-server/tests/module_graph.rs`).

#![deny(unsafe_code)]

pub mod authentication;
mod blocking;
pub mod cache_config;
pub mod client_address;
pub mod docroot;
pub mod encoding;
pub mod limiter;
pub mod network_file;
pub mod proxy_config;
pub mod refusal;
pub mod sharded_counter;
pub mod site;
pub mod static_file;
mod sys;
#[cfg(test)]
mod testing;
mod thread_pool;
pub mod watched_file;
