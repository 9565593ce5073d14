//! The front over real sockets, with an executor that responds as the test defines: what a client sees, what the script
//! receives, what is logged.

mod rig;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use bytes::Bytes;
use howdah_executor::{ExecError, RunEvent, ScriptBody, ScriptHead};
use howdah_http::{ConnectionNotice, RequestHandler};
use howdah_log::log::{AccessFormat, AccessLog, LogSink, LogTarget};
use howdah_server::admin::StatusPage;
use howdah_server::server_config::FrontSettings;
use howdah_server::status_listener::StatusListener;
use howdah_site::client_address::TrustedProxies;
use howdah_site::site::SiteConfig;

use rig::{FrontRig, ScriptCall, header};

fn page(text: &'static str) -> Vec<Result<RunEvent, ExecError>> {
    vec![
        Ok(RunEvent::Head(ScriptHead {
            status: 200,
            ..ScriptHead::default()
        })),
        Ok(RunEvent::Body(Bytes::from_static(text.as_bytes()))),
        Ok(RunEvent::End),
    ]
}

#[test]
fn script_gets_its_variables_and_the_client_its_page() {
    let rig = FrontRig::start(
        |dir| dir.write("index.php", ""),
        |script| {
            let body = format!(
                "{} {} {}",
                script.variable("SCRIPT_NAME"),
                script.variable("PATH_INFO"),
                script.variable("QUERY_STRING")
            );
            let mut events = page("");
            events[1] = Ok(RunEvent::Body(Bytes::from(body)));
            script.send_events(events);
        },
    );
    let answer = rig.get("/index.php/a%20b?x=1", &[]);
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (200, "/index.php /a b x=1")
    );
    assert_eq!(answer.header("content-length"), Some("19"));
    assert_eq!(rig.get("/", &[]).text(), "/index.php  ");
}

#[test]
fn failures_have_names_and_statuses() {
    let rig = FrontRig::start(
        |dir| dir.write("a.php", ""),
        |script| {
            let error = match script.variable("QUERY_STRING").as_str() {
                "full" => ExecError::QueueFull,
                "late" => ExecError::TerminateTimeout,
                _ => ExecError::ChildDied(howdah_proto::control::Exit::Signal(11)),
            };
            script.send_events(vec![Err(error)]);
        },
    );
    for (target, status, name, retry) in [
        ("/a.php?full", 503, "QueueFull", Some("1")),
        ("/a.php?late", 504, "TerminateTimeout", None),
        ("/a.php?dead", 502, "ChildDied", None),
        ("/none.php", 404, "NotFound", None),
        ("/.env", 404, "DotFile", None),
        ("/%zz", 400, "BadEscape", None),
    ] {
        let answer = rig.get(target, &[]);
        assert_eq!(
            (answer.status, answer.header("howdah-error")),
            (status, Some(name)),
            "{target}"
        );
        assert_eq!(answer.header("retry-after"), retry, "{target}");
    }
    let status = rig.front.status();
    for name in [
        "QueueFull",
        "TerminateTimeout",
        "ChildDied",
        "NotFound",
        "DotFile",
        "BadEscape",
    ] {
        assert!(
            status
                .failures
                .iter()
                .any(|(n, count)| n == name && *count == 1),
            "{name}"
        );
    }
}

/// The status listener has no log of its own. Refused requests of its clients are not the server's faults.
#[test]
fn status_listener_reports_only_faults_of_the_server_to_the_front() {
    let rig = FrontRig::start(|_| {}, |_| {});
    let listener = StatusListener::default();
    let error = std::io::Error::from_raw_os_error(24);
    let failed = ConnectionNotice::AcceptFailed {
        listener: "127.0.0.1:9000",
        error: &error,
    };
    let failures = || rig.front.status().failures;
    // No front serves yet.
    listener.notice(&failed);
    listener.set_serving(rig.front.clone(), rig.control());
    assert_eq!(failures(), []);
    listener.notice(&failed);
    listener.notice(&ConnectionNotice::TooManyConnections { limit: 128 });
    assert_eq!(failures(), [("AcceptFailed".to_owned(), 1)]);
}

