//! What the TLS listeners of a server share, and what of it a connection is set up with.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::ServerConfig;
use rustls::server::danger::ClientCertVerifier;

use super::certificates::Certificate;
use super::certificates::Certificates;
use super::challenges::{self, Challenges, Resolver};
use super::client_certificate::{self, ClientAuthority};
use super::crypto::provider;
use super::on_demand::{Demand, OnDemand};
use super::quic::EarlySessions;
use super::tickets::Tickets;

/// What the TLS listeners of a server share.
#[derive(Debug, Default)]
pub struct TlsSettings {
    /// The certificates to choose from.
    pub certificates: Arc<Certificates>,
    /// The proofs that certificate authorities look for.
    pub challenges: Arc<Challenges>,
    /// Names that no certificate covers.
    pub on_demand: Arc<OnDemand>,
    /// The keys of session tickets.
    pub tickets: Arc<Tickets>,
    /// The sessions of HTTP/3.
    pub early: EarlySessions,
    /// Who signs the certificates of clients; none: clients are asked for none.
    pub client_authority: ArcSwapOption<ClientAuthority>,
    current: ArcSwapOption<ArcSwap<ConnectionSettings>>,
}

/// What the next connections are set up with; it can be exchanged.
pub type CurrentSettings = Arc<ArcSwap<ConnectionSettings>>;

/// What a connection is set up with.
#[derive(Clone, Debug)]
pub struct ConnectionSettings {
    pub(super) config: Arc<ServerConfig>,
    /// Clients are asked for certificates.
    pub(super) asks_clients: bool,
    pub(super) demand: Demand,
    /// The sessions of HTTP/3, where requests may come early: not from clients that have yet to prove who
    /// they are.
    pub(super) early: Option<EarlySessions>,
}

impl ConnectionSettings {
    /// Where certificates are ordered on demand: what handshakes may have to wait for.
    pub(crate) fn demand(&self) -> Option<Demand> {
        self.demand.on_demand.is_on().then(|| self.demand.clone())
    }
}

impl TlsSettings {
    /// Uses these certificates from now on ([`Certificates::set`]); clients who wait for one of them go on.
    pub fn use_certificates(&self, certificates: Vec<Certificate>) {
        self.certificates.set(certificates);
        self.on_demand.look_again(&self.certificates);
    }

    /// What the next connections of all listeners are set up with: made of the settings as they are
    /// now, also for listeners that have it already.
    ///
    /// # Errors
    /// What rustls says: the provider lacks something, or the clients' authority is none.
    pub fn apply(&self) -> Result<CurrentSettings, rustls::Error> {
        let config = Arc::new(self.of_connections(true)?);
        if let Some(current) = self.current.load_full() {
            current.store(config);
            return Ok(current);
        }
        let current = Arc::new(ArcSwap::new(config));
        self.current.store(Some(current.clone()));
        Ok(current)
    }

    /// What a connection is set up with; `http2`: it may choose HTTP/2.
    ///
    /// # Errors
    /// As [`TlsSettings::apply`].
    pub fn of_connections(&self, http2: bool) -> Result<ConnectionSettings, rustls::Error> {
        let authority = self.client_authority.load_full();
        let clients: Arc<dyn ClientCertVerifier> = match &authority {
            Some(authority) => client_certificate::verifier(authority)?,
            None => rustls::server::WebPkiClientVerifier::no_client_auth(),
        };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(Arc::new(Resolver {
                certificates: self.certificates.clone(),
                challenges: self.challenges.clone(),
                on_demand: self.on_demand.clone(),
            }));
        config.ticketer = self.tickets.clone();
        // Tickets alone: what the server does not keep it need not bound, nor lose at a restart.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.ignore_client_order = true;
        config.send_tls13_tickets = 2;
        config.max_early_data_size = 0;
        let protocols: &[&[u8]] = if http2 {
            &[b"h2", b"http/1.1", challenges::PROTOCOL]
        } else {
            &[b"http/1.1", challenges::PROTOCOL]
        };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(ConnectionSettings {
            config: Arc::new(config),
            asks_clients: authority.is_some(),
            demand: Demand {
                on_demand: self.on_demand.clone(),
                certificates: self.certificates.clone(),
            },
            early: authority.is_none().then(|| self.early.clone()),
        })
    }
}
