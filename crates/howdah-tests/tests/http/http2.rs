//! HTTP/2 with the whole program: PHP responds as over HTTP/1.1, and no stream fails during a reload or stop.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use howdah_tests::fixture::{Fixture, HELLO, signal};
use howdah_tests::http;
use howdah_tests::http2::{Http2Frames, Http2Request, Http2TestClient, headers};
use howdah_tests::oracle::{Probe, ProbedServer, ResponseProperties, compare};
use howdah_tests::pki::Pki;
use howdah_tests::rig::{Howdah, Server, Site};
use howdah_tests::same_answers::same_as_over_http1;
use howdah_tests::scratch::{Scratch, copy_tree, repository};
use rustix::process::Signal;

use crate::oracle_requests;

/// Probes that HTTP/2 cannot express.
const HTTP1_ONLY_PROBES: [&str; 2] = [
    "server.absolute-form",
    // The URL has an unencoded `<` and `"`, so the stream is reset (docs/differences.md).
    "get.unencoded",
];

fn testimony(site: &Site, probes: &[Probe], http2: bool) -> BTreeMap<String, ResponseProperties> {
    let server = Howdah::start(site);
    let mut witness = ProbedServer::new(server.address(), &site.root.display().to_string());
    if http2 {
        witness = witness.over_http2();
    }
    let mut answers = BTreeMap::new();
    for probe in probes {
        let mut facts = witness.ask(probe);
        // HTTP/2 has no reason phrase, and its connections stay open. Timing decides whether a flush is seen before the
        // end of the response, and whether the body is sent before a 100 response arrives.
        for fact in ["keeps_alive", "header.vary", "interim.100"] {
            facts.remove(fact);
        }
        if let Some(status) = facts.get_mut("status") {
            status.truncate(3);
        }
        answers.insert(probe.name.clone(), facts);
    }
    answers
}

#[test]
fn php_answers_over_http2_what_it_answers_over_http1() {
    let scratch = Scratch::new("oracle-http2");
    copy_tree(&repository().join("tests/probes"), &scratch.join("site"));
    let mut site = Site::new(scratch.join("site"))
        .children(1)
        .environment("PROBE_SETTING", "from the site");
    site.h2c = true;
    let mut probes = oracle_requests::all();
    probes.retain(|probe| !HTTP1_ONLY_PROBES.contains(&probe.name.as_str()));
    let http1 = testimony(&site, &probes, false);
    let http2 = testimony(&site, &probes, true);
    let mut different = Vec::new();
    for probe in &probes {
        for found in compare(&probe.name, &http2[&probe.name], &http1[&probe.name]) {
            let protocol = |fact: &Option<String>| {
                fact.as_ref()
                    .map(|text| text.replace("HTTP/2.0", "HTTP/1.1"))
            };
            if protocol(&found.ours) != found.theirs {
                different.push(format!("{found:?}"));
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// Sends requests over HTTP/2 until it is stopped, and counts them.
struct Http2Visitors {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<u64>>,
}

impl Http2Visitors {
    fn start(fixture: &Fixture, count: usize) -> Http2Visitors {
        let stop = Arc::new(AtomicBool::new(false));
        let address = fixture.address();
        let visit = |_| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut visits = 0;
                let mut client = Http2TestClient::open(address).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let asked: Vec<_> = ["/hello.php", "/a.txt", "/hello.php", "/long.php"]
                        .iter()
                        .map_while(|path| client.send(&Http2Request::get(path)).ok())
                        .collect();
                    let sent = asked.len();
                    for (at, asked) in asked.into_iter().enumerate() {
                        let answer = client.read(asked).unwrap();
                        assert_eq!(answer.status(), 200, "{at}");
                        visits += 1;
                    }
                    // After a GOAWAY, requests that have not been sent go to the next connection.
                    if sent < 4 {
                        client = Http2TestClient::open(address).unwrap();
                    }
                }
                visits
            })
        };
        Http2Visitors {
            threads: (0..count).map(visit).collect(),
            stop,
        }
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.threads
            .into_iter()
            .map(|thread| thread.join().expect("no visit failed"))
            .sum()
    }
}

const LONG_SCRIPT: &str = "<?php for ($i = 0; $i < 50; $i++) echo str_repeat('x', 10000);";

#[test]
fn no_stream_fails_at_a_reload() {
    let fixture = Fixture::named("http2-reload")
        .h2c()
        .file("a.txt", "a")
        .script("long.php", LONG_SCRIPT)
        .start();
    let visitors = Http2Visitors::start(&fixture, 3);
    let reloads = fixture.reload_often(Duration::from_secs(12));
    let visits = visitors.stop();
    println!("{visits} streams, all answered");
    assert!(visits > u64::from(reloads));
    fixture.still_serves();
}

