//! HTTP/1.1 over TLS, with rustls as a client.

use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::tls::TlsSettings;
use crate::tls::certificates::{BadCertificate, Certificate};
use crate::tls::client_certificate::ClientAuthority;
use crate::tls::crypto::provider;
use crate::tls::tickets::KEY_BYTES;

/// A server's certificates, and the authority that a client trusts for them.
pub(super) struct TestPki {
    settings: TlsSettings,
    roots: RootCertStore,
}

/// Creates a chain and a key in PEM form, signed by a new authority.
fn made(
    names: &[&str],
    algorithm: &'static rcgen::SignatureAlgorithm,
) -> (String, String, Vec<u8>) {
    let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let certificate = rcgen::CertificateParams::new(names)
        .unwrap()
        .self_signed(&key)
        .unwrap();
    (
        certificate.pem(),
        key.serialize_pem(),
        certificate.der().to_vec(),
    )
}

impl TestPki {
    fn of(each: &[(&[&str], &'static rcgen::SignatureAlgorithm)]) -> TestPki {
        let mut roots = RootCertStore::empty();
        let certificates: Vec<Certificate> = each
            .iter()
            .map(|(names, algorithm)| {
                let (chain, key, der) = made(names, algorithm);
                roots.add(der.into()).unwrap();
                Certificate::parse(chain.as_bytes(), key.as_bytes(), &provider()).unwrap()
            })
            .collect();
        let settings = TlsSettings::default();
        settings.certificates.set(certificates);
        settings.tickets.set(&[[7; KEY_BYTES]], b"");
        TestPki { settings, roots }
    }

    pub(super) fn settings(&self) -> &TlsSettings {
        &self.settings
    }

    /// Makes the server ask clients for a certificate, which they need not have.
    pub(super) fn ask_clients(&self) {
        let (authority, ..) = made(&["clients.example"], &rcgen::PKCS_ECDSA_P256_SHA256);
        let authority = ClientAuthority {
            certificates: authority.into_bytes(),
            required: false,
        };
        let current = &self.settings.client_authority;
        current.store(Some(Arc::new(authority)));
    }

    pub(super) fn one() -> TestPki {
        TestPki::of(&[(&["example.org"], &rcgen::PKCS_ECDSA_P256_SHA256)])
    }

    fn server(&self, config: HttpConfig) -> TestClient {
        let beginning = ConnectionSetup {
            h2c: false,
            proxies: None,
            tls: Some(self.settings.apply().unwrap()),
        };
        TestClient::beginning(config, beginning)
    }

    pub(super) fn client(
        &self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ClientConfig> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        Arc::new(config)
    }
}

/// A client's side after the handshake.
struct OpenTlsClient {
    stream: TlsStream<UnixStream>,
    server: JoinHandle<()>,
}

async fn open(server: TestClient, config: &Arc<ClientConfig>, name: &str) -> OpenTlsClient {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = TlsConnector::from(config.clone()).connect(name, server.stream);
    OpenTlsClient {
        stream: stream.await.unwrap(),
        server: server.server,
    }
}

impl OpenTlsClient {
    /// Sends a request that ends the connection, and returns the whole response.
    async fn last(self, request: &str, body: &[u8]) -> Vec<u8> {
        let head = format!(
            "{request} HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let (mut from, mut to) = tokio::io::split(self.stream);
        let sending = async {
            to.write_all(head.as_bytes()).await.unwrap();
            to.write_all(body).await.unwrap();
            to.flush().await.unwrap();
        };
        let mut answer = Vec::new();
        let (_, read) = tokio::join!(sending, from.read_to_end(&mut answer));
        // An end without close_notify would be an error here.
        read.unwrap();
        drop((from, to));
        self.server.await.unwrap();
        answer
    }
}

fn body_of(answer: &[u8]) -> &[u8] {
    let head = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    &answer[head + 4..]
}

const ANY: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

#[tokio::test]
async fn tls_version_cipher_and_server_name_reach_the_handler() {
    let pki = TestPki::one();
    for (versions, protocol, cipher) in [
        (
            &[&rustls::version::TLS13],
            "TLSv1.3",
            "TLS_AES_128_GCM_SHA256",
        ),
        (
            &[&rustls::version::TLS12],
            "TLSv1.2",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
        ),
    ] {
        let client = pki.client(versions);
        let open = open(pki.server(HttpConfig::for_tests()), &client, "example.org").await;
        let answer = open.last("GET /tls", b"").await;
        let answer = String::from_utf8_lossy(body_of(&answer)).into_owned();
        for part in [
            protocol,
            cipher,
            "server_name: Some(\"example.org\")",
            "http2: false",
        ] {
            assert!(answer.contains(part), "{part}: {answer}");
        }
    }
}

#[tokio::test]
async fn tls_connection_serves_several_requests() {
    let pki = TestPki::one();
    let mut open = open(
        pki.server(HttpConfig::for_tests()),
        &pki.client(ANY),
        "example.org",
    )
    .await;
    for _ in 0..3 {
        open.stream
            .write_all(b"GET /hello HTTP/1.1\r\nHost: example.org\r\n\r\n")
            .await
            .unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"hello") {
            assert!(open.stream.read_buf(&mut answer).await.unwrap() > 0);
        }
    }
    let answer = open.last("GET /hello", b"").await;
    assert!(answer.ends_with(b"hello"));
}

#[tokio::test]
async fn tls_bodies_and_files_arrive_whole_in_both_directions() {
    let pki = TestPki::one();
    for versions in [&[&rustls::version::TLS13], &[&rustls::version::TLS12]] {
        let client = pki.client(versions);
        let body: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 253) as u8).collect();
        let echoing = open(pki.server(HttpConfig::for_tests()), &client, "example.org").await;
        let answer = echoing.last("POST /echo", &body).await;
        assert!(body_of(&answer) == body, "{} bytes", answer.len());
        let sending = open(pki.server(HttpConfig::for_tests()), &client, "example.org").await;
        let answer = sending.last("GET /file", b"").await;
        let file: Vec<u8> = (0..FILE_LEN).map(|n| (n % 251) as u8).collect();
        assert!(body_of(&answer) == file, "{} bytes", answer.len());
    }
}

