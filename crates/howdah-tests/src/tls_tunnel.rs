//! A [`TlsTunnel`] accepts connections without TLS and forwards their bytes with TLS, so clients without TLS can send
//! requests to an HTTPS server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

/// Returns the settings of a client that trusts `authority` (a PEM file) and speaks `protocol` (an ALPN name).
///
/// # Panics
/// If the file cannot be used.
pub fn client_config(authority: &Path, protocol: &[u8]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(authority).expect("a certificate in PEM form");
    roots.add(authority).expect("a certificate");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("rustls' own versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    config
}

/// A tunnel; see the module. Dropping it ends its connections.
pub struct TlsTunnel {
    address: SocketAddr,
    _runtime: Runtime,
}

impl TlsTunnel {
    /// Starts a tunnel to the server at `server`. The tunnel verifies the server's certificate according to `config`,
    /// and sends no server name (SNI).
    ///
    /// # Errors
    /// No port or thread is available.
    pub fn start(config: ClientConfig, server: SocketAddr) -> io::Result<TlsTunnel> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        let connector = TlsConnector::from(Arc::new(config));
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let connector = connector.clone();
                // An error closes both sides, so the client sees it.
                tokio::spawn(async move { pass(client, &connector, server).await });
            }
        });
        Ok(TlsTunnel {
            address,
            _runtime: runtime,
        })
    }

    /// Returns the address on which the tunnel listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn pass(
    mut client: TcpStream,
    connector: &TlsConnector,
    server: SocketAddr,
) -> io::Result<()> {
    let stream = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    stream.set_nodelay(true)?;
    let name = ServerName::IpAddress(server.ip().into());
    let mut stream = connector.connect(name, stream).await?;
    copy_bidirectional(&mut client, &mut stream).await?;
    Ok(())
}
