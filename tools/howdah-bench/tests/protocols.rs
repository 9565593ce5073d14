//! HTTPS and HTTP/2, against servers that are not ours: rustls, and the server of the `h2` crate.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use howdah_bench::engine::{RunControl, run};
use howdah_bench::error::BenchError;
use howdah_bench::outcome::Outcome;
use howdah_bench::plan::check::BodyCheck;
use howdah_bench::plan::{
    Arrivals, HttpProtocol, LoadTarget, PageLoad, Plan, RequestTemplate, Spacing, StopLimits,
    TlsVersion,
};
use howdah_bench::run::Run;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/tls")
        .join(name)
}

fn plan(url: &str, concurrency: u32, requests: u64) -> Plan {
    let stop = StopLimits {
        requests: Some(requests),
        time: None,
    };
    Plan::new(
        LoadTarget::parse(url).unwrap(),
        Arrivals::Closed { concurrency },
        stop,
    )
}

#[track_caller]
fn measure(plan: &Plan) -> Run {
    let run = run(plan, RunControl::default()).unwrap();
    run.balance().unwrap();
    run
}

/// HTTP/1.1 over TLS: responds with `ok` until the client disconnects. `/endless`: a body without an end marker, after
/// which the socket is closed.
fn https_server() -> SocketAddr {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificates: Vec<_> = CertificateDer::pem_file_iter(file("localhost.pem"))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let key = PrivateKeyDer::from_pem_file(file("localhost.key")).unwrap();
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (config, mut socket) = (config.clone(), socket.unwrap());
            std::thread::spawn(move || {
                let mut tls = rustls::ServerConnection::new(config).unwrap();
                let mut stream = rustls::Stream::new(&mut tls, &mut socket);
                let (mut request, mut piece) = (Vec::new(), [0; 4096]);
                while let Ok(length @ 1..) = stream.read(&mut piece) {
                    request.extend_from_slice(&piece[..length]);
                    if request.ends_with(b"\r\n\r\n") {
                        let answer = if request.starts_with(b"GET /endless ") {
                            "HTTP/1.1 200 OK\r\n\r\nno end of its own"
                        } else {
                            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
                        };
                        request.clear();
                        if stream.write_all(answer.as_bytes()).is_err() || answer.ends_with("own") {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

#[test]
fn https_accepts_any_certificate_unless_verified() {
    let address = https_server();
    let url = format!("https://localhost:{}/", address.port());
    let mut plan = plan(&url, 4, 200);
    let any = measure(&plan);
    assert_eq!((any.good(), any.errors()), (200, 0), "{:?}", any.reasons);
    let tls = any.connections.tls.unwrap();
    assert!(tls.starts_with("TLSv1.3,TLS13_"), "{tls}");
    assert_eq!(any.phases.connect.len(), any.connections.opened);

    plan.connection.tls.verify = true;
    plan.connection.tls.ca_file = Some(file("ca.pem"));
    assert_eq!(measure(&plan).good(), 200);
    plan.connection.tls.server_name = Some("other.example".to_owned());
    let error = run(&plan, RunControl::default()).unwrap_err();
    assert_eq!((error.name(), error.exit_code()), ("TlsRefused", 6));
    plan.connection.tls.ca_file = Some(file("nobody.pem"));
    let error = run(&plan, RunControl::default()).unwrap_err();
    assert!(matches!(error, BenchError::MissingFile { .. }), "{error}");
}

/// HTTPS with a request for a client certificate: responds with the result of the handshake and closes the connection.
fn client_certificate_server() -> SocketAddr {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(file("ca.pem")).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
        Arc::new(roots),
        provider.clone(),
    )
    .allow_unauthenticated()
    .build()
    .unwrap();
    let certificate = CertificateDer::from_pem_file(file("localhost.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(file("localhost.key")).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let mut tls = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = rustls::Stream::new(&mut tls, &mut socket);
            let mut request = [0; 4096];
            if !matches!(stream.read(&mut request), Ok(1..)) {
                continue;
            }
            let result = format!(
                "{:?} {:?} name={} certificates={}",
                tls.protocol_version().unwrap(),
                tls.negotiated_cipher_suite().unwrap().suite(),
                tls.server_name().unwrap_or("none"),
                tls.peer_certificates().map_or(0, <[_]>::len),
            );
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}", result.len());
            let mut stream = rustls::Stream::new(&mut tls, &mut socket);
            let _ =
                stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n{result}").as_bytes());
            tls.send_close_notify();
            let _ = tls.write_tls(&mut socket);
        }
    });
    address
}

#[test]
fn tls_options_are_applied() {
    let address = client_certificate_server();
    let mut plan = plan(&format!("https://localhost:{}/", address.port()), 1, 2);
    let expect = |plan: &Plan, expected: &str| {
        let mut plan = plan.clone();
        plan.checks.body = vec![BodyCheck::Contains(expected.to_owned())];
        let run = measure(&plan);
        assert_eq!(
            run.good(),
            2,
            "{expected}: {:?} {:?}",
            run.outcomes.keys(),
            run.reasons
        );
    };
    expect(&plan, "TLSv1_3 TLS13_");
    expect(&plan, "name=localhost certificates=0");
    plan.connection.tls.version = Some(TlsVersion::Tls12);
    plan.connection.tls.no_sni = true;
    expect(&plan, "TLSv1_2 TLS_ECDHE_");
    expect(&plan, "name=none");
    let mut agreed = 0;
    for (openssl, iana) in [
        (
            "ECDHE-RSA-CHACHA20-POLY1305",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        ),
        (
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        ),
    ] {
        plan.connection.tls.ciphers = vec![openssl.to_owned()];
        // Only one of the two cipher suites can succeed, depending on the kind of the server's key.
        if run(&plan, RunControl::default()).is_ok() {
            expect(&plan, iana);
            agreed += 1;
        }
    }
    assert_eq!(agreed, 1);
    plan.connection.tls.ciphers = vec!["TLS_AES_256_GCM_SHA384".to_owned()];
    let error = run(&plan, RunControl::default()).unwrap_err();
    assert!(
        error.to_string().contains("-Z") && error.to_string().contains("-f"),
        "{error}"
    );
    plan.connection.tls.version = None;
    expect(&plan, "TLSv1_3 TLS13_AES_256_GCM_SHA384");
    plan.connection.tls.ciphers = vec!["RC4-MD5".to_owned()];
    let error = run(&plan, RunControl::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the cipher `RC4-MD5` is not one of TLS_AES_128"),
        "{error}"
    );

    plan.connection.tls.ciphers.clear();
    let dir = tempfile::tempdir().unwrap();
    let pem = dir.path().join("client.pem");
    let certificate = std::fs::read_to_string(file("localhost.pem")).unwrap();
    std::fs::write(&pem, &certificate).unwrap();
    plan.connection.tls.client_certificate = Some(pem.clone());
    let error = run(&plan, RunControl::default()).unwrap_err();
    assert!(error.to_string().contains("no private key"), "{error}");
    let key = std::fs::read_to_string(file("localhost.key")).unwrap();
    std::fs::write(&pem, certificate + &key).unwrap();
    expect(&plan, "certificates=1");
}

#[test]
fn connection_uses_local_address_and_buffer_sizes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let (mut socket, peer) = listener.accept().unwrap();
        let mut request = [0; 4096];
        assert!(socket.read(&mut request).unwrap() > 0);
        socket
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .unwrap();
        peer.ip().to_string()
    });
    let mut plan = plan(&format!("http://{address}/"), 1, 1);
    plan.connection.bind = Some("127.0.0.7".parse().unwrap());
    plan.connection.buffers = Some(16384);
    assert_eq!(measure(&plan).good(), 1);
    assert_eq!(peer.join().unwrap(), "127.0.0.7");
    for (local, why) in [("192.0.2.1", "cannot send from"), ("::1", "cannot reach")] {
        plan.connection.bind = Some(local.parse().unwrap());
        let error = run(&plan, RunControl::default()).unwrap_err();
        assert!(error.to_string().contains(why), "{local}: {error}");
    }
}

