//! Pages that write and include fragments at the same time: a fragment is never older than what its page has written
//! before it, and neither waits for the other, whatever they hold.

use std::thread::JoinHandle;

use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::http::{Response, exchange};

use crate::private::request;

/// A page that counts, in a file or in the session of its visitor, and includes a fragment that shows the number.
const PAGE: &str = r#"<?php
session_save_path('SCRATCH/sessions');
header('Surrogate-Control: content="ESI/1.0"');
if (isset($_GET['session'])) {
    session_start();
    $number = $_SESSION['number'] = ($_SESSION['number'] ?? 0) + 1;
    if (isset($_GET['closes'])) session_write_close();
} else {
    $number = (int) @file_get_contents('SCRATCH/number') + 1;
    file_put_contents('SCRATCH/number', $number);
}
$of = isset($_GET['session']) ? '?session' : '';
echo "page $number, ", str_repeat('-', (int) ($_GET['before'] ?? 0)), "<esi:include src='/esi/number.php$of'/>";
if (isset($_GET['gate'])) { require 'GATES'; stand_at($_GET['gate']); }
for ($left = (int) ($_GET['after'] ?? 0); $left > 0; $left -= 65536) echo str_repeat('.', min($left, 65536));
"#;

/// The fragment that shows the number. It is stored, for all visitors or for its own.
const NUMBER: &str = r#"<?php
session_save_path('SCRATCH/sessions');
if (isset($_GET['session'])) {
    session_start();
    header('X-LiteSpeed-Cache-Control: private,max-age=600');
    $number = $_SESSION['number'] ?? 0;
} else {
    header('Cache-Control: public, max-age=600');
    $number = (int) @file_get_contents('SCRATCH/number');
}
echo "fragment $number.";
"#;

const VISITOR: &str = "Cookie: PHPSESSID=aaaaaaaaaaaaaaaaaaaaaaaaaa\r\n";

fn builder(name: &str) -> Builder {
    Fixture::named(name)
        .children(2)
        .script("count.php", PAGE)
        .script("esi/number.php", NUMBER)
        .script("mkdir.php", "<?php mkdir('SCRATCH/sessions');")
        .site("cache = \"on\"")
        .site("[site.esi]\npaths = [\"/esi\"]\ncookies = [\"PHPSESSID\"]")
        .site("[site.private]\ncookies = [\"PHPSESSID\"]")
}

fn start(builder: Builder) -> Fixture {
    let fixture = builder.start();
    ask(&fixture, "GET", "/mkdir.php", "");
    fixture
}

fn ask(fixture: &Fixture, method: &str, path: &str, lines: &str) -> Response {
    let request = request(method, path, lines);
    exchange(fixture.address(), request.as_bytes()).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// Requests a page from a new thread.
fn begin(fixture: &Fixture, path: &str, lines: &str) -> JoinHandle<Response> {
    let (address, request) = (fixture.address(), request("GET", path, lines));
    std::thread::spawn(move || exchange(address, request.as_bytes()).expect("a response"))
}

/// Requests a fragment until it is served from the cache.
fn keep(fixture: &Fixture, path: &str, lines: &str) {
    fixture.wait("the fragment to be stored", |f| {
        ask(f, "GET", path, lines).header("X-Cache") == Some("HIT")
    });
}

/// Returns the number that the page shows, and the number that its fragment shows.
fn numbers(response: &Response) -> (u32, u32) {
    let text = response.text();
    let number = |after: &str| {
        let rest = &text[text.find(after).unwrap_or_else(|| panic!("{text}")) + after.len()..];
        let end = rest.find(|c: char| !c.is_ascii_digit());
        rest[..end.unwrap_or(rest.len())].parse().unwrap()
    };
    (number("page "), number("fragment "))
}

#[test]
fn fragment_is_not_older_than_what_its_page_has_written() {
    let fixture = start(builder("esi-writes"));
    for path in ["/count.php", "/count.php?before=200000&after=200000"] {
        keep(&fixture, "/esi/number.php", "");
        let (page, fragment) = numbers(&ask(&fixture, "POST", path, ""));
        assert_eq!(fragment, page, "{path}");
    }
    for (method, path) in [
        ("GET", "/count.php?session&closes"),
        ("GET", "/count.php?session&closes&before=200000"),
        ("POST", "/count.php?session"),
        ("POST", "/count.php?session&after=300000"),
        ("GET", "/count.php?session&after=300000"),
    ] {
        keep(&fixture, "/esi/number.php?session", VISITOR);
        let (page, fragment) = numbers(&ask(&fixture, method, path, VISITOR));
        assert_eq!(fragment, page, "{method} {path}");
    }
}

/// PHP locks the session while a script has it open. The page has begun with its fragment when it writes the long text.
#[test]
fn page_with_an_open_session_does_not_wait_for_its_fragment() {
    let fixture = start(builder("esi-session-lock"));
    let length = 24 << 20;
    let response = ask(
        &fixture,
        "GET",
        &format!("/count.php?session&after={length}"),
        VISITOR,
    );
    assert_eq!(response.text().matches('.').count(), length + 1);
    assert_eq!(numbers(&response), (1, 1));
}

#[test]
fn pages_that_use_all_processes_do_not_wait_for_their_fragments() {
    let fixture = start(builder("esi-all-processes"));
    let length = 12 << 20;
    let gates = ["one", "two"].map(|name| fixture.gate(name));
    let pending = ["one", "two"].map(|name| {
        let path = format!("/count.php?gate={name}&after={length}");
        begin(&fixture, &path, "")
    });
    // Both processes have a page that has not ended when the fragments are requested.
    for waiting in gates.map(|gate| gate.wait()) {
        waiting.open();
    }
    for page in pending {
        let response = page.join().unwrap();
        assert_eq!(response.text().matches('.').count(), length + 1);
    }
}

/// Without a file for the rest of the page, the page fails instead of waiting for a fragment that may wait for it.
#[test]
fn page_that_cannot_be_kept_while_it_waits_fails() {
    for (name, option) in [
        ("none", "response_spill = \"0\""),
        ("small", "response_spill = \"1M\""),
    ] {
        let fixture =
            start(builder(&format!("esi-no-file-{name}")).config(&format!("[limits]\n{option}")));
        let whole = "/count.php?session&after=4000000";
        assert_eq!(numbers(&ask(&fixture, "GET", whole, VISITOR)), (1, 1));
        let long = request("GET", "/count.php?session&after=24000000", VISITOR);
        exchange(fixture.address(), long.as_bytes()).expect_err("a response that is cut off");
        fixture.wait_for_log(&["EsiFailed", "/esi/number.php", "the rest of the page"]);
        fixture.still_serves();
    }
}
