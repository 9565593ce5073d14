//! Clients whose requests keep a front thread busy. A turn is one poll of a connection: until the turn is over, every
//! other connection of the thread waits. The front itself measures the CPU time of its turns, so other programs on the
//! machine do not count.

use std::io::Write as _;
use std::thread;

use howdah_tests::fixture::Fixture;
use howdah_tests::http::Connection;

/// The maximum CPU time of a turn, in milliseconds. The promise is 1; a debug build takes several times as long for
/// everything, and the faults that these tests look for took from 0.3 to 2 seconds.
const MAX_TURN_MS: f64 = if cfg!(debug_assertions) { 25.0 } else { 1.0 };

/// Returns text that compresses as a script's output does.
fn text(length: usize) -> String {
    let mut text = String::with_capacity(length + 100);
    let mut state = 1u32;
    while text.len() < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let name = state >> 12;
        text.push_str(&format!(
            "function f{name:x}(a, b) {{ return a.p{name} + b; }}\n"
        ));
    }
    text.truncate(length);
    text
}

/// Fails if a turn of the front took longer than [`MAX_TURN_MS`].
fn no_turn_was_long(fixture: &Fixture) {
    let turns = &fixture.status()["turns"];
    eprintln!("turns: {turns}");
    let longest = turns["longest"].as_f64().unwrap() * 1e3;
    assert!(longest <= MAX_TURN_MS, "a turn took {longest} ms: {turns}");
}

fn pipelined(fixture: &Fixture, count: usize, method: &str, path: &str, coding: &str) {
    let mut client = Connection::open(fixture.address()).unwrap();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {coding}\r\n\r\n");
    let mut writer = client.stream().try_clone().unwrap();
    let all = request.repeat(count);
    thread::scope(|scope| {
        scope.spawn(move || writer.write_all(all.as_bytes()).unwrap());
        for _ in 0..count {
            let answer = client.read_response(method).unwrap();
            assert_eq!(answer.status(), 200);
            assert_eq!(answer.header("Vary"), Some("Accept-Encoding"));
        }
    });
}

#[test]
fn files_are_not_compressed_on_the_event_loop() {
    let mut site = Fixture::named("compressed-files");
    for number in 0..12 {
        site = site.file(&format!("big{number}.js"), text(1000 << 10));
    }
    let fixture = site.file("small.js", text(30 << 10)).start();
    for coding in ["br", "gzip", "zstd"] {
        pipelined(&fixture, 60, "HEAD", "/big0.js", coding);
        pipelined(&fixture, 20, "HEAD", "/small.js", coding);
    }
    no_turn_was_long(&fixture);
    thread::scope(|scope| {
        for number in 0..12 {
            let (fixture, coding) = (&fixture, ["br", "gzip", "zstd"][number % 3]);
            scope.spawn(move || {
                pipelined(fixture, 4, "GET", &format!("/big{number}.js"), coding);
                pipelined(fixture, 4, "GET", "/small.js", coding);
            });
        }
    });
    no_turn_was_long(&fixture);
}

#[test]
fn file_is_compressed_once_and_its_form_kept() {
    let fixture = Fixture::named("kept-form")
        .file("big.js", text(600 << 10))
        .start();
    let get = |method: &str| {
        let mut client = Connection::open(fixture.address()).unwrap();
        let request =
            format!("{method} /big.js HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n");
        client.send(request).unwrap();
        client.read_response(method).unwrap()
    };
    let head = get("HEAD");
    assert_eq!(head.header("Content-Encoding"), Some("gzip"));
    assert_eq!(
        head.header("Content-Length"),
        None,
        "HEAD should not cause compression"
    );
    // If the compression takes too long for one client, the compressed form is ready for a later one.
    fixture.wait("a compressed response", |_| {
        get("GET").header("Content-Encoding") == Some("gzip")
    });
    let answer = get("GET");
    assert!(answer.body.len() < 200 << 10, "{}", answer.body.len());
    let head = get("HEAD");
    let length = answer.body.len().to_string();
    assert_eq!(head.header("Content-Length"), Some(length.as_str()));
    assert_eq!(head.header("ETag"), answer.header("ETag"));
}

#[test]
fn pages_are_not_compressed_on_the_event_loop() {
    let fixture = Fixture::named("compressed-pages")
        .file("text.txt", text(7 << 20))
        .script(
            "page.php",
            "<?php header('Cache-Control: s-maxage=600'); header('Content-Type: text/html');
            $text = file_get_contents(__DIR__ . '/text.txt');
            echo substr($text, 0, (int) ($_GET['n'] ?? 7 << 20));
            if (isset($_GET['flush'])) { flush(); echo $text; }",
        )
        .site("cache = \"on\"")
        .start();
    let coded = |path: &str, coding: &str| {
        let mut client = Connection::open(fixture.address()).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {coding}\r\n\r\n");
        client.send(request).unwrap();
        let answer = client.read_response("GET").unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.header("Vary"), Some("Accept-Encoding"));
        answer
    };
    for coding in ["br", "gzip", "zstd"] {
        // A stored page is rendered once, and compressed once for each coding.
        fixture.wait("the stored page to be compressed", |_| {
            let answer = coded("/page.php", coding);
            answer
                .header("X-Cache")
                .is_some_and(|x| x.starts_with("HIT"))
                && answer.header("Content-Encoding") == Some(coding)
        });
        // These pages are not stored: the first is sent as a whole, and the second as a stream.
        coded("/page.php?n=60000", coding);
        coded("/page.php?n=1&flush=1", coding);
    }
    no_turn_was_long(&fixture);
}

#[test]
fn long_pipeline_yields_to_other_connections() {
    let fixture = Fixture::named("long-pipeline")
        .file("tiny.txt", "tiny")
        .start();
    let mut client = Connection::open(fixture.address()).unwrap();
    let mut writer = client.stream().try_clone().unwrap();
    let all = "GET /tiny.txt HTTP/1.1\r\nHost: x\r\n\r\n".repeat(5000);
    thread::scope(|scope| {
        scope.spawn(move || writer.write_all(all.as_bytes()).unwrap());
        for _ in 0..5000 {
            assert_eq!(client.read_response("GET").unwrap().text(), "tiny");
        }
    });
    no_turn_was_long(&fixture);
}

#[test]
fn fast_upload_and_a_fast_download_yield_to_others() {
    let fixture = Fixture::named("fast-transfers")
        .file("long.bin", vec![7; 64 << 20])
        .script(
            "length.php",
            "<?php echo strlen(file_get_contents('php://input'));",
        )
        .script(
            "long.php",
            "<?php for ($i = 0; $i < 64; $i++) echo str_repeat('x', 1 << 20);",
        )
        .ini("post_max_size", "100M")
        .ini("memory_limit", "300M")
        .site("max_body_size = \"100M\"")
        .start();
    assert_eq!(fixture.get("/long.bin").body.len(), 64 << 20);
    assert_eq!(fixture.get("/long.php").body.len(), 64 << 20);
    let mut client = Connection::open(fixture.address()).unwrap();
    let body = vec![b'x'; 32 << 20];
    let head = format!(
        "POST /length.php HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.send(head).unwrap();
    client.send(&body).unwrap();
    let answer = client.read_response("POST").unwrap();
    assert_eq!(answer.text(), body.len().to_string());
    no_turn_was_long(&fixture);
}
