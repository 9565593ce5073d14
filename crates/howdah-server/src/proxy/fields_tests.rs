use super::*;

fn head(text: &str) -> RequestHead {
    let mut lines = text.trim_end().split("\r\n");
    let mut first = lines.next().unwrap().split(' ');
    let (method, target) = (first.next().unwrap(), first.next().unwrap());
    let fields: Vec<_> = lines.filter_map(|line| line.split_once(": ")).collect();
    crate::testing::request(method, target, &fields)
}

fn sent(text: &str, path: &str, client: &Client<'_>) -> Request<()> {
    let request = head(text);
    super::build_request(&OutgoingRequest {
        request: &request,
        client,
        peer: Some([192, 0, 2, 1].into()),
        path: path.as_bytes(),
        query: request.query(),
        body: BodyKind::None,
        websocket: asks_for_websocket(&request),
    })
    .unwrap()
}

fn visitor() -> Client<'static> {
    Client {
        address: Some([192, 0, 2, 1].into()),
        https: true,
        ..howdah_site::client_address::UNKNOWN_CLIENT.clone()
    }
}

#[test]
fn outgoing_path_is_the_clients_if_the_rules_saw_the_same() {
    for (raw, path, expected) in [
        ("/a/b?x=1&y", "/a/b", "/a/b?x=1&y"),
        ("/%61/b%2Fc?%zz", "/a/b/c", "/%61/b%2Fc?%zz"),
        ("/a//b", "/a/b", "/a/b"),
        ("/a/../b/%2e", "/b/", "/b/"),
        ("/old?q", "/new path", "/new%20path?q"),
        (
            "/a\"<>|^`{}?\"{}",
            "/a\"<>|^`{}",
            "/a%22%3C%3E%7C%5E%60%7B%7D?%22%7B%7D",
        ),
        ("/\u{e9}", "/\u{e9}", "/%C3%A9"),
        ("*", "/", "/"),
    ] {
        let request = sent(
            &format!("GET {raw} HTTP/1.1\r\nHost: h\r\n\r\n"),
            path,
            &visitor(),
        );
        assert_eq!(request.uri().to_string(), expected, "{raw}");
    }
}

#[test]
fn claims_of_a_client_are_not_forwarded() {
    let text = "GET / HTTP/1.1\r\nHost: example.org:8443\r\nConnection: close, X-Private\r\nX-Private: 1\r\n\
        X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-Proto: ftp\r\nX-Forwarded-Prefix: /x\r\nForwarded: for=2.2.2.2\r\n\
        X-Real-IP: 3.3.3.3\r\nProxy: evil\r\nX_Forwarded_For: 4.4.4.4\r\nTE: trailers\r\nExpect: 100-continue\r\n\
        Upgrade: h2c\r\nCookie: a=b\r\nCookie: c=d\r\nVia: 1.0 first\r\n\r\n";
    let request = sent(text, "/", &visitor());
    let mut fields: Vec<String> = request
        .headers()
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    fields.sort();
    assert_eq!(
        fields,
        [
            "cookie: a=b",
            "cookie: c=d",
            "host: example.org:8443",
            "via: 1.0 first",
            "via: 1.1 Howdah",
            "x-forwarded-for: 192.0.2.1",
            "x-forwarded-host: example.org:8443",
            "x-forwarded-port: 8443",
            "x-forwarded-proto: https",
            "x-real-ip: 192.0.2.1",
        ]
    );
}

#[test]
fn forwarded_for_continues_the_list_of_trusted_proxies() {
    let client = Client {
        address: Some([198, 51, 100, 7].into()),
        proxied: true,
        ..visitor()
    };
    let text = "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 198.51.100.7\r\n\r\n";
    let request = sent(text, "/", &client);
    assert_eq!(
        request.headers()["x-forwarded-for"],
        "198.51.100.7, 192.0.2.1"
    );
    assert_eq!(request.headers()["x-real-ip"], "198.51.100.7");
}

#[test]
fn websocket_is_requested_by_get() {
    let ask = "Host: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n";
    let request = sent(&format!("GET /ws HTTP/1.1\r\n{ask}"), "/ws", &visitor());
    assert_eq!(request.headers()["connection"], "Upgrade");
    assert_eq!(request.headers()["upgrade"], "websocket");
    assert_eq!(request.headers()["sec-websocket-version"], "13");
    for other in [
        format!("POST /ws HTTP/1.1\r\n{ask}"),
        format!("GET /ws HTTP/1.1\r\n{}", ask.replace("websocket", "h2c")),
        format!("GET /ws HTTP/1.1\r\n{}", ask.replace(", Upgrade", "")),
    ] {
        assert!(!asks_for_websocket(&head(&other)), "{other}");
    }
}

#[test]
fn proxy_loop_is_detected_by_via() {
    let via = "Via: 1.1 Howdah, 1.1 Howdah\r\n".repeat(5);
    let request = head(&format!("GET / HTTP/1.1\r\nHost: h\r\n{via}\r\n"));
    let refused = super::build_request(&OutgoingRequest {
        request: &request,
        client: &visitor(),
        peer: None,
        path: b"/",
        query: None,
        body: BodyKind::None,
        websocket: false,
    });
    assert_eq!(refused.err(), Some(Failure::ProxyLoop));
}

#[test]
fn authorization_request_does_not_ask_about_the_stored_page() {
    let request = head(
        "GET /a HTTP/1.1\r\nHost: h\r\nIf-None-Match: *\r\nIf-Match: \"a\"\r\nIf-Range: \"a\"\r\nRange: bytes=0-1\r\n\
         If-Modified-Since: Mon, 30 Nov 2026 23:00:00 GMT\r\nIf-Unmodified-Since: Mon, 30 Nov 2020 23:00:00 GMT\r\n\
         Cookie: a=b\r\n\r\n",
    );
    let out = OutgoingRequest {
        request: &request,
        client: &visitor(),
        peer: None,
        path: b"/a",
        query: None,
        body: BodyKind::None,
        websocket: false,
    };
    let path = PathAndQuery::from_static("/auth");
    let sent = super::build_authorization_request(&out, &path).unwrap();
    let conditions = ["if-", "range"];
    let kept = |name: &HeaderName| {
        conditions
            .iter()
            .any(|begin| name.as_str().starts_with(begin))
    };
    assert!(!sent.headers().keys().any(kept), "{:?}", sent.headers());
    assert_eq!(sent.headers()["cookie"], "a=b");
}
