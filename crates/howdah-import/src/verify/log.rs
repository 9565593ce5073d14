//! Reads the requests of an access log in common or combined format, as nginx, Apache and Howdah write it, with or
//! without a host in front (`example.org:443 192.0.2.1 - - […`). Each request is returned once, the most frequent
//! first.

use std::collections::HashMap;
use std::io::{self, BufRead, Read};

/// The maximum length of a line, in bytes; the rest of a longer line is skipped.
const MAX_LINE_BYTES: u64 = 64 << 10;
/// The maximum number of distinct requests that are counted.
const MAX_DISTINCT_REQUESTS: usize = 500_000;

/// A request of an access log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoggedRequest {
    /// GET or HEAD.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The host, if the line names one.
    pub host: Option<String>,
}

/// The content of an access log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessLogRequests {
    /// Distinct requests and how often they were made, the most frequent first.
    pub requests: Vec<(LoggedRequest, u64)>,
    /// The number of lines with another method. Their requests are not repeated.
    pub other_methods: u64,
    /// The number of lines that are not requests.
    pub malformed: u64,
}

/// Reads a log to its end.
///
/// # Errors
/// Returns an error if it cannot be read.
pub fn read(mut log: impl BufRead) -> io::Result<AccessLogRequests> {
    let mut counts: HashMap<LoggedRequest, u64> = HashMap::new();
    let mut found = AccessLogRequests::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = log
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)?;
        if read == 0 {
            break;
        }
        if line.last() != Some(&b'\n') && read as u64 == MAX_LINE_BYTES {
            skip_line(&mut log)?;
        }
        match parse(&line) {
            LogLine::Request(asked) => {
                if counts.len() < MAX_DISTINCT_REQUESTS || counts.contains_key(&asked) {
                    *counts.entry(asked).or_default() += 1;
                }
            }
            LogLine::OtherMethod => found.other_methods += 1,
            LogLine::Malformed if line.trim_ascii().is_empty() => {}
            LogLine::Malformed => found.malformed += 1,
        }
    }
    found.requests = counts.into_iter().collect();
    found
        .requests
        .sort_by(|(one, n), (other, m)| m.cmp(n).then_with(|| one.cmp(other)));
    Ok(found)
}

fn skip_line(log: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = log.fill_buf()?;
        let (used, ended) = match buffer.iter().position(|b| *b == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        log.consume(used);
        if ended {
            return Ok(());
        }
    }
}

/// Reads one line of a log: its GET or HEAD request and the status of the response, if both are readable.
pub fn request_and_status(line: &[u8]) -> Option<(LoggedRequest, u16)> {
    let LogLine::Request(request) = parse(line) else {
        return None;
    };
    let line = String::from_utf8_lossy(line);
    let (_, rest) = line.split_once('"')?;
    let status = after_quoted(rest)?.split_whitespace().next()?.parse();
    Some((request, status.ok()?))
}

/// Returns the text after the closing quote.
fn after_quoted(text: &str) -> Option<&str> {
    let mut escaped = false;
    let end = text.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    text.get(end? + 1..)
}

enum LogLine {
    Request(LoggedRequest),
    OtherMethod,
    Malformed,
}

fn parse(line: &[u8]) -> LogLine {
    let line = String::from_utf8_lossy(line);
    let Some((before, rest)) = line.split_once('"') else {
        return LogLine::Malformed;
    };
    let Some(request) = quoted(rest) else {
        return LogLine::Malformed;
    };
    let words: Vec<&str> = request.split(' ').collect();
    let [method, target, version] = words[..] else {
        return LogLine::Malformed;
    };
    // Excludes characters that no client may send in a request line.
    let plain = |c: char| c.is_ascii_graphic();
    if !version.starts_with("HTTP/") || !target.starts_with('/') || !target.chars().all(plain) {
        return LogLine::Malformed;
    }
    if !matches!(method, "GET" | "HEAD") {
        return match method.bytes().all(|b| b.is_ascii_uppercase()) {
            true => LogLine::OtherMethod,
            false => LogLine::Malformed,
        };
    }
    LogLine::Request(LoggedRequest {
        method: method.to_owned(),
        target: target.to_owned(),
        host: host(before),
    })
}

