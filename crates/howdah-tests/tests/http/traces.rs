//! Traces: `traceparent` is accepted and passed on, spans arrive at a collector, and no request suffers if the
//! collector hangs, is down or refuses them. The collector decodes messages by OpenTelemetry's published definitions.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use howdah_tests::collector::{Behaviour, Collector, ReceivedSpan};
use howdah_tests::fixture::{Builder, Fixture, HELLO};
use howdah_tests::http::{self, Response};
use howdah_tests::http2;
use howdah_tests::load::Load;
use howdah_tests::rig::{Fpm, free_address};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const SHOW: &str =
    "<?php echo $_SERVER['HTTP_TRACEPARENT'] ?? '-', ' ', $_SERVER['HTTP_TRACESTATE'] ?? '';";

fn parent(flags: &str) -> String {
    format!("00-{TRACE}-{CALLER}-{flags}")
}

fn ask(at: SocketAddr, path: &str, fields: &str) -> Response {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: site.test:81\r\n{fields}Connection: close\r\n\r\n");
    let answer = http::exchange(at, request.as_bytes()).expect("a response");
    assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
    answer
}

fn traced(builder: Builder, collector: &Collector, lines: &str) -> Builder {
    builder.config(&format!(
        "[traces]\nendpoint = \"{}\"\n{lines}",
        collector.url()
    ))
}

/// Splits a `traceparent` into trace, span and flags.
fn parts(text: &str) -> (String, String, String) {
    let text = text.split(' ').next().expect("a word");
    let parts: Vec<_> = text.split('-').collect();
    let [version, trace, span, flags] = parts[..] else {
        panic!("{text:?} is not a traceparent");
    };
    assert_eq!((version, trace.len(), span.len()), ("00", 32, 16), "{text}");
    (trace.to_owned(), span.to_owned(), flags.to_owned())
}

fn named<'s>(spans: &'s [ReceivedSpan], name: &str) -> &'s ReceivedSpan {
    let found = spans.iter().find(|span| span.name == name);
    found.unwrap_or_else(|| panic!("no span {name} in {spans:#?}"))
}

#[test]
fn callers_trace_is_continued_on_every_way_that_a_request_can_take() {
    let collector = Collector::start();
    let builder = Fixture::named("traces").h2c();
    let socket = builder.scratch().join("fpm.sock").display().to_string();
    let _fpm = Fpm::start_at(builder.as_site(), builder.scratch(), &socket, "");
    let upstream = Collector::start();
    let fixture = traced(builder, &collector, "service = \"shop\"\nsample = \"0%\"\nheaders = { X-Key = \"abc\" }")
        .script("php.php", SHOW)
        .script("fpm.php", SHOW)
        .script("cgi.php", SHOW)
        .file("plan.txt", "the plan")
        .config("[pool.www]\n[pool.fpm]\nmode = \"fastcgi\"")
        .config(&format!("fastcgi = \"unix:{socket}\"\n[pool.cgi]\nmode = \"cgi\""))
        .site(&format!(
            "name = \"shop\"\n\
             [[site.rule]]\npath = \"/fpm.php\"\npool = \"fpm\"\n\
             [[site.rule]]\npath = \"/cgi.php\"\npool = \"cgi\"\n\
             [[site.rule]]\nprefix = \"/app/\"\nauth_request = \"{0}/verify\"\nauth_request_set = {{}}\n\
             [[site.rule]]\nprefix = \"/app/\"\nproxy = \"{0}\"",
            upstream.url()
        ))
        .start();
    let at = fixture.address();
    let fields = format!("traceparent: {}\r\ntracestate: a=1,b@c=2\r\n", parent("01"));
    for (path, child, kind) in [
        ("/php.php", "php", "Internal"),
        ("/fpm.php", "php", "Internal"),
        ("/cgi.php", "php", "Internal"),
        ("/app/x", "upstream", "Client"),
    ] {
        let said = ask(at, &format!("{path}?secret=1"), &fields).text();
        let (trace, span, flags) = parts(&said);
        assert_eq!((trace.as_str(), flags.as_str()), (TRACE, "01"), "{path}");
        assert!(said.ends_with(" a=1,b@c=2"), "{path}: {said}");
        let spans = collector.trace(path);
        let server = &spans[0];
        assert_eq!(
            (&server.id, server.parent.as_str()),
            (&span, CALLER),
            "{path}"
        );
        assert_eq!(
            (server.trace.as_str(), server.kind.as_str()),
            (TRACE, "Server")
        );
        assert_eq!(
            (server.name.as_str(), server.service.as_str()),
            ("GET", "shop")
        );
        for (key, value) in [
            ("http.request.method", "GET"),
            ("http.response.status_code", "200"),
            ("server.address", "site.test"),
            ("server.port", "81"),
            ("client.address", "127.0.0.1"),
            ("network.protocol.version", "1.1"),
            ("url.scheme", "http"),
            ("howdah.site", "shop"),
        ] {
            assert_eq!(server.get(key), value, "{path}: {key}");
        }
        assert_eq!(
            (server.events.join(","), server.failed),
            ("first byte".to_owned(), false)
        );
        let all = format!("{spans:?}");
        assert!(!all.contains("secret"), "{all}");
        assert_eq!(server.state, "a=1,b@c=2");
        let child = named(&spans, child);
        assert_eq!(
            (child.parent.as_str(), child.kind.as_str()),
            (span.as_str(), kind),
            "{path}"
        );
        assert!(
            server.time.0 <= child.time.0 && child.time.1 <= server.time.1,
            "{spans:#?}"
        );
        match path {
            "/app/x" => assert_eq!(named(&spans, "authorize").parent, span),
            _ => {
                let queue = named(&spans, "queue");
                assert!(queue.time.1 <= child.time.0, "{spans:#?}");
            }
        }
    }
    let spans = collector.trace("/php.php");
    let php = named(&spans, "php");
    assert_eq!(
        (php.get("howdah.pool"), php.get("howdah.mode")),
        ("www", "embed")
    );
    let pid: i32 = php.get("process.pid").parse().expect("a number");
    assert!(fixture.children().contains(&pid), "{php:?}");
    assert_eq!(collector.field("x-key"), "abc");
    assert_eq!(collector.field("content-type"), "application/x-protobuf");
    // A request over HTTP/2, for a file.
    let request =
        http2::Http2Request::get("/plan.txt").header("traceparent", parent("01").as_bytes());
    let mut client = http2::Http2TestClient::open(at).expect("a connection");
    assert_eq!(client.ask(&request).expect("a response").text(), "the plan");
    let spans = collector.trace("/plan.txt");
    assert_eq!(spans[0].get("network.protocol.version"), "2");
    assert_eq!(spans.len(), 1, "{spans:#?}");
    // A refused request has an error name.
    let missing = format!("GET /none HTTP/1.1\r\nHost: h\r\n{fields}Connection: close\r\n\r\n");
    let missing = http::exchange(at, missing.as_bytes()).expect("a response");
    assert_eq!(missing.status(), 404);
    let spans = collector.trace("/none");
    assert_eq!(spans[0].get("error.type"), "NotFound");
    assert!(
        !spans[0].failed,
        "a mistake of the client is not a failure of the server"
    );
    // A trace that the caller does not record is not recorded here either.
    let said = ask(
        at,
        "/php.php",
        &format!("traceparent: {}\r\n", parent("00")),
    )
    .text();
    assert_eq!(parts(&said).2, "00");
    let counts = fixture.status()["spans"].clone();
    assert_eq!(counts["dropped"], 0, "{counts}");
}

