//! Upstream servers that declare wrong lengths, speak another protocol, hang, exit and return.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{self, Connection};

use super::{App, ask};

/// Responds to every request with the same bytes, and then closes the connection if `closes` is set. Stores the
/// requests that it receives.
struct FixedResponseBackend {
    port: u16,
    connections: Arc<AtomicUsize>,
    received: Arc<Mutex<Vec<u8>>>,
}

impl FixedResponseBackend {
    fn start(answer: &'static [u8], closes: bool) -> FixedResponseBackend {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (connections, received) = (
            Arc::<AtomicUsize>::default(),
            Arc::<Mutex<Vec<u8>>>::default(),
        );
        let (count, requests) = (connections.clone(), received.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::SeqCst);
                let requests = requests.clone();
                std::thread::spawn(move || converse(stream, answer, closes, &requests));
            }
        });
        FixedResponseBackend {
            port,
            connections,
            received,
        }
    }

    fn site(&self) -> String {
        format!(
            "[[site.rule]]\nif_missing = true\nproxy = \"http://127.0.0.1:{}\"\nproxy_timeout = \"300ms\"",
            self.port
        )
    }

    fn received(&self) -> String {
        String::from_utf8_lossy(&self.received.lock().unwrap()).into_owned()
    }
}

fn converse(mut stream: TcpStream, answer: &[u8], closes: bool, received: &Mutex<Vec<u8>>) {
    let mut buf = [0; 4096];
    let mut since = 0;
    while let Ok(n @ 1..) = stream.read(&mut buf) {
        let mut received = received.lock().unwrap();
        received.extend_from_slice(&buf[..n]);
        let whole = received[since..].windows(4).any(|end| end == b"\r\n\r\n");
        since = if whole { received.len() } else { since };
        drop(received);
        if whole && (stream.write_all(answer).is_err() || closes) {
            return;
        }
    }
}

#[test]
fn invalid_response_of_a_server_has_a_name() {
    for (answer, closes, status, name) in [
        (
            &b"SSH-2.0-OpenSSH_9.2p1\r\n"[..],
            true,
            502,
            "BackendInvalid",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            true,
            502,
            "BackendInvalid",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
            true,
            502,
            "BackendInvalid",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
            true,
            502,
            "BackendInvalid",
        ),
        (
            b"HTTP/1.1 200 OK\r\nA\0b: c\r\n\r\n",
            true,
            502,
            "BackendInvalid",
        ),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
            true,
            502,
            "BackendInvalid",
        ),
        (b"", true, 502, "BackendClosed"),
        (b"HTTP/1.1 200 OK\r\nX-Half: a", true, 502, "BackendClosed"),
        (b"", false, 504, "BackendTimeout"),
        (
            b"HTTP/1.1 100 Continue\r\n\r\n",
            false,
            504,
            "BackendTimeout",
        ),
    ] {
        let liar = FixedResponseBackend::start(answer, closes);
        let fixture = Fixture::named("proxy-liar").site(&liar.site()).start();
        let got = ask(
            fixture.address(),
            "POST /x HTTP/1.1\r\nContent-Length: 2",
            "ab",
        );
        let shown = String::from_utf8_lossy(answer);
        assert_eq!(
            (got.status(), got.header("Howdah-Error")),
            (status, Some(name)),
            "{shown}"
        );
        assert_eq!(
            liar.connections.load(Ordering::SeqCst),
            1,
            "a POST is not repeated: {shown}"
        );
        fixture.wait_for_log(&[name]);
        fixture.still_serves();
    }
}

#[test]
fn excess_and_missing_bytes_of_a_server_affect_no_other_request() {
    // If the server sends more bytes than it announced, no client gets them, and the connection is not used again.
    let more = FixedResponseBackend::start(
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
        false,
    );
    let fixture = Fixture::named("proxy-more").site(&more.site()).start();
    for _ in 0..5 {
        assert_eq!(ask(fixture.address(), "GET /x HTTP/1.1", "").text(), "ok");
    }
    assert_eq!(more.connections.load(Ordering::SeqCst), 5);
    // If the server sends fewer bytes than it announced, the client sees that the rest is missing. It receives an error
    // instead if nothing has been sent to it yet.
    let less =
        FixedResponseBackend::start(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nonly", true);
    let fixture = Fixture::named("proxy-less").site(&less.site()).start();
    let request = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n";
    if let Ok(answer) = http::exchange(fixture.address(), request.as_bytes()) {
        assert_eq!(
            (answer.status(), answer.header("Howdah-Error")),
            (502, Some("BackendClosed"))
        );
    }
    fixture.wait_for_log(&["BackendClosed"]);
    // This header section has no end.
    let long = Box::leak(format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(1 << 20)).into_boxed_str());
    let endless = FixedResponseBackend::start(long.as_bytes(), false);
    let fixture = Fixture::named("proxy-endless")
        .site(&endless.site())
        .start();
    let got = ask(fixture.address(), "GET /x HTTP/1.1", "");
    assert_eq!(
        (got.status(), got.header("Howdah-Error")),
        (502, Some("BackendInvalid"))
    );
    fixture.still_serves();
}

