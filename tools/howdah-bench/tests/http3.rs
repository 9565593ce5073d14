//! HTTP/3, against a server that is not ours: that of the `h3` crate over quinn.

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use howdah_bench::engine::{RunControl, run};
use howdah_bench::error::BenchError;
use howdah_bench::outcome::Outcome;
use howdah_bench::plan::check::BodyCheck;
use howdah_bench::plan::{
    Arrivals, HttpProtocol, LoadTarget, Plan, Spacing, StopLimits, TlsVersion,
};
use howdah_bench::run::Run;
use quinn::crypto::rustls::QuicServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/tls")
        .join(name)
}

#[track_caller]
fn measure(plan: &Plan) -> Run {
    let run = run(plan, RunControl::default()).unwrap();
    run.balance().unwrap();
    run
}

/// How a server differs from one that simply responds.
#[derive(Clone, Copy, Default)]
struct ServerOptions {
    /// Whether it validates addresses with a Retry packet (RFC 9000 §8.1.2).
    retry: bool,
    /// Whether it refuses every connection.
    refuse: bool,
    /// Whether it agrees to another protocol only.
    other_protocol: bool,
    /// How many requests it lets a client have at once; 0: the default.
    streams: u32,
    /// The server responds only when this number of connections have been opened.
    expected: u64,
}

/// `/500`: an error; `/reset`: the stream is reset; `/cut`: it is reset after a part of the body; `/short`: it ends
/// before its Content-Length; `/silent`: no response; `/early`: an interim response comes first; `/leave`: GOAWAY after
/// ten; `/close`: the connection is closed with an error after ten; otherwise the request's body, or `ok`.
struct Http3Server {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
}

fn http3_server(options: ServerOptions) -> Http3Server {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificates: Vec<_> = CertificateDer::pem_file_iter(file("localhost.pem"))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let key = PrivateKeyDer::from_pem_file(file("localhost.key")).unwrap();
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    let protocol: &[u8] = if options.other_protocol {
        b"doq"
    } else {
        b"h3"
    };
    tls.alpn_protocols = vec![protocol.to_vec()];
    let crypto = QuicServerConfig::try_from(tls).unwrap();
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    if options.streams > 0 {
        let mut transport = quinn::TransportConfig::default();
        transport.max_concurrent_bidi_streams(options.streams.into());
        config.transport_config(Arc::new(transport));
    }
    let requests = Arc::new(AtomicU64::new(0));
    let connections = Arc::new(AtomicU64::new(0));
    let counted = (requests.clone(), connections.clone());
    let (tell, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async move {
            let endpoint = quinn::Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap();
            tell.send(endpoint.local_addr().unwrap()).unwrap();
            let (opened, _) = tokio::sync::watch::channel(0);
            while let Some(incoming) = endpoint.accept().await {
                if options.refuse {
                    incoming.refuse();
                    continue;
                }
                if options.retry && !incoming.remote_address_validated() {
                    incoming.retry().unwrap();
                    continue;
                }
                let (requests, connections) = counted.clone();
                let opened = opened.clone();
                tokio::spawn(async move {
                    let Ok(connection) = incoming.await else {
                        return;
                    };
                    connections.fetch_add(1, Ordering::Relaxed);
                    opened.send_modify(|count| *count += 1);
                    let opened = opened.subscribe();
                    serve(connection, &requests, opened, options.expected).await;
                });
            }
        });
    });
    Http3Server {
        address: address.recv().unwrap(),
        requests,
        connections,
    }
}