#[test]
fn invalid_traceparent_is_dropped_and_a_trace_begins() {
    let collector = Collector::start();
    let fixture = traced(Fixture::named("broken-traces"), &collector, "")
        .script("php.php", SHOW)
        .argument("--log-format", "json")
        .start();
    let at = fixture.address();
    let mut traces = std::collections::BTreeSet::new();
    for fields in [
        String::new(),
        "traceparent: 00-x\r\ntracestate: a=1\r\n".to_owned(),
        format!("traceparent: {}\r\n", parent("01").to_uppercase()),
        format!("traceparent: 00-{}-{CALLER}-01\r\n", "0".repeat(32)),
        format!("traceparent: {0}\r\nTraceparent: {0}\r\n", parent("01")),
        "tracestate: a=1\r\n".to_owned(),
    ] {
        let said = ask(at, "/php.php", &fields).text();
        let (trace, _, flags) = parts(&said);
        assert_ne!(trace, TRACE);
        assert_eq!(flags, "01", "recorded by default");
        assert!(said.ends_with(' '), "{fields}: {said:?}");
        assert!(traces.insert(trace));
    }
    // An invalid tracestate is dropped, and the traceparent is still accepted.
    let fields = format!("traceparent: {}\r\ntracestate: A=1\r\n", parent("01"));
    let said = ask(at, "/php.php", &fields).text();
    assert!(
        said.starts_with(&format!("00-{TRACE}-")) && said.ends_with(' '),
        "{said:?}"
    );
    fixture.wait("the access log", |fixture| fixture.access_log().len() == 7);
    let logged: Vec<serde_json::Value> = fixture
        .access_log()
        .iter()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let spans = collector.trace("/php.php");
    assert_eq!(spans[0].parent, "");
    let own = logged
        .iter()
        .find(|line| line["span_id"] == spans[0].id.as_str());
    assert_eq!(own.unwrap()["trace_id"], spans[0].trace.as_str());
    traces.insert(TRACE.to_owned());
    let in_log: std::collections::BTreeSet<_> = logged
        .iter()
        .map(|line| line["trace_id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(in_log, traces);
}

#[test]
fn page_of_the_cache_and_a_failure_are_told_apart() {
    let collector = Collector::start();
    let fixture = traced(Fixture::named("cached-traces"), &collector, "")
        .script(
            "page.php",
            "<?php header('Cache-Control: public, max-age=600'); echo 'page';",
        )
        .ini("display_errors", "0")
        .script(
            "bad.php",
            "<?php error_log('as told'); throw new Exception('broken');",
        )
        .site("cache = \"on\"")
        .start();
    let at = fixture.address();
    let mut verdicts = BTreeMap::new();
    fixture.wait("a hit", |_| {
        ask(at, "/page.php", "").header("X-Cache") == Some("HIT")
    });
    fixture.wait("the spans of the cache", |_| {
        for span in collector.spans().iter().filter(|span| span.name == "cache") {
            verdicts.insert(span.get("howdah.cache").to_owned(), span.clone());
        }
        verdicts.contains_key("HIT")
    });
    let spans = collector.spans();
    let of = |id: &str, name: &str| {
        let mut children = spans.iter().filter(|span| span.parent == id);
        children.any(|span| span.name == name)
    };
    assert!(!of(&verdicts["HIT"].parent, "php"), "{spans:#?}");
    let miss = spans.iter().find(|span| span.get("howdah.cache") == "MISS");
    assert!(miss.is_some(), "{spans:#?}");
    assert_eq!(fixture.get("/bad.php").status(), 500);
    let spans = collector.trace("/bad.php");
    assert!(spans[0].failed, "{spans:#?}");
    let line = fixture.wait_for_log(&["php", "as told"]);
    let said = format!("trace_id={} span_id={}", spans[0].trace, spans[0].id);
    assert!(line.contains(&said), "{line}");
}

#[test]
fn collector_that_hangs_costs_spans_and_no_request_waits_for_it() {
    let collector = Collector::start();
    let fixture = traced(Fixture::named("hanging-collector"), &collector, "")
        .file("hello.txt", HELLO)
        .start();
    let load = |requests| {
        let load = Load::new(fixture.address(), "/hello.txt", HELLO).clients(4);
        let outcome = load.run(requests);
        outcome.only(&["200"]);
        outcome.took
    };
    let dropped = |fixture: &Fixture| fixture.status()["spans"]["dropped"].as_u64().unwrap();
    let well = load(1000);
    collector.behave(Behaviour::Hang);
    let badly = load(3000);
    println!("1000 requests while it works: {well:?}, 3000 while it hangs: {badly:?}");
    assert!(badly < 9 * well + std::time::Duration::from_secs(1));
    fixture.wait_for_log(&["warning CollectorUnreachable", "no response within"]);
    assert!(dropped(&fixture) > 1000, "the queue is bounded");
    collector.behave(Behaviour::Take);
    let line = fixture.wait_for_log(&["notice CollectorWorksAgain"]);
    let before = format!("{} spans were dropped", dropped(&fixture));
    assert!(line.contains(&before), "{line}");
    fixture.wait("all spans to be exported", |fixture| {
        let exported = fixture.status()["spans"]["exported"].as_u64();
        exported == Some(collector.spans().len() as u64)
    });
    fixture.still_serves();
}

#[test]
fn collector_that_is_down_gets_its_spans_when_it_is_back_and_one_that_refuses_gets_none() {
    let address = free_address();
    let builder = Fixture::named("absent-collector");
    let fixture = builder
        .config(&format!("[traces]\nendpoint = \"http://{address}/\""))
        .start();
    fixture.get("/hello.php");
    let line = fixture.wait_for_log(&["CollectorUnreachable"]);
    assert!(line.contains("refused"), "{line}");
    let collector = Collector::at(address);
    assert_eq!(
        collector.trace("/hello.php")[0].get("http.response.status_code"),
        "200"
    );
    fixture.wait_for_log(&["CollectorWorksAgain", "0 spans were dropped"]);
    collector.behave(Behaviour::Refuse(401));
    fixture.get("/pid.php");
    let line = fixture.wait_for_log(&["CollectorRefused"]);
    assert!(line.contains("401") && line.contains("not now"), "{line}");
    assert_ne!(fixture.status()["spans"]["dropped"], 0);
}

#[test]
fn reload_changes_the_collector_and_a_stop_sends_what_is_left() {
    let (first, second) = (Collector::start(), Collector::start());
    let mut fixture = traced(Fixture::named("moved-collector"), &first, "").start();
    fixture.get("/hello.php");
    let config = fixture.howdah.directory().join("howdah.toml");
    let text = std::fs::read_to_string(&config).expect("the configuration");
    std::fs::write(&config, text.replace(&first.url(), &second.url()))
        .expect("the configuration is written");
    fixture.reload();
    fixture.get("/pid.php");
    // The exporter to the first collector sends its remaining spans at once, without waiting another second for more.
    first.trace("/hello.php");
    fixture.howdah.process.stop();
    second.trace("/pid.php");
    assert!(
        first
            .spans()
            .iter()
            .all(|span| span.get("url.path") != "/pid.php")
    );
}