#[test]
fn tls_without_close_notify_truncates_the_body() {
    let address = https_server();
    let url = format!("https://localhost:{}/endless", address.port());
    let run = measure(&plan(&url, 2, 10));
    assert_eq!(
        run.count(Outcome::Truncated),
        10,
        "{:?}",
        run.outcomes.keys()
    );
}

#[test]
fn tls_and_http2_refusals_are_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let plain = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let _ = socket.read(&mut [0; 1024]);
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    let url = format!("https://localhost:{}/", plain.port());
    let error = run(&plan(&url, 1, 1), RunControl::default()).unwrap_err();
    assert_eq!(error.name(), "TlsRefused");
    let url = format!("https://localhost:{}/", https_server().port());
    let mut http2 = plan(&url, 1, 1);
    http2.connection.protocol = HttpProtocol::Http2;
    let error = run(&http2, RunControl::default()).unwrap_err();
    assert_eq!(error.name(), "TlsRefused", "{error}");
}

/// HTTP/2 with prior knowledge. `/500`: an error; `/reset`: the stream is reset; `/cut`: it is reset after the header;
/// `/silent`: no response; `/leave`: GOAWAY after ten; otherwise the request's body, or `ok`.
struct Http2Server {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
}

fn http2_server() -> Http2Server {
    http2_server_for(0)
}

