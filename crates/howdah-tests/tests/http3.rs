//! HTTP/3 through the whole program: UDP sockets of the master, the front's endpoints, PHP; a reload and the
//! front's death. Most of HTTP/3 is tested within howdah-server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use howdah_tests::fixture::{Fixture, signal};
use howdah_tests::pki::Pki;
use http::Request;
use quinn::Endpoint;
use quinn::crypto::rustls::QuicClientConfig;
use rustix::process::Signal;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

const SCRIPT: &str = "<?php header('Content-Type: application/json');
    $_SERVER['BODY'] = strlen(file_get_contents('php://input')); echo json_encode($_SERVER);";
const WHEN: Duration = Duration::from_secs(60);

struct Visitor {
    quic: quinn::Connection,
    send: SendRequest<h3_quinn::OpenStreams, Bytes>,
    _endpoint: Endpoint,
}

async fn visit(authority: PathBuf, address: SocketAddr) -> Visitor {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(authority).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let config = QuicClientConfig::try_from(tls).unwrap();
    let mut endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(config)));
    let connecting = endpoint.connect(address, "example.org").unwrap();
    let quic = tokio::time::timeout(WHEN, connecting).await.unwrap();
    let quic = quic.unwrap();
    let transport = h3_quinn::Connection::new(quic.clone());
    let (mut driver, send) = h3::client::new(transport).await.unwrap();
    tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
    Visitor {
        quic,
        send,
        _endpoint: endpoint,
    }
}

impl Visitor {
    async fn ask(&mut self, path: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
        tokio::time::timeout(WHEN, self.try_ask(path, body))
            .await
            .unwrap()
            .unwrap()
    }

    /// Asks until the page comes from the cache.
    async fn until_stored(&mut self, path: &str) {
        let asking = async {
            loop {
                let uri = format!("https://example.org{path}");
                let request = Request::get(uri).body(()).unwrap();
                let mut stream = self.send.send_request(request).await.unwrap();
                stream.finish().await.unwrap();
                let head = stream.recv_response().await.unwrap();
                if head.headers().get("x-cache").is_some_and(|x| x == "HIT") {
                    return;
                }
            }
        };
        tokio::time::timeout(WHEN, asking).await.unwrap();
    }

    async fn try_ask(
        &mut self,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(u16, Vec<u8>), h3::error::StreamError> {
        let method = if body.is_empty() { "GET" } else { "POST" };
        let uri = format!("https://example.org{path}");
        let request = Request::builder().method(method).uri(uri).body(()).unwrap();
        let mut stream = self.send.send_request(request).await?;
        if !body.is_empty() {
            stream.send_data(Bytes::from(body)).await?;
        }
        stream.finish().await?;
        let head = stream.recv_response().await?;
        let mut body = Vec::new();
        while let Some(mut data) = stream.recv_data().await? {
            body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        }
        Ok((head.status().as_u16(), body))
    }
}

#[test]
fn a_site_is_served_over_http3_through_a_reload_and_again_after_the_fronts_death() {
    let large: Vec<u8> = (0..5_000_000u32).map(|n| n as u8).collect();
    let builder = Fixture::named("http3")
        .script("server.php", SCRIPT)
        .script(
            "page.php",
            "<?php header('Cache-Control: public, max-age=60'); echo 'page';",
        )
        .file("large.bin", &large)
        .argument("--listen", "127.0.0.1:0 tls http3");
    let pki = Pki::new(builder.scratch().path());
    pki.sign("site", &["example.org"]);
    let authority = builder.scratch().path().join("ca.pem");
    let fixture = builder
        .site("hosts = [\"example.org\"]\ncache = \"rfc\"")
        .site(&Pki::site("site"))
        .start();
    let address = fixture.tls_address();
    let told = pki.get(address, "example.org", "/server.php", &["-i"]);
    let told = told.to_ascii_lowercase();
    let alternative = format!("alt-svc: h3=\":{}\"; ma=86400", address.port());
    assert!(told.contains(&alternative), "{told}");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut visitor = visit(authority.clone(), address).await;
        let (status, body) = visitor.ask("/server.php?a=1", vec![b'x'; 3_000_000]).await;
        assert_eq!(status, 200);
        let server: serde_json::Value = serde_json::from_slice(&body).unwrap();
        for (name, value) in [
            ("SERVER_PROTOCOL", "HTTP/3.0"),
            ("HTTPS", "on"),
            ("SSL_PROTOCOL", "TLSv1.3"),
            ("SSL_CIPHER", "TLS_AES_128_GCM_SHA256"),
            ("REQUEST_METHOD", "POST"),
            ("QUERY_STRING", "a=1"),
            ("REMOTE_ADDR", "127.0.0.1"),
            ("SERVER_PORT", &address.port().to_string()),
        ] {
            assert_eq!(server[name], value, "{name}");
        }
        assert_eq!(server["BODY"], 3_000_000);
        assert!(visitor.ask("/large.bin", Vec::new()).await.1 == large);
        assert_eq!(visitor.ask("/none", Vec::new()).await.0, 404);
        visitor.until_stored("/page.php").await;

        fixture.reload();
        assert_eq!(visitor.ask("/server.php", Vec::new()).await.0, 200);
        assert!(visitor.quic.close_reason().is_none());
        fixture.wait("its line", |f| {
            let lines = f.access_log();
            lines
                .last()
                .is_some_and(|l| l.contains("GET /server.php HTTP/3.0"))
        });

        let front = fixture.front();
        signal(front, Signal::KILL);
        fixture.wait("another front serves", |f| {
            f.try_front().is_some_and(|new| new != front) && f.control(&["status"]).status.success()
        });
        // The new front does not know the connection, and says so.
        let _ = visitor.try_ask("/server.php", Vec::new()).await;
        let why = tokio::time::timeout(WHEN, visitor.quic.closed()).await;
        assert_eq!(why.unwrap(), quinn::ConnectionError::Reset);
        let mut again = visit(authority, address).await;
        assert_eq!(again.ask("/server.php", Vec::new()).await.0, 200);
    });
}
