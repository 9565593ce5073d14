//! Versions, cipher suites and protocols of a TLS listener, and the names they have elsewhere. The
//! defaults are rustls': TLS 1.3 and 1.2, forward secrecy and AEAD only, X25519MLKEM768 first. The server
//! chooses the cipher suite, AES-128 before AES-256: the cheaper one, and as secure.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::danger::ClientCertVerifier;
use rustls::{CipherSuite, ServerConfig};

use super::certificates::Certificates;
use super::challenges::{self, Challenges, Resolver};
use super::client_certificate::{self, ClientAuthority};
use super::on_demand::OnDemand;
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
}

impl TlsSettings {
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
        })
    }
}

/// The cryptography of all listeners.
pub fn provider() -> Arc<CryptoProvider> {
    use aws_lc_rs::cipher_suite::*;
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            TLS13_AES_128_GCM_SHA256,
            TLS13_AES_256_GCM_SHA384,
            TLS13_CHACHA20_POLY1305_SHA256,
            TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ],
        ..aws_lc_rs::default_provider()
    })
}

/// OpenSSL's name of a cipher suite, as `SSL_CIPHER` has it under Apache and nginx.
pub(super) fn openssl_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => "ECDHE-ECDSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => "ECDHE-ECDSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => {
            "ECDHE-ECDSA-CHACHA20-POLY1305"
        }
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => "ECDHE-RSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => "ECDHE-RSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-RSA-CHACHA20-POLY1305",
        _ => "unknown",
    }
}
