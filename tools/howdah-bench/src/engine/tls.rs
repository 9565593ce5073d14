//! TLS on the client side, with rustls driven by the event loop. Sessions are never resumed: the clients of a load test
//! represent different people, and resumption would flatter a server.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use quinn_proto::crypto::rustls::QuicClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, ConfigBuilder, DigitallySignedStruct,
    RootCertStore, SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion,
};

use crate::error::BenchError;
use crate::plan::{HttpProtocol, Plan, TlsVersion};

/// The TLS settings that all connections of a run share.
#[derive(Debug)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    /// The settings of QUIC, if the protocol is HTTP/3.
    quic: Option<quinn_proto::ClientConfig>,
}

impl TlsClient {
    /// Reads the authorities; fails if they or the server's name are not valid.
    pub fn new(plan: &Plan) -> Result<TlsClient, BenchError> {
        let options = &plan.connection.tls;
        let mut provider = rustls::crypto::ring::default_provider();
        select_ciphers(&mut provider.cipher_suites, &options.ciphers)?;
        let provider = Arc::new(provider);
        let versions: &[&SupportedProtocolVersion] = match options.version {
            Some(TlsVersion::Tls12) => &[&rustls::version::TLS12],
            Some(TlsVersion::Tls13) => &[&rustls::version::TLS13],
            // QUIC has no older version.
            None if plan.connection.protocol == HttpProtocol::Http3 => &[&rustls::version::TLS13],
            None => rustls::DEFAULT_VERSIONS,
        };
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(|e| {
                BenchError::Impossible(format!("the ciphers (-Z) and the version (-f) of TLS: {e}"))
            })?;
        let verifier: Arc<dyn ServerCertVerifier> = if options.verify {
            let roots = roots(options.ca_file.as_deref())?;
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|e| system("reading the certificate authorities", e))?
        } else {
            Arc::new(AcceptAnyCertificate(provider))
        };
        let builder = builder
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &options.client_certificate {
            Some(path) => client_certificate(path, builder)?,
            None => builder.with_no_client_auth(),
        };
        config.enable_sni = !options.no_sni;
        config.resumption = Resumption::disabled();
        config.alpn_protocols = match plan.connection.protocol {
            HttpProtocol::Http3 => vec![b"h3".to_vec()],
            HttpProtocol::Http2 => vec![b"h2".to_vec()],
            HttpProtocol::Http11 => vec![b"http/1.1".to_vec()],
            HttpProtocol::Http10 => Vec::new(),
        };
        let host = options
            .server_name
            .as_deref()
            .unwrap_or_else(|| plan.targets[0].host());
        let name = ServerName::try_from(host.to_owned()).map_err(|e| {
            BenchError::Impossible(format!("`{host}` cannot be a server name in TLS: {e}"))
        })?;
        let config = Arc::new(config);
        let quic = match plan.connection.protocol {
            HttpProtocol::Http3 => Some(quic_config(config.clone())?),
            _ => None,
        };
        Ok(TlsClient { config, name, quic })
    }

    /// Returns the settings of QUIC. `None` unless the protocol is HTTP/3.
    pub fn quic(&self) -> Option<&quinn_proto::ClientConfig> {
        self.quic.as_ref()
    }

    /// Returns the name that the server's certificate must have.
    pub fn server_name(&self) -> String {
        self.name.to_str().into_owned()
    }

    /// Begins TLS on a new connection.
    pub fn connect(&self) -> Result<Tls, String> {
        ClientConnection::new(self.config.clone(), self.name.clone())
            .map(|connection| Tls {
                connection,
                out: Vec::new(),
                out_sent: 0,
            })
            .map_err(|e| e.to_string())
    }
}

/// The flow control windows of QUIC, in bytes: large, so that the server is measured and not our window, as with HTTP/2.
const QUIC_STREAM_WINDOW: u32 = 1 << 24;
const QUIC_CONNECTION_WINDOW: u32 = 1 << 26;

