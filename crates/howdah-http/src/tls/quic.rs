//! TLS inside QUIC: quinn drives rustls there, and exposes less of a handshake than `session` sees. The facts that
//! requests need are recorded where rustls asks for a certificate and for the keys of a ticket.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::{hkdf, hmac};
use quinn::crypto::rustls::{HandshakeData, NoInitialCipherSuite, QuicServerConfig};
use quinn::crypto::{HandshakeTokenKey, HmacKey};
use rustls::CipherSuite;
use rustls::pki_types::CertificateDer;
use rustls::server::{
    ClientHello, ProducesTickets, ResolvesServerCert, ServerSessionMemoryCache,
    StoresServerSessions,
};
use rustls::sign::CertifiedKey;

use super::certificates::{self, RequestedName};
use super::challenges;
use super::client_certificate;
use super::crypto::openssl_name;
use super::on_demand::HandshakeHold;
use super::session::NegotiatedTls;
use super::settings::ConnectionSettings;
use super::tickets::TicketKeys;

/// The protocol's ALPN name.
const HTTP3_PROTOCOL: &[u8] = b"h3";
/// The maximum number of stored sessions for clients that return. The oldest are evicted.
const MAX_EARLY_SESSIONS: usize = 16 << 10;

/// The sessions of HTTP/3, stored by the server. The first packets of a resumed session (0-RTT) can be recorded and
/// replayed, so each session is valid for only one connection (RFC 8446 §8.1). Shared by all threads; they survive a
/// reload but not a restart of the front.
#[derive(Clone, Debug)]
pub struct EarlySessions(Arc<ServerSessionMemoryCache>);

impl Default for EarlySessions {
    fn default() -> EarlySessions {
        EarlySessions(ServerSessionMemoryCache::new(MAX_EARLY_SESSIONS))
    }
}

/// Records the facts of one handshake, as far as rustls exposes them.
#[derive(Clone, Debug)]
pub(crate) struct HandshakeWitness {
    seen: Arc<HandshakeObserver>,
    asks_clients: bool,
}

struct HandshakeObserver {
    certificates: Arc<dyn ResolvesServerCert>,
    tickets: Arc<dyn ProducesTickets>,
    /// Used instead of tickets if requests may arrive as early data.
    sessions: Option<EarlySessions>,
    demand: HandshakeHold,
    client: Option<IpAddr>,
    /// The maximum head length that SETTINGS allow. The client also respects it in the first packets of its next
    /// connection.
    told: [u8; 8],
    /// The cipher suites of TLS 1.3, in the order of the server's preference.
    suites: Vec<CipherSuite>,
    asked: Mutex<Option<(RequestedName, Option<CipherSuite>)>>,
    resumed: AtomicBool,
}

impl fmt::Debug for HandshakeObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.asked)
    }
}

impl ConnectionSettings {
    /// Returns the settings of one QUIC connection and the witness of its handshake. `longest_head` is the maximum head
    /// length in SETTINGS; `client` is the client's address if the client has proved it.
    ///
    /// # Errors
    /// The provider lacks the cipher suite of initial packets.
    pub(crate) fn for_quic(
        &self,
        longest_head: u64,
        client: Option<IpAddr>,
    ) -> Result<(QuicServerConfig, HandshakeWitness), NoInitialCipherSuite> {
        let mut config = (*self.config).clone();
        let suites = config.crypto_provider().cipher_suites.iter();
        let seen = Arc::new(HandshakeObserver {
            certificates: config.cert_resolver.clone(),
            tickets: config.ticketer.clone(),
            sessions: self.early_sessions.clone(),
            demand: self.demand.clone(),
            client,
            told: longest_head.to_be_bytes(),
            suites: suites
                .filter(|suite| suite.tls13().is_some())
                .map(|suite| suite.suite())
                .collect(),
            asked: Mutex::default(),
            resumed: AtomicBool::new(false),
        });
        config.cert_resolver = seen.clone();
        config.ticketer = seen.clone();
        if self.early_sessions.is_some() {
            config.session_storage = seen.clone();
            config.max_early_data_size = u32::MAX;
            // A client needs one connection at a time, and each connection gives it the next session.
            config.send_tls13_tickets = 1;
        }
        config.alpn_protocols = vec![HTTP3_PROTOCOL.to_vec()];
        let witness = HandshakeWitness {
            seen,
            asks_clients: self.asks_clients,
        };
        Ok((Arc::new(config).try_into()?, witness))
    }
}

