//! HTTP/3 over UDP sockets of this machine, with quinn and the h3 crate as a client. The clock runs, so the tests
//! assert what arrives, not when.

use std::net::{SocketAddr, UdpSocket};

use bytes::Buf;
use h3::client::SendRequest;
use http::{HeaderMap, Request};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Endpoint, VarInt};

use super::tls::TestPki;
use super::*;
use crate::listener::{HttpServer, ListenerConfig, QuicSockets, ThreadHooks};
use crate::tls::tickets::TicketKeys;

/// A server with two threads.
struct Http3Server {
    pki: TestPki,
    script: Arc<TestHandler>,
    server: HttpServer,
    tcp: SocketAddr,
    address: SocketAddr,
}

/// A client's connection.
struct Http3Visitor {
    endpoint: Endpoint,
    quic: quinn::Connection,
    send: SendRequest<h3_quinn::OpenStreams, Bytes>,
    driver: JoinHandle<h3::error::ConnectionError>,
}

/// The response to a request.
#[derive(Debug)]
struct Http3Response {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Http3Server {
    fn new() -> Http3Server {
        Http3Server::with(HttpConfig::for_tests())
    }

    fn with(config: HttpConfig) -> Http3Server {
        let sockets = udp_sockets("127.0.0.1:0");
        Http3Server::on(TestPki::one(), config, sockets)
    }

    fn on(pki: TestPki, config: HttpConfig, sockets: Vec<OwnedFd>) -> Http3Server {
        let tickets = Arc::new(TicketKeys::default());
        tickets.set(&[[9; crate::tls::tickets::KEY_BYTES]], b"");
        let mut listener = ListenerConfig::bind(&"127.0.0.1:0".parse().unwrap(), 2).unwrap();
        listener.tls = Some(pki.settings().apply().unwrap());
        let own = sockets.iter().map(|socket| socket.try_clone().unwrap());
        listener.quic = Some(QuicSockets {
            sockets: own.collect(),
            tickets,
        });
        let script = Arc::new(TestHandler::new());
        let hooks = ThreadHooks {
            name: "front",
            start: Arc::new(|_| ()),
            park: Arc::new(|| ()),
            unpark: Arc::new(|| ()),
        };
        let server = HttpServer::start(vec![listener], script.clone(), 2, config, hooks).unwrap();
        let name = rustix::net::getsockname(&sockets[0]).unwrap();
        Http3Server {
            pki,
            script,
            tcp: server.local_addrs()[0].unwrap(),
            server,
            address: name.try_into().unwrap(),
        }
    }

    fn client_config(&self) -> quinn::ClientConfig {
        let mut tls = (*self.pki.client(&[&rustls::version::TLS13])).clone();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()))
    }

    async fn visit(&self) -> Http3Visitor {
        let mut endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        endpoint.set_default_client_config(self.client_config());
        self.visit_from(endpoint).await
    }

    async fn visit_from(&self, endpoint: Endpoint) -> Http3Visitor {
        let quic = endpoint.connect(self.address, "example.org").unwrap();
        let quic = soon(quic).await.unwrap();
        let transport = h3_quinn::Connection::new(quic.clone());
        let (mut driver, send) = h3::client::new(transport).await.unwrap();
        Http3Visitor {
            endpoint,
            quic,
            send,
            driver: tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await }),
        }
    }

    async fn until_seen(&self, what: &str) {
        let seen = async {
            while !self.script.seen().iter().any(|s| s.starts_with(what)) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon(seen).await;
    }
}

fn udp_sockets(address: &str) -> Vec<OwnedFd> {
    let first = UdpSocket::bind(address).unwrap();
    let address = first.local_addr().unwrap();
    drop(first);
    crate::listener::bind_udp_sockets(&address, 2).unwrap()
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    within(Duration::from_secs(60), what).await
}

fn get(path: &str) -> Request<()> {
    let uri = format!("https://example.org{path}");
    Request::builder().uri(uri).body(()).unwrap()
}

