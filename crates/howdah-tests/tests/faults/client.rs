//! Clients that are slow, that disconnect, or that are very many. None of them may occupy a PHP child, and slow ones
//! are disconnected in time.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use howdah_tests::fixture::{Builder, Fixture, HELLO};
use howdah_tests::http::{Connection, Headers, framing_of};
use howdah_tests::http2::{self, Http2Frames, Http2Request};
use howdah_tests::load::Load;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn header_sent_byte_by_byte_is_cut_off_by_the_header_timeout() {
    let fixture = Fixture::named("slowloris")
        .config("[timeouts]\nheader = \"1s\"")
        .start();
    let mut stream = TcpStream::connect(fixture.address()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let _ = stream.write_all(b"GET /hello.php HTTP/1.1\r\nHost: x\r\nX-Slow: ");
    let begun = Instant::now();
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        assert!(
            begun.elapsed() < Duration::from_secs(15),
            "the connection is not closed"
        );
        // The read timeout is the pause between two bytes.
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => answer.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let _ = stream.write_all(b"a");
            }
            Err(_) => break,
        }
    }
    assert!(begun.elapsed() >= Duration::from_millis(900));
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 408 "),
        "{answer}"
    );
    // A byte that is still in transit may cost the client the response, but the operator still finds the reason.
    fixture.wait("the access log to contain the request", |f| {
        f.access_log().iter().any(|line| line.contains(" 408 "))
    });
    fixture.still_serves();
}

#[test]
fn reader_that_does_not_read_holds_no_child() {
    const SIZE: usize = 24 << 20;
    let fixture = Fixture::named("slow-reader")
        .children(1)
        .script(
            "big.php",
            "<?php for ($i = 0; $i < 24; $i++) echo str_repeat('x', 1 << 20);",
        )
        .start();
    let mut slow = Connection::open(fixture.address()).unwrap();
    slow.send("GET /big.php HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let head = slow.read_head().unwrap();
    assert_eq!(head.status, 200);
    // The only child is free for other clients while 24 MB wait for the slow client.
    for _ in 0..20 {
        fixture.still_serves();
    }
    let mut framing = framing_of("GET", &head).unwrap();
    let mut got = 0;
    while let Some(piece) = slow
        .read_piece(&mut framing, &mut Headers::default())
        .unwrap()
    {
        assert!(piece.iter().all(|b| *b == b'x'));
        got += piece.len();
    }
    assert_eq!(got, SIZE);
}

#[test]
fn client_gone_in_the_middle_of_a_streamed_upload_frees_the_child() {
    let fixture = Fixture::named("gone-upload")
        .children(1)
        .site("request_buffering = \"off\"")
        .script(
            "upload.php",
            "<?php require 'GATES'; stand_at('upload');
            $in = fopen('php://input', 'r'); $n = 0;
            while (($piece = fread($in, 8192)) !== false && $piece !== '') $n += strlen($piece);
            file_put_contents('SCRATCH/got', (string) $n);",
        )
        .start();
    let gate = fixture.gate("upload");
    let mut client = Connection::open(fixture.address()).unwrap();
    client
        .send("PUT /upload.php HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n0123456789")
        .unwrap();
    let standing = gate.wait();
    drop(client);
    standing.open();
    fixture.still_serves();
}

#[test]
fn buffered_upload_that_never_ends_does_not_reach_a_child() {
    let fixture = Fixture::named("slow-upload")
        .children(1)
        .config("[timeouts]\nbody = \"1s\"")
        .script("upload.php", "<?php touch('SCRATCH/ran');")
        .start();
    let mut client = Connection::open(fixture.address()).unwrap();
    client
        .send("POST /upload.php HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n0123456789")
        .unwrap();
    for _ in 0..5 {
        fixture.still_serves();
    }
    let answer = client.read_response("POST").unwrap();
    assert_eq!(answer.status(), 408, "{}", answer.text());
    assert!(!fixture.path("ran").exists());
}

/// Reads the first MiB of the body of `path` and disconnects.
fn take_a_mebibyte(fixture: &Fixture, path: &str) {
    let mut client = Connection::open(fixture.address()).unwrap();
    client
        .send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
        .unwrap();
    let head = client.read_head().unwrap();
    assert_eq!(head.status, 200);
    let mut framing = framing_of("GET", &head).unwrap();
    let mut got = 0;
    while got < 1 << 20 {
        got += client
            .read_piece(&mut framing, &mut Headers::default())
            .unwrap()
            .unwrap()
            .len();
    }
    assert_eq!(fixture.status()["connections"]["open"], 1);
    client.stream().shutdown(Shutdown::Both).unwrap();
}

/// Returns the front's descriptors in order, once the front has closed the connection of the last status request.
fn descriptors(fixture: &Fixture) -> Vec<PathBuf> {
    let now = |fixture: &Fixture| {
        let links = std::fs::read_dir(format!("/proc/{}/fd", fixture.front())).unwrap();
        let targets = links.filter_map(|link| std::fs::read_link(link.unwrap().path()).ok());
        let mut targets: Vec<_> = targets.collect();
        targets.sort();
        targets
    };
    let mut seen = Vec::new();
    fixture.wait("the last status request to be over", |fixture| {
        seen = now(fixture);
        !seen.contains(&PathBuf::from("/memfd:howdah-text (deleted)"))
    });
    seen
}

/// Abandons a download of `path` in the middle, and checks that nothing of it remains in the server: no descriptor of
/// the connection or of files that were read for it, no connection, no request in progress, and no busy child. Also
/// checks that the access log and the status give the reason.
fn leave_a_download(fixture: &Fixture, path: &str) {
    let until_free = || {
        fixture.wait("connection, request and child to be free", |fixture| {
            let status = fixture.status();
            status["connections"]["open"] == 0
                && status["requests_active"] == 0
                && status["pools"][0]["active_processes"] == 0
        });
    };
    // During the first download, a front thread may open descriptors that it keeps for all requests.
    let seen = [1, 2, 3].map(|_| {
        take_a_mebibyte(fixture, path);
        until_free();
        descriptors(fixture)
    });
    assert_eq!(seen[1], seen[0]);
    assert_eq!(seen[2], seen[0]);
    let wanted = format!("\"target\":\"{path}\"");
    let lines = || {
        let log = fixture.access_log().into_iter();
        log.filter(|line| line.contains(&wanted))
            .collect::<Vec<_>>()
    };
    fixture.wait("the access log to contain the downloads", |_| {
        lines().len() == seen.len()
    });
    for line in lines() {
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["error"], "ClientGone", "{line}");
        assert_eq!(
            line["status"], 200,
            "the status that the client received: {line}"
        );
        assert!(line["bytes"].as_u64().unwrap() >= 1 << 20, "{line}");
    }
    let failures = &fixture.status()["failures"];
    assert_eq!(*failures, serde_json::json!([["ClientGone", seen.len()]]));
    fixture.still_serves();
}

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs php-cgi")]
fn requests_that_ask_for_an_effect_are_run_although_their_clients_do_not_wait() {
    for mode in ["embed", "pool", "cgi"] {
        run_although_their_clients_do_not_wait(mode);
    }
}

