//! A page that shows `text=… end` from a database, and the effect that a write with `?via=WAY&value=TEXT` has on it.
//! The tests of writes share this module.

use std::net::SocketAddr;

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{Response, exchange};

/// Sends `GET path` on a new connection.
pub fn ask(address: SocketAddr, path: &str) -> Response {
    let request = format!("GET {path} HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n");
    exchange(address, request.as_bytes()).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// Returns whether the response came from the cache.
pub fn is_hit(response: &Response) -> bool {
    response.header("X-Cache") == Some("HIT")
}

/// Returns the page as the next reader gets it: its text, and whether it was in the cache.
pub fn read(fixture: &Fixture, script: &str) -> (String, bool) {
    let page = ask(fixture.address(), script);
    let text = page.text();
    let text = text
        .strip_prefix("text=")
        .and_then(|t| t.strip_suffix(" end"));
    let text = text.unwrap_or_else(|| panic!("{script}: {}", page.text()));
    (text.to_owned(), is_hit(&page))
}

/// Requests the page until it comes from the cache. The run that wrote before invalidates pages again when it has
/// finished, which may be after its response and after the next render.
pub fn keep(fixture: &Fixture, script: &str) {
    fixture.wait("the page to be in the cache", |f| read(f, script).1);
}

/// Writes the text `by-VIA` in the way that `via` names. Checks that the page is no longer served from the cache once
/// the writer has its response, and that it shows the new text.
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
