//! `proxy` rules: a Node application beside PHP, over HTTP/1.1, HTTP/2 and a unix socket; WebSocket from Chromium; and
//! upstream servers that send wrong data, hang, exit and return.

mod auth_request;
mod endless;
mod faults;
mod faults_h2c;
mod https;

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use howdah_tests::chromium::Chromium;
use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::http::{self, Connection, Framing, Headers, Response, framing_of};
use howdah_tests::process::Process;

const APP: &str = include_str!("app.mjs");

/// A Node application, and the address on which it listens.
struct App {
    process: Process,
    at: String,
}

impl App {
    /// Starts the application. `listen` is a port or a socket's path; `protocol` is empty, `h2c`, or the files of a
    /// certificate and its key.
    fn start(builder: &Builder, name: &str, listen: &str, protocol: &str) -> App {
        let file = builder.scratch().path().join("app.mjs");
        std::fs::write(&file, APP).expect("the application can be written");
        let mut command = Command::new("node");
        command.arg(&file).args([name, listen]);
        command.args(protocol.split_whitespace());
        let process = Process::start("node", &mut command);
        let at = process.wait_for_line("where it listens", Duration::from_secs(30), |line| {
            line.strip_prefix("ready ").map(str::to_owned)
        });
        App { process, at }
    }
}

fn ask(address: SocketAddr, head: &str, body: &str) -> Response {
    let request = format!("{head}\r\nHost: example.org\r\nConnection: close\r\n\r\n{body}");
    http::exchange(address, request.as_bytes()).unwrap_or_else(|broken| panic!("{head}: {broken}"))
}

#[test]
fn requests_and_answers_pass_whole_whatever_the_server_speaks() {
    let builder = Fixture::named("proxy");
    let socket = builder.scratch().path().join("app.sock");
    let plain = App::start(&builder, "plain", "0", "");
    let http2 = App::start(&builder, "h2c", "0", "h2c");
    let _unix = App::start(&builder, "unix", &socket.display().to_string(), "");
    let fixture = builder
        .script("index.php", "<?php echo 'php';")
        .site(&format!(
            "deny = [\"/plain/secret/**\"]\n\
             [[site.rule]]\nprefix = \"/plain/\"\nproxy = \"http://127.0.0.1:{}\"\nproxy_timeout = \"20s\"\n\
             [[site.rule]]\nprefix = \"/h2c/\"\nproxy = [\"h2c://127.0.0.1:{}\"]\n\
             [[site.rule]]\nprefix = \"/old/\"\nrewrite = \"/unix/$1?from=old\"\n\
             [[site.rule]]\nprefix = \"/unix/\"\nproxy = \"unix:{}\"\n\
             [[site.rule]]\nprefix = \"/\"\nset_header = {{ X-Site = \"yes\" }}",
            plain.at,
            http2.at,
            socket.display()
        ))
        .start();
    let at = fixture.address();
    assert_eq!(fixture.get("/").text(), "php");
    for part in ["plain", "h2c", "unix"] {
        let head = format!(
            "POST /{part}/a%2Fb/%C3%A9?x=%20&y HTTP/1.1\r\nCookie: a=b\r\nX-Forwarded-For: 6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nX_Real_IP: 6.6.6.6\r\nTransfer-Encoding: chunked"
        );
        let answer = ask(at, &head, "5\r\nhello\r\n4\r\n you\r\n0\r\n\r\n");
        assert_eq!(answer.status(), 200, "{}", answer.text());
        assert_eq!(answer.header("X-Of-Node"), Some(part));
        assert_eq!(answer.header("Server"), Some("Howdah"));
        let said = answer.json();
        assert_eq!(said["method"], "POST");
        assert_eq!(said["url"], format!("/{part}/a%2Fb/%C3%A9?x=%20&y"));
        assert_eq!(
            (&said["body"], &said["length"]),
            (&"hello you".into(), &9.into())
        );
        let fields = &said["headers"];
        let host = if part == "h2c" { ":authority" } else { "host" };
        assert_eq!(fields[host], "example.org", "{fields}");
        assert_eq!(fields["cookie"], "a=b");
        assert_eq!(fields["x-forwarded-for"], "127.0.0.1");
        assert_eq!(fields["x-real-ip"], "127.0.0.1");
        assert_eq!(fields["x-forwarded-proto"], "http");
        assert_eq!(fields["x-forwarded-host"], "example.org");
        assert_eq!(fields["via"], "1.1 Howdah");
        assert!(
            fields["x_real_ip"].is_null() && fields["connection"] != "close",
            "{fields}"
        );
        // This is a GET request with a body, as clients of search engines send it.
        let head = format!("GET /{part}/search HTTP/1.1\r\nTransfer-Encoding: chunked");
        let said = ask(at, &head, "5\r\nhello\r\n0\r\n\r\n").json();
        assert_eq!(
            (&said["method"], &said["body"]),
            (&"GET".into(), &"hello".into())
        );
        // A response to HEAD has no body.
        let head = ask(at, &format!("HEAD /{part}/x HTTP/1.1"), "");
        assert_eq!((head.status(), head.body.len()), (200, 0));
    }
    assert_eq!(
        ask(at, "GET /old/page?q=1 HTTP/1.1", "").json()["url"],
        "/unix/page?from=old&q=1"
    );
    // Paths that the site closes are closed in every spelling.
    for path in [
        "/plain/secret/x",
        "/plain//secret/x",
        "/plain/%73ecret/x",
        "/plain/a/../secret/x",
    ] {
        assert_eq!(
            ask(at, &format!("GET {path} HTTP/1.1"), "").status(),
            403,
            "{path}"
        );
    }
    // A body that was cut off is never presented to the client as complete.
    let mut cut = Connection::open(at).expect("a connection");
    cut.send("POST /plain/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel")
        .expect("the request is sent");
    drop(cut);
    fixture.wait("the request to be abandoned", |fixture| {
        fixture
            .access_log()
            .iter()
            .any(|line| line.contains(" 499 "))
    });
    fixture.still_serves();
}