impl ResolvesServerCert for HandshakeObserver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let offered = hello.cipher_suites();
        let suite = self.suites.iter().find(|own| offered.contains(own));
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let name = name.filter(|_| !challenges::is_acme_challenge(&hello));
        let found = self.certificates.resolve(hello);
        if let Some(name) = name.filter(|_| found.is_none()) {
            self.demand.report_name(&name, self.client);
        }
        let asked = certificates::take_requested_name().unwrap_or_default();
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some((asked, suite.copied()));
        found
    }
}

impl ProducesTickets for HandshakeObserver {
    fn enabled(&self) -> bool {
        self.sessions.is_none() && self.tickets.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.tickets.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.tickets.encrypt(plain)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let plain = self.tickets.decrypt(ticket);
        // A client that has a ticket also has its secret, or the handshake fails.
        self.resumed.fetch_or(plain.is_some(), Ordering::Relaxed);
        plain
    }
}

impl HandshakeObserver {
    fn key(&self, key: &[u8]) -> Vec<u8> {
        [key, &self.told].concat()
    }
}

impl StoresServerSessions for HandshakeObserver {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let sessions = self.sessions.as_ref();
        sessions.is_some_and(|sessions| sessions.0.put(self.key(&key), value))
    }

    /// Returns `None`: rustls calls this for TLS 1.2, which resumes a session more than once. QUIC has TLS 1.3 (RFC
    /// 9001 §4.2), for which rustls calls `take`.
    fn get(&self, _key: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let found = self.sessions.as_ref()?.0.take(&self.key(key));
        // As with a ticket, a client that does not have the session's secret fails the handshake.
        self.resumed.fetch_or(found.is_some(), Ordering::Relaxed);
        found
    }

    fn can_cache(&self) -> bool {
        self.sessions.is_some()
    }
}

impl HandshakeWitness {
    /// Returns whether requests may arrive before the handshake ends. Valid once rustls has read the client's first
    /// message.
    pub(crate) fn may_be_early(&self) -> bool {
        self.seen.sessions.is_some() && self.seen.resumed.load(Ordering::Relaxed)
    }

    /// Returns the result of the connection's handshake.
    pub(crate) fn agreed(&self, connection: &quinn::Connection) -> NegotiatedTls {
        let seen = &self.seen;
        let asked = seen.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let (asked, suite) = asked.clone().unwrap_or_default();
        let data = connection.handshake_data();
        let data = data.and_then(|data| data.downcast::<HandshakeData>().ok());
        let named = data.and_then(|data| data.server_name);
        let identity = connection.peer_identity();
        let chain = identity.and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
        let certificate = chain.as_ref().and_then(|chain| chain.first());
        NegotiatedTls {
            protocol: "TLSv1.3",
            cipher: suite.map_or("unknown", openssl_name),
            server_name: asked.name.filter(|_| named.is_some()),
            http2: false,
            challenge: false,
            resumed: seen.resumed.load(Ordering::Relaxed),
            client: match self.asks_clients {
                true => client_certificate::client_variables(certificate),
                false => Vec::new(),
            },
            names: asked.names,
        }
    }
}

/// Secrets that all QUIC endpoints of the server share, because a packet or a token may arrive at another endpoint than
/// the one it was made for.
#[derive(Clone)]
pub(crate) struct QuicSecrets {
    /// The key of tokens that prove that the client has received packets at its address.
    pub(crate) tokens: Arc<dyn HandshakeTokenKey>,
    /// The key of tokens that tell a client that its connection no longer exists (RFC 9000 §10.3).
    pub(crate) resets: Arc<dyn HmacKey>,
}

impl QuicSecrets {
    /// Derives the secrets from the ticket keys, so they outlive the front until those keys rotate.
    pub(crate) fn new(tickets: &TicketKeys) -> QuicSecrets {
        let secret = tickets.derive(b"quic").unwrap_or_else(|| {
            let mut random = [0; 32];
            // This fails only if the kernel has no random bytes, and then handshakes fail as well.
            let _ = aws_lc_rs::rand::fill(&mut random);
            random
        });
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"tokens");
        QuicSecrets {
            tokens: Arc::new(salt.extract(&secret)),
            resets: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &secret)),
        }
    }
}