/// Starts a server that responds only when `expected` connections have been opened. Otherwise one thread of the tester
/// may send all requests before another has begun.
fn http2_server_for(expected: u64) -> Http2Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicU64::new(0));
    let connections = Arc::new(AtomicU64::new(0));
    let counted = (requests.clone(), connections.clone());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime.unwrap(), async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let (opened, _) = tokio::sync::watch::channel(0);
            while let Ok((socket, _)) = listener.accept().await {
                let (requests, connections) = counted.clone();
                connections.fetch_add(1, Ordering::Relaxed);
                opened.send_modify(|count| *count += 1);
                let opened = opened.subscribe();
                tokio::task::spawn_local(async move {
                    let mut connection = h2::server::Builder::new()
                        .max_concurrent_streams(8)
                        .handshake::<_, Bytes>(socket)
                        .await
                        .unwrap();
                    let mut served = 0;
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        requests.fetch_add(1, Ordering::Relaxed);
                        served += 1;
                        if request.uri().path() == "/leave" && served == 10 {
                            connection.graceful_shutdown();
                        }
                        let mut opened = opened.clone();
                        tokio::task::spawn_local(async move {
                            let are_all_open = opened.wait_for(|count| *count >= expected).await;
                            drop(are_all_open.expect("the server runs as long as the test"));
                            answer(request, respond).await;
                        });
                    }
                });
            }
        });
    });
    Http2Server {
        address,
        requests,
        connections,
    }
}

async fn answer(
    mut request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) {
    let path = request.uri().path().to_owned();
    let mut body = Vec::new();
    while let Some(Ok(data)) = request.body_mut().data().await {
        request
            .body_mut()
            .flow_control()
            .release_capacity(data.len())
            .unwrap();
        body.extend_from_slice(&data);
    }
    let priority = request.headers().get("priority");
    let status = match path.as_str() {
        "/500" => 500,
        "/page" if priority.is_some_and(|value| value != "u=0") => 400,
        part if part.starts_with("/part") && priority.is_none_or(|value| value != "u=5, i") => 400,
        _ => 200,
    };
    let response = http::Response::builder()
        .status(status)
        .header("server", "h2");
    match path.as_str() {
        "/reset" => respond.send_reset(h2::Reason::INTERNAL_ERROR),
        "/silent" => {
            // Keeps the stream open until the client resets it.
            let _ = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
        }
        "/cut" => {
            let mut stream = respond
                .send_response(response.body(()).unwrap(), false)
                .unwrap();
            stream
                .send_data(Bytes::from_static(b"part"), false)
                .unwrap();
            // A reset discards data that is still queued, so the connection has to write first.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            stream.send_reset(h2::Reason::CANCEL);
        }
        _ => {
            let body = match path.as_str() {
                "/authority" => request.uri().authority().unwrap().to_string().into_bytes(),
                _ if body.is_empty() => b"ok".to_vec(),
                _ => body,
            };
            let mut stream = respond
                .send_response(response.body(()).unwrap(), false)
                .unwrap();
            stream.send_data(Bytes::from(body), true).unwrap();
        }
    }
}

fn http2_plan(server: &Http2Server, path: &str, concurrency: u32, requests: u64) -> Plan {
    let mut plan = plan(
        &format!("http://{}{path}", server.address),
        concurrency,
        requests,
    );
    plan.connection.protocol = HttpProtocol::Http2;
    plan
}

#[test]
fn http2_counts_are_exact() {
    for (threads, streams, concurrency, connections) in [(1, 1, 4, 4), (1, 4, 8, 2), (2, 20, 20, 2)]
    {
        let server = http2_server_for(connections);
        let mut plan = http2_plan(&server, "/x?{seq}", concurrency, 500);
        plan.connection.streams = streams;
        plan.threads = threads;
        let run = measure(&plan);
        assert_eq!((run.good(), run.errors()), (500, 0), "{:?}", run.reasons);
        assert_eq!(server.requests.load(Ordering::Relaxed), 500);
        assert_eq!(server.connections.load(Ordering::Relaxed), connections);
        assert_eq!(run.connections.opened, connections);
        assert_eq!(run.connections.protocol.as_deref(), Some("HTTP/2"));
        assert_eq!(run.document.server.as_deref(), Some("h2"));
        assert_eq!(run.document.first_length, Some(2));
    }
}

