//! All servers that a configuration contains. Rules that name the same server share one [`UpstreamServer`]. The
//! configuration after a reload shares it too, so the server's connections, health and counters remain in use.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::server::{ServerRow, UpstreamServer};
use howdah_site::proxy_config::address::ServerAddress;

/// A server is identified by its address and by the path of its health checks.
type ServerKey = (String, Option<Box<str>>);

static SERVERS: Mutex<BTreeMap<ServerKey, Weak<UpstreamServer>>> = Mutex::new(BTreeMap::new());

/// Returns the server at this address.
pub(super) fn find_or_create(at: &ServerAddress, health: Option<&str>) -> Arc<UpstreamServer> {
    let mut known = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|_, server| server.strong_count() > 0);
    let name = (at.to_string(), health.map(Box::from));
    if let Some(server) = known.get(&name).and_then(Weak::upgrade) {
        return server;
    }
    let server = Arc::new(UpstreamServer::new(at.clone(), name.1.clone()));
    known.insert(name, Arc::downgrade(&server));
    server
}

/// Returns the status of each server, sorted by address.
pub fn rows() -> Vec<ServerRow> {
    let known = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    known
        .values()
        .filter_map(Weak::upgrade)
        .map(|server| server.row())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_site::proxy_config::address;

    #[test]
    fn registry_shares_a_server_between_rules_and_forgets_it_with_them() {
        let at = |text| address::parse(text).unwrap().remove(0).at;
        let first = find_or_create(&at("http://known:1"), None);
        assert!(Arc::ptr_eq(
            &first,
            &find_or_create(&at("http://known:1 weight=3"), None)
        ));
        for other in [
            find_or_create(&at("h2c://known:1"), None),
            find_or_create(&at("http://known:2"), None),
            find_or_create(&at("http://known:1"), Some("/up")),
        ] {
            assert_ne!(other.id, first.id);
        }
        let shown = || {
            rows()
                .iter()
                .filter(|row| row.address.contains("known:"))
                .count()
        };
        assert_eq!(shown(), 1);
        drop(first);
        assert_eq!(shown(), 0);
    }
}