#[test]
fn flushed_piece_arrives_while_the_script_still_runs() {
    let rig = FrontRig::start(
        |dir| dir.write("sse.php", ""),
        |script| {
            let mut events = page("data: 1\n\n");
            events[2] = Ok(RunEvent::Flush);
            script.send_events(events);
            // The run stays open until the client has disconnected.
        },
    );
    let mut client = rig.connect();
    client
        .write_all(b"GET /sse.php HTTP/1.1\r\nHost: h\r\n\r\n")
        .unwrap();
    let mut seen = Vec::new();
    while !seen.windows(9).any(|w| w == b"data: 1\n\n") {
        let mut piece = [0; 512];
        let n = client.read(&mut piece).unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&piece[..n]);
    }
    drop(client);
    rig.wait_until_dropped(1);
}

#[test]
fn bodies_reach_the_script_from_memory_from_a_file_and_as_they_arrive() {
    use howdah_site::site::config::RequestBuffering;
    for (buffering, length, kind) in [
        (RequestBuffering::Auto, 10, "memory"),
        (RequestBuffering::Auto, 300_000, "file"),
        (RequestBuffering::Off, 300_000, "stream"),
    ] {
        let rig = FrontRig::start_with(
            |dir| dir.write("a.php", ""),
            |site| site.request_buffering = buffering,
            FrontSettings::for_tests(),
            |script| {
                let kind = match &script.request.body {
                    ScriptBody::Empty => "empty",
                    ScriptBody::Memory(_) => "memory",
                    ScriptBody::File(..) => "file",
                    ScriptBody::Stream(_) => "stream",
                };
                script.read_body_then(move |body| {
                    let text = format!("{kind} {}", body.len());
                    let mut events = page("");
                    events[1] = Ok(RunEvent::Body(Bytes::from(text)));
                    events
                });
            },
        );
        let body = vec![b'x'; length];
        let plain = rig.post("/a.php", &body);
        assert_eq!(
            (plain.status, plain.text()),
            (200, format!("{kind} {length}")),
            "{buffering:?}"
        );
        let chunked = rig.post_chunked("/a.php", &body);
        assert_eq!(
            (chunked.status, chunked.text()),
            (200, format!("{kind} {length}")),
            "chunked"
        );
    }
}

#[test]
fn body_beyond_the_limit_is_refused_before_the_script_runs() {
    let rig = FrontRig::start_with(
        |dir| dir.write("a.php", ""),
        |site| site.max_body_size = 1000,
        FrontSettings::for_tests(),
        |_| panic!("the script must not run"),
    );
    for answer in [
        rig.post("/a.php", &[b'x'; 1001]),
        rig.post_chunked("/a.php", &[b'x'; 100_000]),
    ] {
        assert_eq!(
            (answer.status, answer.header("howdah-error")),
            (413, Some("BodyTooLarge"))
        );
    }
}

#[test]
fn new_configuration_applies_to_the_next_request_of_a_connection() {
    let rig = FrontRig::start(|dir| dir.write("a.txt", "old"), |_| panic!("no script"));
    let mut client = rig.connect();
    let ask = b"GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n";
    client.write_all(ask).unwrap();
    assert_eq!(rig::read_response(&mut client).text(), "old");
    let next = rig::TempDirectory::new();
    next.write("a.txt", "new");
    rig.swap(&next, |_| {});
    client.write_all(ask).unwrap();
    assert_eq!(rig::read_response(&mut client).text(), "new");
    assert_eq!(rig.front.status().reloads, 1);
}

#[test]
fn compression_applies_to_text_of_files_and_scripts() {
    let long = "elephant ".repeat(500);
    let rig = FrontRig::start(
        |dir| {
            dir.write("a.php", "");
            dir.write("a.css", &"p{color:red}\n".repeat(300));
        },
        move |script| {
            let headers = vec![(b"Content-Type".to_vec(), b"text/html".to_vec())];
            script.send_events(vec![
                Ok(RunEvent::Head(ScriptHead {
                    status: 200,
                    headers,
                    ..ScriptHead::default()
                })),
                Ok(RunEvent::Body(Bytes::from(long.clone()))),
                Ok(RunEvent::End),
            ]);
        },
    );
    for target in ["/a.php", "/a.css"] {
        let plain = rig.get(target, &[]);
        let coded = rig.get(target, &[("Accept-Encoding", "gzip")]);
        assert_eq!(coded.header("content-encoding"), Some("gzip"), "{target}");
        assert_eq!(
            (plain.header("vary"), coded.header("vary")),
            (Some("Accept-Encoding"), Some("Accept-Encoding"))
        );
        assert_eq!(
            coded.header("content-length"),
            Some(coded.body.len().to_string().as_str())
        );
        assert!(
            coded.body.len() < plain.body.len() / 5 && coded.body.starts_with(b"\x1f\x8b"),
            "{target}"
        );
    }
}