async fn serve(
    connection: quinn::Connection,
    requests: &AtomicU64,
    opened: tokio::sync::watch::Receiver<u64>,
    expected: u64,
) {
    let quic = h3_quinn::Connection::new(connection.clone());
    let Ok(mut http) = h3::server::builder().build::<_, Bytes>(quic).await else {
        return;
    };
    let mut served = 0;
    while let Ok(Some(resolver)) = http.accept().await {
        let Ok((request, stream)) = resolver.resolve_request().await else {
            continue;
        };
        requests.fetch_add(1, Ordering::Relaxed);
        served += 1;
        let path = request.uri().path().to_owned();
        if path == "/leave" && served == 10 {
            http.shutdown(0).await.unwrap();
        }
        if path == "/close" && served == 10 {
            connection.close(0x102u32.into(), b"");
            return;
        }
        let mut opened = opened.clone();
        tokio::spawn(async move {
            let are_all_open = opened.wait_for(|count| *count >= expected).await;
            drop(are_all_open.expect("the server runs as long as the test"));
            // A client that gives up ends the stream.
            let _ = answer(&path, stream).await;
        });
    }
}

async fn answer(
    path: &str,
    mut stream: h3::server::RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>,
) -> Result<(), h3::error::StreamError> {
    let mut body = Vec::new();
    while let Some(mut data) = stream.recv_data().await? {
        while data.has_remaining() {
            let length = data.chunk().len();
            body.extend_from_slice(data.chunk());
            data.advance(length);
        }
    }
    let response = |status: u16| {
        http::Response::builder()
            .status(status)
            .header("server", "h3")
    };
    match path {
        "/reset" => stream.stop_stream(h3::error::Code::H3_INTERNAL_ERROR),
        "/silent" => tokio::time::sleep(Duration::from_secs(60)).await,
        "/cut" => {
            stream
                .send_response(response(200).body(()).unwrap())
                .await?;
            stream.send_data(Bytes::from_static(b"part")).await?;
            // A reset discards data that has not been read, so the client has to read first.
            tokio::time::sleep(Duration::from_millis(50)).await;
            stream.stop_stream(h3::error::Code::H3_INTERNAL_ERROR);
        }
        "/short" => {
            let response = response(200).header("content-length", "9");
            stream.send_response(response.body(()).unwrap()).await?;
            stream.send_data(Bytes::from_static(b"part")).await?;
            stream.finish().await?;
        }
        _ => {
            if path == "/early" {
                stream
                    .send_response(response(103).body(()).unwrap())
                    .await?;
            }
            let status = if path == "/500" { 500 } else { 200 };
            if body.is_empty() {
                body = b"ok".to_vec();
            }
            stream
                .send_response(response(status).body(()).unwrap())
                .await?;
            stream.send_data(Bytes::from(body)).await?;
            stream.finish().await?;
        }
    }
    Ok(())
}

fn plan_for(address: SocketAddr, path: &str, concurrency: u32, requests: u64) -> Plan {
    let url = format!("https://localhost:{}{path}", address.port());
    let stop = StopLimits {
        requests: Some(requests),
        time: None,
    };
    let target = LoadTarget::parse(&url).unwrap();
    let mut plan = Plan::new(target, Arrivals::Closed { concurrency }, stop);
    plan.connection.protocol = HttpProtocol::Http3;
    plan.connection.timeout = Duration::from_secs(10);
    plan
}

fn http3_plan(server: &Http3Server, path: &str, concurrency: u32, requests: u64) -> Plan {
    plan_for(server.address, path, concurrency, requests)
}

#[track_caller]
fn refused(plan: &Plan, name: &str, part: &str) -> BenchError {
    let error = run(plan, RunControl::default()).unwrap_err();
    assert_eq!(error.name(), name, "{error}");
    assert!(error.to_string().contains(part), "{error}");
    error
}