/// Starts a server whose only child is busy until the file `go` exists. `job.php` appends a line with the value of a
/// variable to the file `ran`.
fn with_a_busy_child(builder: Builder, variable: &str) -> (Fixture, JoinHandle<u16>) {
    let busy = builder.scratch().join("busy");
    let job = format!(
        "<?php file_put_contents('SCRATCH/ran', \"$_SERVER[{variable}]\\n\", FILE_APPEND);"
    );
    let fixture = builder
        .children(1)
        .script(
            "busy.php",
            "<?php touch('SCRATCH/busy'); while (!file_exists('SCRATCH/go')) usleep(1000);",
        )
        .script("job.php", &job)
        .start();
    let address = fixture.address();
    let request =
        std::thread::spawn(move || howdah_tests::http::get(address, "/busy.php").status());
    fixture.wait("the only child to be busy", |_| busy.exists());
    (fixture, request)
}

/// Lets the busy child continue, and waits until exactly these lines have been written by the jobs, in any order.
fn let_jobs_run(fixture: &Fixture, busy: JoinHandle<u16>, expected: &[&str]) {
    std::fs::write(fixture.path("go"), "").unwrap();
    assert_eq!(busy.join().unwrap(), 200);
    let ran = || {
        let text = std::fs::read_to_string(fixture.path("ran")).unwrap_or_default();
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    fixture.wait("all jobs to have run", |_| ran().len() >= expected.len());
    fixture.still_serves();
    assert_eq!(ran(), expected);
}

fn run_although_their_clients_do_not_wait(mode: &str) {
    let builder = Fixture::named(&format!("fire-and-forget-{mode}"));
    let builder = builder.pool(&format!("mode = \"{mode}\""));
    let (fixture, busy) = with_a_busy_child(builder, "REQUEST_METHOD");
    let address = fixture.address();
    let leave = |method: &str, headers: &str, body: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("{method} /job.php HTTP/1.1\r\nHost: x\r\n{headers}\r\n{body}");
        stream.write_all(request.as_bytes()).unwrap();
    };
    for _ in 0..5 {
        leave("POST", "Content-Length: 3\r\n", "a=1");
        leave(
            "POST",
            "Transfer-Encoding: chunked\r\n",
            "3\r\na=1\r\n0\r\n\r\n",
        );
        leave("GET", "", "");
    }
    leave("DELETE", "", "");
    // A request that never arrives completely is not run.
    leave("POST", "Content-Length: 9\r\n", "a=1");
    fixture.wait("all clients to have disconnected", |fixture| {
        fixture.status()["connections"]["open"].as_u64() <= Some(12)
    });
    let expected = [vec!["DELETE"], vec!["POST"; 10]].concat();
    let_jobs_run(&fixture, busy, &expected);
}