/// A 304 has to show that the file has several forms. Otherwise an intermediate cache sends one client's 304 to all
/// clients.
#[test]
fn not_modified_has_the_vary_and_the_etag_of_its_200() {
    let rig = FrontRig::start(
        |dir| {
            dir.write("a.css", &"p{color:red}\n".repeat(300));
            dir.write("small.css", "p{}");
            dir.write("a.png", &"x".repeat(3000));
        },
        |_| panic!("no script is asked for"),
    );
    for (target, varies) in [("/a.css", true), ("/small.css", false), ("/a.png", false)] {
        for accept in ["gzip", ""] {
            let deadline = Instant::now() + Duration::from_secs(20);
            // A file has no entity tag while its content could still change without a change of its time.
            let full = loop {
                let full = rig.get(target, &[("Accept-Encoding", accept)]);
                if full.header("etag").is_some() {
                    break full;
                }
                assert!(Instant::now() < deadline, "{target} never gets a tag");
            };
            let tag = full.header("etag").unwrap();
            let fields = [("Accept-Encoding", accept), ("If-None-Match", tag)];
            let unchanged = rig.get(target, &fields);
            assert_eq!(unchanged.status, 304, "{target}");
            assert_eq!(unchanged.header("vary"), full.header("vary"), "{target}");
            assert_eq!(unchanged.header("etag"), Some(tag), "{target} {accept}");
            assert_eq!(unchanged.header("content-encoding"), None);
            assert_eq!(full.header("vary").is_some(), varies, "{target}");
        }
    }
}

#[test]
fn send_file_replaces_the_body() {
    let rig = FrontRig::start(
        |dir| {
            dir.write("a.php", "");
            dir.write("f.bin", "file content");
        },
        |script| {
            let target = script.variable("QUERY_STRING").into_bytes();
            let headers = vec![
                (b"X-Accel-Redirect".to_vec(), target),
                (b"Content-Type".to_vec(), b"application/x-own".to_vec()),
                (b"Set-Cookie".to_vec(), b"seen=1".to_vec()),
            ];
            script.send_events(vec![
                Ok(RunEvent::Head(ScriptHead {
                    status: 200,
                    headers,
                    ..ScriptHead::default()
                })),
                Ok(RunEvent::Body(Bytes::from_static(b"not this"))),
                Ok(RunEvent::End),
            ]);
        },
    );
    let answer = rig.get("/a.php?/f.bin", &[]);
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (200, "file content")
    );
    assert_eq!(answer.header("content-type"), Some("application/x-own"));
    assert_eq!(answer.header("set-cookie"), Some("seen=1"));
    assert_eq!(answer.header("x-accel-redirect"), None);
    let part = rig.get("/a.php?/f.bin", &[("Range", "bytes=0-3")]);
    assert_eq!((part.status, part.text().as_str()), (206, "file"));
    assert_eq!(rig.get("/a.php?/none", &[]).status, 404);
}

#[test]
fn configured_error_page_keeps_status_and_name() {
    let rig = FrontRig::start_with(
        |dir| dir.write("busy.html", "<h1>Later</h1>"),
        |site: &mut SiteConfig| site.error_pages = vec![(404, "/busy.html".into())],
        FrontSettings::for_tests(),
        |_| panic!("no script"),
    );
    let answer = rig.get("/none", &[]);
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (404, "<h1>Later</h1>")
    );
    assert_eq!(answer.header("howdah-error"), Some("NotFound"));
    assert_eq!(
        answer.header("content-type"),
        Some("text/html; charset=utf-8")
    );
}

