//! Extracts the parts of a response that are compared: status, redirect target, media type, and selected headers.

use super::client::{VerifiedResponseHead, VerifyServer, without_port};
use crate::media_type::essence;

/// Returns the compared names and values.
pub fn facts(
    head: &VerifiedResponseHead,
    server: &VerifyServer,
    host: &str,
    headers: &[String],
) -> Vec<(String, String)> {
    let mut facts = vec![("status".to_owned(), head.status.to_string())];
    if let Some(location) = head.header("location") {
        facts.push((
            "Location".to_owned(),
            absolute_location(&location, server, host),
        ));
    }
    // The media type of an error page is left to each server.
    if let Some(kind) = head.header("content-type")
        && head.status < 300
    {
        facts.push(("Content-Type".to_owned(), essence(&kind)));
    }
    for name in headers {
        if let Some(value) = head.header(&name.to_ascii_lowercase()) {
            facts.push((name.clone(), value));
        }
    }
    facts
}

/// Resolves a redirect as a browser does (RFC 9110 §10.2.2), independent of the port and the name by which the server
/// was reached.
fn absolute_location(location: &str, server: &VerifyServer, host: &str) -> String {
    let scheme = if server.tls { "https" } else { "http" };
    let location = match location.strip_prefix("//") {
        Some(rest) => format!("{scheme}://{rest}"),
        None if location.starts_with('/') => format!("{scheme}://{host}{location}"),
        None => location.to_owned(),
    };
    let Some((scheme, rest)) = location.split_once("://") else {
        return location;
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let name = |text: &str| without_port(text).to_ascii_lowercase();
    match name(authority) == name(host) || name(authority) == name(&server.authority) {
        true => format!("{scheme}://{}{path}", name(host)),
        false => location,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_resolved_as_browsers_do() {
        let server = VerifyServer::parse("http://127.0.0.1:8080").unwrap();
        for (location, expected) in [
            ("/a/", "http://example.org/a/"),
            ("http://example.org:8080/a/", "http://example.org/a/"),
            ("http://127.0.0.1:8080/a/", "http://example.org/a/"),
            ("https://example.org/a?b", "https://example.org/a?b"),
            ("https://other.test:8443/", "https://other.test:8443/"),
            ("//example.org", "http://example.org"),
        ] {
            assert_eq!(
                absolute_location(location, &server, "example.org"),
                expected,
                "{location}"
            );
        }
    }
}
