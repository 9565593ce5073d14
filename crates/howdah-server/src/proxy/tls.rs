//! TLS to servers (`https://`). A server's certificate has to be valid for the host of the address, or for the name in
//! `name=`, and signed by an authority that the system trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` select others). With
//! `https+insecure://`, every certificate is accepted.

use std::io;
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The TLS configuration, or why there is none.
type TlsConfigResult = Result<Arc<ClientConfig>, String>;

/// The TLS configuration for servers whose certificates are not verified.
static ANY_CERTIFICATE_CONFIG: LazyLock<TlsConfigResult> = LazyLock::new(|| {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
});

static TLS_CONFIG: LazyLock<ArcSwap<TlsConfigResult>> =
    LazyLock::new(|| ArcSwap::from_pointee(load()));

/// Reads the certificate authorities again. Call this for each configuration that has an `https://` server.
pub(super) fn reload() {
    TLS_CONFIG.store(Arc::new(load()));
}

fn load() -> TlsConfigResult {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (trusted, _) = roots.add_parsable_certificates(found.certs);
    if trusted == 0 {
        let why = found.errors.first().map(|error| format!(": {error}"));
        return Err(format!(
            "this machine trusts no certificate authority{}; install ca-certificates",
            why.unwrap_or_default()
        ));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Performs the TLS handshake with a server whose certificate has to be valid for `host`.
pub(super) async fn connect<S>(host: &str, stream: S) -> io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let config = Arc::clone(&TLS_CONFIG.load());
    handshake(config.as_ref(), host, stream).await
}

/// Performs the TLS handshake with a server whose certificate is not verified.
pub(super) async fn connect_to_any<S>(host: &str, stream: S) -> io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    handshake(&ANY_CERTIFICATE_CONFIG, host, stream).await
}

async fn handshake<S>(config: &TlsConfigResult, host: &str, stream: S) -> io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let config = config.clone().map_err(io::Error::other)?;
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(config).connect(name, stream).await
}

/// Accepts every certificate whose key the server has.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
