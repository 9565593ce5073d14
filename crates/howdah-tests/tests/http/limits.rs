//! Limits on clients with the whole program: how many requests are admitted and for which client they count, over every
//! version of HTTP, with the page cache, and across reloads; which requests wait for PHP; and what is logged and
//! counted.

use std::process::Command;
use std::time::{Duration, Instant};

use howdah_tests::fixture::{Builder, Fixture, TRUSTED_PROXIES, from};
use howdah_tests::http::{self, Connection, Response};
use howdah_tests::http2::{self, Http2Request};
use howdah_tests::rig::{howdah_check, howdah_program};
use howdah_tests::scratch::Scratch;

fn ask(fixture: &Fixture, request: &str, lines: &str) -> Response {
    let (method, path) = request.split_once(' ').unwrap_or(("GET", request));
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: a.example\r\n{lines}Connection: close\r\n\r\n");
    http::exchange(fixture.address(), request.as_bytes())
        .unwrap_or_else(|broken| panic!("{path}: {broken}\n{}", fixture.howdah.process.log()))
}

/// Sends `asked` requests and returns how many are admitted. The others must be refused with `Retry-After`.
#[track_caller]
fn passed(fixture: &Fixture, asked: usize, request: &str, lines: &str) -> usize {
    let mut passed = 0;
    for _ in 0..asked {
        let answer = ask(fixture, request, lines);
        match answer.status() {
            429 => assert!(refused(&answer) > 0),
            _ => passed += 1,
        }
    }
    passed
}

#[track_caller]
fn refused(answer: &Response) -> u64 {
    assert_eq!(answer.status(), 429, "{}", answer.text());
    assert_eq!(answer.header("Howdah-Error"), Some("ClientLimited"));
    assert_eq!(answer.header("Cache-Control"), Some("no-store"));
    let seconds = answer.header("Retry-After").expect("Retry-After");
    seconds.parse().expect("seconds")
}

fn site(name: &str, lines: &str) -> Builder {
    Fixture::named(name)
        .config(TRUSTED_PROXIES)
        .file("a.txt", "a")
        .site(lines)
}