#[test]
fn http3_counts_are_exact() {
    for (threads, streams, concurrency, connections) in [(1, 1, 4, 4), (1, 4, 8, 2), (2, 20, 20, 2)]
    {
        let server = http3_server(ServerOptions {
            expected: connections,
            ..ServerOptions::default()
        });
        let mut plan = http3_plan(&server, "/x?{seq}", concurrency, 500);
        plan.connection.streams = streams;
        plan.threads = threads;
        plan.checks.body.push(BodyCheck::Contains("ok".to_owned()));
        let run = measure(&plan);
        assert_eq!((run.good(), run.errors()), (500, 0), "{:?}", run.reasons);
        assert_eq!(server.requests.load(Ordering::Relaxed), 500);
        assert_eq!(server.connections.load(Ordering::Relaxed), connections);
        assert_eq!(run.connections.opened, connections);
        assert_eq!(run.connections.protocol.as_deref(), Some("HTTP/3"));
        assert_eq!(run.connections.tls.as_deref(), Some("TLSv1.3"));
        assert_eq!(run.document.server.as_deref(), Some("h3"));
        assert_eq!(run.bytes.bodies, 1000);
        assert!(run.bytes.received > 1000 && run.bytes.sent > 1000);
    }
}

#[test]
fn http3_stream_failures_have_outcomes() {
    for (path, outcome) in [
        ("/500", Outcome::Status5xx),
        ("/reset", Outcome::Reset),
        ("/cut", Outcome::Truncated),
        ("/short", Outcome::Truncated),
        ("/silent", Outcome::Timeout),
        ("/early", Outcome::Good),
    ] {
        let server = http3_server(ServerOptions::default());
        let mut plan = http3_plan(&server, path, 2, 6);
        if outcome == Outcome::Timeout {
            plan.connection.timeout = Duration::from_millis(300);
        }
        let run = measure(&plan);
        let outcomes = run.outcomes.keys();
        assert_eq!(
            run.count(outcome),
            6,
            "{path}: {outcomes:?} {:?}",
            run.reasons
        );
        assert_eq!(server.connections.load(Ordering::Relaxed), 2, "{path}");
    }
}

#[test]
fn http3_goaway_loses_no_request() {
    let server = http3_server(ServerOptions::default());
    let run = measure(&http3_plan(&server, "/leave", 1, 45));
    assert_eq!((run.good(), run.errors()), (45, 0), "{:?}", run.reasons);
    assert!(run.connections.opened >= 4, "{}", run.connections.opened);
}

#[test]
fn http3_closed_connection_is_counted_and_replaced() {
    let server = http3_server(ServerOptions::default());
    let run = measure(&http3_plan(&server, "/close", 1, 30));
    assert_eq!(run.count(Outcome::Reset), 3, "{:?}", run.outcomes.keys());
    assert_eq!(run.good(), 27);
    let reasons: Vec<_> = run.reasons.keys().collect();
    assert!(reasons[0].contains("H3_INTERNAL_ERROR"), "{reasons:?}");
}

#[test]
fn http3_sends_bodies_and_holds_a_rate() {
    let server = http3_server(ServerOptions::default());
    let mut plan = http3_plan(&server, "/", 2, 10);
    plan.request.method = "POST".to_owned();
    plan.request.body = vec![b'x'; 3_000_000];
    let posted = measure(&plan);
    assert_eq!(posted.good(), 10, "{:?}", posted.reasons);
    assert_eq!(posted.bytes.bodies, 30_000_000);

    let mut plan = http3_plan(&server, "/", 1, 300);
    plan.connection.streams = 10;
    plan.arrivals = Arrivals::Open {
        rate: 1000.0,
        spacing: Spacing::Poisson,
        max_connections: 20,
    };
    let paced = measure(&plan);
    assert_eq!((paced.due, paced.good()), (300, 300), "{:?}", paced.reasons);
    assert!(!paced.send_lag.is_empty());
}

#[test]
fn http3_streams_beyond_the_servers_limit_wait() {
    let server = http3_server(ServerOptions {
        streams: 2,
        ..ServerOptions::default()
    });
    let mut plan = http3_plan(&server, "/", 8, 200);
    plan.connection.streams = 8;
    let run = measure(&plan);
    assert_eq!((run.good(), run.errors()), (200, 0), "{:?}", run.reasons);
    assert_eq!(run.connections.opened, 1);
}

