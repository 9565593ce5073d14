//! Attacks on the real program, each as a client (or a script) would mount it, with a bound on
//! what it may achieve: how much the front's memory may grow, whether another visitor is still
//! served, and what must never appear in a response.
//!
//! Not here: request smuggling (`http_smuggling.rs`) and the page cache's own attacks
//! (`cache_attacks`), which have suites of their own.

mod cache;
mod connections;
mod event_loop;
mod htaccess;
mod htaccess_files;
mod htaccess_live;
mod http2;
mod http3;
mod local_users;
mod memory;
mod paths;
mod processes;
mod queue;
