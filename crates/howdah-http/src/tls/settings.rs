//! The state that the TLS listeners of a server share, and the settings of a connection that are derived from it.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::ServerConfig;
use rustls::server::danger::ClientCertVerifier;

use super::certificates::Certificate;
use super::certificates::ServerCertificates;
use super::challenges::{self, CertificateResolver, ChallengeResponses};
use super::client_certificate::{self, ClientAuthority};
use super::crypto::provider;
use super::on_demand::{HandshakeHold, OnDemandNames};
use super::quic::EarlySessions;
use super::tickets::TicketKeys;

/// The state that the TLS listeners of a server share.
#[derive(Debug, Default)]
pub struct TlsSettings {
    /// The certificates to choose from.
    pub certificates: Arc<ServerCertificates>,
    /// The proofs that certificate authorities check.
    pub challenges: Arc<ChallengeResponses>,
    /// The handling of names that no certificate covers.
    pub on_demand: Arc<OnDemandNames>,
    /// The keys of session tickets.
    pub tickets: Arc<TicketKeys>,
    /// The sessions of HTTP/3 for early data.
    pub early_sessions: EarlySessions,
    /// The authority of client certificates. `None` means that clients are not asked for certificates.
    pub client_authority: ArcSwapOption<ClientAuthority>,
    current: ArcSwapOption<ArcSwap<ConnectionSettings>>,
}

/// The settings of new connections, which can be replaced.
pub type CurrentSettings = Arc<ArcSwap<ConnectionSettings>>;

/// The TLS settings of a connection.
#[derive(Clone, Debug)]
pub struct ConnectionSettings {
    pub(super) config: Arc<ServerConfig>,
    /// Whether clients are asked for certificates.
    pub(super) asks_clients: bool,
    pub(super) demand: HandshakeHold,
    /// The sessions of HTTP/3 if requests may arrive as early data. That is not allowed if clients must first prove
    /// their identity.
    pub(super) early_sessions: Option<EarlySessions>,
}

impl ConnectionSettings {
    /// Returns the state that handshakes may have to wait for, if certificates are ordered on demand.
    pub(crate) fn demand(&self) -> Option<HandshakeHold> {
        self.demand
            .on_demand
            .is_enabled()
            .then(|| self.demand.clone())
    }
}

impl TlsSettings {
    /// Replaces the certificates ([`ServerCertificates::set`]) and resumes the handshakes that wait for one of them.
    pub fn set_certificates(&self, certificates: Vec<Certificate>) {
        self.certificates.set(certificates);
        self.on_demand.release_covered(&self.certificates);
    }

    /// Rebuilds the settings of new connections from the current state, also for listeners that hold them already.
    ///
    /// # Errors
    /// Fails if rustls rejects the configuration: the provider lacks something, or the authority of client certificates
    /// is not usable.
    pub fn apply(&self) -> Result<CurrentSettings, rustls::Error> {
        let config = Arc::new(self.connection_settings(true)?);
        if let Some(current) = self.current.load_full() {
            current.store(config);
            return Ok(current);
        }
        let current = Arc::new(ArcSwap::new(config));
        self.current.store(Some(current.clone()));
        Ok(current)
    }

    /// Builds the settings of connections. `http2` allows a connection to negotiate HTTP/2.
    ///
    /// # Errors
    /// See [`TlsSettings::apply`].
    pub fn connection_settings(&self, http2: bool) -> Result<ConnectionSettings, rustls::Error> {
        let authority = self.client_authority.load_full();
        let clients: Arc<dyn ClientCertVerifier> = match &authority {
            Some(authority) => client_certificate::client_verifier(authority)?,
            None => rustls::server::WebPkiClientVerifier::no_client_auth(),
        };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(Arc::new(CertificateResolver {
                certificates: self.certificates.clone(),
                challenges: self.challenges.clone(),
                on_demand: self.on_demand.clone(),
            }));
        config.ticketer = self.tickets.clone();
        // Only tickets are used: sessions that the server does not store need no limit and are not lost at a restart.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.ignore_client_order = true;
        config.send_tls13_tickets = 2;
        config.max_early_data_size = 0;
        let protocols: &[&[u8]] = if http2 {
            &[b"h2", b"http/1.1", challenges::ACME_TLS_PROTOCOL]
        } else {
            &[b"http/1.1", challenges::ACME_TLS_PROTOCOL]
        };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(ConnectionSettings {
            config: Arc::new(config),
            asks_clients: authority.is_some(),
            demand: HandshakeHold {
                on_demand: self.on_demand.clone(),
                certificates: self.certificates.clone(),
            },
            early_sessions: authority.is_none().then(|| self.early_sessions.clone()),
        })
    }
}
