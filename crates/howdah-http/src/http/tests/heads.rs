//! Which heads are requests, and which are refused under which name.

use super::super::proxy_protocol::TrustedPeers;
use super::*;

const HOST: &str = "Host: a\r\n\r\n";

/// Checks that `bytes` are refused: the name of the refusal, a response that contains it, and a closed connection.
async fn refused(bytes: impl AsRef<[u8]>, status: u16, name: &str) {
    let bytes = bytes.as_ref();
    let mut client = TestClient::new();
    let reply = client.ask(bytes).await;
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    assert!(
        reply.starts_with(&format!("HTTP/1.1 {status} ")),
        "{shown:?} -> {reply}"
    );
    assert!(
        reply.contains(&format!("\r\nHowdah-Error: {name}\r\n")),
        "{shown:?} -> {reply}"
    );
    assert!(reply.contains("\r\nConnection: close\r\n"), "{reply}");
    assert!(reply.ends_with("[closed]"), "{shown:?} -> {reply}");
    assert_eq!(reply.matches("HTTP/1.1").count(), 1, "{reply}");
    let noted = client.script.seen();
    assert!(
        noted[0].starts_with(&format!("refused: {name}")),
        "{noted:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn request_is_answered_and_the_connection_stays_open() {
    assert_eq!(
        ask("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").await,
        ok("hello") + "[open]"
    );
}

#[tokio::test(start_paused = true)]
async fn header_lines_end_with_crlf_only() {
    refused("GET / HTTP/1.1\nHost: a\n\n", 400, "BareLf").await;
    refused("GET / HTTP/1.1\r\nHost: a\n\r\n", 400, "BareLf").await;
    refused("GET / HTTP/1.1\r\nHost: a\r\n\n", 400, "BareLf").await;
    refused("GET /\n", 400, "BareLf").await;
    refused("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "BareLf").await;
    refused("GET / HTTP/1.1\rHost: a\r\n\r\n", 400, "BareCr").await;
    refused("GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", 400, "BareCr").await;
    refused("GET / HTTP/1.1\r\nHost: a\r\n\rX", 400, "BareCr").await;
}

#[tokio::test(start_paused = true)]
async fn empty_lines_before_a_request_are_ignored() {
    for lines in ["\r\n", "\r\n\r\n", "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n"] {
        let reply = ask(format!("{lines}GET /hello HTTP/1.1\r\n{HOST}")).await;
        assert_eq!(reply, ok("hello") + "[open]");
    }
}

#[tokio::test(start_paused = true)]
async fn malformed_request_line_is_refused() {
    refused("GET /\r\n\r\n", 400, "BadRequestLine").await;
    refused("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "BadRequestLine").await;
    refused("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 400, "BadRequestLine").await;
    refused("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400, "BadRequestLine").await;
    refused("GET / HTTP/1.1 x\r\nHost: a\r\n\r\n", 400, "BadRequestLine").await;
    refused("GET / http/1.1\r\nHost: a\r\n\r\n", 400, "BadRequestLine").await;
    refused("GET / HTTP/11\r\nHost: a\r\n\r\n", 400, "BadRequestLine").await;
    refused(" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "BadMethod").await;
    refused(
        format!("{}GET / HTTP/1.1\r\nHost: a\r\n\r\n", "\r\n".repeat(9)),
        400,
        "BadMethod",
    )
    .await;
    refused("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "BadMethod").await;
    refused(b"\x16\x03\x01\x02\x00\x01\x00", 400, "BadMethod").await;
    refused("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505, "BadVersion").await;
    refused("GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505, "BadVersion").await;
    refused("GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505, "BadVersion").await;
    refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "BadVersion").await;
}

#[tokio::test(start_paused = true)]
async fn target_must_have_the_form_that_fits_the_method() {
    refused("GET hello HTTP/1.1\r\nHost: a\r\n\r\n", 400, "BadTarget").await;
    refused("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400, "BadTarget").await;
    refused("GET #b HTTP/1.1\r\nHost: a\r\n\r\n", 400, "BadTarget").await;
    refused("OPTIONS *#b HTTP/1.1\r\nHost: a\r\n\r\n", 400, "BadTarget").await;
    refused("GET /a#b\tc HTTP/1.1\r\nHost: a\r\n\r\n", 400, "BadTarget").await;
    for target in ["/a#b", "/a#b c", "/a?x=1#", "/#", "http://a/b#c"] {
        let line = format!("DELETE {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        refused(&line, 400, "BadTarget").await;
    }
    refused("GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n", 400, "BadTarget").await;
    refused("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "BadTarget").await;
    refused("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", 400, "BadHost").await;
    refused(
        "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        400,
        "BadHost",
    )
    .await;
    refused(
        "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
        501,
        "ConnectRefused",
    )
    .await;
    refused("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 501, "TraceRefused").await;
    assert_eq!(
        ask("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").await,
        ok("hello") + "[open]"
    );
}

#[tokio::test(start_paused = true)]
async fn methods_and_targets_reach_the_handler_unchanged() {
    for (line, expect) in [
        (
            "PURGE /what?%41=ä&\"<>[]{}|\\^` HTTP/1.1",
            "PURGE /what?%41=ä&\"<>[]{}|\\^` a",
        ),
        ("get /what HTTP/1.1", "get /what a"),
        ("X-!#$ /what?? HTTP/1.1", "X-!#$ /what?? a"),
        (
            "GET http://B.example:8/what?x HTTP/1.1",
            "GET http://B.example:8/what?x B.example:8",
        ),
        ("GET HTTPS://b/what HTTP/1.1", "GET HTTPS://b/what b"),
    ] {
        let got = ask(format!("{line}\r\nHost: a\r\n\r\n")).await;
        assert_eq!(got, ok(expect) + "[open]", "{line}");
    }
    for line in ["GET http://b?x=1 HTTP/1.1", "GET http://b HTTP/1.1"] {
        let got = ask(format!("{line}\r\nHost: a\r\n\r\n")).await;
        assert_eq!(got, ok("hello") + "[open]", "{line}: an empty path is /");
    }
}

#[tokio::test(start_paused = true)]
async fn host_header_must_be_present_once_and_valid() {
    refused("GET / HTTP/1.1\r\n\r\n", 400, "MissingHost").await;
    refused("GET http://a/ HTTP/1.1\r\n\r\n", 400, "MissingHost").await;
    refused(
        "GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n",
        400,
        "TwoHosts",
    )
    .await;
    refused("GET / HTTP/1.1\r\nHost:\r\n\r\n", 400, "BadHost").await;
    refused("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, "BadHost").await;
    refused("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "BadHost").await;
    refused("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400, "BadHost").await;
    assert_eq!(
        ask("GET /hello HTTP/1.0\r\n\r\n").await,
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello[closed]"
    );
}

#[tokio::test(start_paused = true)]
async fn malformed_header_line_is_refused() {
    let line = |field: &str| format!("GET / HTTP/1.1\r\n{field}\r\n{HOST}");
    refused(line("X: a\r\n b"), 400, "ObsFold").await;
    refused(line("X: a\r\n\tb"), 400, "ObsFold").await;
    refused(line(" X: a"), 400, "ObsFold").await;
    refused(line("X : a"), 400, "BadHeaderName").await;
    refused(line("X\t: a"), 400, "BadHeaderName").await;
    refused(line(": a"), 400, "BadHeaderName").await;
    refused(line("X"), 400, "BadHeaderName").await;
    refused(line("X(y: a"), 400, "BadHeaderName").await;
    refused(line("Content-Length\u{b}: 5"), 400, "BadHeaderName").await;
    refused(line("X: a\0b"), 400, "NulByte").await;
    refused(line("X\0: a"), 400, "NulByte").await;
    refused("GET /\0 HTTP/1.1\r\n", 400, "NulByte").await;
    refused(line("X: a\u{1}b"), 400, "ControlCharacter").await;
    refused(line("X: a\u{7f}b"), 400, "ControlCharacter").await;
    assert_eq!(
        ask(line("X:\t \u{e9}\ta \t\r\nEmpty:\r\n!#$%&'*+-.^_`|~9: x")).await,
        ok("hello") + "[open]"
    );
}

#[tokio::test(start_paused = true)]
async fn ambiguous_body_length_is_refused() {
    let post = |fields: &str| format!("POST /hello HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
    let both = "ContentLengthAndTransferEncoding";
    refused(
        post("Content-Length: 5\r\nTransfer-Encoding: chunked"),
        400,
        both,
    )
    .await;
    refused(
        post("Transfer-Encoding: chunked\r\nContent-Length: 5"),
        400,
        both,
    )
    .await;
    refused(
        post("Content-Length: 0\r\nTransfer-Encoding: chunked"),
        400,
        both,
    )
    .await;
    let twice = "ConflictingContentLength";
    refused(post("Content-Length: 5\r\nContent-Length: 6"), 400, twice).await;
    refused(post("Content-Length: 5\r\nContent-Length: 5"), 400, twice).await;
    for bad in [
        "",
        "5, 5",
        "+5",
        "-1",
        "0x5",
        "5 5",
        "5.0",
        "1e1",
        "9223372036854775808",
    ] {
        refused(
            post(&format!("Content-Length: {bad}")),
            400,
            "BadContentLength",
        )
        .await;
    }
    for bad in [
        "",
        "identity",
        "chunked, identity",
        "xchunked",
        "chunked;a=b",
        "\"chunked\"",
        "chunked,",
        "chunked\r\nTransfer-Encoding: chunked",
        "gzip",
        "chunked\r\nTransfer-Encoding: identity",
    ] {
        refused(
            post(&format!("Transfer-Encoding: {bad}")),
            400,
            "BadTransferEncoding",
        )
        .await;
    }
    refused(
        post("Transfer-Encoding: gzip, chunked"),
        501,
        "UnsupportedTransferEncoding",
    )
    .await;
    refused(
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        "BadTransferEncoding",
    )
    .await;
    refused(post("Expect: 200-ok"), 417, "UnknownExpectation").await;
    refused(post("Expect: 100-continue, x"), 417, "UnknownExpectation").await;
}

#[tokio::test(start_paused = true)]
async fn oversized_request_headers_are_refused() {
    let long = "a".repeat(9000);
    refused(format!("GET /{long} HTTP/1.1\r\n{HOST}"), 414, "UriTooLong").await;
    refused(format!("GET /{long}"), 414, "UriTooLong").await;
    refused(&long, 414, "UriTooLong").await;
    let fields = |n: usize| (0..n).map(|n| format!("X-{n}: y\r\n")).collect::<String>();
    refused(
        format!("GET / HTTP/1.1\r\n{}{HOST}", fields(100)),
        431,
        "TooManyHeaders",
    )
    .await;
    assert_eq!(
        ask(format!("GET / HTTP/1.1\r\n{}{HOST}", fields(99))).await,
        ok("hello") + "[open]"
    );
    let wide = format!("X: {}\r\n", "a".repeat(11_000));
    let wide = wide.repeat(3);
    refused(
        format!("GET / HTTP/1.1\r\n{wide}{HOST}"),
        431,
        "HeaderTooLarge",
    )
    .await;
    refused(format!("GET / HTTP/1.1\r\n{wide}"), 431, "HeaderTooLarge").await;
    let line = format!("GET /{} HTTP/1.1", "a".repeat(8192 - 14));
    assert_eq!(line.len(), 8192);
    refused(format!("{} \r\n{HOST}", &line), 414, "UriTooLong").await;
}

#[tokio::test(start_paused = true)]
async fn request_headers_may_arrive_in_any_pieces() {
    let wire = "\r\nPOST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    for step in [1, 2, 5, 17] {
        let mut client = TestClient::new();
        for piece in wire.as_bytes().chunks(step) {
            client.send(piece).await;
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(
            client.reply().await,
            ok("abc") + "[open]",
            "in pieces of {step}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_after_a_refused_request_are_never_answered() {
    // To a parser that frames the first request differently, each of these would contain a second request.
    let inner = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
    for (first, name) in [
        (
            format!(
                "POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}"
            ),
            "ContentLengthAndTransferEncoding",
        ),
        (
            format!(
                "POST /ignore HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n{inner}"
            ),
            "BadHeaderName",
        ),
        (
            format!(
                "POST /ignore HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \u{b}chunked\r\n\r\n{inner}"
            ),
            "ControlCharacter",
        ),
        (
            format!("POST /ignore HTTP/1.1\r\nHost: a\r\nX: y\nContent-Length: 10\r\n\r\n{inner}"),
            "BareLf",
        ),
        (
            format!("POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n 0\r\n\r\n{inner}"),
            "ObsFold",
        ),
    ] {
        let reply = ask(&first).await;
        assert_eq!(reply.matches("HTTP/1.1 ").count(), 1, "{reply}");
        assert!(reply.contains(name), "{first:?} -> {reply}");
        assert!(reply.ends_with("[closed]"), "{reply}");
    }
}

fn behind_proxy() -> TestClient {
    let trusted = TrustedPeers::new(|peer| peer.is_none());
    TestClient::with(HttpConfig::for_tests(), Some(trusted))
}

#[tokio::test(start_paused = true)]
async fn proxy_header_of_a_trusted_peer_names_the_client() {
    let get = "GET /conn HTTP/1.1\r\nHost: a\r\n\r\n";
    let v4 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x0a\x01\x02\x03\x7f\0\0\x01\x12\x34\0\x50";
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    for (header, peer) in [
        (
            &b"PROXY TCP4 10.1.2.3 127.0.0.1 4660 80\r\n"[..],
            "Some(10.1.2.3:4660)",
        ),
        (
            b"PROXY TCP6 2001:db8::1 ::1 1 80\r\n",
            "Some([2001:db8::1]:1)",
        ),
        (b"PROXY UNKNOWN whatever\r\n", "None"),
        (v4, "Some(10.1.2.3:4660)"),
        (local, "None"),
    ] {
        for split in [0, 3, header.len() - 1] {
            let mut client = behind_proxy();
            client.send(&header[..split]).await;
            tokio::task::yield_now().await;
            client.send(&header[split..]).await;
            for request in 1..3 {
                let expect = ok(&format!("{peer} {request}")) + "[open]";
                assert_eq!(client.ask(get).await, expect);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn bad_proxy_header_closes_the_connection_without_response() {
    for (header, name) in [
        (
            &b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            "ProxyHeaderMissing",
        ),
        (
            b"PROXY TCP4 10.1.2.3 127.0.0.1 04660 80\r\n",
            "ProxyHeaderBadLine",
        ),
        (b"PROXY TCP4 ::1 127.0.0.1 1 80\r\n", "ProxyHeaderBadLine"),
        (b"PROXY TCP4 10.1.2.3 127.0.0.1 1\r\n", "ProxyHeaderBadLine"),
        (
            b"PROXY TCP4 10.1.2.3 127.0.0.1 1 80 x\r\n",
            "ProxyHeaderBadLine",
        ),
        (
            &[b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat(),
            "ProxyHeaderBadLine",
        ),
        (b"\r\n\r\n\0\r\nQUIT\n\x11\x11\0\0", "ProxyHeaderBadVersion"),
        (
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x01x",
            "ProxyHeaderBadAddress",
        ),
        (
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
            "ProxyHeaderTooLong",
        ),
    ] {
        let mut client = behind_proxy();
        client.send(header).await;
        assert_eq!(client.reply().await, "[closed]");
        assert_eq!(client.script.seen(), [format!("proxy: {name}")]);
    }
    let mut silent = behind_proxy();
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(silent.reply().await, "[closed]");
    assert_eq!(silent.script.seen(), ["proxy: ProxyHeaderTimeout"]);
}

#[tokio::test(start_paused = true)]
async fn proxy_header_of_an_untrusted_peer_is_refused() {
    let mut client = TestClient::with(HttpConfig::for_tests(), Some(TrustedPeers::new(|_| false)));
    let reply = client.ask("PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n").await;
    assert!(reply.contains("Howdah-Error: BadRequestLine"), "{reply}");
}