#[test]
fn fragment_is_refused_over_http1_and_dropped_by_the_library_over_http2() {
    let fixture = Fixture::named("http2-fragment")
        .h2c()
        .script("echo.php", "<?php echo $_SERVER['REQUEST_URI'];")
        .start();
    for (path, expected) in [
        ("/echo.php#x", Some("/echo.php")),
        ("/echo.php?a=1#x?b", Some("/echo.php?a=1")),
        ("#x", None),
    ] {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let answer = http::exchange(fixture.address(), request.as_bytes()).unwrap();
        assert_eq!(answer.status(), 400, "{path}");
        let mut frames = Http2Frames::open(fixture.address(), &[]);
        frames.send(headers(1, "GET", path, true));
        let mut body = None;
        let ended = loop {
            match frames.read() {
                // DATA, RST_STREAM
                Some((0, flags, 1, payload)) => {
                    body.get_or_insert_with(Vec::new).extend(payload);
                    if flags & 1 != 0 {
                        break true;
                    }
                }
                Some((3, ..)) | None => break false,
                Some(_) => {}
            }
        };
        assert_eq!(ended, expected.is_some(), "{path}");
        assert_eq!(body.as_deref(), expected.map(str::as_bytes), "{path}");
    }
}

#[test]
fn stop_completes_what_has_begun() {
    let mut fixture = Fixture::named("http2-stop").h2c().start();
    let gate = fixture.gate("stop");
    let mut client = Http2TestClient::open(fixture.address()).unwrap();
    let hello = client.ask(&Http2Request::get("/hello.php")).unwrap();
    assert_eq!(hello.text(), HELLO);
    let waiting = client
        .send(&Http2Request::get("/hold.php?gate=stop"))
        .unwrap();
    let standing = gate.wait();
    signal(fixture.master(), Signal::QUIT);
    fixture.wait("the listener to be closed", |fixture| {
        TcpStream::connect(fixture.address()).is_err()
    });
    standing.open();
    assert_eq!(client.read(waiting).unwrap().text(), "released");
    let ended = fixture.howdah.process.wait_exit(Duration::from_secs(20));
    assert!(ended.unwrap().success());
}

#[test]
fn stored_pages_and_files_are_the_same_over_both() {
    let page = "<?php header('Cache-Control: public, max-age=600'); header('ETag: \"v1\"'); \
        header('Content-Type: text/html'); echo str_repeat('<p>page</p>', 3000);";
    let fixture = Fixture::named("http2-stored")
        .h2c()
        .script("page.php", page)
        .file("a.txt", "0123456789")
        .file("big.bin", vec![7; 300_000])
        .site("cache = \"rfc\"")
        .start();
    let mut client = Http2TestClient::open(fixture.address()).unwrap();
    fixture.wait("the page to be stored", |_| {
        let page = client.ask(&Http2Request::get("/page.php")).unwrap();
        page.header("x-cache") == Some("HIT")
    });
    same_as_over_http1(fixture.address(), &[], |request| {
        client.ask(request).unwrap()
    });
}

#[test]
fn browsers_choose_http2_by_tls_and_scripts_see_it() {
    let builder = Fixture::named("http2-tls")
        .script(
            "server.php",
            "<?php header('Content-Type: application/json'); echo json_encode($_SERVER);",
        )
        .script("echo.php", "<?php readfile('php://input');")
        .tls();
    let pki = Pki::new(builder.scratch().path());
    pki.sign("site", &["example.org"]);
    let fixture = builder.site(&Pki::site("site")).start();
    let address = fixture.tls_address();
    let get = |path: &str, more: &[&str]| pki.get(address, "example.org", path, more);
    let version = ["--write-out", "%{http_version}"];
    assert_eq!(get("/hello.php", &version), format!("{HELLO}2"));
    let http1 = ["--http1.1", "--write-out", "%{http_version}"];
    assert_eq!(get("/hello.php", &http1), format!("{HELLO}1.1"));
    let server: serde_json::Value = serde_json::from_str(&get("/server.php", &[])).unwrap();
    assert_eq!(server["SERVER_PROTOCOL"], "HTTP/2.0");
    assert_eq!(server["HTTPS"], "on");
    let body = "x".repeat(100_000);
    let file = fixture.write("body", &body);
    let upload = format!("@{}", file.display());
    let echo = get("/echo.php", &["--data-binary", &upload, "-H", "Expect:"]);
    assert!(echo == body);
    fixture.wait("the access log", |fixture| {
        let log = fixture.access_log();
        log.iter()
            .any(|line| line.contains("\"POST /echo.php HTTP/2.0\" 200 100000"))
    });
}
