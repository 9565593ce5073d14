//! Converts the fields of an HTTP/2 or HTTP/3 request to a [`RequestHead`]: they are written as the lines of an
//! HTTP/1.1 head, which its parser checks, so the same rules and limits apply to all versions. Features that only the
//! newer versions have (`:authority`, cookies in pieces) are converted first. The functions are pure.
//!
//! The h2 crate has already refused requests that are malformed by HTTP/2's own rules (RFC 9113 §8.2, §8.3): upper
//! case, connection-specific fields, `te` other than `trailers`, pseudo-fields that are missing, unknown, late or
//! repeated, and characters that are not allowed in a target, name or value.

use howdah_http1::framing::{BodyKind, RequestFraming};
use howdah_http1::head::{self, HeadLimits};
use howdah_http1::message::{HttpVersion, RequestHead};
use howdah_http1::refusal::BadRequest;
use http::header::{COOKIE, EXPECT, HOST};
use http::request::Parts;
use http::uri::PathAndQuery;

use super::super::buffers;

/// Why a request is not handled.
#[derive(Debug, PartialEq, Eq)]
pub enum RequestRefusal {
    /// The request has no `:path`; its stream is reset (RFC 9113 §8.3.1).
    Malformed,
    /// The request gets a response with the status of the refusal.
    Bad {
        /// The violated rule.
        why: BadRequest,
        /// The request line in the form of HTTP/1.1.
        line: Vec<u8>,
    },
}

/// Converts a request of HTTP/2 or HTTP/3, depending on `version`. `has_body` is true if its stream has not ended
/// with its fields.
///
/// # Errors
/// Why the request is refused.
pub fn convert_request(
    request: &Parts,
    has_body: bool,
    version: HttpVersion,
    limits: &HeadLimits,
) -> Result<(RequestHead, RequestFraming), RequestRefusal> {
    let mut text = buffers::take_bytes();
    let line_end = write_line(request, &mut text)?;
    let converted = match write_fields(request, &mut text) {
        Ok(()) => parse(text, version, limits),
        Err(why) => Err((why, text)),
    };
    let (head, mut framing) = converted.map_err(|(why, text)| {
        let line = [&text[..line_end], version.as_str().as_bytes()].concat();
        buffers::return_bytes(text);
        RequestRefusal::Bad { why, line }
    })?;
    if has_body && framing.body == BodyKind::None && head.header(b"content-length").is_none() {
        framing.body = BodyKind::Chunked;
        framing.expect_continue = request.headers.contains_key(EXPECT);
    }
    Ok((head, framing))
}

/// Writes the request line, and returns its length without the version.
fn write_line(request: &Parts, text: &mut Vec<u8>) -> Result<usize, RequestRefusal> {
    let target = match (request.uri.path_and_query(), request.uri.authority()) {
        (Some(path), _) if !is_fragment(path) => path.as_str(),
        // The parser refuses CONNECT.
        (_, Some(authority)) if request.method == http::Method::CONNECT => authority.as_str(),
        _ => return Err(RequestRefusal::Malformed),
    };
    for part in [request.method.as_str(), " ", target, " "] {
        text.extend_from_slice(part.as_bytes());
    }
    let end = text.len();
    text.extend_from_slice(b"HTTP/1.1\r\n");
    Ok(end)
}

/// Returns whether the path was nothing but a fragment, which `http` drops: the rest is formatted as `/` but is not
/// equal to it.
fn is_fragment(path: &PathAndQuery) -> bool {
    path.as_str() == "/" && *path != PathAndQuery::from_static("/") || path.as_str().is_empty()
}

fn write_fields(request: &Parts, text: &mut Vec<u8>) -> Result<(), BadRequest> {
    let mut line = |name: &str, value: &[u8]| {
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            text.extend_from_slice(part);
        }
    };
    let fields = &request.headers;
    if let Some(authority) = request.uri.authority() {
        let authority = authority.as_str().as_bytes();
        let mut hosts = fields.get_all(HOST).iter();
        if !hosts.all(|host| host.as_bytes().eq_ignore_ascii_case(authority)) {
            return Err(BadRequest::AuthorityMismatch);
        }
        line("host", authority);
    }
    for name in fields.keys() {
        if name == HOST && request.uri.authority().is_some() {
            continue;
        }
        let values = fields.get_all(name);
        for value in &values {
            if value.as_bytes().trim_ascii().len() < value.len() {
                return Err(BadRequest::BadHeaderValue);
            }
        }
        if name == COOKIE {
            // RFC 9113 §8.2.3: cookies may be sent in pieces, which compress better.
            let mut pieces: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
            pieces.retain(|piece| !piece.is_empty());
            line("cookie", &pieces.join(&b"; "[..]));
            continue;
        }
        for value in values {
            line(name.as_str(), value.as_bytes());
        }
    }
    text.extend_from_slice(b"\r\n");
    Ok(())
}

