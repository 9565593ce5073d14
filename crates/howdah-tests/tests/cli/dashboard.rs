//! The dashboard in a real Chromium: what it shows of a busy server on wide screens and on phones, its buttons and
//! their use by keyboard, that a hidden dashboard causes no load, and that no other page can use its buttons.
//!
//! `HOWDAH_TESTS_PICTURES=DIR` keeps the screenshots.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use howdah_tests::chromium::Chromium;
use howdah_tests::fixture::{Builder, Fixture, HELLO};
use howdah_tests::http::{Response, exchange, get};
use howdah_tests::load::{Load, LoadEnd};
use howdah_tests::pki::Pki;
use howdah_tests::process::{Process, wait_until};
use howdah_tests::rig::{free_address, howdah_program};
use serde_json::Value;

/// The job of a server that has an example of everything that the dashboard shows.
const JOB: &str = "[[job]]\nname = \"cleanup\"\ncommand = [\"true\"]\nschedule = \"0 3 1 1 *\"\n";

fn busy(name: &str, status: SocketAddr) -> Builder {
    let upstream = free_address();
    let builder = Fixture::named(name);
    let state = format!("STATE_DIRECTORY={}", builder.scratch().path().display());
    builder
        .through(&["env", &state])
        .config(&format!("[status]\nlisten = \"{status}\"\n{JOB}"))
        .pool("request_slowlog_timeout = \"200ms\"")
        .script("cookie.php", "<?php setcookie('colour', 'red');")
        .children(4)
        .tls()
        .site(&format!(
            "cache = \"on\"\n{}\n[[site.rule]]\nprefix = \"/api/\"\nproxy = \"http://{upstream}\"\n\
             [[site.rule]]\npath = \"/limited\"\nrate = \"1/h\"\n",
            Pki::site("site"),
        ))
}

/// Waits until an expression is true on the page.
#[track_caller]
fn until(browser: &mut Chromium, what: &str, expression: &str) {
    wait_until(what, Duration::from_secs(30), || {
        browser.evaluate(&format!("Boolean({expression})")) == Value::Bool(true)
    });
}

fn text(browser: &mut Chromium, id: &str) -> String {
    let text = browser.evaluate(&format!("document.getElementById('{id}').innerText"));
    text.as_str().unwrap_or_default().to_owned()
}

fn keep(name: &str, picture: &[u8]) {
    assert!(
        picture.starts_with(b"\x89PNG") && picture.len() > 10_000,
        "{name}"
    );
    if let Some(directory) = std::env::var_os("HOWDAH_TESTS_PICTURES") {
        let path = std::path::Path::new(&directory).join(format!("{name}.png"));
        std::fs::write(path, picture).expect("a picture is written");
    }
}

