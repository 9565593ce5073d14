//! TLS to servers (`https://`). A server's certificate has to be valid for the host of the address, and signed by an
//! authority that the system trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` select others).

use std::io;
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The TLS configuration, or why there is none.
type TlsConfigResult = Result<Arc<ClientConfig>, String>;

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

/// Performs the TLS handshake with the server that `host` names.
pub(super) async fn connect<S>(host: &str, stream: S) -> io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let config = Arc::clone(&TLS_CONFIG.load());
    let config = config.as_ref().clone().map_err(io::Error::other)?;
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(config).connect(name, stream).await
}
