//! Requests that are forwarded to another HTTP server: the Node, Go or Reverb part of a site (`proxy` of a rule). HTTP
//! is implemented by hyper's client connections. This module decides which server gets a request, which of its headers
//! are forwarded, and what happens to the response.
//!
//! - [`server`]: one server: how busy it is, and whether it is up; [`server_registry`]: all servers; `health`: the
//!   health checks. Of a rule's servers that are up, the least busy one gets a request.
//! - [`connections`]: connections that each front thread keeps for the next request; `shared_connection`: one that
//!   several requests use; `tls`: the certificate authorities that they trust.
//! - [`outgoing_request`]: the request as it is sent.
//! - [`upload`]: its body; `exchange`: sends it to one of the servers; [`run`]: turns the response into events, like a
//!   script's; `response_head`: its head; `silence`: the timeout.
//! - [`tunnel`]: WebSocket: bytes in both directions.

mod connections;
mod exchange;
mod health;
pub mod outgoing_request;
mod response_head;
pub mod run;
pub mod server;
pub mod server_registry;
mod shared_connection;
mod silence;
mod tls;
pub mod tunnel;
pub mod upload;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use howdah_site::proxy_config::ServerGroupConfig;
use howdah_site::proxy_config::address::WeightedServer;
use server::{BusyGuard, UpstreamServer};

/// The servers that a rule's requests are forwarded to.
#[derive(Debug)]
pub struct ServerGroup {
    servers: Vec<ServerGroupMember>,
    /// `proxy_timeout`: how long a server may be silent.
    timeout: Duration,
    /// The number of requests so far, which determines where the search for the least busy server begins.
    next_first: AtomicUsize,
}

/// A server, and its share of the rule's requests.
#[derive(Debug)]
struct ServerGroupMember {
    server: Arc<UpstreamServer>,
    weight: u32,
}

impl ServerGroup {
    /// Creates the group that `config` describes. Servers that another group contains are shared with it: their
    /// connections, their health and their counters.
    pub(crate) fn new(config: &ServerGroupConfig) -> ServerGroup {
        if config.uses_tls() {
            tls::reload();
        }
        let member = |server: &WeightedServer| ServerGroupMember {
            server: server_registry::find_or_create(&server.at, config.health_path.as_deref()),
            weight: server.weight.max(1),
        };
        ServerGroup {
            servers: config.servers.iter().map(member).collect(),
            timeout: config.timeout,
            next_first: AtomicUsize::new(0),
        }
    }

    /// Returns the least busy server that is up, or one that is down if none is up. Returns `None` if all have been
    /// `tried`.
    fn choose_server(&self, tried: &[u64]) -> Option<BusyGuard> {
        let count = self.servers.len();
        let first = self.next_first();
        let others = (0..count).map(|step| &self.servers[(first + step) % count]);
        let best = others
            .filter(|member| !tried.contains(&member.server.id))
            .min_by_key(|ServerGroupMember { server, weight }| {
                let share = u64::from(server.busy()) * 100 / u64::from(*weight);
                (!server.is_up(), share)
            })?;
        Some(BusyGuard::acquire(&best.server))
    }

    /// Returns the server that is chosen among equally busy ones: each in turn, as often as its weight says.
    fn next_first(&self) -> usize {
        let weights = || self.servers.iter().map(|member| member.weight as usize);
        let turn = self.next_first.fetch_add(1, Ordering::Relaxed);
        let mut left = turn % weights().sum::<usize>();
        for (at, weight) in weights().enumerate() {
            match left.checked_sub(weight) {
                Some(rest) => left = rest,
                None => return at,
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_site::proxy_config::address;

    #[test]
    fn least_busy_server_that_is_up_is_chosen() {
        let texts = ["http://chosen:1-2", "http://chosen:3 weight=2"];
        let servers = texts.iter().flat_map(|t| address::parse(t).unwrap());
        let proxy = ServerGroup::new(&ServerGroupConfig {
            servers: servers.collect(),
            timeout: Duration::from_secs(60),
            health_path: None,
        });
        let server = |at: usize| &proxy.servers[at].server;
        let servers = || proxy.servers.iter().map(|member| &member.server);
        let places: Vec<_> = (0..8).filter_map(|_| proxy.choose_server(&[])).collect();
        let busy: Vec<_> = servers().map(|s| s.busy()).collect();
        assert_eq!(busy, [2, 2, 4]);
        drop(places);
        assert!(servers().all(|s| s.busy() == 0));
        let mut requests = [0; 3];
        for _ in 0..8 {
            let chosen = proxy.choose_server(&[]).unwrap();
            let at = servers().position(|s| s.id == chosen.0.id).unwrap();
            requests[at] += 1;
        }
        assert_eq!(requests, [2, 2, 4], "one request after the other");
        server(2).note_unreachable("refused");
        server(0).note_unreachable("refused");
        for _ in 0..5 {
            assert_eq!(proxy.choose_server(&[]).unwrap().0.id, server(1).id);
        }
        let down = proxy.choose_server(&[server(1).id]).unwrap();
        assert!(!down.0.is_up(), "better than nobody");
        let all: Vec<_> = servers().map(|s| s.id).collect();
        assert!(proxy.choose_server(&all).is_none());
    }

    #[test]
    fn server_group_of_a_reloaded_configuration_keeps_its_servers() {
        let config = |text: &str| ServerGroupConfig {
            servers: address::parse(text).unwrap(),
            timeout: Duration::from_secs(60),
            health_path: Some("/up".into()),
        };
        let former = ServerGroup::new(&config("http://reloaded:1-2"));
        let id = former.servers[1].server.id;
        former.servers[1].server.note_unreachable("refused");
        let new = ServerGroup::new(&config("http://reloaded:2 weight=3"));
        drop(former);
        assert_eq!((new.servers[0].server.id, new.servers[0].weight), (id, 3));
        assert!(!new.servers[0].server.is_up(), "its health is kept");
    }
}