#[test]
fn dashboard_shows_a_busy_server_and_a_hidden_one_costs_nothing() {
    let status = free_address();
    let builder = busy("dashboard", status);
    Pki::new(builder.scratch().path()).sign("site", &["localhost"]);
    let fixture = builder.start();
    let load = Load::new(fixture.address(), "/hello.php", HELLO)
        .clients(2)
        .start(LoadEnd::OnFinish);
    let gate = fixture.gate("long");
    let long = fixture.start_get("/hold.php?gate=long&name=%3Cimg%20src=x%20onerror=alert(1)%3E");
    let standing = gate.wait();
    fixture.wait_for_log(&["SlowRequest"]);
    assert_eq!(fixture.get("/api/").status(), 503);
    fixture.wait("a page that sets a cookie", |f| {
        f.get("/cookie.php").status() == 200
            && f.status()["cache"]["sites"][0]["passes"]
                .as_array()
                .is_some_and(|passes| passes.iter().any(|pass| pass[0] == "SetCookie"))
    });
    fixture.wait("a request to be refused", |f| {
        f.get("/limited").status() == 429
    });

    let mut browser = Chromium::start(&[]);
    browser.show(1280, 1400, false);
    browser.open(&format!("http://{status}/"));
    until(
        &mut browser,
        "the page to be live",
        "document.getElementById('state').className === 'live'",
    );
    until(
        &mut browser,
        "a rate",
        "/[1-9]/.test(document.querySelector('.tile .figure').innerText)",
    );
    let shown = text(&mut browser, "main");
    for words in [
        "per second",
        "Pool www Ready",
        "PHP 8",
        "GET /hold.php?gate=long&name=%3Cimg",
        "Slow requests",
        "stand_at",
        "BackendDown",
        "ClientLimited",
        "Why not",
        "Upstream servers",
        "Certificates",
        "localhost",
        "rate 1/h",
        "Jobs",
        "cleanup",
        "waiting",
        "−5 min",
        "Most frequent pages",
        "/hello.php",
        "Slowest pages",
        "too many requests",
        "No backend was reachable.",
        "The response sets a cookie.",
    ] {
        // The stack and the meanings of names are in elements that are still closed.
        let shown = match words {
            "stand_at" | "No backend was reachable." | "The response sets a cookie." => {
                browser.evaluate("document.querySelector('main').textContent")
            }
            _ => Value::from(shown.clone()),
        };
        let shown = shown.as_str().expect("text").to_lowercase();
        assert!(shown.contains(&words.to_lowercase()), "{words} in {shown}");
    }
    assert!(text(&mut browser, "server").ends_with("0 reloads"));
    // The security policy allows lengths to be set, and the page has no buttons.
    let width =
        browser.evaluate("document.querySelector('.bar .busy').getBoundingClientRect().width");
    assert!(width.as_f64().is_some_and(|width| width > 1.0), "{width}");
    assert_eq!(
        browser.evaluate("document.getElementById('actions').checkVisibility()"),
        false
    );
    // An open element stays open while the page changes.
    browser.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })");
    let uptime = text(&mut browser, "server");
    until(
        &mut browser,
        "the next second",
        &format!("document.getElementById('server').innerText !== {uptime:?}"),
    );
    assert_eq!(
        browser.evaluate("document.querySelector('details').open"),
        true
    );

    keep("light", &browser.screenshot());
    browser.show(1280, 1400, true);
    keep("dark", &browser.screenshot());
    browser.show(390, 844, false);
    keep("phone", &browser.screenshot());
    let overflow = browser
        .evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
    assert_eq!(overflow, 0, "a phone need not scroll sideways");
    let cut = browser.evaluate(
        "[...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth)\
         .map((e) => e.getAttribute('aria-label')).join()",
    );
    assert_eq!(cut, "", "tables whose columns are cut off on a phone");

    // Hides the page, as when the user switches to another tab.
    let hide = |hidden: bool| {
        format!(
            "Object.defineProperty(document, 'hidden', {{value: {hidden}, configurable: true}}); \
             document.dispatchEvent(new Event('visibilitychange')); 0"
        )
    };
    browser.evaluate(&hide(true));
    let requests = || get(status, "/status?json").json()["status_listener"]["requests"].as_u64();
    assert_eq!(text(&mut browser, "state"), "paused");
    let before = requests().expect("a number");
    browser.evaluate("new Promise((done) => setTimeout(done, 2500))");
    assert_eq!(
        requests(),
        Some(before + 1),
        "only this test has sent a request"
    );
    browser.evaluate(&hide(false));
    until(
        &mut browser,
        "the page to be live again",
        "document.getElementById('state').className === 'live'",
    );

    standing.open();
    assert_eq!(long.answer().text(), "released");
    load.finish().only(&["200"]);
}

#[test]
fn dashboard_that_is_opened_late_shows_what_happened_before() {
    let status = free_address();
    let fixture = Fixture::named("late")
        .script("order-17.php", "<?php echo 'ordered';")
        .config(&format!("[status]\nlisten = \"{status}\"\n"))
        .start();
    for _ in 0..3 {
        assert_eq!(fixture.get("/order-17.php?token=secret").status(), 200);
    }
    assert_eq!(fixture.get("/none.php").status(), 404);
    fixture.wait("a sample", |f| {
        let samples = f.status()["history"]["requests"].clone();
        samples
            .as_array()
            .is_some_and(|samples| samples.iter().filter_map(Value::as_u64).sum::<u64>() >= 4)
    });
    fixture.reload();
    let shown = fixture.status();
    let site = &shown["sites"][0];
    assert_eq!((&site["requests"], &site["errors"]), (&4.into(), &0.into()));
    assert_eq!(site["statuses"], serde_json::json!([[200, 3], [404, 1]]));
    assert_eq!(site["pages"][0]["path"], "/order-*.php");
    assert_eq!(site["pages"][0]["requests"], 3);
    let history = shown["history"].as_object().expect("columns");
    for (name, column) in history {
        let samples = column.as_array().map(Vec::len);
        assert_eq!(
            samples,
            shown["history"]["at"].as_array().map(Vec::len),
            "{name}"
        );
    }

    let mut browser = Chromium::start(&[]);
    browser.show(1280, 900, false);
    browser.open(&format!("http://{status}/"));
    until(
        &mut browser,
        "the site's pages",
        "/order-\\*\\.php/.test(document.getElementById('main').innerText)",
    );
    let drawn = browser.evaluate("document.querySelectorAll('.graph polyline').length");
    assert!(drawn.as_u64().is_some_and(|lines| lines >= 6), "{drawn}");
    let whole = browser.evaluate("document.documentElement.outerHTML");
    assert!(!whole.as_str().unwrap_or_default().contains("secret"));

    // Each name leads to its meaning on the page of all names.
    browser.leave_by("document.querySelector('details.name a').click()");
    let meaning = browser.evaluate("document.querySelector(location.hash).nextSibling.innerText");
    assert!(
        meaning.as_str().is_some_and(|text| text.len() > 10),
        "{meaning}"
    );
}

