//! HTTP/2 tests with the h2 crate as a client, and with raw bytes.

use std::task::Poll;

use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};

use super::*;

/// A client's end of an HTTP/2 connection.
pub(super) struct Http2Client {
    send: SendRequest<Bytes>,
    pub(super) script: Arc<TestHandler>,
    life: Arc<FrontThreadConnections>,
    /// Ends with the connection.
    client: JoinHandle<Result<(), h2::Error>>,
    server: JoinHandle<()>,
}

/// The response to a request.
#[derive(Debug, PartialEq, Eq)]
struct Http2Response {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

pub(super) fn h2c(config: HttpConfig) -> TestClient {
    let beginning = ConnectionSetup {
        h2c: true,
        ..ConnectionSetup::default()
    };
    TestClient::beginning(config, beginning)
}

pub(super) async fn connect() -> Http2Client {
    with(HttpConfig::for_tests(), &h2::client::Builder::new()).await
}

async fn with(config: HttpConfig, builder: &h2::client::Builder) -> Http2Client {
    let server = h2c(config);
    let (send, connection) = builder.handshake(server.stream).await.unwrap();
    Http2Client {
        send,
        script: server.script,
        life: server.life,
        client: tokio::spawn(connection),
        server: server.server,
    }
}

fn get(path: &str) -> Request<()> {
    let request = Request::builder().uri(format!("http://a.example{path}"));
    request.body(()).unwrap()
}

fn post(path: &str, length: Option<usize>) -> Request<()> {
    let mut request = get(path);
    *request.method_mut() = http::Method::POST;
    if let Some(length) = length {
        request
            .headers_mut()
            .insert("content-length", length.into());
    }
    request
}

async fn answer(response: ResponseFuture) -> Result<Http2Response, h2::Error> {
    let response: Response<RecvStream> = response.await?;
    let (head, mut stream) = response.into_parts();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len()).unwrap();
        body.extend_from_slice(&data);
    }
    let mut headers = head.headers;
    assert_eq!(headers.remove("server").unwrap(), "Howdah");
    assert!(headers.remove("date").is_some());
    let status = head.status.as_u16();
    Ok(Http2Response {
        status,
        headers,
        body,
    })
}

impl Http2Client {
    fn send(&mut self, request: Request<()>, end: bool) -> (ResponseFuture, SendStream<Bytes>) {
        self.send.send_request(request, end).unwrap()
    }

    async fn ask(&mut self, request: Request<()>) -> Result<Http2Response, h2::Error> {
        let (response, _) = self.send(request, true);
        answer(response).await
    }

    async fn text(&mut self, path: &str) -> String {
        let answer = self.ask(get(path)).await.unwrap();
        format!(
            "{} {}",
            answer.status,
            String::from_utf8_lossy(&answer.body)
        )
    }

    async fn upload(
        &mut self,
        request: Request<()>,
        body: &[u8],
    ) -> Result<Http2Response, h2::Error> {
        let (response, mut stream) = self.send(request, body.is_empty());
        let body = Bytes::copy_from_slice(body);
        let sending = async {
            // The request may be refused before the rest is sent.
            let _ = send_all(&mut stream, body).await;
        };
        tokio::join!(answer(response), sending).0
    }

