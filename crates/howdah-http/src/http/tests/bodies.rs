//! Request bodies: framing, limits, `100 Continue`, and bodies that are not read.

use super::*;

const NEXT: &str = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
const CHUNKED: &str = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

fn post(path: &str, body: &str) -> String {
    let n = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {n}\r\n\r\n{body}")
}

#[tokio::test(start_paused = true)]
async fn next_request_begins_where_the_framed_body_ends() {
    for (wire, body) in [
        (post("/echo", "abc"), "abc"),
        (post("/echo", ""), ""),
        (format!("{CHUNKED}3\r\nabc\r\n0\r\n\r\n"), "abc"),
        (
            format!("{CHUNKED}1\r\na\r\n2;x=y\r\nbc\r\n000\r\nT: u\r\n\r\n"),
            "abc",
        ),
        (format!("{CHUNKED}0\r\n\r\n"), ""),
    ] {
        let expect = ok(body) + &ok("hello") + "[open]";
        assert_eq!(ask(wire.clone() + NEXT).await, expect, "{wire}");
        let mut client = TestClient::new();
        for byte in wire.as_bytes().chunks(1) {
            client.send(byte).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(client.ask(NEXT).await, expect, "{wire} byte by byte");
    }
}

#[tokio::test(start_paused = true)]
async fn large_bodies_arrive_whole() {
    let body: String = (0..40_000).map(|n| format!("{n:07}\n")).collect();
    let n = body.len();
    for wire in [
        post("/echo", &body),
        format!("{CHUNKED}{n:x}\r\n{body}\r\n0\r\n\r\n"),
    ] {
        let mut client = TestClient::new();
        let (mut reader, mut writer) = client.stream.split();
        let sending = async { writer.write_all(wire.as_bytes()).await.unwrap() };
        let mut got = vec![0; ok(&body).len() + SERVER_HEADER_BYTES];
        let receiving = async { reader.read_exact(&mut got).await.unwrap() };
        within(Duration::from_secs(5), async {
            tokio::join!(sending, receiving)
        })
        .await;
        assert!(without_own_fields(&got) == ok(&body).into_bytes());
    }
}

#[tokio::test(start_paused = true)]
async fn malformed_chunk_is_refused_by_name_and_closes_the_connection() {
    for (chunks, name) in [
        ("x\r\n", "BadChunkSize"),
        ("3\nabc\r\n0\r\n\r\n", "BadChunkSize"),
        ("3;\r\nabc\r\n0\r\n\r\n", "BadChunkExtension"),
        ("3\r\nabcd\r\n0\r\n\r\n", "BadChunkEnd"),
        ("0\r\nbad trailer\r\n\r\n", "BadTrailer"),
    ] {
        let reply = ask(format!("{CHUNKED}{chunks}{NEXT}")).await;
        let n = name.len();
        assert_eq!(
            reply,
            format!(
                "HTTP/1.1 400 Bad Request\r\nContent-Length: {n}\r\nConnection: close\r\n\r\n{name}[closed]"
            )
        );
    }
}

#[tokio::test(start_paused = true)]
async fn body_over_the_limit_is_refused_before_it_is_read() {
    let reply = |body: &str| {
        format!(
            "HTTP/1.1 413 Content Too Large\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}[closed]",
            body.len()
        )
    };
    let head = "POST /echo?2 HTTP/1.1\r\nHost: a\r\n";
    let sized = format!("{head}Content-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(ask(sized).await, reply("BodyTooLarge"), "no 100 Continue");
    for chunks in [
        "3\r\nabc\r\n",
        "2\r\nab\r\n1\r\nc\r\n",
        "ffffffff\r\nabc",
        "3\r\n",
    ] {
        let wire = format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}");
        assert_eq!(ask(wire).await, reply("BodyTooLarge"));
    }
    let wire = format!("{head}Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n");
    assert_eq!(ask(wire).await, ok("ab") + "[open]");
}

#[tokio::test(start_paused = true)]
async fn continue_is_sent_when_the_handler_reads_the_body() {
    let head = |path| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-Continue\r\n\r\n"
        )
    };
    let mut client = TestClient::new();
    let interim = client.ask(head("/echo")).await;
    assert_eq!(interim, "HTTP/1.1 100 Continue\r\n\r\n[open]");
    assert_eq!(client.ask("abc").await, ok("abc") + "[open]");
    // `100 Continue` is not sent if the body has already arrived (RFC 9110 §10.1.1).
    assert_eq!(ask(head("/echo") + "abc").await, ok("abc") + "[open]");
    // `100 Continue` is not sent if the body is not read. Whether the body will come is unknown, so the connection
    // ends.
    assert_eq!(
        ask(head("/ignore")).await,
        "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nignored[closed]"
    );
    // `100 Continue` is not sent to HTTP/1.0 clients, or for a request without a body.
    let old = "POST /echo HTTP/1.0\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    assert_eq!(ask(old).await, "[open]");
    let none = "GET /hello HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n";
    assert_eq!(ask(none).await, ok("hello") + "[open]");
}

#[tokio::test(start_paused = true)]
async fn small_unread_body_is_discarded_and_the_connection_stays_open() {
    let expect = ok("ignored") + &ok("hello") + "[open]";
    assert_eq!(ask(post("/ignore", "abc") + NEXT).await, expect);
    let mut late = TestClient::new();
    late.send("POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n")
        .await;
    assert_eq!(
        late.reply().await,
        ok("ignored") + "[open]",
        "answered at once"
    );
    assert_eq!(late.ask(format!("abc{NEXT}")).await, ok("hello") + "[open]");
    let chunked = CHUNKED.replace("/echo", "/ignore");
    assert_eq!(
        ask(format!("{chunked}3\r\nabc\r\n0\r\n\r\n{NEXT}")).await,
        expect
    );
}

#[tokio::test(start_paused = true)]
async fn large_unread_body_closes_the_connection_after_the_response() {
    let wire = post("/ignore", &"x".repeat(2 << 20));
    let mut client = TestClient::new();
    let (mut reader, mut writer) = client.stream.split();
    // The client can write all of it, because the connection is not reset meanwhile.
    let sending = async { writer.write_all(wire.as_bytes()).await.unwrap() };
    let mut got = Vec::new();
    let receiving = async { reader.read_to_end(&mut got).await.unwrap() };
    within(Duration::from_secs(60), async {
        tokio::join!(sending, receiving)
    })
    .await;
    assert_eq!(
        String::from_utf8(without_own_fields(&got)).unwrap(),
        "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nignored"
    );
}

#[tokio::test(start_paused = true)]
async fn response_can_be_sent_while_the_body_arrives() {
    let mut client = TestClient::new();
    client.send(CHUNKED.replace("/echo", "/duplex")).await;
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(
        client.ask("3\r\nabc\r\n").await,
        format!("{head}3\r\nabc\r\n[open]")
    );
    assert_eq!(client.ask("1\r\nd\r\n").await, "1\r\nd\r\n[open]");
    assert_eq!(client.ask("0\r\n\r\n").await, "0\r\n\r\n[open]");
    assert_eq!(client.ask(NEXT).await, ok("hello") + "[open]");
}

#[tokio::test(start_paused = true)]
async fn truncated_body_is_reported_as_client_gone() {
    for wire in [
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc".to_owned(),
        format!("{CHUNKED}5\r\nabc"),
        format!("{CHUNKED}3\r\nabc\r\n"),
    ] {
        let mut client = TestClient::new();
        client.send(wire).await;
        client.stream.shutdown().await.unwrap();
        client.until_seen("body: ClientGone").await;
    }
}
