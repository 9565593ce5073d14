//! The HTTP front between its connections (`howdah-http`) and its sites (`howdah-site`): it takes each request through
//! its phases, has scripts run by an executor, serves stored pages, forwards requests and sends the responses.
//! There is no PHP in this crate.
//!
//! - [`front_thread`]: work that the connection threads do besides their connections.
//! - [`request`]: the handling of a request from top to bottom; [`server_config`]: the configuration it is handled
//!   with; [`process_state`]: what all configurations share; [`site_service`]: what is prepared once for each site.
//! - [`script`]: turns a request into a script request, and a run into a response.
//! - [`cache`]: serves pages without running a script.
//! - [`proxy`]: the connections to other HTTP servers.
//! - [`failure`]: every failure, by name; [`respond`]: the one place that turns failures and refusals into responses.
//! - [`admin`]: counters and status; [`traffic`]: the last hour of each site; [`status_listener`]: a listener for both
//!   and for probes; [`dashboard`]: a page that shows them.
//!
//! No two modules import each other, directly or in a cycle (`tests/module_graph.rs`).

#![deny(unsafe_code)]

pub mod admin;
pub mod cache;
pub mod dashboard;
pub mod failure;
pub mod front_thread;
mod gather;
pub mod process_state;
pub mod proxy;
pub mod request;
pub mod respond;
pub mod script;
pub mod server_config;
pub mod site_service;
pub mod status_listener;
#[cfg(test)]
mod testing;
pub mod traffic;