#[test]
fn http3_connection_survives_a_retry() {
    let server = http3_server(ServerOptions {
        retry: true,
        ..ServerOptions::default()
    });
    let run = measure(&http3_plan(&server, "/", 3, 60));
    assert_eq!((run.good(), run.errors()), (60, 0), "{:?}", run.reasons);
}

#[test]
fn http3_certificates_are_verified() {
    let server = http3_server(ServerOptions::default());
    let mut plan = http3_plan(&server, "/", 1, 3);
    plan.connection.tls.verify = true;
    plan.connection.tls.ca_file = Some(file("ca.pem"));
    assert_eq!(measure(&plan).good(), 3);
    plan.connection.tls.ciphers = vec!["TLS_CHACHA20_POLY1305_SHA256".to_owned()];
    assert_eq!(measure(&plan).good(), 3);
    plan.connection.tls.server_name = Some("other.example".to_owned());
    let error = refused(&plan, "TlsRefused", "other.example");
    assert_eq!(error.exit_code(), 6);
}

#[test]
fn http3_refusals_are_named() {
    let other = http3_server(ServerOptions {
        other_protocol: true,
        ..ServerOptions::default()
    });
    refused(
        &http3_plan(&other, "/", 1, 1),
        "TlsRefused",
        "HTTP/3 (ALPN)",
    );

    let full = http3_server(ServerOptions {
        refuse: true,
        ..ServerOptions::default()
    });
    let plan = http3_plan(&full, "/", 1, 1);
    refused(&plan, "Unreachable", "refused");

    // No program listens on this port.
    let free = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let error = refused(&plan_for(address, "/", 1, 1), "Unreachable", "UDP");
    assert!(error.to_string().contains("HTTP/3"), "{error}");

    // A program listens and does not answer.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut plan = plan_for(silent.local_addr().unwrap(), "/", 1, 1);
    plan.connection.timeout = Duration::from_millis(500);
    let begun = Instant::now();
    let error = refused(&plan, "Unreachable", "HTTP/3");
    assert!(begun.elapsed() < Duration::from_secs(5), "{error}");
}

/// A server that is killed says nothing, but its machine reports that the port is closed.
#[test]
fn http3_server_that_disappears_is_noticed() {
    let server = http3_server(ServerOptions::default());
    let relay = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = relay.local_addr().unwrap();
    let upstream = server.address;
    std::thread::spawn(move || {
        relay
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let begun = Instant::now();
        let (mut client, mut buffer) = (None, [0; 65536]);
        while begun.elapsed() < Duration::from_millis(500) {
            let Ok((length, from)) = relay.recv_from(&mut buffer) else {
                continue;
            };
            if from != upstream {
                client = Some(from);
            }
            let to = if from == upstream {
                client
            } else {
                Some(upstream)
            };
            if let Some(to) = to {
                relay.send_to(&buffer[..length], to).unwrap();
            }
        }
    });
    let mut plan = plan_for(address, "/", 1, u64::MAX);
    plan.stop.requests = None;
    plan.stop.time = Some(Duration::from_secs(2));
    let run = measure(&plan);
    assert!(run.good() > 10, "{}", run.good());
    assert!(run.count(Outcome::Reset) >= 1, "{:?}", run.outcomes.keys());
    assert!(run.count(Outcome::ConnectRefused) > 10, "{:?}", run.reasons);
}

#[test]
fn http3_impossible_plans_are_refused() {
    let mut plain = plan_for("127.0.0.1:9".parse().unwrap(), "/", 1, 1);
    plain.targets = vec![LoadTarget::parse("http://127.0.0.1:9/").unwrap()];
    assert_eq!(refused(&plain, "Impossible", "https://").exit_code(), 2);
    let mut old = plan_for("127.0.0.1:9".parse().unwrap(), "/", 1, 1);
    old.connection.tls.version = Some(TlsVersion::Tls12);
    refused(&old, "Impossible", "TLS 1.3");
    old.connection.tls.version = None;
    old.connection.keep_alive = false;
    refused(&old, "Impossible", "keep-alive");
}