fn relay(fixture: &Fixture) -> (Process, String) {
    let mut command = Command::new(howdah_program());
    command
        .arg("dashboard")
        .arg("--control")
        .arg(fixture.path("control.sock"));
    let process = Process::start("howdah dashboard", &mut command);
    let url = process.wait_for_line("its address", Duration::from_secs(30), |line| {
        line.starts_with("http://").then(|| line.trim().to_owned())
    });
    (process, url)
}

#[test]
fn its_buttons_are_for_the_page_of_whoever_started_it_and_work_by_keyboard() {
    let fixture = Fixture::named("buttons").site("cache = \"on\"").start();
    let (mut process, url) = relay(&fixture);
    let (address, path) = url["http://".len()..].split_once('/').expect("a path");
    let path = format!("/{path}");
    let to: SocketAddr = address.parse().expect("an address");

    let post = |path: &str, host: &str, origin: &str, media: &str| -> Response {
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nContent-Type: {media}\r\n\
             Content-Length: 2\r\nConnection: close\r\n\r\n{{}}"
        );
        exchange(to, request.as_bytes()).expect("a response")
    };
    let (reload, own, json) = (
        format!("{path}reload"),
        format!("http://{address}"),
        "application/json",
    );
    for (path, host, origin, media, status) in [
        ("/reload", address, &*own, json, 404),
        (
            "/00000000000000000000000000000000/reload",
            address,
            &*own,
            json,
            404,
        ),
        (&*reload, "evil.example", "http://evil.example", json, 404),
        (&*reload, address, "http://evil.example", json, 403),
        (&*reload, address, "null", json, 403),
        (&*reload, address, &*own, "text/plain", 403),
    ] {
        assert_eq!(
            post(path, host, origin, media).status(),
            status,
            "{path} {host} {origin} {media}"
        );
    }
    assert_eq!(get(to, &reload).status(), 404);
    assert_eq!(fixture.status()["reloads"], 0);

    let mut browser = Chromium::start(&[]);
    browser.show(1280, 900, false);
    browser.open(&url);
    until(
        &mut browser,
        "the page to be live",
        "document.getElementById('state').className === 'live'",
    );
    let focused = |browser: &mut Chromium, id: &str| {
        wait_until(id, Duration::from_secs(20), || {
            browser.press("Tab");
            browser.evaluate("document.activeElement.id") == id
        });
    };
    focused(&mut browser, "reload");
    browser.press("Enter");
    until(
        &mut browser,
        "the reload",
        "/reloaded/.test(document.getElementById('message').innerText)",
    );
    assert_eq!(fixture.status()["reloads"], 1);
    focused(&mut browser, "purge");
    browser.press("Enter");
    until(
        &mut browser,
        "the dialog",
        "document.getElementById('purging').open",
    );
    focused(&mut browser, "what");
    browser.type_text("/hello.php");
    focused(&mut browser, "purge-these");
    browser.press("Enter");
    until(
        &mut browser,
        "the purge",
        "/purged|invalid/i.test(document.getElementById('message').innerText)",
    );
    assert_eq!(
        browser.evaluate("document.getElementById('message').className"),
        ""
    );
    keep("buttons", &browser.screenshot());

    // When the server exits, the dashboard says so.
    drop(fixture);
    until(
        &mut browser,
        "the page to show that the server is lost",
        "document.getElementById('state').className === 'lost'",
    );
    assert!(process.is_running());
    assert!(process.stop().success());
}

#[test]
fn dashboard_with_buttons_is_for_this_machine_only() {
    let said = |words: &[&str]| {
        let output = Command::new(howdah_program())
            .args(words)
            .output()
            .expect("howdah can be started");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text)
    };
    let (code, text) = said(&["dashboard", "--listen", "0.0.0.0:8090"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("only on loopback") && text.contains("ssh -L"),
        "{text}"
    );
    let (code, text) = said(&["dashboard", "--control", "/nonexistent/control.sock"]);
    assert_eq!(code, Some(6), "{text}");
    assert!(text.contains("NoServer: "), "{text}");
}
