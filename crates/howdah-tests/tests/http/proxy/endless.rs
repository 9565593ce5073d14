//! Upstream servers whose output never ends: the headers, interim responses, the framing of a body, or the body itself.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{self, Connection};
use howdah_tests::process_tree;

/// Begins a response and repeats a piece until the connection is closed.
struct EndlessBackend {
    port: u16,
    sent: Arc<AtomicU64>,
    ended: Arc<AtomicUsize>,
}

impl EndlessBackend {
    fn start(first: &'static [u8], piece: &'static [u8], pause: Duration) -> EndlessBackend {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = EndlessBackend {
            port: listener.local_addr().expect("an address").port(),
            sent: Arc::default(),
            ended: Arc::default(),
        };
        let (sent, ended) = (server.sent.clone(), server.ended.clone());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let (sent, ended) = (sent.clone(), ended.clone());
                std::thread::spawn(move || {
                    let _ = answer(&mut stream, first, piece, pause, &sent);
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        server
    }

    fn has_ended(&self, times: usize) -> bool {
        self.ended.load(Ordering::SeqCst) >= times
    }

    fn site(&self) -> String {
        let port = self.port;
        format!(
            "[[site.rule]]\nif_missing = true\nproxy = \"http://127.0.0.1:{port}\"\nproxy_timeout = \"1s\""
        )
    }
}

fn answer(
    stream: &mut TcpStream,
    first: &[u8],
    piece: &[u8],
    pause: Duration,
    sent: &AtomicU64,
) -> std::io::Result<()> {
    let mut buf = [0; 4096];
    if stream.read(&mut buf)? == 0 {
        return Ok(());
    }
    stream.write_all(first)?;
    loop {
        stream.write_all(piece)?;
        sent.fetch_add(piece.len() as u64, Ordering::SeqCst);
        std::thread::sleep(pause);
    }
}

#[test]
fn endless_response_head_is_given_up() {
    let slowly = Duration::from_millis(20);
    const SILENT: (u16, &str) = (504, "BackendTimeout");
    const INVALID: (u16, &str) = (502, "BackendInvalid");
    let framed = |rest: &str| -> &'static [u8] {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        format!("{head}{rest}").leak().as_bytes()
    };
    for (first, piece, pause, expected) in [
        (&b"HTTP/1.1 200 OK\r\nX: "[..], "x", slowly, SILENT),
        (
            b"",
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
            slowly,
            SILENT,
        ),
        (b"", "HTTP/1.1 100 Continue\r\n\r\n", Duration::ZERO, SILENT),
        // The length of a chunk, its extension and the trailers are endless.
        (framed(""), "0", Duration::ZERO, SILENT),
        (framed("1;"), "x", Duration::ZERO, INVALID),
        (
            framed("1\r\na\r\n0\r\n"),
            "X: y\r\n",
            Duration::ZERO,
            INVALID,
        ),
    ] {
        let server = EndlessBackend::start(first, piece.as_bytes(), pause);
        let fixture = Fixture::named("proxy-endless").site(&server.site()).start();
        let request = b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        let shown = String::from_utf8_lossy(first);
        match http::exchange(fixture.address(), request) {
            Ok(answer) => {
                let name = answer.header("Howdah-Error").unwrap_or_default();
                assert_eq!((answer.status(), name), expected, "{shown}{piece}");
            }
            // The beginning of the response has been forwarded, so the client sees that the rest is missing.
            Err(_) => assert_eq!(expected, INVALID, "{shown}{piece}"),
        }
        fixture.wait_for_log(&[expected.1]);
        fixture.wait("the connection to the server to be closed", |_| {
            server.has_ended(1)
        });
        fixture.still_serves();
    }
}

#[test]
fn endless_response_takes_bounded_room_and_ends_with_its_client() {
    const PIECE: usize = 0x4000;
    let mut piece = format!("{PIECE:x}\r\n").into_bytes();
    piece.extend_from_slice(&[b'x'; PIECE]);
    piece.extend_from_slice(b"\r\n");
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let server = EndlessBackend::start(head, Vec::leak(piece), Duration::ZERO);
    let fixture = Fixture::named("proxy-flood")
        .config("[limits]\nresponse_spill = \"4M\"")
        .site(&server.site())
        .start();
    let memory = || process_tree::memory(fixture.front(), "Rss").expect("the front is running");
    fixture.still_serves();
    let before = memory();
    let begin = || {
        let mut client = Connection::open(fixture.address()).expect("a connection");
        client
            .send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
            .expect("the request is sent");
        client
    };
    // This client reads, and then disconnects.
    let mut reader = begin();
    let head = reader.read_head().expect("a head");
    assert_eq!(head.status, 200);
    let mut some = vec![0; 8 << 20];
    reader
        .stream()
        .read_exact(&mut some)
        .expect("much of a body");
    fixture.still_serves();
    drop(reader);
    fixture.wait("the connection to the server to be closed", |_| {
        server.has_ended(1)
    });
    // This client does not read. Once the file is full, the upstream server has to wait.
    let before_silence = server.sent.load(Ordering::SeqCst);
    let silent = begin();
    let mut last = before_silence;
    fixture.wait("the upstream server to wait", |fixture| {
        fixture.still_serves();
        std::thread::sleep(Duration::from_millis(100));
        let now = server.sent.load(Ordering::SeqCst);
        now == std::mem::replace(&mut last, now) && now > before_silence
    });
    let taken = last - before_silence;
    assert!(taken < 24 << 20, "{taken} bytes");
    let grown = memory().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB");
    drop(silent);
    fixture.wait("the connection to the server to be closed", |_| {
        server.has_ended(2)
    });
    fixture.still_serves();
}
