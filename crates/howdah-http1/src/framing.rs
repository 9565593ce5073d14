//! Determines from a request's head how the message is framed: the form of the target, the host, the length of the
//! body, and whether the connection stays open (RFC 9112 §3.2, §6, §9.3). The functions are pure. Every ambiguity leads
//! to a refusal.

use crate::message::HttpVersion;
use crate::refusal::BadRequest;

/// How a request's body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// There is no body: no length was given, or it is 0.
    None,
    /// The body has this many bytes.
    Length(u64),
    /// The body is chunked; its length is known only at its end.
    Chunked,
}

/// How a request's body is delimited, and whether the connection stays open afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFraming {
    /// How the request's body is delimited.
    pub body: BodyKind,
    /// Whether the client wants the connection to stay open.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expect_continue: bool,
}

/// Checks that a target has a form of RFC 9112 §3.2 that its method allows: origin, absolute, or the asterisk of
/// OPTIONS. The authority form belongs to CONNECT, which is refused.
pub(crate) fn check_target(method: &[u8], target: &[u8]) -> Result<(), BadRequest> {
    match method {
        b"CONNECT" => return Err(BadRequest::ConnectRefused),
        b"TRACE" => return Err(BadRequest::TraceRefused),
        _ => {}
    }
    match target {
        [b'/', ..] => Ok(()),
        b"*" if method == b"OPTIONS" => Ok(()),
        _ => {
            let rest = [&b"http://"[..], b"https://"]
                .iter()
                .find_map(|scheme| {
                    let (front, rest) = target.split_at_checked(scheme.len())?;
                    front.eq_ignore_ascii_case(scheme).then_some(rest)
                })
                .ok_or(BadRequest::BadTarget)?;
            let end = rest
                .iter()
                .position(|b| matches!(b, b'/' | b'?'))
                .unwrap_or(rest.len());
            if is_host(&rest[..end]) {
                Ok(())
            } else {
                Err(BadRequest::BadHost)
            }
        }
    }
}

/// The framing information in the fields read so far.
#[derive(Default)]
pub(crate) struct FramingFields {
    host: bool,
    content_length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    expect_continue: bool,
}

impl FramingFields {
    /// Takes one header field of the request into account.
    pub(crate) fn add_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), BadRequest> {
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                if self.host {
                    return Err(BadRequest::TwoHosts);
                }
                self.host = true;
                if !is_host(value) {
                    return Err(BadRequest::BadHost);
                }
            }
            6 if name.eq_ignore_ascii_case(b"expect") => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(BadRequest::UnknownExpectation);
                }
                self.expect_continue = true;
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for token in value.split(|b| *b == b',') {
                    let token = token.trim_ascii();
                    self.close |= token.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = parse_length(value).ok_or(BadRequest::BadContentLength)?;
                if self.content_length.replace(length).is_some() {
                    return Err(BadRequest::ConflictingContentLength);
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if self.chunked {
                    return Err(BadRequest::BadTransferEncoding);
                }
                self.chunked = true;
                if !value.eq_ignore_ascii_case(b"chunked") {
                    let last = value.rsplit(|b| *b == b',').next().unwrap_or(value);
                    return Err(if last.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                        BadRequest::UnsupportedTransferEncoding
                    } else {
                        BadRequest::BadTransferEncoding
                    });
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the framing once all fields have been read.
    pub(crate) fn framing(&self, version: HttpVersion) -> Result<RequestFraming, BadRequest> {
        // RFC 9112 §3.2: this also applies to an absolute target, whose authority then takes precedence.
        if !self.host && version == HttpVersion::Http11 {
            return Err(BadRequest::MissingHost);
        }
        let body = match (self.content_length, self.chunked) {
            (Some(_), true) => return Err(BadRequest::ContentLengthAndTransferEncoding),
            // RFC 9112 §6.1: HTTP/1.0 has no chunked coding, so the framing of such a message is faulty.
            (None, true) if version == HttpVersion::Http10 => {
                return Err(BadRequest::BadTransferEncoding);
            }
            (None, true) => BodyKind::Chunked,
            (Some(0) | None, false) => BodyKind::None,
            (Some(n), false) => BodyKind::Length(n),
        };
        Ok(RequestFraming {
            body,
            keep_alive: !self.close && (version == HttpVersion::Http11 || self.keep_alive),
            // RFC 9110 §10.1.1: an HTTP/1.0 client's expectation is ignored, and a request without a body has nothing
            // to wait for.
            expect_continue: self.expect_continue
                && version == HttpVersion::Http11
                && body != BodyKind::None,
        })
    }
}

/// Parses a decimal number below 2^63 of digits only: no sign, no white space, no list.
fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 19 {
        return None;
    }
    let mut n = 0u64;
    for b in value {
        if !b.is_ascii_digit() {
            return None;
        }
        n = n * 10 + u64::from(b - b'0');
    }
    (n < 1 << 63).then_some(n)
}

/// Returns whether `value` is `uri-host [ ":" port ]` (RFC 3986 §3.2.2, RFC 9110 §7.2), not empty and without user
/// information. A trailing dot is the only empty label that is accepted: `.`, `..` and `a..b` name no host, and would
/// be parts of a path wherever a host becomes a file name.
pub fn is_host(value: &[u8]) -> bool {
    let (host, port) = match value {
        [b'[', rest @ ..] => {
            let Some(end) = rest.iter().position(|b| *b == b']') else {
                return false;
            };
            let (address, tail) = rest.split_at(end);
            let text = std::str::from_utf8(address).unwrap_or("");
            if text.parse::<std::net::Ipv6Addr>().is_err() {
                return false;
            }
            match &tail[1..] {
                [] => return true,
                [b':', port @ ..] => (&b"v6"[..], port),
                _ => return false,
            }
        }
        _ => match value.iter().position(|b| *b == b':') {
            Some(colon) => (&value[..colon], &value[colon + 1..]),
            None => (value, &[][..]),
        },
    };
    let name_ok = !host.is_empty()
        && !host.starts_with(b".")
        && !host.windows(2).any(|two| two == b"..")
        && host
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(b));
    // RFC 3986 allows an empty port.
    let port_ok = port.is_empty()
        || (port.len() <= 5 && parse_length(port).is_some_and(|p| p <= u64::from(u16::MAX)));
    name_ok && port_ok
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_or_addresses_with_a_port() {
        for good in [
            "example.org",
            "a",
            "127.0.0.1:8080",
            "[::1]",
            "[2001:db8::1]:443",
            "under_score.example",
            "xn--bcher-kva.example:",
            "h:65535",
            "example.org.",
        ] {
            assert!(is_host(good.as_bytes()), "{good}");
        }
        for bad in [
            "", ":80", "a:b", "a:65536", "a:123456", "a:1:2", "[::1", "[::1]x", "[::g]", "u@h",
            ".", "..", ".:80", ".a", "a..b", "a..", "a/b", "a b", "a\\b", "é", "a?b", "[]", "a:-1",
            "a:+1",
        ] {
            assert!(!is_host(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn length_is_digits_only_and_fits() {
        assert_eq!(parse_length(b"0"), Some(0));
        assert_eq!(parse_length(b"0042"), Some(42));
        assert_eq!(parse_length(b"9223372036854775807"), Some(i64::MAX as u64));
        for bad in [
            "",
            "-1",
            "+1",
            "1 ",
            "0x1",
            "1,1",
            "9223372036854775808",
            "99999999999999999999",
        ] {
            assert_eq!(parse_length(bad.as_bytes()), None, "{bad}");
        }
    }
}