#[test]
fn pieces_of_a_response_arrive_as_they_are_sent() {
    let builder = Fixture::named("proxy-streams");
    let app = App::start(&builder, "app", "0", "");
    let fixture = builder
        .site(&format!(
            "[[site.rule]]\nif_missing = true\nproxy = \"http://127.0.0.1:{}\"\nproxy_timeout = \"1500ms\"",
            app.at
        ))
        .start();
    let at = fixture.address();
    // The header `Status` has a meaning only in CGI.
    let found = ask(at, "GET /cgi-status HTTP/1.1", "");
    assert_eq!((found.status(), found.text().as_str()), (200, "found"));
    let hinted = ask(at, "GET /hint HTTP/1.1", "");
    assert_eq!(
        hinted.interim[0].headers.get("Link"),
        Some("</a.css>; rel=preload")
    );
    assert_eq!(hinted.text(), "hinted");
    assert_eq!(ask(at, "GET /big HTTP/1.1", "").body.len(), 160 * 65536);
    // Events and uploads may be silent for longer than proxy_timeout.
    let mut events = Connection::open(at).expect("a connection");
    events
        .send("GET /events HTTP/1.1\r\nHost: h\r\n\r\n")
        .expect("the request is sent");
    let head = events.read_head().expect("a head");
    let (mut framing, mut trailers) = (framing_of("GET", &head).unwrap(), Headers::default());
    let mut next = |events: &mut Connection, framing: &mut Framing| {
        let piece = events.read_piece(framing, &mut trailers).unwrap();
        String::from_utf8(piece.expect("an event")).unwrap()
    };
    assert_eq!(next(&mut events, &mut framing), "data: hello\n\n");
    // An upload arrives at the upstream server while it is being sent, and pauses of the client do not count as pauses
    // of the server.
    let mut upload = Connection::open(at).expect("a connection");
    upload
        .send("POST /pieces HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\nabc")
        .expect("the request is sent");
    let head = upload.read_head().expect("a head");
    let mut uploading = framing_of("POST", &head).unwrap();
    assert_eq!(next(&mut upload, &mut uploading), "3\n");
    std::thread::sleep(Duration::from_millis(1700));
    for number in 0..3 {
        let publish = format!("POST /publish HTTP/1.1\r\nContent-Length: {}", 6);
        assert_eq!(ask(at, &publish, &format!("news {number}")).text(), "1");
        assert_eq!(
            next(&mut events, &mut framing),
            format!("data: news {number}\n\n")
        );
    }
    drop(events);
    fixture.wait("the server to notice that no client listens", |_| {
        ask(at, "POST /publish HTTP/1.1\r\nContent-Length: 1", "x").text() == "0"
    });
    upload.send("defgh").expect("the request is sent");
    let mut rest = String::new();
    while !rest.ends_with("end\n") {
        rest += &next(&mut upload, &mut uploading);
    }
    assert_eq!(rest, "5\nend\n");
    fixture.still_serves();
}

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs chromium")]
fn websocket_goes_on_over_a_reload_and_ends_with_the_server() {
    let builder = Fixture::named("proxy-websocket");
    let app = App::start(&builder, "app", "0", "");
    let mut fixture = builder
        .file("page.html", "<!doctype html><title>live</title>")
        .site(&format!(
            "[[site.rule]]\nregex = \"^/(ws|publish|refused)$\"\nproxy = \"http://127.0.0.1:{}\"",
            app.at
        ))
        .start();
    let at = fixture.address();
    let mut browser = Chromium::start(&[]);
    browser.open(&format!("http://{at}/page.html"));
    let open = |browser: &mut Chromium, path: &str| {
        browser.evaluate(&format!(
            "window.got = []; window.ws = new WebSocket('ws://{at}{path}');
             ws.onmessage = (e) => got.push(e.data); ws.onclose = (e) => got.push('closed');
             new Promise((done) => {{ ws.onopen = () => done('open'); ws.onerror = () => done('refused'); }})"
        ))
    };
    assert_eq!(open(&mut browser, "/refused"), "refused");
    assert_eq!(open(&mut browser, "/ws"), "open");
    let send = |browser: &mut Chromium, text: &str| {
        browser.evaluate(&format!("got.length = 0; ws.send('{text}'); {WAIT}"))
    };
    assert_eq!(send(&mut browser, "one"), "app echoes one");
    let long = "x".repeat(60_000);
    assert_eq!(send(&mut browser, &long), format!("app echoes {long}"));
    fixture.reload();
    assert_eq!(send(&mut browser, "two"), "app echoes two");
    browser.evaluate("got.length = 0");
    let published = ask(at, "POST /publish HTTP/1.1\r\nContent-Length: 4", "news");
    assert_eq!(published.text(), "1");
    assert_eq!(browser.evaluate(WAIT), "news");
    browser.evaluate("got.length = 0");
    fixture.howdah.process.stop();
    assert_eq!(browser.evaluate(WAIT), "closed");
}