/// Returns the settings of QUIC with these settings of TLS.
fn quic_config(tls: Arc<ClientConfig>) -> Result<quinn_proto::ClientConfig, BenchError> {
    let suites = rustls::crypto::ring::default_provider().cipher_suites;
    // The first packets are always protected with this suite (RFC 9001 §5.2), whichever ones -Z allows afterwards.
    let initial = suites
        .iter()
        .filter(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256)
        .find_map(|suite| suite.tls13()?.quic_suite());
    let initial =
        initial.ok_or_else(|| system("setting up QUIC", "its first cipher is missing"))?;
    let crypto =
        QuicClientConfig::with_initial(tls, initial).map_err(|e| system("setting up QUIC", e))?;
    let mut transport = quinn_proto::TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(0u32.into())
        .stream_receive_window(QUIC_STREAM_WINDOW.into())
        .receive_window(QUIC_CONNECTION_WINDOW.into())
        .send_window(u64::from(QUIC_CONNECTION_WINDOW))
        // The timeout of a request (-s) is ours, and the server's idle timeout holds for both sides.
        .max_idle_timeout(None);
    let mut config = quinn_proto::ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// Cipher suites and their OpenSSL names, which ab's `-Z` accepts.
const OPENSSL_CIPHER_NAMES: [(CipherSuite, &str); 9] = [
    (
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        "TLS_AES_128_GCM_SHA256",
    ),
    (
        CipherSuite::TLS13_AES_256_GCM_SHA384,
        "TLS_AES_256_GCM_SHA384",
    ),
    (
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        "TLS_CHACHA20_POLY1305_SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "ECDHE-ECDSA-AES128-GCM-SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        "ECDHE-ECDSA-AES256-GCM-SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        "ECDHE-RSA-AES128-GCM-SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        "ECDHE-RSA-AES256-GCM-SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        "ECDHE-RSA-CHACHA20-POLY1305",
    ),
];

/// Keeps the named suites, in the order of the names. Keeps all if there are no names.
fn select_ciphers(
    suites: &mut Vec<SupportedCipherSuite>,
    names: &[String],
) -> Result<(), BenchError> {
    if names.is_empty() {
        return Ok(());
    }
    let mut chosen = Vec::new();
    for name in names {
        let known = OPENSSL_CIPHER_NAMES
            .iter()
            .find(|(_, n)| n.eq_ignore_ascii_case(name));
        let suite = known.and_then(|(suite, _)| suites.iter().find(|s| s.suite() == *suite));
        let Some(suite) = suite else {
            let known: Vec<&str> = OPENSSL_CIPHER_NAMES.iter().map(|(_, name)| *name).collect();
            return Err(BenchError::Impossible(format!(
                "-Z: the cipher `{name}` is not one of {}",
                known.join(", ")
            )));
        };
        chosen.push(*suite);
    }
    *suites = chosen;
    Ok(())
}

/// Reads the client's certificate, its intermediate certificates, and its key from one PEM file, as ab's `-E` does.
fn client_certificate(
    path: &Path,
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
) -> Result<ClientConfig, BenchError> {
    let missing = |why: &dyn std::fmt::Display| BenchError::MissingFile {
        path: path.to_owned(),
        why: why.to_string(),
    };
    let certificates = CertificateDer::pem_file_iter(path).map_err(|e| missing(&e))?;
    let certificates: Vec<CertificateDer<'static>> = certificates
        .collect::<Result<_, _>>()
        .map_err(|e| missing(&e))?;
    if certificates.is_empty() {
        return Err(missing(&"the file contains no certificate"));
    }
    let key = PrivateKeyDer::from_pem_file(path)
        .map_err(|e| missing(&format!("no private key follows the certificate: {e}")))?;
    builder
        .with_client_auth_cert(certificates, key)
        .map_err(|e| missing(&e))
}

fn system(what: &str, why: impl std::fmt::Display) -> BenchError {
    BenchError::System {
        what: what.to_owned(),
        why: why.to_string(),
    }
}

fn roots(file: Option<&Path>) -> Result<RootCertStore, BenchError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if let Some(path) = file {
        let missing = |why: &dyn std::fmt::Display| BenchError::MissingFile {
            path: path.to_owned(),
            why: why.to_string(),
        };
        let certificates = CertificateDer::pem_file_iter(path).map_err(|e| missing(&e))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|e| missing(&e))?;
            roots.add(certificate).map_err(|e| missing(&e))?;
        }
    }
    if roots.is_empty() {
        return Err(BenchError::Impossible(
            "the system has no certificate authorities to verify the server's certificate with: install \
             ca-certificates, name a file with authorities (--ca), or do not verify certificates (--insecure)"
                .to_owned(),
        ));
    }
    Ok(roots)
}

