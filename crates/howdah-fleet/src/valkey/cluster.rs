//! A Valkey cluster. The keys of a fleet share one hash slot, and the nodes say which of them is the primary for it.
//! The rest of the crate treats that primary like a single server: when the primary changes, an exchange fails, and the
//! next connection looks the primary up again.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Client, ConnectionAddr, ErrorKind, RedisError, ServerErrorKind};

use super::Nodes;

#[derive(Clone)]
pub(super) struct Cluster {
    /// The configured nodes, which are asked for the primary.
    seeds: Vec<Client>,
}

impl Cluster {
    pub fn new(nodes: &Nodes) -> Result<Cluster, RedisError> {
        let seeds: Result<_, _> = nodes.addresses.iter().map(|at| nodes.client(at)).collect();
        Ok(Cluster { seeds: seeds? })
    }

    /// Returns a client of the primary that holds this key. All seeds are asked concurrently, so a hung seed delays
    /// nothing. A seed that is cut off from the cluster replies with an error.
    pub async fn client(&self, key: &str) -> Result<Client, RedisError> {
        let lookups = self.seeds.iter().map(|seed| async move {
            let found = find_primary(seed, key).await;
            found.map_err(|error| format!("{}: {error}", seed.get_connection_info().addr()))
        });
        let mut lookups: FuturesUnordered<_> = lookups.collect();
        let mut failed = Vec::new();
        while let Some(found) = lookups.next().await {
            match found {
                Ok(primary) => return Ok(primary),
                Err(why) => failed.push(why),
            }
        }
        let text = "no node of the cluster could name the fleet's primary";
        Err(RedisError::from((
            ErrorKind::Client,
            text,
            failed.join("; "),
        )))
    }
}

/// Asks a node for the primary that holds this key. A node refuses a key that it does not hold, and names the primary
/// that does.
async fn find_primary(seed: &Client, key: &str) -> Result<Client, RedisError> {
    let mut connection = seed.get_multiplexed_async_connection().await?;
    let mut info = redis::cmd("INFO");
    let info: String = info.arg("cluster").query_async(&mut connection).await?;
    // A single server would accept any key.
    if !info.contains("cluster_enabled:1") {
        let how = "use redis:// or rediss:// with this host alone".to_owned();
        let what = "`cluster-enabled` is off on this server";
        return Err(RedisError::from((ErrorKind::Client, what, how)));
    }
    let mut exists = redis::cmd("EXISTS");
    let reply: Result<u64, _> = exists.arg(key).query_async(&mut connection).await;
    let Err(error) = reply else {
        return Ok(seed.clone());
    };
    // Redirections with `ASK` are not followed, because their target does not hold the slot yet.
    let has_moved = error.kind() == ErrorKind::Server(ServerErrorKind::Moved);
    let seed = seed.get_connection_info();
    let primary = error.redirect_node().filter(|_| has_moved);
    match primary.and_then(|(node, _)| redirect_address(seed.addr(), node)) {
        Some(primary) => Client::open(seed.clone().set_addr(primary)),
        None => Err(error),
    }
}

/// Parses the address that a node names. An address without a host refers to the node itself.
fn redirect_address(from: &ConnectionAddr, node: &str) -> Option<ConnectionAddr> {
    let (to, number) = node.rsplit_once(':')?;
    let number = number.parse().ok()?;
    let mut address = from.clone();
    let (ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) =
        &mut address
    else {
        return None;
    };
    if !to.is_empty() {
        to.clone_into(host);
    }
    *port = number;
    Some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_names_the_primary_with_or_without_host() {
        let from = ConnectionAddr::Tcp("a".to_owned(), 1);
        for (node, host, port) in [
            ("10.0.0.1:6380", "10.0.0.1", 6380),
            ("::1:6380", "::1", 6380),
            ("b.example:2", "b.example", 2),
            (":6381", "a", 6381),
        ] {
            let expected = ConnectionAddr::Tcp(host.to_owned(), port);
            assert_eq!(redirect_address(&from, node), Some(expected), "{node}");
        }
        assert_eq!(redirect_address(&from, "b"), None);
        assert_eq!(redirect_address(&from, "b:x"), None);
    }
}