fn parse(
    text: Vec<u8>,
    version: HttpVersion,
    limits: &HeadLimits,
) -> Result<(RequestHead, RequestFraming), (BadRequest, Vec<u8>)> {
    let mut fields = buffers::take_fields();
    let why = match head::parse(&text, limits, &mut fields) {
        Ok(Some(parsed)) if parsed.len == text.len() => {
            return Ok((parsed.into_head_of(version, text, fields), parsed.framing));
        }
        // The text has exactly one empty line, because values contain no CR or LF.
        Ok(_) => BadRequest::BareLf,
        Err(why) => why,
    };
    buffers::return_fields(fields);
    Err((why, text))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Request;

    use super::*;

    const LIMITS: HeadLimits = HeadLimits {
        request_line: 8 << 10,
        bytes: 32 << 10,
        fields: 100,
    };

    fn request(method: &str, uri: &str, fields: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn of(uri: &str, fields: &[(&str, &str)]) -> Result<RequestHead, RequestRefusal> {
        convert_request(
            &request("GET", uri, fields),
            false,
            HttpVersion::Http2,
            &LIMITS,
        )
        .map(|(head, _)| head)
    }

    fn refused(uri: &str, fields: &[(&str, &str)], why: BadRequest) {
        match of(uri, fields) {
            Err(RequestRefusal::Bad { why: is, .. }) => assert_eq!(is, why, "{uri} {fields:?}"),
            other => panic!("{uri} {fields:?}: {other:?}"),
        }
    }

    #[test]
    fn target_is_unchanged_and_authority_becomes_host() {
        let head = of("https://a.example:8443/%61/b%2Fc?x=%20&y", &[("x-a", "1")]).unwrap();
        assert_eq!(head.method(), b"GET");
        assert_eq!(head.target(), b"/%61/b%2Fc?x=%20&y");
        assert_eq!(head.host(), b"a.example:8443");
        assert_eq!(head.version().as_str(), "HTTP/2.0");
        let fields: Vec<_> = head.headers().collect();
        let host: (&[u8], &[u8]) = (b"host", b"a.example:8443");
        assert_eq!(fields, [host, (b"x-a", b"1")]);
    }

    #[test]
    fn fragment_is_cut_off_the_target_and_is_malformed_alone() {
        assert_eq!(of("http://a/b?c#d", &[]).unwrap().target(), b"/b?c");
        assert_eq!(of("http://a/", &[]).unwrap().target(), b"/");
        // The form that the h2 and h3 crates produce from a `:path`.
        let mut parts = request("GET", "http://a/", &[]);
        let mut uri = std::mem::take(&mut parts.uri).into_parts();
        uri.path_and_query = Some(PathAndQuery::from_maybe_shared(Bytes::from("#d")).unwrap());
        parts.uri = http::Uri::from_parts(uri).unwrap();
        let alone = convert_request(&parts, false, HttpVersion::Http2, &LIMITS);
        assert_eq!(alone.err(), Some(RequestRefusal::Malformed));
    }

    #[test]
    fn host_may_repeat_or_replace_the_authority_but_not_contradict_it() {
        let head = of("http://a.example/", &[("host", "A.example")]).unwrap();
        assert_eq!(head.header_all(b"host").count(), 1);
        assert_eq!(of("/", &[("host", "b")]).unwrap().host(), b"b");
        let mismatch = BadRequest::AuthorityMismatch;
        refused("http://a/", &[("host", "b")], mismatch);
        refused("http://a/", &[("host", "a"), ("host", "b")], mismatch);
        refused("/", &[("host", "a"), ("host", "a")], BadRequest::TwoHosts);
        refused("/", &[], BadRequest::MissingHost);
        refused("http://user@a/", &[], BadRequest::BadHost);
    }

    #[test]
    fn http2_cookie_headers_are_joined() {
        let fields = [("cookie", "a=1"), ("x", "1"), ("cookie", "b=2"), ("x", "2")];
        let head = of("http://a/", &fields).unwrap();
        let cookies: Vec<_> = head.header_all(b"cookie").collect();
        assert_eq!(cookies, [b"a=1; b=2"]);
        assert_eq!(head.header_all(b"x").count(), 2);
    }

    #[test]
    fn http1_refusals_apply_to_http2_under_the_same_names() {
        refused("http://a/", &[("x", " 1")], BadRequest::BadHeaderValue);
        refused("http://a/", &[("x", "1\t")], BadRequest::BadHeaderValue);
        let long = "x".repeat(40 << 10);
        refused("http://a/", &[("x", &long)], BadRequest::HeaderTooLarge);
        let path = format!("http://a/{}", "x".repeat(9 << 10));
        refused(&path, &[], BadRequest::UriTooLong);
        let many: Vec<(String, &str)> = (0..101).map(|n| (format!("x{n}"), "")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(name, v)| (name.as_str(), *v)).collect();
        refused("http://a/", &many, BadRequest::TooManyHeaders);
        for (method, uri, why) in [
            ("CONNECT", "a:80", BadRequest::ConnectRefused),
            ("TRACE", "http://a:80/", BadRequest::TraceRefused),
        ] {
            let parts = request(method, uri, &[("host", "a:80")]);
            match convert_request(&parts, false, HttpVersion::Http2, &LIMITS) {
                Err(RequestRefusal::Bad { why: is, .. }) => assert_eq!(is, why),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn body_kind_follows_the_announced_length() {
        let body = |fields: &[(&str, &str)], has_body| {
            let parts = request("POST", "http://a/", fields);
            convert_request(&parts, has_body, HttpVersion::Http2, &LIMITS)
                .map(|(_, framing)| framing)
        };
        assert_eq!(body(&[], false).unwrap().body, BodyKind::None);
        let unknown = body(&[("expect", "100-continue")], true).unwrap();
        assert_eq!(unknown.body, BodyKind::Chunked);
        assert!(unknown.expect_continue);
        let known = body(&[("content-length", "5")], true).unwrap();
        assert_eq!(known.body, BodyKind::Length(5));
        let none = body(&[("content-length", "0")], true).unwrap();
        assert_eq!(none.body, BodyKind::None);
    }
}
