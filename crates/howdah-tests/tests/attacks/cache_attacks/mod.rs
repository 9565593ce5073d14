//! Known attacks on page caches, one test for each, against the whole server. The script shows everything that PHP
//! learns about its request, so anything that an attacker could put into a page for others would be visible in it.
//! Where one is known, a test names the publication or a vulnerable cache.

mod answers;
mod requests;

use std::net::SocketAddr;

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{Response, exchange};

/// Shows its whole request, and a secret to a user who is logged in.
const MIRROR: &str = r#"<?php
if (isset($_COOKIE['PHPSESSID'])) echo 'SECRET of the one who is logged in ';
if (isset($_SERVER['PHP_AUTH_USER'])) echo 'SECRET of the one with a password ';
echo 'begin ', json_encode([$_SERVER, getallheaders(), $_GET, $_POST, $_COOKIE, $_REQUEST,
    file_get_contents('php://input'), getenv()], JSON_UNESCAPED_SLASHES | JSON_PARTIAL_OUTPUT_ON_ERROR), ' end';
"#;

/// Starts a server with `mirror.php` and with the page cache on.
fn server(name: &str) -> Fixture {
    with(name, "")
}

fn with(name: &str, config: &str) -> Fixture {
    Fixture::named(&format!("attack-{name}"))
        .children(2)
        .script("mirror.php", MIRROR)
        .config(config)
        .site("cache = \"on\"")
        .start()
}

/// Starts a server with `page.php` and with the page cache on.
fn page(name: &str, php: &str) -> Fixture {
    Fixture::named(&format!("attack-{name}"))
        .children(2)
        .script("page.php", php)
        .site("cache = \"on\"")
        .start()
}

/// Sends the request (a GET twice, because a page is stored at its second visit, and an attacker would try again) and
/// returns the last response.
fn ask(address: SocketAddr, method: &str, target: &str, lines: &str) -> Response {
    let head = format!("{method} {target} HTTP/1.1\r\nHost: example.org\r\n{lines}");
    if method == "GET" {
        raw(address, &head);
    }
    raw(address, &head)
}

/// Sends a request exactly as written; only the empty line and the header that closes the connection are added.
fn raw(address: SocketAddr, head: &str) -> Response {
    let request = format!("{head}Connection: close\r\n\r\n");
    exchange(address, request.as_bytes()).unwrap_or_else(|why| panic!("{head}: {why}"))
}

fn cache_status(answer: &Response) -> String {
    answer.header("Cache-Status").unwrap_or("none").to_owned()
}

fn is_shared(answer: &Response) -> bool {
    let told = cache_status(answer);
    told.contains("; hit") || told.contains("; stored")
}

/// Requests the page twice as an innocent reader, whose responses must contain nothing of an attacker or another
/// visitor. Returns the last response.
#[track_caller]
fn reads(fixture: &Fixture, target: &str) -> Response {
    let mut answer = Response::default();
    for _ in 0..2 {
        answer = ask(fixture.address(), "GET", target, "");
        let text = format!("{:?} {}", answer.head, answer.text());
        assert_eq!(answer.status(), 200, "{target}: {text}");
        assert!(
            !text.to_lowercase().contains("evil") && !text.contains("SECRET"),
            "{target}: {text}"
        );
    }
    answer
}

#[track_caller]
fn is_hit(answer: &Response) {
    assert!(
        cache_status(answer).starts_with("Howdah; hit"),
        "{}",
        cache_status(answer)
    );
}