/// Waits for a message, and returns the first one since the list was emptied.
const WAIT: &str = "new Promise((done) => { const look = () => got.length ? done(got[0]) : setTimeout(look, 10); look(); })";

#[test]
fn many_listeners_hear_every_broadcast() {
    let builder = Fixture::named("proxy-broadcast");
    let app = App::start(&builder, "app", "0", "");
    let fixture = builder
        .site(&format!(
            "[[site.rule]]\nif_missing = true\nproxy = \"http://127.0.0.1:{}\"",
            app.at
        ))
        .start();
    let at = fixture.address();
    let mut listeners: Vec<Connection> = (0..100)
        .map(|_| {
            let mut listener = Connection::open(at).expect("a connection");
            listener
                .send("GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n")
                .expect("the request is sent");
            let head = listener.read_head().expect("a head");
            assert_eq!(head.status, 101);
            assert_eq!(head.headers.get("Sec-WebSocket-Accept"), Some("ICX+Yqv66kxgM0FcWaLWlFLwTAI="));
            listener
        })
        .collect();
    for round in 0..20 {
        if round == 10 {
            fixture.reload();
        }
        let text = format!("round {round:02}");
        let publish = format!("POST /publish HTTP/1.1\r\nContent-Length: {}", text.len());
        assert_eq!(ask(at, &publish, &text).text(), "100");
        let frame = [&[0x81, text.len() as u8], text.as_bytes()].concat();
        for listener in &mut listeners {
            let mut framing = Framing::Length(frame.len());
            let mut got = Vec::new();
            while got.len() < frame.len() {
                got.extend(
                    listener
                        .read_piece(&mut framing, &mut Headers::default())
                        .unwrap()
                        .unwrap(),
                );
            }
            assert_eq!(got, frame);
        }
    }
    fixture.still_serves();
}
