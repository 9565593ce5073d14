//! A page that shows `text=… end` out of a database, and what a write by `?via=WAY&value=TEXT` makes of it.
//! Shared by the tests of writes.

use std::net::SocketAddr;

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{Response, exchange};

/// `GET path` on a connection of its own.
pub fn ask(address: SocketAddr, path: &str) -> Response {
    let request = format!("GET {path} HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n");
    exchange(address, request.as_bytes()).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// Whether it came out of the cache.
pub fn is_hit(response: &Response) -> bool {
    response.header("X-Cache") == Some("HIT")
}

/// The page as the next reader gets it: its text, and whether it was in the cache.
pub fn read(fixture: &Fixture, script: &str) -> (String, bool) {
    let page = ask(fixture.address(), script);
    let text = page.text();
    let text = text
        .strip_prefix("text=")
        .and_then(|t| t.strip_suffix(" end"));
    let text = text.unwrap_or_else(|| panic!("{script}: {}", page.text()));
    (text.to_owned(), is_hit(&page))
}

/// Reads until the page comes out of the cache. The run that wrote before invalidates pages once
/// more when it is through, which may be after its answer and the next render.
pub fn keep(fixture: &Fixture, script: &str) {
    fixture.wait("the page to be in the cache", |f| read(f, script).1);
}

/// Writes `by-VIA` in this way: a page in the cache is old before the writer's answer has left, and shows
/// it afterwards.
pub fn check_write(fixture: &Fixture, script: &str, via: &str) {
    keep(fixture, script);
    let value = format!("by-{via}");
    let written = ask(
        fixture.address(),
        &format!("{script}?via={via}&value={value}"),
    );
    assert!(
        written.text().ends_with("done"),
        "{via}: {}",
        written.text()
    );
    let (text, hit) = read(fixture, script);
    assert_eq!((text, hit), (value, false), "{via}");
}