#[test]
fn server_receives_one_request_for_each_client_request() {
    let liar = FixedResponseBackend::start(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", true);
    let fixture = Fixture::named("proxy-one").site(&liar.site()).start();
    let mut client = Connection::open(fixture.address()).expect("a connection");
    client
        .send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 44\r\nConnection: keep-alive, Content-Length\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\nX: 1\r\n\r\n..")
        .expect("the request is sent");
    let answer = client.read_response("POST").expect("a response");
    assert_eq!(answer.text(), "ok");
    let received = liar.received();
    let (head, body) = received.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("POST /a HTTP/1.1\r\n"), "{received}");
    let lengths = head
        .lines()
        .filter(|line| line.to_ascii_lowercase().starts_with("content-length"));
    assert_eq!(
        lengths.collect::<Vec<_>>(),
        ["content-length: 44"],
        "{received}"
    );
    assert!(
        !head.to_ascii_lowercase().contains("transfer-encoding"),
        "{received}"
    );
    assert!(body.starts_with("GET /smuggled"), "{received}");
}

#[test]
fn servers_that_leave_are_passed_over_and_come_back() {
    let builder = Fixture::named("proxy-servers");
    let one = App::start(&builder, "one", "0", "");
    let mut two = App::start(&builder, "two", "0", "");
    let fixture = builder
        .site(&format!(
            "[[site.rule]]\nif_missing = true\nproxy = [\"http://127.0.0.1:{}\", \"http://127.0.0.1:{}\"]\nproxy_health = \"/up\"",
            one.at, two.at
        ))
        .config("[status]\npath = \"/status\"")
        .start();
    let name = || {
        let answer = ask(fixture.address(), "GET /x HTTP/1.1", "");
        assert_eq!(answer.status(), 200, "{}", answer.text());
        answer.json()["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let both: std::collections::BTreeSet<_> = (0..10).map(|_| name()).collect();
    assert_eq!(both.into_iter().collect::<Vec<_>>(), ["one", "two"]);
    // Idle connections to a server that has exited make no request fail.
    let port = two.at.clone();
    two.process.stop();
    for _ in 0..20 {
        assert_eq!(name(), "one");
    }
    fixture.wait_for_log(&["BackendDown", &port]);
    // After a reload, the states and counts of the servers are still known.
    fixture.reload();
    let status = fixture.status();
    let row = |name: &App| {
        let address = format!("http://127.0.0.1:{}", name.at);
        let mut rows = status["proxied"].as_array().unwrap().iter();
        rows.rfind(|row| row["address"] == *address).unwrap()
    };
    assert_eq!(
        (row(&one)["state"].as_str(), &row(&one)["why"]),
        (Some("Up"), &"".into())
    );
    assert!(row(&one)["requests"].as_u64().unwrap() >= 25, "{status}");
    assert!(row(&one)["kept"].as_u64().unwrap() >= 1, "{status}");
    assert_eq!(row(&two)["state"], "Down", "{status}");
    assert!(
        row(&two)["why"].as_str().unwrap().contains("refused"),
        "{status}"
    );
    assert!(row(&two)["failures"].as_u64().unwrap() >= 1, "{status}");
    let metrics = fixture.get("/status?openmetrics").text();
    let down = format!("howdah_backend_up{{address=\"http://127.0.0.1:{port}\",health=\"/up\"}} 0");
    assert!(metrics.contains(&down), "{metrics}");
    let builder = Fixture::named("proxy-servers-again");
    let _two = App::start(&builder, "two", &port, "");
    fixture.wait("the server to be used again", |_| name() == "two");
    // A server that reports itself as unhealthy gets no requests.
    while ask(fixture.address(), "GET /sick HTTP/1.1", "").status() != 200 {}
    fixture.wait_for_log(&["BackendDown", "/up returned status 500"]);
    let names: std::collections::BTreeSet<_> = (0..6).map(|_| name()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[test]
fn without_any_server_the_answer_says_so() {
    let builder = Fixture::named("proxy-none");
    let fixture = builder
        .script("index.php", "<?php echo 'php';")
        .site("[[site.rule]]\nprefix = \"/app\"\nproxy = [\"http://127.0.0.1:1\", \"unix:/run/none.sock\"]")
        .start();
    let got = ask(
        fixture.address(),
        "POST /app HTTP/1.1\r\nContent-Length: 1",
        "x",
    );
    assert_eq!(
        (got.status(), got.header("Howdah-Error")),
        (503, Some("BackendDown"))
    );
    fixture.wait_for_log(&["BackendDown", "127.0.0.1:1"]);
    fixture.wait_for_log(&["BackendDown", "/run/none.sock"]);
    // A rule that leads back to this server does not loop forever.
    let at = howdah_tests::rig::free_address();
    let looping = Fixture::named("proxy-loop")
        .argument("--listen", &at.to_string())
        .site(&format!(
            "[[site.rule]]\nprefix = \"/app\"\nproxy = \"http://{at}\""
        ));
    let fixture = looping.start();
    let got = ask(fixture.address(), "GET /app HTTP/1.1", "");
    assert_eq!(
        (got.status(), got.header("Howdah-Error")),
        (508, Some("ProxyLoop"))
    );
    fixture.still_serves();
}

#[test]
fn request_without_a_host_names_the_server() {
    let backend = FixedResponseBackend::start(b"HTTP/1.1 204 No Content\r\n\r\n", false);
    let fixture = Fixture::named("proxy-no-host")
        .site(&backend.site())
        .start();
    let answer = http::exchange(fixture.address(), b"GET /x HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(answer.status(), 204);
    let received = backend.received();
    let host = format!("\r\nhost: 127.0.0.1:{}\r\n", backend.port);
    assert!(received.contains(&host), "{received}");
}

#[test]
fn get_is_repeated_if_the_server_resets_a_reused_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                    head.push(byte[0]);
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                // A connection that is closed while bytes of it are unread is reset.
                let _ = stream.read(&mut byte);
            });
        }
    });
    let fixture = Fixture::named("proxy-reset")
        .site(&format!(
            "[[site.rule]]\nif_missing = true\nproxy = \"http://127.0.0.1:{port}\""
        ))
        .start();
    let mut client = Connection::open(fixture.address()).expect("a connection");
    for (method, status) in [("GET", 200), ("GET", 200), ("DELETE", 502), ("GET", 200)] {
        let request = format!("{method} /x HTTP/1.1\r\nHost: h\r\n\r\n");
        client.send(&request).expect("the request is sent");
        let answer = client.read_response(method).expect("a response");
        assert_eq!(answer.status(), status, "{method}");
    }
    fixture.still_serves();
}

#[test]
fn server_of_an_event_stream_notices_that_its_client_has_left_whatever_the_method() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (noticed, notices) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                request.push(byte[0]);
            }
            if request.starts_with(b"POST") {
                let _ = stream.read_exact(&mut [0; 2]);
            }
            let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
            let _ = stream.write_all(head);
            // The end of the connection is the only thing that can be read.
            let _ = noticed.send(matches!(stream.read(&mut byte), Ok(0) | Err(_)));
        }
    });
    let fixture = Fixture::named("proxy-left")
        .site(&format!(
            "[[site.rule]]\nif_missing = true\nproxy = \"http://127.0.0.1:{port}\""
        ))
        .start();
    for request in [
        "GET /x HTTP/1.1\r\nHost: h\r\n\r\n",
        "DELETE /x HTTP/1.1\r\nHost: h\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi",
    ] {
        let mut client = Connection::open(fixture.address()).expect("a connection");
        client.send(request).expect("the request is sent");
        assert_eq!(client.read_head().expect("a head").status, 200);
        drop(client);
        let noticed = notices.recv_timeout(Duration::from_secs(30));
        assert_eq!(noticed, Ok(true), "{request}");
    }
    fixture.still_serves();
}
