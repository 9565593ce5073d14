//! Requests that another HTTP server answers: the Node, Go or Reverb part of a site (`proxy` of a rule).
//! HTTP is hyper's business (its client connections); which server gets a request, what of its header, and
//! what becomes of the answer is decided here.
//!
//! - [`address`]: `http://HOST:PORT`, `h2c://HOST:PORT`, `unix:PATH`.
//! - [`server`]: the servers of a rule: the least busy of those that are up gets a request.
//! - [`connections`]: connections, kept by each front thread for the next request.
//! - [`fields`]: the request as it is sent.
//! - [`upload`]: its body; `exchange`: which server takes it; [`run`]: the answer as events, as of a script;
//!   `silence`: how long it may take.
//! - [`tunnel`]: WebSocket: bytes both ways.

pub mod address;
mod connections;
mod exchange;
pub mod fields;
pub mod run;
pub mod server;
mod silence;
pub mod tunnel;
pub mod upload;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::log::error::ErrorLog;
use address::ServerAddress;
use server::Server;

/// The servers that a rule's requests go to.
#[derive(Debug)]
pub struct Proxy {
    servers: Vec<Arc<Server>>,
    /// `proxy_timeout`: longest silence of a server.
    timeout: Duration,
    /// `proxy_health`: the path that is asked for, to see whether a server is up.
    health: Option<Box<str>>,
    /// Somebody asks for it.
    watched: AtomicBool,
    /// Where the search for the least busy server begins.
    turn: AtomicUsize,
}

impl Proxy {
    /// Requests go to `servers`, of which there is at least one.
    pub fn new(servers: Vec<ServerAddress>, timeout: Duration, health: Option<String>) -> Proxy {
        Proxy {
            servers: servers
                .into_iter()
                .map(|at| Arc::new(Server::new(at)))
                .collect(),
            timeout,
            health: health.map(String::into_boxed_str),
            watched: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
        }
    }

    /// The servers, as configured.
    pub fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }

    /// Has the servers asked whether they are up, from the first request on. Call it on a front thread.
    fn watch(self: &Arc<Proxy>, log: &Arc<ErrorLog>) {
        if let Some(path) = &self.health
            && !self.watched.swap(true, Ordering::Relaxed)
        {
            for server in &self.servers {
                let task = server::watch(Arc::downgrade(server), path.clone(), log.clone());
                tokio::spawn(crate::turn::measured("asking a proxied server", task));
            }
        }
    }
}