#[tokio::test]
async fn tls_ticket_resumes_a_session_while_its_key_is_known() {
    let pki = TestPki::one();
    for versions in [&[&rustls::version::TLS13], &[&rustls::version::TLS12]] {
        pki.settings.tickets.set(&[[1; KEY_BYTES]], b"");
        let client = pki.client(versions);
        let resumed = async || {
            let open = open(pki.server(HttpConfig::for_tests()), &client, "example.org").await;
            let answer = open.last("GET /tls", b"").await;
            String::from_utf8_lossy(&answer).contains("resumed: true")
        };
        assert!(!resumed().await);
        assert!(resumed().await);
        // After the rotation the former key still decrypts.
        pki.settings
            .tickets
            .set(&[[2; KEY_BYTES], [1; KEY_BYTES]], b"");
        assert!(resumed().await);
        pki.settings.tickets.set(&[[3; KEY_BYTES]], b"");
        assert!(!resumed().await);
    }
}

#[tokio::test]
async fn server_name_and_signature_schemes_choose_the_certificate() {
    let pki = TestPki::of(&[
        (&["first.org"], &rcgen::PKCS_ECDSA_P256_SHA256),
        (&["example.org", "*.example.org"], &rcgen::PKCS_ED25519),
        (&["example.org"], &rcgen::PKCS_ECDSA_P384_SHA384),
    ]);
    let client = pki.client(ANY);
    for name in ["first.org", "example.org", "a.example.org"] {
        let open = open(pki.server(HttpConfig::for_tests()), &client, name).await;
        assert!(
            open.last("GET /hello", b"").await.ends_with(b"hello"),
            "{name}"
        );
    }
    for name in ["other.org", "a.b.example.org"] {
        let server = pki.server(HttpConfig::for_tests());
        let name = ServerName::try_from(name).unwrap();
        let connected = TlsConnector::from(client.clone())
            .connect(name, server.stream)
            .await;
        assert!(
            connected.is_err(),
            "the first certificate does not cover it"
        );
        server.server.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn unfinished_tls_handshake_times_out() {
    for hello in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
        let mut server = TestPki::one().server(HttpConfig::for_tests());
        server.stream.write_all(hello).await.unwrap();
        let begun = tokio::time::Instant::now();
        let mut rest = Vec::new();
        server.stream.read_to_end(&mut rest).await.unwrap();
        server.server.await.unwrap();
        let took = begun.elapsed();
        assert!(
            took >= Duration::from_secs(9) && took < Duration::from_secs(12),
            "{took:?}"
        );
        assert!(
            server.script.seen()[0].contains("TimedOut"),
            "{:?}",
            server.script.seen()
        );
    }
}

#[tokio::test]
async fn tls_garbage_ends_in_an_alert() {
    for garbage in [&[0x16, 3, 1, 0, 5, 9, 9, 9, 9, 9][..], &[0xff; 70_000]] {
        let mut server = TestPki::one().server(HttpConfig::for_tests());
        let _ = server.stream.write_all(garbage).await;
        let mut rest = Vec::new();
        let _ = server.stream.read_to_end(&mut rest).await;
        server.server.await.unwrap();
        assert!(
            server.script.seen()[0].contains("Protocol"),
            "{:?}",
            server.script.seen()
        );
        assert!(rest.is_empty() || rest[0] == 0x15, "an alert: {rest:?}");
    }
}

#[tokio::test]
async fn plain_http_on_a_tls_port_is_refused_by_name() {
    let mut server = TestPki::one().server(HttpConfig::for_tests());
    let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    server.stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    server.stream.read_to_string(&mut answer).await.unwrap();
    server.server.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("Howdah-Error: PlainHttp"), "{answer}");
    let length = answer.split("\r\n\r\n").nth(1).unwrap().len();
    assert!(
        answer.contains(&format!("Content-Length: {length}\r\n")),
        "{answer}"
    );
}

