//! The servers that a rule forwards requests to, as they are configured. Their connections and health checks belong to
//! `howdah_server::proxy`.

pub mod address;

use std::time::Duration;

use address::{ServerProtocol, WeightedServer};

/// The servers that a rule's requests are forwarded to, and the settings of these requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerGroupConfig {
    /// The servers, of which there is at least one.
    pub servers: Vec<WeightedServer>,
    /// `proxy_timeout`: how long a server may be silent.
    pub timeout: Duration,
    /// `proxy_health`: the path that health checks request; `None` if there are none.
    pub health_path: Option<Box<str>>,
}

impl ServerGroupConfig {
    /// Returns the addresses of the servers, as text.
    pub fn addresses(&self) -> impl Iterator<Item = String> {
        self.servers.iter().map(|server| server.at.to_string())
    }

    /// Returns whether any of the servers speaks TLS.
    pub fn uses_tls(&self) -> bool {
        let mut servers = self.servers.iter();
        servers.any(|server| server.at.protocol == ServerProtocol::Https)
    }
}