#[test]
fn as_much_passes_as_the_rule_says_and_no_more() {
    let fixture = site(
        "limits-rate",
        "[[site.rule]]\npath = \"/a.txt\"\nrate = \"2/m\"\nburst = 3\n\
         [[site.rule]]\nglob = \"/page*\"\nmethods = [\"POST\"]\nrate = \"3/h\"\n\
         [[site.rule]]\npath = \"/quick.php\"\nrate = \"5r/s\"\nburst = 0",
    )
    .script("page.php", "<?php echo 'page';")
    .script("quick.php", "<?php echo 'quick';")
    .start();
    assert_eq!(passed(&fixture, 9, "/a.txt", ""), 4);
    let wait = refused(&ask(&fixture, "/a.txt", ""));
    assert!((28..=30).contains(&wait), "{wait}");
    // Another spelling is the same path; another path or method is not limited.
    assert_eq!(passed(&fixture, 3, "/x/../%61.txt", ""), 0);
    assert_eq!(passed(&fixture, 9, "/hello.php", ""), 9);
    assert_eq!(passed(&fixture, 9, "/page.php", ""), 9);
    // Without `burst`, as many requests are admitted at once as the number says.
    assert_eq!(passed(&fixture, 9, "POST /page.php", ""), 3);
    // One request at a time, five a second: a refusal says when to retry, and does not count against the limit.
    let since = Instant::now();
    let mut answered = 0;
    while answered < 5 {
        let answer = ask(&fixture, "/quick.php", "");
        match answer.status() {
            429 => assert_eq!(refused(&answer), 1),
            _ => answered += 1,
        }
    }
    let took = since.elapsed();
    // Four intervals of 200 ms; the precision of the clock is the length of one turn.
    assert!(took > Duration::from_millis(780), "{took:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    fixture.still_serves();
}

#[test]
fn limit_counts_each_request_to_its_path_once() {
    let fixture = site(
        "limits-paths",
        "front_controller = \"/front.php\"\n\
         [[site.rule]]\npath = \"/login.php\"\nrate = \"4/h\"\n\
         [[site.rule]]\nprefix = \"/to/\"\nrewrite = \"/login.php\"\n\
         [[site.rule]]\npath = \"/front.php\"\nrate = \"2/h\"",
    )
    .script("login.php", "<?php echo 'log in';")
    .script("front.php", "<?php echo 'front';")
    .start();
    let ways = ["/login.php", "/to/x", "/login.php/info", "//login.php"];
    for way in ways {
        assert_eq!(ask(&fixture, way, "").text(), "log in", "{way}");
    }
    for way in ways {
        refused(&ask(&fixture, way, ""));
    }
    for way in ["/some", "/thing"] {
        assert_eq!(ask(&fixture, way, "").text(), "front", "{way}");
    }
    refused(&ask(&fixture, "/else", ""));
    fixture.still_serves();
}

#[test]
fn each_client_has_a_limit_of_its_own_by_what_the_rule_says() {
    let rule = |path, by| {
        format!("[[site.rule]]\nprefix = \"/{path}/\"\nrate = \"1/h\"\nlimit_by = \"{by}\"\n")
    };
    let fixture = site(
        "limits-keys",
        &[
            rule("address", "address"),
            rule("network", "network /24 /48"),
            rule("header", "header X-Api-Key"),
            rule("cookie", "cookie session"),
            rule("all", "all"),
        ]
        .concat(),
    )
    .start();
    let passes = |path: &str, lines: &str| ask(&fixture, path, lines).status() != 429;
    let key = |value: &str| format!("X-Api-Key: {value}\r\n");
    let cookie = |value: &str| format!("Cookie: a=b; session={value}\r\n");
    for (path, lines, expected) in [
        ("/address/", from("192.0.2.1"), true),
        ("/address/", from("192.0.2.1"), false),
        ("/address/", from("192.0.2.2"), true),
        // An address that the client itself claims is ignored; the proxy's own address is also a client.
        ("/address/", from("203.0.113.9, 192.0.2.1"), false),
        ("/address/", from("2001:db8:1:2::1"), true),
        ("/address/", from("2001:db8:1:2:ffff::1"), false),
        ("/address/", from("2001:db8:1:3::1"), true),
        ("/address/", String::new(), true),
        ("/address/", String::new(), false),
        ("/network/", from("192.0.2.1"), true),
        ("/network/", from("192.0.2.200"), false),
        ("/network/", from("192.0.3.1"), true),
        ("/network/", from("2001:db8:1:2::1"), true),
        ("/network/", from("2001:db8:1:3::1"), false),
        ("/header/", key("one") + &from("192.0.2.1"), true),
        ("/header/", key("one") + &from("192.0.2.2"), false),
        ("/header/", key("two") + &from("192.0.2.1"), true),
        // A client cannot escape the limit by omitting the header.
        ("/header/", from("192.0.2.1"), true),
        ("/header/", from("192.0.2.1") + &key(""), false),
        ("/cookie/", cookie("one"), true),
        ("/cookie/", cookie("one"), false),
        ("/cookie/", cookie("two"), true),
        ("/all/", from("192.0.2.1"), true),
        ("/all/", from("198.51.100.1"), false),
    ] {
        assert_eq!(passes(path, &lines), expected, "{path} {lines}");
    }
}

#[test]
fn every_version_of_http_counts_alike() {
    let fixture = site(
        "limits-versions",
        "[[site.rule]]\npath = \"/a.txt\"\nrate = \"6/h\"",
    )
    .h2c()
    .http3()
    .start();
    let mut http1 = Connection::open(fixture.address()).unwrap();
    let mut http2 = http2::Http2TestClient::open(fixture.address()).unwrap();
    let mut http3 = fixture.http3();
    for _ in 0..3 {
        http1
            .send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        assert_eq!(http1.read_response("GET").unwrap().status(), 200);
        assert_eq!(
            http2.ask(&Http2Request::get("/a.txt")).unwrap().status(),
            200
        );
    }
    refused(&http3.ask(&Http2Request::get("/a.txt")).unwrap());
    refused(&http2.ask(&Http2Request::get("/a.txt")).unwrap());
    // The connection of a refused client stays usable.
    for _ in 0..2 {
        http1
            .send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        refused(&http1.read_response("GET").unwrap());
    }
    assert_eq!(
        http3
            .ask(&Http2Request::get("/hello.php"))
            .unwrap()
            .status(),
        200
    );
}

#[test]
fn stored_page_counts_and_a_limit_keeps_no_page_out_of_the_cache() {
    let fixture = site(
        "limits-cache",
        "cache = \"on\"\n\
         [[site.rule]]\npath = \"/page.php\"\nrate = \"5/h\"\nheader = { User-Agent = \"*bot*\" }",
    )
    .script("page.php", "<?php echo 'page';")
    .start();
    let is_hit = |answer: &Response| {
        let status = answer.header("Cache-Status").unwrap_or_default();
        status.contains("hit")
    };
    fixture.wait("a hit", |f| is_hit(&ask(f, "/page.php", "")));
    for _ in 0..5 {
        assert!(is_hit(&ask(&fixture, "/page.php", "User-Agent: a bot\r\n")));
    }
    refused(&ask(&fixture, "/page.php", "User-Agent: a bot\r\n"));
    assert!(is_hit(&ask(&fixture, "/page.php", "")));
}

#[test]
fn reload_keeps_what_is_counted_of_a_limit_that_stays() {
    let rule = |path, rate| format!("[[site.rule]]\npath = \"{path}\"\nrate = \"{rate}\"\n");
    let fixture = site(
        "limits-reload",
        &[rule("/a.txt", "2/h"), rule("/hello.php", "2/h")].concat(),
    )
    .start();
    let both =
        |fixture: &Fixture| ["/a.txt", "/hello.php"].map(|path| passed(fixture, 3, path, ""));
    assert_eq!(both(&fixture), [2, 2]);
    fixture.reload();
    assert_eq!(both(&fixture), [0, 0]);
    let file = fixture.howdah.directory().join("howdah.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    // In the changed file, the first limit is on another line, and the second one has another rate.
    let text = text
        .replace(
            "[[site.rule]]\npath = \"/a",
            "\n\n[[site.rule]]\npath = \"/a",
        )
        .replace("hello.php\"\nrate = \"2/h", "hello.php\"\nrate = \"1/h");
    std::fs::write(&file, text).unwrap();
    fixture.reload();
    assert_eq!(both(&fixture), [0, 1]);
}

#[test]
fn refused_client_is_logged_once_and_counted_always() {
    let fixture = site(
        "limits-log",
        "[[site.rule]]\npath = \"/a.txt\"\nrate = \"1/h\"",
    )
    .start();
    for client in ["192.0.2.1", "192.0.2.2"] {
        assert_eq!(passed(&fixture, 21, "/a.txt", &from(client)), 1);
    }
    fixture.wait_for_log(&["ClientLimited", "client=192.0.2.2"]);
    let log = fixture.howdah.process.log();
    let lines: Vec<&str> = log
        .lines()
        .filter(|l| l.contains("ClientLimited"))
        .collect();
    assert_eq!(lines.len(), 2, "{log}");
    let expected = "ClientLimited: over the limit of line 6: rate 1/h, burst 0 | GET a.example/a.txt client=192.0.2.1";
    assert!(lines[0].contains(expected), "{}", lines[0]);
    let status = fixture.status();
    assert_eq!(status["limits"]["rows"][0]["refused"], 40);
    let failures = status["failures"].as_array().unwrap();
    assert!(
        failures.contains(&serde_json::json!(["ClientLimited", 40])),
        "{failures:?}"
    );
    let text = fixture.control(&["status"]).stdout;
    let text = String::from_utf8_lossy(&text);
    let row = "limit: site1 line 6: rate 1/h, burst 0: 40 requests refused, 0 waiting";
    assert!(text.contains(row), "{text}");
    // A thousand clients that exceed the limit do not fill the log either.
    for n in 0..500 {
        let client = from(&format!("10.0.{}.{}", n / 256, n % 256));
        assert_eq!(passed(&fixture, 2, "/a.txt", &client), 1);
    }
    let log = fixture.howdah.process.log();
    let lines = log.lines().filter(|l| l.contains("ClientLimited")).count();
    assert!(lines < 60, "{lines} lines");
}

#[test]
fn behind_a_proxy_that_nobody_has_named_the_log_says_why_all_are_one() {
    let fixture = Fixture::named("limits-proxy")
        .file("a.txt", "a")
        .site("[[site.rule]]\npath = \"/a.txt\"\nrate = \"1/h\"")
        .start();
    assert_eq!(passed(&fixture, 1, "/a.txt", &from("192.0.2.1")), 1);
    refused(&ask(&fixture, "/a.txt", &from("192.0.2.2")));
    fixture.wait_for_log(&[
        "ClientLimited",
        "a proxy that trusted_proxies does not name",
    ]);
}

/// Sends a request from this client address without reading the response.
fn begin(fixture: &Fixture, path: &str, address: &str) -> Connection {
    let mut connection = Connection::open(fixture.address()).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{}\r\n", from(address));
    connection.send(request).unwrap();
    connection
}

fn text(connection: &mut Connection) -> String {
    connection.read_response("GET").expect("a response").text()
}

/// Waits until this many requests are queued because of the `processes` limit of their client.
fn wait_for_line(fixture: &Fixture, waiting: u64) {
    fixture.wait("requests to wait", |f| {
        f.status()["limits"]["rows"][0]["waiting"] == waiting
    });
}

const CRAWLER: &str = "198.51.100.66";
const VISITOR: &str = "192.0.2.1";

#[test]
fn client_has_so_many_requests_in_progress_and_others_have_theirs() {
    let fixture = site(
        "limits-connections",
        "[[site.rule]]\nprefix = \"/\"\nconnections = 2",
    )
    .children(4)
    .h2c()
    .start();
    let [one, two, three] = ["one", "two", "three"].map(|name| fixture.gate(name));
    let mut held = begin(&fixture, "/hold.php?gate=one", CRAWLER);
    // A stream of HTTP/2 counts like a connection.
    let mut http2 = http2::Http2TestClient::open(fixture.address()).unwrap();
    let own = Http2Request::get("/hold.php?gate=two").header("x-forwarded-for", CRAWLER.as_bytes());
    let stream = http2.send(&own).unwrap();
    let (one, two) = (one.wait(), two.wait());
    assert_eq!(refused(&ask(&fixture, "/a.txt", &from(CRAWLER))), 1);
    assert_eq!(ask(&fixture, "/a.txt", &from(VISITOR)).text(), "a");
    fixture.wait_for_log(&["ClientLimited", "over the limit of line 6: connections 2"]);
    one.open();
    assert_eq!(text(&mut held), "released");
    // The connection is open, but no request is in progress on it.
    fixture.wait("a free slot", |f| {
        ask(f, "/a.txt", &from(CRAWLER)).status() == 200
    });
    two.open();
    assert_eq!(http2.read(stream).unwrap().text(), "released");
    // A client that disconnects releases its slot.
    let left = begin(&fixture, "/hold.php?gate=three", CRAWLER);
    let three = three.wait();
    drop(left);
    three.open();
    fixture.wait("both slots to be free", |f| {
        let one = begin(f, "/a.txt", CRAWLER);
        let answer = ask(f, "/a.txt", &from(CRAWLER));
        drop(one);
        answer.status() == 200
    });
}

#[test]
fn crawler_waits_for_itself_while_a_visitor_is_served_at_once() {
    let fixture = site(
        "limits-processes",
        "[[site.rule]]\nprefix = \"/\"\nprocesses = 1",
    )
    .start();
    let gate = fixture.gate("slow");
    let mut first = begin(&fixture, "/hold.php?gate=slow", CRAWLER);
    let standing = gate.wait();
    let mut line: Vec<_> = (0..64)
        .map(|_| begin(&fixture, "/pid.php", CRAWLER))
        .collect();
    wait_for_line(&fixture, 64);
    // No further request may wait; files and other clients do not wait at all.
    assert_eq!(refused(&ask(&fixture, "/pid.php", &from(CRAWLER))), 1);
    fixture.wait_for_log(&["ClientLimited", "over the limit of line 6: processes 1"]);
    assert_eq!(ask(&fixture, "/a.txt", &from(CRAWLER)).text(), "a");
    for _ in 0..20 {
        assert_eq!(ask(&fixture, "/hello.php", &from(VISITOR)).status(), 200);
    }
    let status = fixture.status();
    assert_eq!(
        status["pools"][0]["queue"], 0,
        "no request waits for the pool"
    );
    assert_eq!(status["limits"]["rows"][0]["waiting"], 64);
    // A request whose client disconnects leaves the queue.
    drop(line.drain(..40));
    wait_for_line(&fixture, 24);
    standing.open();
    assert_eq!(text(&mut first), "released");
    for waiting in &mut line {
        assert!(text(waiting).parse::<u32>().is_ok());
    }
    wait_for_line(&fixture, 0);
    fixture.still_serves();
}

#[test]
fn client_that_leaves_has_its_process_until_that_is_done() {
    let fixture = site(
        "limits-leavers",
        "[[site.rule]]\nprefix = \"/\"\nprocesses = 1",
    )
    .script(
        "finished.php",
        "<?php require 'GATES'; echo 'over'; fastcgi_finish_request(); stand_at('finished');",
    )
    .start();
    let [waits, finished] = ["left", "finished"].map(|name| fixture.gate(name));
    let left = begin(&fixture, "/hold.php?gate=left", CRAWLER);
    let standing = waits.wait();
    drop(left);
    let mut next = begin(&fixture, "/pid.php", CRAWLER);
    wait_for_line(&fixture, 1);
    assert_eq!(ask(&fixture, "/hello.php", &from(VISITOR)).status(), 200);
    standing.open();
    assert!(text(&mut next).parse::<u32>().is_ok());
    // A script that continues after its response still occupies its process.
    assert_eq!(
        ask(&fixture, "/finished.php", &from(CRAWLER)).text(),
        "over"
    );
    let standing = finished.wait();
    let mut next = begin(&fixture, "/pid.php", CRAWLER);
    wait_for_line(&fixture, 1);
    standing.open();
    assert!(text(&mut next).parse::<u32>().is_ok());
}

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs php-cgi")]
fn modes_that_start_programs_release_permits_too() {
    for mode in ["cgi", "pool"] {
        let fixture = site(
            &format!("limits-{mode}"),
            "[[site.rule]]\nprefix = \"/\"\nprocesses = 1",
        )
        .argument("--mode", mode)
        .start();
        for name in ["one", "two"] {
            let gate = fixture.gate(name);
            let mut first = begin(&fixture, &format!("/hold.php?gate={name}"), CRAWLER);
            let standing = gate.wait();
            let mut next = begin(&fixture, "/pid.php", CRAWLER);
            wait_for_line(&fixture, 1);
            assert_eq!(ask(&fixture, "/hello.php", &from(VISITOR)).status(), 200);
            // If a client disconnects, the server terminates the program, which counts for the client until it has
            // exited.
            let left = name == "two";
            if left {
                drop(first);
            } else {
                standing.open();
                assert_eq!(text(&mut first), "released");
            }
            assert!(text(&mut next).parse::<u32>().is_ok(), "{mode}");
        }
    }
}

#[test]
fn waiting_request_is_refused_after_ten_seconds() {
    let fixture = site(
        "limits-in-vain",
        "[[site.rule]]\npath = \"/hold.php\"\nprocesses = 1\nlimit_by = \"all\"",
    )
    .start();
    let gate = fixture.gate("long");
    let mut first = begin(&fixture, "/hold.php?gate=long", VISITOR);
    let standing = gate.wait();
    let since = Instant::now();
    refused(&ask(&fixture, "/hold.php?gate=none", &from(CRAWLER)));
    let took = since.elapsed();
    assert!((9.9..14.0).contains(&took.as_secs_f64()), "{took:?}");
    standing.open();
    assert_eq!(text(&mut first), "released");
}

#[test]
fn limited_crawler_does_not_delay_renders_for_others() {
    let fixture = site(
        "limits-render",
        "cache = \"on\"\n[[site.rule]]\nprefix = \"/\"\nprocesses = 1",
    )
    .script("page.php", "<?php echo 'page ', $_GET['n'];")
    .start();
    // A page is rendered for the cache at its second visit, so each page is visited once here.
    for n in 0..4 {
        let page = format!("/page.php?n={n}");
        assert_eq!(ask(&fixture, &page, &from(CRAWLER)).status(), 200);
    }
    let gate = fixture.gate("slow");
    let mut first = begin(&fixture, "/hold.php?gate=slow", CRAWLER);
    let standing = gate.wait();
    let mut line: Vec<_> = (0..4)
        .map(|n| begin(&fixture, &format!("/page.php?n={n}"), CRAWLER))
        .collect();
    wait_for_line(&fixture, 4);
    for n in 0..4 {
        let page = format!("/page.php?n={n}");
        assert_eq!(
            ask(&fixture, &page, &from(VISITOR)).text(),
            format!("page {n}")
        );
    }
    wait_for_line(&fixture, 4);
    standing.open();
    assert_eq!(text(&mut first), "released");
    for (n, waiting) in line.iter_mut().enumerate() {
        assert_eq!(text(waiting), format!("page {n}"));
    }
}

#[test]
fn explain_says_once_whether_a_request_logs_in() {
    let dir = Scratch::new("limits-explain");
    let text = "[[site]]\nroot = \".\"\n[[site.rule]]\nprefix = \"/to/\"\nrewrite = \"/wp-login.php\"\n\
        [[site.rule]]\nlimit = \"login\"\nrate = \"5/m\"\n";
    let file = dir.write("a.toml", text);
    for (method, url, expected) in [
        ("GET", "/wp-login.php", "no (limit)"),
        ("POST", "/x.php", "no (limit)"),
        ("POST", "/wp-login.php", "yes, not counted here"),
        ("POST", "/?do=login", "yes, not counted here"),
        ("POST", "/to/x", "yes, not counted here"),
    ] {
        let output = Command::new(howdah_program())
            .args(["explain", url, "-X", method, "--config"])
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<&str> = said.lines().filter(|l| l.contains("limit login")).collect();
        assert_eq!(lines.len(), 1, "{method} {url}:\n{said}");
        let expected = format!("a.toml:6 limit login, rate 5/m, burst 4: {expected}");
        assert!(lines[0].ends_with(&expected), "{method} {url}:\n{said}");
    }
}

#[test]
fn mistakes_in_limits_are_reported_at_once_with_what_would_do() {
    let dir = Scratch::new("limits-mistakes");
    let text = "[[site]]\nroot = \".\"\n\
        [[site.rule]]\nrate = \"10\"\n\
        [[site.rule]]\nrate = \"10/s\"\nlimit_by = \"header a:b\"\n\
        [[site.rule]]\nrate = \"10/s\"\nlimit_by = \"network /24\"\n\
        [[site.rule]]\nrate = \"10/s\"\nlimit_by = \"adress\"\nburst = -1\n\
        [[site.rule]]\ndeny = 403\nburst = 3\nlimit_by = \"all\"\n\
        [[site.rule]]\nrate = \"10/s\"\nif_missing = true\n\
        [[site.rule]]\nrate = \"10/s\"\nredirect = \"/x\"\n\
        [[site.rule]]\nrat = \"10/s\"\n\
        [[site.rule]]\nlimit = \"logins\"\n\
        [[site.rule]]\nlimit = \"login\"\npath = \"/x\"\nmethods = [\"GET\"]\n";
    let file = dir.write("a.toml", text);
    let (code, said) = howdah_check(&file);
    assert_eq!(code, Some(3), "{said}");
    for expected in [
        "a.toml:4:8: rate: expected a number of requests per second, minute or hour, such as `10/s`, `30/m` or `100/h`, found `10`",
        "a.toml:7:12: limit_by: `a:b` is not a valid header name",
        "a.toml:10:12: limit_by: expected the prefix lengths of a network, `network /24 /56`",
        "a.toml:13:12: limit_by: expected `address`, `network /24 /56` (IPv4, then IPv6), `header NAME`, `cookie NAME` or `all`, found `adress`",
        "a.toml:14:9: burst: ",
        "a.toml:17:9: burst: is allowed only in a rule with `rate` or `limit`",
        "a.toml:18:12: limit_by: is allowed only in a rule with `rate`, `connections`, `processes`, `limit`",
        "a.toml:21:14: if_missing: cannot be combined with a limit",
        "a rule can have only one action (found redirect, rate)",
        "a.toml:28:9: limit: expected `login`, found `logins`; did you mean `login`?",
        "a.toml:31:8: path: `limit = \"login\"` already selects the requests that log in",
        "a.toml:32:11: methods: `limit = \"login\"` already selects the requests that log in",
        "unknown key `rat` in [site.rule]; did you mean `rate`?",
    ] {
        assert!(said.contains(expected), "missing {expected:?} in\n{said}");
    }
}
