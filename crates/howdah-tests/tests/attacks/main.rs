//! Attacks on the real program. Each is made as a client (or a script) would make it, and has a bound on what it may
//! achieve: how much the front's memory may grow, whether another visitor is still served, and what must never appear
//! in a response.
//!
//! Request smuggling is tested in the test program `http` (`smuggling.rs`).

mod cache;
mod cache_attacks;
mod connections;
mod event_loop;
mod htaccess;
mod htaccess_files;
mod htaccess_live;
mod local_users;
mod memory;
mod paths;
mod processes;
mod queue;
mod streams;