#[test]
fn access_log_has_each_request_once() {
    let path = std::env::temp_dir().join(format!("howdah-front-{}.log", std::process::id()));
    let sink = LogSink::start("access", LogTarget::File(path.clone()), Duration::ZERO).unwrap();
    let access_log = std::sync::Arc::new(AccessLog::new(sink, AccessFormat::Json, false));
    let settings = FrontSettings {
        status: Some(StatusPage::for_tests()),
        trusted_proxies: TrustedProxies {
            networks: vec!["127.0.0.1".parse().unwrap()],
            ..TrustedProxies::default()
        },
        ..FrontSettings::for_tests()
    };
    let rig = FrontRig::start_with_log(
        |dir| dir.write("a.php", ""),
        |_| {},
        settings,
        Some(access_log.clone()),
        |script: ScriptCall| {
            script.send_events(page("hello"));
        },
    );
    rig.get(
        "/a.php?x=\"1\"",
        &[("X-Forwarded-For", "198.51.100.7"), ("User-Agent", "t")],
    );
    rig.get("/none", &[]);
    let page = rig.raw(b"GET /howdah-status?json HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let status: serde_json::Value = serde_json::from_slice(&page.body).unwrap();
    assert_eq!(
        (&status["requests"], &status["requests_active"]),
        (&3.into(), &1.into())
    );
    let refused = rig.raw(b"GET / HTTP/1.1\r\nHost: h\n\r\n");
    assert_eq!(
        (refused.status, refused.header("howdah-error")),
        (400, Some("BareLf"))
    );
    // A name that resolves to this machine may belong to a foreign web page.
    let rebound = rig.get("/howdah-status?json", &[]);
    assert_eq!(rebound.status, 404);
    // For other clients it is a path like any other.
    let stranger = rig.get("/howdah-status", &[("X-Forwarded-For", "198.51.100.7")]);
    assert_eq!(stranger.status, 404);
    rig.wait_until(|| rig.front.status().requests_active == 0);
    access_log.sink().flush();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let told: Vec<_> = lines
        .iter()
        .map(|l| (l["client"].as_str().unwrap(), l["status"].as_u64().unwrap()))
        .collect();
    assert_eq!(
        told,
        [
            ("198.51.100.7", 200),
            ("127.0.0.1", 404),
            ("127.0.0.1", 200),
            ("127.0.0.1", 400),
            ("127.0.0.1", 404),
            ("198.51.100.7", 404)
        ]
    );
    assert_eq!(
        (&lines[0]["target"], &lines[0]["bytes"]),
        (&"/a.php?x=\"1\"".into(), &5.into())
    );
    assert_eq!(
        (&lines[3]["method"], &lines[3]["error"]),
        (&"GET / HTTP/1.1".into(), &"BareLf".into())
    );
    assert_eq!(
        (&lines[0]["child"], &lines[1]["error"]),
        (&7.into(), &"NotFound".into())
    );
}

#[test]
fn truncated_response_does_not_look_complete() {
    let rig = FrontRig::start(
        |dir| dir.write("a.php", ""),
        |script| {
            let mut events = page("part");
            events[2] = Ok(RunEvent::Flush);
            events.push(Err(ExecError::ChildDied(
                howdah_proto::control::Exit::Signal(9),
            )));
            script.send_events(events);
        },
    );
    let mut client = rig.connect();
    client
        .write_all(b"GET /a.php HTTP/1.1\r\nHost: h\r\n\r\n")
        .unwrap();
    let mut all = Vec::new();
    // A reset is an acceptable end here.
    let _ = client.read_to_end(&mut all);
    let text = String::from_utf8_lossy(&all);
    assert!(
        header(&text, "transfer-encoding").is_some() && text.contains("part"),
        "{text}"
    );
    assert!(!text.ends_with("0\r\n\r\n"), "{text}");
}

#[test]
fn server_error_has_the_requests_number_in_the_log() {
    let path = std::env::temp_dir().join(format!("howdah-number-{}.log", std::process::id()));
    let sink = LogSink::start("access", LogTarget::File(path.clone()), Duration::ZERO).unwrap();
    let access_log = std::sync::Arc::new(AccessLog::new(sink, AccessFormat::Json, false));
    let rig = FrontRig::start_with_log(
        |dir| dir.write("a.php", ""),
        |_| {},
        FrontSettings::for_tests(),
        Some(access_log.clone()),
        |script: ScriptCall| match &*script.variable("QUERY_STRING") {
            "died" => script.send_events(vec![Err(ExecError::ResponseMissing)]),
            status => {
                let head = ScriptHead {
                    status: status.parse().unwrap(),
                    ..ScriptHead::default()
                };
                script.send_events(vec![Ok(RunEvent::Head(head)), Ok(RunEvent::End)]);
            }
        },
    );
    let numbers: Vec<Option<String>> = ["200", "404", "500", "died"]
        .iter()
        .map(|query| {
            let answer = rig.get(&format!("/a.php?{query}"), &[]);
            answer.header("howdah-request").map(str::to_owned)
        })
        .collect();
    rig.wait_until(|| rig.front.status().requests_active == 0);
    access_log.sink().flush();
    let log = std::fs::read_to_string(&path).unwrap();
    let ids = log.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["id"].to_string()
    });
    let ids: Vec<Option<String>> = ids.map(Some).collect();
    assert_eq!(numbers, [None, None, ids[2].clone(), ids[3].clone()]);
    std::fs::remove_file(path).unwrap();
}