#[test]
fn unusable_certificates_are_refused_by_name() {
    let (chain, key, _) = made(&["example.org"], &rcgen::PKCS_ECDSA_P256_SHA256);
    let (_, other, _) = made(&["example.org"], &rcgen::PKCS_ECDSA_P256_SHA256);
    let (nameless, its_key, _) = made(&[], &rcgen::PKCS_ECDSA_P256_SHA256);
    let parse = |chain: &str, key: &str| {
        Certificate::parse(chain.as_bytes(), key.as_bytes(), &provider())
            .err()
            .map(|e| e.name())
    };
    assert_eq!(parse(&chain, &key), None);
    assert_eq!(parse("", &key), Some("CertificateMissing"));
    assert_eq!(parse(&chain, ""), Some("CertificateKeyMissing"));
    assert_eq!(parse(&chain, &chain), Some("CertificateKeyMissing"));
    assert_eq!(parse(&chain, &other), Some("CertificateKeyMismatch"));
    assert_eq!(parse(&nameless, &its_key), Some("CertificateWithoutNames"));
    let cut = chain.replace("MII", "MIX");
    assert_eq!(parse(&cut, &key), Some("CertificateUnreadable"));
    let bad = Certificate::parse(b"", b"", &provider()).err();
    assert_eq!(bad, Some(BadCertificate::NoCertificate));
    let good = Certificate::parse(chain.as_bytes(), key.as_bytes(), &provider()).unwrap();
    assert!(good.covers("example.org") && !good.covers("a.example.org"));
}