/// The TLS state of one connection.
#[derive(Debug)]
pub struct Tls {
    connection: ClientConnection,
    /// Encrypted records that are waiting to be sent.
    out: Vec<u8>,
    out_sent: usize,
}

/// The result of reading decrypted bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum PlainRead {
    Bytes(usize),
    /// There is nothing to read yet.
    WouldBlock,
    /// The server has ended the connection with close_notify.
    End,
    /// The server has ended the connection without close_notify.
    CutOff,
}

impl Tls {
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Returns the protocol that the handshake negotiated (ALPN).
    pub fn alpn(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// Returns the version and cipher in ab's format: `TLSv1.3,TLS13_AES_128_GCM_SHA256`.
    pub fn description(&self) -> Option<String> {
        let version = match self.connection.protocol_version()? {
            rustls::ProtocolVersion::TLSv1_2 => "TLSv1.2".to_owned(),
            rustls::ProtocolVersion::TLSv1_3 => "TLSv1.3".to_owned(),
            other => format!("{other:?}"),
        };
        let suite = self.connection.negotiated_cipher_suite()?;
        Some(format!("{version},{:?}", suite.suite()))
    }

    /// Takes records from the socket. An empty slice means that the connection has ended.
    pub fn take(&mut self, mut records: &[u8]) -> Result<(), String> {
        if records.is_empty() {
            // Tells rustls that the connection has ended. The slice is empty, so this cannot fail.
            let _ = self.connection.read_tls(&mut records);
        }
        while !records.is_empty() {
            match self.connection.read_tls(&mut records) {
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            }
            self.process()?;
        }
        self.process()
    }

    fn process(&mut self) -> Result<(), String> {
        self.connection
            .process_new_packets()
            .map(|_| ())
            .map_err(|e| e.to_string())
    }

    /// Reads decrypted bytes into `buffer`.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<PlainRead, String> {
        match self.connection.reader().read(buffer) {
            Ok(0) => Ok(PlainRead::End),
            Ok(length) => Ok(PlainRead::Bytes(length)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => Ok(PlainRead::WouldBlock),
                io::ErrorKind::UnexpectedEof => Ok(PlainRead::CutOff),
                _ => Err(error.to_string()),
            },
        }
    }

    /// Encrypts a piece of plain text, at most one record. Returns how many bytes it consumed.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let piece = &bytes[..bytes.len().min(16 << 10)];
        self.connection.writer().write(piece).unwrap_or(0)
    }

    /// Returns the records that are waiting to be sent; empty if there are none.
    pub fn pending(&mut self) -> &[u8] {
        if self.out_sent == self.out.len() {
            self.out.clear();
            self.out_sent = 0;
            while self.connection.wants_write() {
                // Writing to a vector cannot fail.
                let _ = self.connection.write_tls(&mut self.out);
            }
        }
        &self.out[self.out_sent..]
    }

    /// Removes the bytes that were sent from [`Tls::pending`].
    pub fn sent(&mut self, bytes: usize) {
        self.out_sent += bytes;
    }
}

/// Accepts any certificate, as ab does. Signatures are still verified, because real clients spend time on them too.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