fn post(path: &str) -> Request<()> {
    let mut request = get(path);
    *request.method_mut() = http::Method::POST;
    request
}

type ClientStream = h3::client::RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;

async fn answer(stream: &mut ClientStream) -> Result<Http3Response, h3::error::StreamError> {
    let mut head = stream.recv_response().await?;
    while head.status().is_informational() {
        head = stream.recv_response().await?;
    }
    rest(stream, head).await
}

/// Receives the rest of a response after its head.
async fn rest(
    stream: &mut ClientStream,
    head: http::Response<()>,
) -> Result<Http3Response, h3::error::StreamError> {
    let mut body = Vec::new();
    while let Some(mut data) = stream.recv_data().await? {
        body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    let mut headers = head.headers().clone();
    assert_eq!(headers.remove("server").unwrap(), "Howdah");
    assert!(headers.remove("date").is_some());
    Ok(Http3Response {
        status: head.status().as_u16(),
        headers,
        body,
    })
}

impl Http3Visitor {
    async fn ask(&mut self, request: Request<()>) -> Result<Http3Response, h3::error::StreamError> {
        self.upload(request, &[]).await
    }

    async fn upload(
        &mut self,
        request: Request<()>,
        pieces: &[&[u8]],
    ) -> Result<Http3Response, h3::error::StreamError> {
        let mut stream = soon(self.send.send_request(request)).await?;
        for piece in pieces {
            soon(stream.send_data(Bytes::copy_from_slice(piece))).await?;
        }
        stream.finish().await?;
        soon(answer(&mut stream)).await
    }

    async fn text(&mut self, path: &str) -> String {
        let answer = self.ask(get(path)).await.unwrap();
        let body = String::from_utf8_lossy(&answer.body);
        format!("{} {body}", answer.status)
    }

    /// Sends a request whose stream carries `frames` after its head, and returns the received bytes.
    async fn raw(&self, frames: &[u8]) -> Result<Vec<u8>, quinn::ReadToEndError> {
        let (mut send, mut recv) = self.quic.open_bi().await.unwrap();
        // The server may end the stream before everything is sent.
        let _ = send.write_all(frames).await;
        let _ = send.finish();
        soon(recv.read_to_end(1 << 20)).await
    }
}

/// Returns the head of `POST /echo` on example.org.
fn echo_head() -> Vec<u8> {
    static_head("/echo")
}

/// Returns the head of `POST path` on example.org as a HEADERS frame, by the static table of QPACK.
fn static_head(path: &str) -> Vec<u8> {
    let mut block = vec![0, 0, 0xc0 | 20, 0xc0 | 23];
    block.extend([0x50, 11]);
    block.extend(b"example.org");
    block.extend([0x51, path.len() as u8]);
    block.extend(path.as_bytes());
    let mut frame = vec![1, block.len() as u8];
    frame.extend(block);
    frame
}

#[tokio::test]
async fn http3_requests_are_answered_as_over_other_versions() {
    let site = Http3Server::new();
    let mut visitor = site.visit().await;
    assert_eq!(visitor.text("/hello").await, "200 hello");
    assert_eq!(
        visitor.text("/what?a=%20").await,
        "200 GET /what?a=%20 example.org"
    );
    let answer = visitor.ask(get("/nobody")).await.unwrap();
    assert_eq!((answer.status, answer.body.len()), (200, 0));
    assert_eq!(answer.headers["content-length"], "0");
    assert!(!answer.headers.contains_key("alt-svc"));
    assert_eq!(visitor.text("/pieces").await, "200 abcdefghijklmnopqr");
    assert_eq!(visitor.text("/status?404").await, "404 abc");
    let answer = visitor.ask(get("/file")).await.unwrap();
    let file: Vec<u8> = (0..FILE_LEN).map(|n| (n % 251) as u8).collect();
    assert!(answer.body == file);
    let answer = visitor.ask(get("/big?40")).await.unwrap();
    assert_eq!(answer.body.len(), 4_000_000);
    let mut head = get("/file");
    *head.method_mut() = http::Method::HEAD;
    let answer = visitor.ask(head).await.unwrap();
    assert_eq!(answer.headers["content-length"], "300000");
    assert!(answer.body.is_empty());
    let hints = visitor.ask(get("/hints"));
    let (hinted, ()) = tokio::join!(hints, async { site.script.gate.notify_one() });
    assert_eq!(hinted.unwrap().body, b"hinted");
    let said = visitor.text("/tls").await;
    for part in [
        "TLSv1.3",
        "TLS_AES_128_GCM_SHA256",
        "example.org",
        "resumed: false",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[tokio::test]
async fn http3_concurrent_requests_do_not_wait_for_each_other() {
    let site = Http3Server::new();
    let mut visitor = site.visit().await;
    let mut waiting = visitor.send.send_request(get("/wait")).await.unwrap();
    waiting.finish().await.unwrap();
    let mut streams = Vec::new();
    for _ in 0..100 {
        let mut stream = soon(visitor.send.send_request(get("/big?2")))
            .await
            .unwrap();
        stream.finish().await.unwrap();
        streams.push(stream);
    }
    for mut stream in streams {
        assert_eq!(soon(answer(&mut stream)).await.unwrap().body.len(), 200_000);
    }
    site.script.gate.notify_one();
    assert_eq!(soon(answer(&mut waiting)).await.unwrap().body, b"waited");
}

#[tokio::test]
async fn http3_urgent_response_overtakes_one_that_has_begun() {
    let site = Http3Server::new();
    let mut visitor = site.visit().await;
    let order = Mutex::new(Vec::new());
    let mut asked = Vec::new();
    for priority in ["u=6, i", "u=1"] {
        let mut request = get("/big?40");
        let value = http::HeaderValue::from_static(priority);
        request.headers_mut().insert("priority", value);
        let mut stream = soon(visitor.send.send_request(request)).await.unwrap();
        stream.finish().await.unwrap();
        asked.push((priority, stream));
    }
    // The first response has begun: its stream's window of 1.25 MB is open. No more of it is read before the second
    // response has begun, too.
    let mut heads = Vec::new();
    for (_, stream) in &mut asked {
        heads.push(soon(stream.recv_response()).await.unwrap());
    }
    let order = &order;
    let mut read = asked
        .into_iter()
        .zip(heads)
        .map(async |((priority, mut stream), head)| {
            let answer = soon(rest(&mut stream, head)).await.unwrap();
            assert_eq!(answer.body.len(), 4_000_000);
            order.lock().unwrap().push(priority);
        });
    let (low, urgent) = (read.next().unwrap(), read.next().unwrap());
    tokio::join!(low, urgent);
    assert_eq!(*order.lock().unwrap(), ["u=1", "u=6, i"]);
}

#[tokio::test]
async fn http3_bodies_arrive_whole_however_they_are_framed() {
    let site = Http3Server::new();
    let mut visitor = site.visit().await;
    let large: Vec<u8> = (0..1_000_000u32).map(|n| n as u8).collect();
    let pieces: Vec<&[u8]> = large.chunks(70_000).collect();
    let answer = visitor.upload(post("/echo"), &pieces).await.unwrap();
    assert!(answer.body == large);
    let mut known = post("/echo");
    known.headers_mut().insert("content-length", 5.into());
    let answer = visitor.upload(known, &[b"ab", b"cde"]).await.unwrap();
    assert_eq!(answer.body, b"abcde");
    let refused = visitor.upload(post("/echo?9"), &[b"0123456789"]).await;
    assert_eq!(refused.unwrap().status, 413);
    // Empty frames, frames of one byte and of an unknown type; then trailers.
    let mut frames = echo_head();
    for n in 0..20_000u32 {
        frames.extend([0, 0, 0, 1, n as u8, 0x21, 1, 0]);
    }
    frames.extend([1, 2, 0, 0]);
    let answer = visitor.raw(&frames).await.unwrap();
    let expected: Vec<u8> = (0..20_000u32).map(|n| n as u8).collect();
    assert!(answer.windows(1000).any(|part| part == &expected[..1000]));
    assert!(answer.len() > expected.len());
}

#[tokio::test]
async fn http3_unknown_and_trailer_frames_are_not_a_body() {
    let site = Http3Server::new();
    let visitor = site.visit().await;
    for (frames, has_body) in [
        (&[][..], false),
        (&[0x21, 0], false),
        (&[0x21, 3, 1, 2, 3, 0x40, 0x21, 0x40, 1, 9], false),
        (&[1, 2, 0, 0], false),
        (&[0, 0], true),
        (&[0x21, 1, 7, 0, 0, 0, 1, b'x'], true),
    ] {
        let head = static_head("/body");
        let answer = visitor.raw(&[&head[..], frames].concat()).await.unwrap();
        let expected = format!("body: {has_body}");
        let told = String::from_utf8_lossy(&answer);
        assert!(told.contains(&expected), "{frames:?}: {told}");
    }
}

#[tokio::test]
async fn http3_refusals_have_the_same_names_as_over_http1() {
    let site = Http3Server::new();
    let mut visitor = site.visit().await;
    let mut long = get("/hello");
    let value = "x".repeat(40 << 10);
    long.headers_mut().insert("x-long", value.parse().unwrap());
    let answer = visitor.ask(long).await.unwrap();
    assert_eq!(answer.status, 431);
    assert_eq!(answer.headers["howdah-error"], "HeaderTooLarge");
    for (name, value) in [("transfer-encoding", "chunked"), ("te", "gzip")] {
        let mut malformed = get("/hello");
        malformed.headers_mut().insert(name, value.parse().unwrap());
        let reset = visitor.ask(malformed).await.unwrap_err();
        assert!(format!("{reset:?}").contains("MESSAGE_ERROR"), "{reset:?}");
    }
    // A head with an announced length of one megabyte is not waited for.
    let reset = visitor.raw(&[1, 0x80, 0x10, 0, 0, 0, 0]).await;
    assert!(reset.is_err());
    assert_eq!(visitor.text("/hello").await, "200 hello");
    assert_eq!(
        site.script
            .seen()
            .iter()
            .filter(|s| s.contains("TooLarge"))
            .count(),
        2
    );
    // A SETTINGS frame is not allowed on this stream and ends the connection.
    let mut frames = echo_head();
    frames.extend([4, 0]);
    assert!(visitor.raw(&frames).await.is_err());
    soon(visitor.quic.closed()).await;
}

#[tokio::test]
async fn http3_cancellation_reaches_only_its_own_request() {
    let site = Http3Server::new();
    let mut visitor = site.visit().await;
    let mut stream = visitor.send.send_request(get("/gone")).await.unwrap();
    stream.finish().await.unwrap();
    site.until_seen("waiting").await;
    stream.stop_sending(h3::error::Code::H3_REQUEST_CANCELLED);
    site.until_seen("gone").await;
    assert_eq!(visitor.text("/hello").await, "200 hello");
    let mut stream = visitor.send.send_request(post("/echo")).await.unwrap();
    stream.send_data(Bytes::from_static(b"some")).await.unwrap();
    let begun = async {
        while site.server.control().stats().requests < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(begun).await;
    stream.stop_stream(h3::error::Code::H3_REQUEST_CANCELLED);
    site.until_seen("body: ClientGone").await;
    assert_eq!(visitor.text("/hello").await, "200 hello");
}

#[tokio::test]
async fn http3_truncated_response_is_reset() {
    let site = Http3Server::new();
    let mut visitor = site.visit().await;
    for path in ["/cut", "/too-short", "/panic-late", "/file-short"] {
        assert!(visitor.ask(get(path)).await.is_err(), "{path}");
    }
    assert_eq!(visitor.ask(get("/panic")).await.unwrap().status, 500);
    assert_eq!(visitor.ask(get("/silent")).await.unwrap().status, 500);
}

#[tokio::test]
async fn http3_client_that_reads_nothing_times_out() {
    let config = HttpConfig {
        send_timeout: Duration::from_millis(200),
        ..HttpConfig::for_tests()
    };
    let site = Http3Server::with(config);
    let mut visitor = site.visit().await;
    let mut stalled = visitor.send.send_request(get("/big?100")).await.unwrap();
    stalled.finish().await.unwrap();
    stalled.recv_response().await.unwrap();
    site.until_seen("send: client gone").await;
    assert_eq!(visitor.text("/hello").await, "200 hello");
}

#[tokio::test]
async fn http3_rapid_cancellations_end_only_their_connection() {
    let site = Http3Server::new();
    let (mut visitor, mut other) = (site.visit().await, site.visit().await);
    let flood = async {
        loop {
            let Ok(mut stream) = visitor.send.send_request(get("/gone")).await else {
                return;
            };
            stream.stop_sending(h3::error::Code::H3_REQUEST_CANCELLED);
            stream.stop_stream(h3::error::Code::H3_REQUEST_CANCELLED);
        }
    };
    soon(flood).await;
    site.until_seen("ended: Http3RapidReset").await;
    assert_eq!(other.text("/hello").await, "200 hello");
}

#[tokio::test]
async fn http3_control_stream_flood_ends_only_its_connection() {
    let site = Http3Server::new();
    let (visitor, mut other) = (site.visit().await, site.visit().await);
    // A stream of QPACK's encoder is opened by h3 itself; of a stream of an unknown type only the type is read.
    let mut unknown = visitor.quic.open_uni().await.unwrap();
    unknown.write_all(&[0x21]).await.unwrap();
    let stopped = soon(unknown.write_all(&[0; 200_000])).await;
    assert!(stopped.is_err(), "nobody reads it");
    // The first stream is a control stream of its own, since the h3 client is not used here.
    let mut endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    endpoint.set_default_client_config(site.client_config());
    let quic = soon(endpoint.connect(site.address, "example.org").unwrap())
        .await
        .unwrap();
    let mut control = quic.open_uni().await.unwrap();
    control.write_all(&[0, 4, 0]).await.unwrap();
    let flood = async {
        while control.write_all(&[0x21, 0x40, 100]).await.is_ok()
            && control.write_all(&[0; 100]).await.is_ok()
        {}
    };
    soon(flood).await;
    site.until_seen("ended: Http3ControlFlood").await;
    assert_eq!(other.text("/hello").await, "200 hello");
}

#[tokio::test]
async fn http3_client_may_change_its_address() {
    let site = Http3Server::new();
    let mut visitor = site.visit().await;
    let mut seen = std::collections::HashSet::new();
    for _ in 0..8 {
        seen.insert(
            visitor
                .text("/conn")
                .await
                .split(' ')
                .nth(1)
                .map(str::to_owned),
        );
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        visitor.endpoint.rebind(other).unwrap();
    }
    assert!(seen.len() > 4, "{seen:?}");
}

#[tokio::test]
async fn http3_tls_session_is_resumed() {
    let site = Http3Server::new();
    let mut first = site.visit().await;
    assert!(first.text("/tls").await.contains("resumed: false"));
    let mut second = site.visit_from(first.endpoint.clone()).await;
    assert!(second.text("/tls").await.contains("resumed: true"));
}

/// A server that asks for certificates keeps no sessions, because it accepts no early data.
#[tokio::test]
async fn http3_session_is_resumed_by_its_ticket_if_clients_are_asked_for_certificates() {
    let pki = TestPki::one();
    pki.ask_clients();
    let site = Http3Server::on(pki, HttpConfig::for_tests(), udp_sockets("127.0.0.1:0"));
    let mut first = site.visit().await;
    let told = first.text("/tls").await;
    assert!(
        told.contains("resumed: false") && told.contains("SSL_CLIENT_VERIFY"),
        "{told}"
    );
    let mut second = site.visit_from(first.endpoint.clone()).await;
    assert!(second.text("/tls").await.contains("resumed: true"));
}

#[tokio::test]
async fn http3_stop_finishes_requests_and_closes_without_error() {
    let site = Http3Server::new();
    let mut visitor = site.visit().await;
    let mut idle = site.visit().await;
    // The response shows that the server, too, has completed the handshake. Before that, QUIC replaces the
    // application's error code by APPLICATION_ERROR (RFC 9000 §10.2.3).
    assert_eq!(idle.text("/hello").await, "200 hello");
    let mut waiting = visitor.send.send_request(get("/wait")).await.unwrap();
    waiting.finish().await.unwrap();
    site.until_seen("waiting").await;
    site.server.control().stop(Duration::from_secs(60));
    let closed = soon(idle.driver).await.unwrap();
    assert!(closed.is_h3_no_error(), "{closed:?}");
    site.script.gate.notify_one();
    assert_eq!(soon(answer(&mut waiting)).await.unwrap().body, b"waited");
    assert!(soon(visitor.driver).await.unwrap().is_h3_no_error());
    tokio::task::spawn_blocking(|| site.server.wait())
        .await
        .unwrap();
}

#[tokio::test]
async fn http3_stop_does_not_wait_for_a_vanished_client() {
    let long = Duration::from_secs(3600);
    let site = Http3Server::with(HttpConfig {
        send_timeout: long,
        keepalive_timeout: long,
        ..HttpConfig::for_tests()
    });
    // A client whose runtime does not run acknowledges nothing.
    let vanishing = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let site = tokio::task::spawn_blocking(move || {
        let visitor = vanishing.block_on(async {
            let mut visitor = site.visit().await;
            let mut waiting = visitor.send.send_request(get("/wait")).await.unwrap();
            waiting.finish().await.unwrap();
            site.until_seen("waiting").await;
            (visitor, waiting)
        });
        std::mem::forget(visitor);
        std::mem::forget(vanishing);
        site
    });
    let site = site.await.unwrap();
    site.script.gate.notify_one();
    site.server.control().stop(long);
    let stopped = tokio::task::spawn_blocking(|| site.server.wait());
    soon(stopped).await.unwrap();
}

#[tokio::test]
async fn removed_http3_listener_closes_its_idle_connections() {
    let site = Http3Server::new();
    let mut visitor = site.visit().await;
    assert_eq!(visitor.text("/hello").await, "200 hello");
    let listener = site.server.listeners()[0];
    site.server.control().remove_listener(listener);
    assert!(soon(visitor.driver).await.unwrap().is_h3_no_error());
}

#[tokio::test]
async fn quic_packets_of_unknown_connections_get_a_stateless_reset() {
    let site = Http3Server::new();
    let unknown = UdpSocket::bind("127.0.0.1:0").unwrap();
    unknown.connect(site.address).unwrap();
    // An endpoint limits how many stateless resets it sends, so each read has a timeout.
    let limit = Some(Duration::from_millis(50));
    unknown.set_read_timeout(limit).unwrap();
    for number in [0, 1, 9] {
        let mut packet = vec![0x40, number];
        packet.extend([7; 100]);
        let mut buf = [0; 1500];
        let length = loop {
            unknown.send(&packet).unwrap();
            if let Ok(length) = unknown.recv(&mut buf) {
                break length;
            }
        };
        assert!((21..102).contains(&length), "{length}");
    }
}

#[tokio::test]
async fn quic_garbage_is_ignored_and_unknown_versions_are_negotiated() {
    let site = Http3Server::new();
    let mut visitor = site.visit().await;
    let attacker = UdpSocket::bind("127.0.0.1:0").unwrap();
    attacker.connect(site.address).unwrap();
    attacker
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    for n in 0..2000usize {
        let garbage: Vec<u8> = (0..n % 1400).map(|at| (at * n + n) as u8 | 0x80).collect();
        let _ = attacker.send(&garbage);
    }
    assert_eq!(visitor.text("/hello").await, "200 hello");
    let mut packet = vec![0xc0, 0xba, 0xba, 0xba, 0xba, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0];
    packet.resize(1200, 0);
    let told = tokio::task::spawn_blocking(move || {
        attacker.send(&packet).unwrap();
        let mut buf = [0; 1500];
        loop {
            let n = attacker.recv(&mut buf).unwrap();
            // Version 0 marks a Version Negotiation packet.
            if buf[1..5] == [0; 4] && buf[..n].windows(4).any(|version| version == [0, 0, 0, 1]) {
                return;
            }
        }
    });
    soon(told).await.unwrap();
}

#[tokio::test]
async fn unfinished_quic_handshakes_do_not_block_other_clients() {
    let config = HttpConfig {
        max_connections: Some(20),
        ..HttpConfig::for_tests()
    };
    let site = Http3Server::with(config);
    let mut visitor = site.visit().await;
    assert_eq!(visitor.text("/hello").await, "200 hello");
    // First packets of honest clients, sent from an address that never responds.
    let trap = UdpSocket::bind("127.0.0.1:0").unwrap();
    let attacker = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    endpoint.set_default_client_config(site.client_config());
    let mut pending = Vec::new();
    trap.set_nonblocking(true).unwrap();
    for _ in 0..300 {
        let connecting = endpoint.connect(trap.local_addr().unwrap(), "example.org");
        pending.push(connecting.unwrap());
        tokio::task::yield_now().await;
        let mut buf = [0; 1500];
        while let Ok(n) = trap.recv(&mut buf) {
            let _ = attacker.send_to(&buf[..n], site.address);
        }
    }
    let mut another = site.visit().await;
    assert_eq!(another.text("/hello").await, "200 hello");
    assert_eq!(
        visitor.ask(get("/hello")).await.map_or(200, |a| a.status),
        200
    );
    // A few more connections are open while others are being closed.
    assert!(site.server.control().stats().open < 30);
    drop(pending);
    endpoint.close(VarInt::from_u32(0), b"");
}

#[tokio::test]
async fn responses_over_tcp_announce_http3() {
    let site = Http3Server::new();
    let stream = tokio::net::TcpStream::connect(site.tcp).await.unwrap();
    let name = rustls::pki_types::ServerName::try_from("example.org").unwrap();
    let config = site.pki.client(&[&rustls::version::TLS13]);
    let connector = tokio_rustls::TlsConnector::from(config);
    let mut stream = connector.connect(name, stream).await.unwrap();
    let request = b"GET /hello HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    let expected = format!("\r\nAlt-Svc: h3=\":{}\"; ma=86400\r\n", site.tcp.port());
    assert!(answer.contains(&expected), "{answer}");
}

#[tokio::test]
async fn quic_reports_a_name_without_certificate_but_no_unproven_client_address() {
    let site = Http3Server::new();
    let settings = site.pki.settings();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    settings.on_demand.set_enabled(true);
    settings
        .on_demand
        .set_reporter(Box::new(move |name, client| {
            let _ = tell.send((name.to_owned(), client));
        }));
    site.visit().await;
    let mut endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    endpoint.set_default_client_config(site.client_config());
    let refused = endpoint.connect(site.address, "shop.example.net").unwrap();
    soon(refused).await.unwrap_err();
    // The name that has a certificate was not reported.
    let reported = soon(told.recv()).await.unwrap();
    assert_eq!(reported, ("shop.example.net".to_owned(), None));
}