/// Returns the text before the closing quote, with the escapes of nginx (`\x22`) and Apache (`\"`) resolved.
fn quoted(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next()? {
            '"' => return Some(out),
            '\\' => match chars.next()? {
                'x' => {
                    let digits: String = chars.by_ref().take(2).collect();
                    out.push(char::from(u8::from_str_radix(&digits, 16).ok()?));
                }
                c => out.push(c),
            },
            c => out.push(c),
        }
    }
}

/// Returns the host of `example.org:443` in front of the client's address.
fn host(before: &str) -> Option<String> {
    let mut words = before.split_whitespace();
    let (first, second) = (words.next()?, words.next()?);
    let (name, port) = first.rsplit_once(':')?;
    let is_host = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'));
    let is_address = second.parse::<std::net::IpAddr>().is_ok();
    (is_host && is_address && port.parse::<u16>().is_ok()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_requests_are_counted() {
        let text = r#"192.0.2.1 - - [23/Nov/2026:10:00:00 +0000] "GET /a?b=c HTTP/1.1" 200 5
192.0.2.1 - ann [23/Nov/2026:10:00:00 +0000] "GET /b HTTP/2.0" 200 5 "https://x/" "Mozilla \"5\""
192.0.2.2 - - [23/Nov/2026:10:00:00 +0000] "GET /b HTTP/1.1" 304 0 "-" "-"
192.0.2.2 - - [23/Nov/2026:10:00:00 +0000] "HEAD /b HTTP/1.1" 200 0 "-" "-"
192.0.2.2 - - [23/Nov/2026:10:00:00 +0000] "POST /login HTTP/1.1" 302 0 "-" "-"
192.0.2.2 - - [23/Nov/2026:10:00:00 +0000] "\x16\x03\x01" 400 0 "-" "-"
192.0.2.2 - - [23/Nov/2026:10:00:00 +0000] "GET /q\x22\xC3 HTTP/1.1" 400 0 "-" "-"
shop.test:443 2001:db8::1 - - [23/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 5 "-" "-"
"#;
        let found = read(text.as_bytes()).unwrap();
        let shown = |(asked, n): &(LoggedRequest, u64)| {
            format!("{n} {} {} {:?}", asked.method, asked.target, asked.host)
        };
        let requests: Vec<String> = found.requests.iter().map(shown).collect();
        assert_eq!(
            requests,
            [
                "2 GET /b None",
                "1 GET /a Some(\"shop.test\")",
                "1 GET /a?b=c None",
                "1 HEAD /b None",
            ]
        );
        assert_eq!((found.other_methods, found.malformed), (1, 2));
    }

    #[test]
    fn log_line_has_a_status() {
        let of = |line: &str| request_and_status(line.as_bytes()).map(|(r, s)| (r.target, s));
        let begin = "192.0.2.1 - - [23/Nov/2026:10:00:00 +0000]";
        for (rest, expected) in [
            (r#""GET /a HTTP/1.1" 403 5 "-" "-""#, Some(("/a", 403))),
            (r#""GET /a\"b HTTP/1.1" 200 5"#, Some(("/a\"b", 200))),
            (r#""POST /a HTTP/1.1" 200 5"#, None),
            (r#""GET /a HTTP/1.1" - 5"#, None),
        ] {
            let expected = expected.map(|(target, status)| (target.to_owned(), status));
            assert_eq!(of(&format!("{begin} {rest}")), expected, "{rest}");
        }
    }

    #[test]
    fn log_lines_that_are_too_long_are_skipped() {
        let long = format!(
            "x \"GET /{} HTTP/1.1\" 200\nx \"GET /b HTTP/1.1\" 200\n",
            "a".repeat(200_000)
        );
        let found = read(long.as_bytes()).unwrap();
        assert_eq!((found.requests.len(), found.malformed), (1, 1));
    }
}
