//! `cache = "rfc"`: a visitor's own response is stored for others, so nothing in it may be the visitor's own, and no
//! other method than GET may make it.

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{Response, exchange};

/// Shows what the test has written and the visitor's session, and records each run with its method and its cookies.
const PAGE: &str = r#"<?php
$record = "$_SERVER[REQUEST_METHOD] " . ($_SERVER['HTTP_COOKIE'] ?? '') . "\n";
file_put_contents('SCRATCH/runs', $record, FILE_APPEND | LOCK_EX);
header('Cache-Control: public, max-age=' . ($_GET['age'] ?? 600) . ', stale-while-revalidate=600');
if (isset($_GET['vary'])) header("X-LiteSpeed-Vary: $_GET[vary]");
if (str_contains($_SERVER['HTTP_SURROGATE_CAPABILITY'] ?? '', 'any=')) exit('<esi:include src="/fragment"/>');
echo 'version ', file_get_contents('SCRATCH/version'), ' for ', $_COOKIE['PHPSESSID'] ?? 'guests';
"#;

const SESSION: &str = "Cookie: PHPSESSID=ann-0123456789abcdef\r\n";

fn server(name: &str, lines: &str) -> Fixture {
    let fixture = Fixture::named(name)
        .children(2)
        .script("page.php", PAGE)
        .site(&format!("cache = \"rfc\"\n{lines}"))
        .start();
    fixture.write("version", "1");
    fixture
}

fn ask(fixture: &Fixture, method: &str, path: &str, lines: &str) -> Response {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: example.org\r\n{lines}Connection: close\r\n\r\n"
    );
    exchange(fixture.address(), request.as_bytes()).unwrap_or_else(|why| panic!("{path}: {why}"))
}

fn label(response: &Response) -> &str {
    response.header("X-Cache").unwrap_or_default()
}

fn runs(fixture: &Fixture) -> Vec<String> {
    let runs = std::fs::read_to_string(fixture.path("runs")).unwrap_or_default();
    runs.lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// Has a page with `max-age=1` stored, and waits until it has expired.
fn keep_and_expire(fixture: &Fixture, path: &str) {
    assert_eq!(
        ask(fixture, "GET", path, "").header("Cache-Status"),
        Some("Howdah; fwd=miss; stored")
    );
    fixture.wait("the page to expire", |f| {
        let output = f.control(&["cache", "explain", &format!("http://example.org{path}")]);
        String::from_utf8_lossy(&output.stdout).contains("stored: expired")
    });
}

#[test]
fn head_request_for_an_expired_page_refreshes_it_with_get() {
    let fixture = server("rfc-head", "");
    let path = "/page.php?age=1";
    keep_and_expire(&fixture, path);
    assert_eq!(label(&ask(&fixture, "HEAD", path, "")), "STALE");
    fixture.wait("the page to be rendered again", |f| runs(f).len() == 2);
    fixture.wait("the new page", |f| {
        let page = ask(f, "GET", path, "");
        assert_eq!(page.text(), "version 1 for guests", "{page:?}");
        label(&page) == "HIT"
    });
    assert!(
        runs(&fixture).iter().all(|run| run == "GET"),
        "{:?}",
        runs(&fixture)
    );
}

/// Checks that the page of guests is stored only now, and that a request with these headers gets it as well.
fn check_page_of_guests(fixture: &Fixture, lines: &str) {
    for (lines, expected) in [("", "MISS"), ("", "HIT"), (lines, "HIT")] {
        let page = ask(fixture, "GET", "/page.php", lines);
        assert_eq!(
            (&*page.text(), label(&page)),
            ("version 1 for guests", expected)
        );
    }
}

#[test]
fn cookie_that_only_fragments_read_does_not_get_into_a_stored_page() {
    let esi = "[site.esi]\npaths = [\"/esi\"]\ncookies = [\"PHPSESSID\"]\n";
    let fixture = server("rfc-fragment-cookie", esi);
    let own = ask(&fixture, "GET", "/page.php", SESSION);
    assert_eq!(own.text(), "version 1 for ann-0123456789abcdef");
    assert_eq!(
        own.header("Cache-Status"),
        Some("Howdah; fwd=bypass; detail=SessionCookie")
    );
    check_page_of_guests(&fixture, SESSION);
    // A visitor with the cookie gets the expired page, but another visitor's request refreshes it.
    let path = "/page.php?age=1";
    keep_and_expire(&fixture, path);
    fixture.write("version", "2");
    let stale = ask(&fixture, "GET", path, SESSION);
    assert_eq!(
        (&*stale.text(), label(&stale)),
        ("version 1 for guests", "STALE")
    );
    fixture.wait("the new page", |f| {
        ask(f, "GET", path, "").text() == "version 2 for guests"
    });
    let with_cookie = runs(&fixture)
        .iter()
        .filter(|run| run.contains("ann"))
        .count();
    assert_eq!(with_cookie, 1, "{:?}", runs(&fixture));
}

#[test]
fn response_to_a_client_that_claims_to_process_esi_is_not_stored() {
    let fixture = server("rfc-capability", "");
    let capability = "Surrogate-Capability: any=\"ESI/1.0\"\r\n";
    let own = ask(&fixture, "GET", "/page.php", capability);
    assert_eq!(own.text(), "<esi:include src=\"/fragment\"/>");
    assert_eq!(
        own.header("Cache-Status"),
        Some("Howdah; fwd=bypass; detail=OtherRepresentation")
    );
    check_page_of_guests(&fixture, capability);
}

#[test]
fn page_that_varies_by_a_cookie_or_a_value_is_not_stored() {
    let fixture = server("rfc-litespeed-vary", "");
    for vary in ["cookie=theme", "value=dark"] {
        let path = format!("/page.php?vary={vary}");
        for _ in 0..2 {
            let page = ask(&fixture, "GET", &path, "Cookie: theme=dark\r\n");
            let status = page.header("Cache-Status");
            assert_eq!(status, Some("Howdah; fwd=miss; detail=VaryUnbounded"));
        }
    }
}