#[test]
fn streams_that_ask_for_an_effect_are_run_although_their_connection_ends() {
    let builder = Fixture::named("fire-and-forget-streams").h2c().http3();
    let (fixture, busy) = with_a_busy_child(builder, "SERVER_PROTOCOL");
    let address = fixture.address();
    let job = |stream| http2::headers(stream, "POST", "/job.php", true);
    for _ in 0..4 {
        // Sends several requests and closes the connection; the server often reads all of this at once.
        let mut frames = Http2Frames::open(address, &[]);
        assert!(frames.send([job(1), job(3), job(5)].concat()));
    }
    let mut connection = fixture.http3();
    for _ in 0..3 {
        let post = Http2Request::new("POST", "localhost", "/job.php");
        connection.send(&post).expect("an open connection");
    }
    let queued = |fixture: &Fixture| fixture.status()["pools"][0]["queue"].as_u64();
    fixture.wait("all jobs to wait", |fixture| {
        queued(fixture) == Some(4 * 3 + 3)
    });
    drop(connection);
    let expected = [vec!["HTTP/2.0"; 12], vec!["HTTP/3.0"; 3]].concat();
    let_jobs_run(&fixture, busy, &expected);
}

#[test]
fn client_gone_in_the_middle_of_a_download_frees_the_child() {
    let fixture = Fixture::named("gone-download")
        .children(1)
        .config("threads = 1\n[log]\naccess_format = \"json\"")
        .ini("max_execution_time", "0")
        .script(
            "endless.php",
            "<?php register_shutdown_function(function () {
                file_put_contents('SCRATCH/ended', (string) connection_status());
            });
            while (true) { echo str_repeat('x', 65536); flush(); }",
        )
        .start();
    leave_a_download(&fixture, "/endless.php");
    assert_eq!(
        std::fs::read_to_string(fixture.path("ended")).unwrap(),
        "1",
        "the script saw connection_status() = CONNECTION_ABORTED"
    );
}

#[test]
fn client_gone_in_the_middle_of_a_file_leaves_no_descriptor_and_no_connection() {
    let builder = Fixture::named("gone-file")
        .children(1)
        .config("threads = 1\n[log]\naccess_format = \"json\"")
        .file("large.bin", "");
    // The file is larger than all buffers of a connection; being sparse, it takes no space on the disk.
    let large = builder.scratch().join("site/large.bin");
    let file = std::fs::OpenOptions::new().write(true).open(large);
    file.unwrap().set_len(1 << 30).unwrap();
    leave_a_download(&builder.start(), "/large.bin");
}

#[test]
fn ten_thousand_idle_connections_cost_little_and_hinder_nobody() {
    const CONNECTIONS: usize = 10_000;
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    assert!(
        limit.maximum.is_none_or(|n| n >= CONNECTIONS as u64 + 500),
        "10 000 connections need a higher hard limit on open files: {limit:?}"
    );
    let fixture = Fixture::named("idle").file("hello.txt", HELLO).start();
    let warm = Load::new(fixture.address(), "/hello.php", HELLO).clients(64);
    warm.clone().run(20).only(&["200"]);
    let before = fixture.server_memory();
    let mut held = Vec::with_capacity(CONNECTIONS);
    for i in 0..CONNECTIONS {
        let mut connection = Connection::open(fixture.address()).unwrap();
        let path = if i % 2 == 0 {
            "/hello.txt"
        } else {
            "/hello.php"
        };
        connection
            .send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
            .unwrap();
        let answer = connection.read_response("GET").unwrap();
        assert_eq!(answer.status(), 200);
        assert!(answer.keeps_alive);
        held.push(connection);
    }
    let each = (fixture.server_memory().saturating_sub(before)) as f64 / CONNECTIONS as f64;
    println!("{CONNECTIONS} idle connections: {each:.2} KiB each in the server");
    assert!(each <= 16.0, "{each:.2} KiB per idle connection");
    let outcome = warm.run(50);
    println!("beside them: {outcome}");
    outcome.only(&["200"]);
    for connection in held.iter_mut().step_by(100) {
        connection
            .send("GET /hello.txt HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        assert_eq!(connection.read_response("GET").unwrap().text(), HELLO);
    }
}
