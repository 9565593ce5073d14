//! Checks that stored pages and files are the same over another version of HTTP as over HTTP/1.1.

use std::net::SocketAddr;

use crate::http::{self, Response};
use crate::http2::Http2Request;

/// Compares the responses that `ask` gets for `/page.php` (stored), `/a.txt`, `/big.bin` and a missing file with the
/// HTTP/1.1 responses at `address`. The headers in `differ` are not compared.
///
/// # Panics
/// If a response differs.
pub fn same_as_over_http1(
    address: SocketAddr,
    differ: &[&str],
    mut ask: impl FnMut(&Http2Request) -> Response,
) {
    for (path, field, value) in [
        ("/page.php", "x", "1"),
        ("/page.php", "if-none-match", "\"v1\""),
        ("/page.php", "accept-encoding", "gzip"),
        ("/a.txt", "range", "bytes=2-5"),
        ("/a.txt", "range", "bytes=99-"),
        ("/big.bin", "range", "bytes=1-200000"),
        ("/big.bin", "x", "1"),
        ("/missing.txt", "x", "1"),
    ] {
        let other = ask(&Http2Request::get(path).header(field, value.as_bytes()));
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{field}: {value}\r\n\r\n");
        let http1 = http::exchange(address, request.as_bytes()).expect("a response");
        let facts = |response: &Response| {
            let mut fields: Vec<_> = response.head.headers.0.clone();
            for field in &mut fields {
                field.0.make_ascii_lowercase();
            }
            let left_out = |name: &str| {
                matches!(name, "date" | "age" | "cache-status") || differ.contains(&name)
            };
            fields.retain(|(name, _)| !left_out(name));
            fields.sort();
            fields
        };
        assert_eq!(other.status(), http1.status(), "{path} {value}");
        for answer in [&other, &http1] {
            let stored = answer.header("x-cache");
            assert_eq!(stored, (path == "/page.php").then_some("HIT"), "{value}");
        }
        assert_eq!(facts(&other), facts(&http1), "{path} {value}");
        // Error pages contain the number of the request, so their bodies differ.
        assert!(http1.status() >= 400 || other.body == http1.body, "{path}");
    }
}