    async fn until_seen(&self, what: &str) {
        let seen = async {
            while !self.script.seen().iter().any(|s| s == what) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within(Duration::from_secs(3600), seen).await;
    }

    /// Closes the connection, and waits for the end of the server's task.
    async fn close(self) {
        drop(self.send);
        within(Duration::from_secs(3600), self.client)
            .await
            .unwrap()
            .unwrap();
        within(Duration::from_secs(3600), self.server)
            .await
            .unwrap();
    }
}

async fn send_all(stream: &mut SendStream<Bytes>, mut body: Bytes) -> Result<(), h2::Error> {
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        let window = poll_fn(|cx| stream.poll_capacity(cx)).await;
        let window = window.ok_or(h2::Error::from(Reason::CANCEL))??;
        let piece = body.split_to(window.min(body.len()));
        stream.send_data(piece, body.is_empty())?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn http2_requests_are_answered_immediately_and_concurrently() {
    let mut client = connect().await;
    assert_eq!(client.text("/hello").await, "200 hello");
    let what = client.text("/what?a=%20b&c").await;
    assert_eq!(what, "200 GET /what?a=%20b&c a.example");
    // The first request waits while others are handled.
    let (waiting, _) = client.send(get("/wait"), true);
    client.until_seen("waiting").await;
    let others: Vec<_> = (0..50)
        .map(|_| client.send(get("/hello"), true).0)
        .collect();
    for other in others {
        assert_eq!(answer(other).await.unwrap().body, b"hello");
    }
    client.script.gate.notify_one();
    assert_eq!(answer(waiting).await.unwrap().body, b"waited");
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn http2_response_framing_follows_method_and_status() {
    let mut client = connect().await;
    let hello = client.ask(get("/hello")).await.unwrap();
    assert_eq!(hello.headers["content-length"], "5");
    assert_eq!(hello.headers.len(), 1, "{:?}", hello.headers);
    let mut head = get("/hello");
    *head.method_mut() = http::Method::HEAD;
    let head = client.ask(head).await.unwrap();
    assert_eq!(
        (head.headers["content-length"].as_bytes(), head.body),
        (&b"5"[..], vec![])
    );
    for status in [204, 304] {
        let answer = client.ask(get(&format!("/status?{status}"))).await.unwrap();
        assert_eq!((answer.status, answer.body), (status, vec![]));
        assert_eq!(answer.headers.contains_key("content-length"), status == 304);
    }
    let nobody = client.ask(get("/nobody")).await.unwrap();
    assert_eq!(nobody.headers["content-length"], "0");
    assert_eq!(client.text("/pieces").await, "200 abcdefghijklmnopqr");
    assert_eq!(client.text("/too-long").await, "200 abc");
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn http2_bodies_arrive_whole_with_and_without_a_length() {
    let mut client = connect().await;
    let body: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
    for request in [post("/echo", None), post("/echo", Some(body.len()))] {
        let answer = client.upload(request, &body).await.unwrap();
        assert!(answer.body == body, "{}", answer.body.len());
    }
    assert_eq!(
        client.upload(post("/echo", None), b"").await.unwrap().body,
        b""
    );
    for length in [None, Some(100_000)] {
        let body = vec![1; 100_000];
        let refused = client.upload(post("/echo?1000", length), &body).await;
        let refused = refused.unwrap();
        assert_eq!(
            (refused.status, &refused.body[..]),
            (413, &b"BodyTooLarge"[..])
        );
    }
    let mut request = post("/echo", None);
    request
        .headers_mut()
        .insert("expect", "100-continue".parse().unwrap());
    let (mut response, mut stream) = client.send(request, false);
    let interim = poll_fn(|cx| response.poll_informational(cx)).await;
    assert_eq!(interim.unwrap().unwrap().status(), 100);
    stream.send_data(Bytes::from_static(b"now"), true).unwrap();
    assert_eq!(answer(response).await.unwrap().body, b"now");
    // Bytes are transferred in both directions at once.
    let (response, mut stream) = client.send(post("/duplex", None), false);
    let mut duplex = response.await.unwrap().into_body();
    for word in ["one", "two"] {
        stream.send_data(Bytes::from(word), false).unwrap();
        assert_eq!(duplex.data().await.unwrap().unwrap(), word);
    }
    stream.send_data(Bytes::new(), true).unwrap();
    assert!(
        duplex
            .data()
            .await
            .is_none_or(|end| end.unwrap().is_empty())
    );
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn http2_early_hints_arrive_before_the_response() {
    let mut client = connect().await;
    let (mut response, _) = client.send(get("/hints"), true);
    let hints = poll_fn(|cx| response.poll_informational(cx))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(hints.status(), 103);
    assert_eq!(hints.headers()["link"], "</a.css>; rel=preload");
    client.script.gate.notify_one();
    assert_eq!(answer(response).await.unwrap().body, b"hinted");
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn http2_files_and_long_responses_wait_for_flow_control_windows() {
    let mut builder = h2::client::Builder::new();
    builder
        .initial_window_size(1000)
        .initial_connection_window_size(70_000);
    let mut client = with(HttpConfig::for_tests(), &builder).await;
    let file = client.ask(get("/file")).await.unwrap();
    assert_eq!(file.body.len() as u64, FILE_LEN);
    assert!(
        file.body
            .iter()
            .enumerate()
            .all(|(at, byte)| *byte == (at % 251) as u8)
    );
    let pieces = client.ask(get("/file-pieces")).await.unwrap();
    assert_eq!(pieces.body.len(), 100_006);
    let (big, other) = tokio::join!(
        answer(client.send(get("/big?10"), true).0),
        answer(client.send(get("/big?3"), true).0)
    );
    assert_eq!(big.unwrap().body.len(), 1_000_000);
    assert_eq!(other.unwrap().body.len(), 300_000);
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn http2_truncated_response_is_reset() {
    let mut client = connect().await;
    for path in ["/cut", "/too-short", "/file-short", "/panic-late"] {
        let error = client.ask(get(path)).await.unwrap_err();
        assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR), "{path}");
    }
    // The client receives the part that was sent before the reset.
    let (response, _) = client.send(get("/cut"), true);
    let mut body = response.await.unwrap().into_body();
    assert_eq!(body.data().await.unwrap().unwrap(), "abc");
    assert_eq!(
        client.text("/silent").await,
        "500 500 Internal Server Error: NoAnswer\n"
    );
    let panic = client.text("/panic").await;
    assert_eq!(panic, "500 500 Internal Server Error: HandlerPanicked\n");
    assert_eq!(client.text("/hello").await, "200 hello");
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn http2_handler_learns_that_its_stream_was_reset_or_lost() {
    let mut client = connect().await;
    let (response, mut stream) = client.send(post("/gone", None), false);
    client.until_seen("waiting").await;
    stream.send_reset(Reason::CANCEL);
    drop(response);
    client.until_seen("gone").await;
    assert_eq!(client.text("/hello").await, "200 hello");
    let script = client.script.clone();
    script.seen.lock().unwrap().clear();
    let (_response, _) = client.send(get("/gone"), true);
    client.until_seen("waiting").await;
    client.client.abort();
    within(Duration::from_secs(3600), client.server)
        .await
        .unwrap();
    assert!(script.seen().contains(&"gone".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn http2_client_that_reads_nothing_loses_only_that_stream() {
    let mut client = connect().await;
    let (response, _) = client.send(get("/big?1000"), true);
    let stalled = response.await.unwrap();
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert!(
        !client
            .script
            .seen()
            .contains(&"send: client gone".to_owned())
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    client.until_seen("send: client gone").await;
    let mut body = stalled.into_body();
    let end = loop {
        match body.data().await {
            Some(Ok(data)) => body.flow_control().release_capacity(data.len()).unwrap(),
            Some(Err(end)) => break end,
            None => panic!("it looks whole"),
        }
    };
    assert_eq!(end.reason(), Some(Reason::CANCEL));
    assert_eq!(client.text("/hello").await, "200 hello");
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn http2_stalled_body_times_out() {
    let mut client = connect().await;
    let (response, mut stream) = client.send(post("/echo", Some(10)), false);
    stream
        .send_data(Bytes::from_static(b"12345"), false)
        .unwrap();
    let late = answer(response).await.unwrap();
    assert_eq!((late.status, &late.body[..]), (408, &b"BodyTimeout"[..]));
    assert_eq!(client.text("/hello").await, "200 hello");
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn http2_drain_lets_requests_in_progress_finish() {
    let mut client = connect().await;
    let (waiting, _) = client.send(get("/wait"), true);
    client.until_seen("waiting").await;
    client.life.drain(Duration::ZERO);
    // A new request is no longer accepted, but not lost: the client knows that it was not handled.
    poll_fn(|cx| match client.send.poll_ready(cx) {
        Poll::Ready(Err(_)) => Poll::Ready(()),
        _ => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
    client.script.gate.notify_one();
    assert_eq!(answer(waiting).await.unwrap().body, b"waited");
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn http2_connection_is_closed_after_keepalive_timeout_or_requests() {
    let mut client = connect().await;
    assert_eq!(client.text("/hello").await, "200 hello");
    let begun = tokio::time::Instant::now();
    within(Duration::from_secs(3600), client.client)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(begun.elapsed().as_secs(), 75);
    within(Duration::from_secs(3600), client.server)
        .await
        .unwrap();
    let config = HttpConfig {
        keepalive_requests: 3,
        ..HttpConfig::for_tests()
    };
    let mut client = with(config, &h2::client::Builder::new()).await;
    for _ in 0..3 {
        assert_eq!(client.text("/hello").await, "200 hello");
    }
    within(Duration::from_secs(60), client.client)
        .await
        .unwrap()
        .unwrap();
    within(Duration::from_secs(60), client.server)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn http2_refusal_is_sent_on_its_stream() {
    let mut client = connect().await;
    for (name, value, status, error) in [
        ("host", "b.example", 400, "AuthorityMismatch"),
        ("x", " padded", 400, "BadHeaderValue"),
        ("expect", "wonders", 417, "UnknownExpectation"),
    ] {
        let mut request = get("/hello");
        request.headers_mut().insert(name, value.parse().unwrap());
        let refused = client.ask(request).await.unwrap();
        assert_eq!(refused.status, status);
        assert_eq!(refused.headers["howdah-error"], error);
    }
    let mut long = get("/hello");
    let value = "x".repeat(40 << 10);
    long.headers_mut().insert("x", value.parse().unwrap());
    let refused = client.ask(long).await.unwrap();
    assert_eq!(refused.headers["howdah-error"], "HeaderTooLarge");
    let mut trace = get("/hello");
    *trace.method_mut() = http::Method::TRACE;
    assert_eq!(client.ask(trace).await.unwrap().status, 501);
    assert_eq!(client.text("/hello").await, "200 hello");
    let seen = client.script.seen();
    let line = "refused: AuthorityMismatch: GET /hello HTTP/2.0";
    assert!(seen.iter().any(|seen| seen == line), "{seen:?}");
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn http2_cleartext_listener_also_speaks_http1() {
    for pieces in [
        &["GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"][..],
        &["P", "OST /hello HTTP/1.1\r\nHost: a\r\n\r\n"],
    ] {
        let mut client = h2c(HttpConfig::for_tests());
        for piece in pieces {
            client.send(piece).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let reply = client.reply().await;
        assert!(reply.ends_with("\r\n\r\nhello[open]"), "{reply}");
    }
    let mut other = TestClient::new();
    let reply = other.ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 505"), "{reply}");
    let mut silent = h2c(HttpConfig::for_tests());
    silent.send("PRI * HTTP/2.0\r\n").await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(silent.reply().await.ends_with("[closed]"));
}