#[test]
fn http2_sends_the_host_header_as_the_authority() {
    let server = http2_server();
    let mut plan = http2_plan(&server, "/authority", 1, 2);
    plan.checks.body = vec![BodyCheck::Contains(server.address.to_string())];
    assert_eq!(measure(&plan).good(), 2);
    plan.request
        .headers
        .push(("host".to_owned(), RequestTemplate::new("shop.test")));
    plan.checks.body = vec![BodyCheck::Contains("shop.test".to_owned())];
    assert_eq!(measure(&plan).good(), 2);
}

#[test]
fn http2_stream_failures_have_outcomes() {
    for (path, outcome) in [
        ("/500", Outcome::Status5xx),
        ("/reset", Outcome::Reset),
        ("/cut", Outcome::Truncated),
        ("/silent", Outcome::Timeout),
    ] {
        let server = http2_server();
        let mut plan = http2_plan(&server, path, 2, 6);
        if outcome == Outcome::Timeout {
            plan.connection.timeout = Duration::from_millis(200);
        }
        let run = measure(&plan);
        assert_eq!(
            run.count(outcome),
            6,
            "{path}: {:?} {:?}",
            run.outcomes.keys(),
            run.reasons
        );
        assert_eq!(server.connections.load(Ordering::Relaxed), 2, "{path}");
    }
}

#[test]
fn http2_goaway_loses_no_request() {
    let server = http2_server();
    let run = measure(&http2_plan(&server, "/leave", 1, 45));
    assert_eq!((run.good(), run.errors()), (45, 0), "{:?}", run.reasons);
    assert!(run.connections.opened >= 4, "{}", run.connections.opened);
}

#[test]
fn http2_sends_bodies_and_holds_a_rate() {
    let server = http2_server();
    let mut plan = http2_plan(&server, "/", 2, 10);
    plan.request.method = "POST".to_owned();
    plan.request.body = vec![b'x'; 300_000];
    let posted = measure(&plan);
    assert_eq!(posted.good(), 10, "{:?}", posted.reasons);
    assert_eq!(posted.bytes.bodies, 3_000_000);

    let mut plan = http2_plan(&server, "/", 1, 300);
    plan.connection.streams = 10;
    plan.arrivals = Arrivals::Open {
        rate: 1000.0,
        spacing: Spacing::Poisson,
        max_connections: 20,
    };
    let paced = measure(&plan);
    assert_eq!((paced.due, paced.good()), (300, 300), "{:?}", paced.reasons);
}

#[test]
fn http2_against_another_protocol_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let _ = socket.read(&mut [0; 1024]);
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let mut plan = plan(&url, 1, 3);
    plan.connection.protocol = HttpProtocol::Http2;
    let run = measure(&plan);
    assert_eq!(
        run.count(Outcome::ProtocolError),
        3,
        "{:?} {:?}",
        run.outcomes.keys(),
        run.reasons
    );
}

#[test]
fn page_loads_request_a_page_and_then_its_parts() {
    let server = http2_server();
    let mut plan = http2_plan(&server, "/page", 8, 400);
    for part in 1..4 {
        let url = format!("http://{}/part{part}", server.address);
        plan.targets.push(LoadTarget::parse(&url).unwrap());
    }
    plan.connection.streams = 4;
    plan.page_load = Some(PageLoad {
        priorities: vec!["u=0".to_owned(), "u=5, i".to_owned()],
    });
    let loaded = measure(&plan);
    assert_eq!(
        (loaded.good(), loaded.errors()),
        (400, 0),
        "{:?}",
        loaded.reasons
    );
    assert_eq!(loaded.connections.opened, 2);
    let loads = loaded.page_loads.as_ref().unwrap();
    assert!((98..=100).contains(&loads.len()), "{}", loads.len());
    // A load takes longer than any of its parts.
    assert!(loads.quantile(0.5) > loaded.latency().quantile(0.5));

    // A page that cannot be loaded is requested again, and its parts are not.
    let mut broken = plan.clone();
    broken.targets[0] = LoadTarget::parse(&format!("http://{}/500", server.address)).unwrap();
    let failed = measure(&broken);
    assert_eq!(failed.count(Outcome::Status5xx), 400);
    assert_eq!(failed.page_loads, None);

    plan.connection.streams = 3;
    let error = run(&plan, RunControl::default()).unwrap_err();
    assert!(
        error.to_string().contains("a stream for each target"),
        "{error}"
    );
}
