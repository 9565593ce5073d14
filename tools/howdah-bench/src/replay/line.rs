//! Parses a line of an access log: the formats `common` and `combined` of Apache and nginx, `extended` of Howdah, and
//! `json` of Howdah. Further fields at the end of a text line are ignored, because many sites append their own.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::fmt::strtime::BrokenDownTime;
use serde::{Deserialize, Serialize};

use super::super::engine::NANOSECONDS_PER_SECOND as SECOND;

/// The longest duration of a request that is believed, in nanoseconds: a day.
const MAX_DURATION: u64 = 86_400 * SECOND;

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The time of the line, in nanoseconds since 1970.
    pub time: i64,
    /// Whether `time` is a whole second, because the format has no fractions.
    pub whole_second: bool,
    /// How long the request took, in nanoseconds: the line's time is that much later than its arrival. 0 if the format
    /// does not say.
    pub duration: u64,
    /// What the client asked for.
    pub request: LoggedRequest,
    /// The response's status.
    pub status: u16,
}

/// What the client of a logged request asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedRequest {
    /// A GET or HEAD of this path and query.
    Page {
        /// Whether it was a HEAD.
        head: bool,
        /// The path and query. It begins with a slash, and has only characters that any version of HTTP can carry.
        target: String,
    },
    /// A request with another method, which is not replayed because it may change data.
    OtherMethod(String),
    /// A GET or HEAD that is not for a path: of a proxy, or `*`. It is not replayed, because only the server of the
    /// command line is requested.
    NoPath,
}

/// Why a line cannot be replayed.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::EnumMessage,
    strum::IntoStaticStr,
)]
pub enum LineFault {
    /// The line is longer than 64 KiB.
    #[strum(message = "longer than 64 KiB")]
    TooLong,
    /// It has no time, or none in the format's notation.
    #[strum(message = "no time")]
    NoTime,
    /// It has no request line, or one without a method and a target.
    #[strum(message = "no request")]
    NoRequest,
    /// It has no status.
    #[strum(message = "no status")]
    NoStatus,
    /// It begins as JSON, and is not.
    #[strum(message = "not valid JSON")]
    NotJson,
}

impl LineFault {
    /// Returns a short description: the message beside the variant.
    pub fn description(self) -> &'static str {
        strum::EnumMessage::get_message(&self).unwrap_or_default()
    }
}

/// Parses a line, without its line feed.
pub fn parse(line: &[u8]) -> Result<LogLine, LineFault> {
    let line = line.trim_ascii();
    if line.first() == Some(&b'{') {
        json(line)
    } else {
        text(line)
    }
}

/// `192.0.2.7 - ann [29/Nov/2026:08:31:02 +0000] "GET /a?b=c HTTP/1.1" 200 512 …`
fn text(line: &[u8]) -> Result<LogLine, LineFault> {
    // A user name may contain a bracket, so the time is the first bracket that is followed by one.
    let mut time = None;
    for open in memchr::memchr_iter(b'[', line) {
        let rest = &line[open + 1..];
        let Some(close) = memchr::memchr(b']', rest) else {
            break;
        };
        if let Some(found) = text_time(&rest[..close]) {
            time = Some((found, &rest[close + 1..]));
            break;
        }
    }
    let (time, rest) = time.ok_or(LineFault::NoTime)?;
    let rest = rest.trim_ascii_start();
    let rest = rest.strip_prefix(b"\"").ok_or(LineFault::NoRequest)?;
    let end = closing_quote(rest).ok_or(LineFault::NoRequest)?;
    let (request, rest) = (unescape(&rest[..end]), &rest[end + 1..]);
    let mut words = rest
        .split(u8::is_ascii_whitespace)
        .filter(|w| !w.is_empty());
    let status = words.next().and_then(status).ok_or(LineFault::NoStatus)?;
    let duration = words
        .filter_map(|word| word.strip_prefix(b"rt="))
        .find_map(seconds)
        .unwrap_or(0);
    let mut parts = request.splitn(2, |b| *b == b' ');
    let method = parts.next().unwrap_or_default();
    let target = parts.next().ok_or(LineFault::NoRequest)?;
    // HTTP/0.9 has no version. A target may contain spaces, if the server accepted it.
    let target = match memchr::memmem::rfind(target, b" HTTP/") {
        Some(end) => &target[..end],
        None => target,
    };
    Ok(LogLine {
        time,
        whole_second: true,
        duration,
        request: request_of(method, target)?,
        status,
    })
}

/// The fields of Howdah's JSON that a replay needs.
#[derive(Deserialize)]
struct JsonLine<'a> {
    #[serde(borrow)]
    time: Option<Cow<'a, str>>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    target: Option<Cow<'a, str>>,
    status: Option<u16>,
    request_time: Option<f64>,
}

fn json(line: &[u8]) -> Result<LogLine, LineFault> {
    let fields: JsonLine<'_> = serde_json::from_slice(line).map_err(|_| LineFault::NotJson)?;
    let time = fields.time.and_then(|time| time.parse::<Timestamp>().ok());
    let time = time.ok_or(LineFault::NoTime)?;
    let nanoseconds = i64::try_from(time.as_nanosecond()).map_err(|_| LineFault::NoTime)?;
    let (Some(method), Some(target)) = (fields.method, fields.target) else {
        return Err(LineFault::NoRequest);
    };
    let status = fields.status.filter(|status| (100..1000).contains(status));
    Ok(LogLine {
        time: nanoseconds,
        whole_second: false,
        duration: fields.request_time.and_then(duration).unwrap_or(0),
        request: request_of(method.as_bytes(), target.as_bytes())?,
        status: status.ok_or(LineFault::NoStatus)?,
    })
}

fn request_of(method: &[u8], target: &[u8]) -> Result<LoggedRequest, LineFault> {
    let token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    if method.is_empty() || !method.iter().all(token) || target.is_empty() {
        return Err(LineFault::NoRequest);
    }
    if !matches!(method, b"GET" | b"HEAD") {
        let name = String::from_utf8_lossy(method).into_owned();
        return Ok(LoggedRequest::OtherMethod(name));
    }
    if target[0] != b'/' {
        return Ok(LoggedRequest::NoPath);
    }
    Ok(LoggedRequest::Page {
        head: method == b"HEAD",
        target: sendable(target),
    })
}

/// Writes a target in characters that any version of HTTP can carry. Other bytes, which some clients send as they are,
/// are percent-encoded, and a fragment is cut off.
fn sendable(target: &[u8]) -> String {
    let target = target.split(|b| *b == b'#').next().unwrap_or_default();
    let mut text = String::with_capacity(target.len());
    for &byte in target {
        if byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let digit = |n: u8| char::from(b"0123456789ABCDEF"[usize::from(n)]);
            text.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    text
}

/// Returns where a quoted field ends. Quotes in it are escaped with a backslash (Apache) or as `\x22` (nginx, Howdah).
fn closing_quote(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    None
}

/// Decodes `\xHH`, and a backslash before another character.
fn unescape(bytes: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', bytes).is_none() {
        return Cow::Borrowed(bytes);
    }
    let (mut out, mut rest) = (Vec::with_capacity(bytes.len()), bytes);
    loop {
        rest = match rest {
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit = |b: u8| char::from(b).to_digit(16).unwrap_or(0) as u8;
                out.push(digit(*high) << 4 | digit(*low));
                after
            }
            [b'\\', b'n', after @ ..] => {
                out.push(b'\n');
                after
            }
            [b'\\', b't', after @ ..] => {
                out.push(b'\t');
                after
            }
            [b'\\', byte, after @ ..] | [byte, after @ ..] => {
                out.push(*byte);
                after
            }
            [] => return Cow::Owned(out),
        };
    }
}

fn status(word: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(word).ok()?;
    let number: u16 = text.parse().ok()?;
    (word.len() == 3 && number >= 100).then_some(number)
}

/// Parses seconds with a fraction.
fn seconds(word: &[u8]) -> Option<u64> {
    duration(std::str::from_utf8(word).ok()?.parse().ok()?)
}

fn duration(seconds: f64) -> Option<u64> {
    // A negative number becomes 0, and one that is too large the largest.
    let nanoseconds = (seconds * 1e9) as u64;
    (seconds.is_finite() && nanoseconds <= MAX_DURATION).then_some(nanoseconds)
}

/// Parses `29/Nov/2026:08:31:02 +0000` into nanoseconds since 1970. A leap second, which is written as 60, becomes the
/// second before it, because POSIX time has none.
fn text_time(bytes: &[u8]) -> Option<i64> {
    const LENGTH: usize = "29/Nov/2026:08:31:02 +0000".len();
    if bytes.len() != LENGTH {
        return None;
    }
    let time = BrokenDownTime::parse("%d/%b/%Y:%H:%M:%S %z", bytes).ok()?;
    time.to_timestamp()
        .ok()?
        .as_second()
        .checked_mul(SECOND as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(target: &str) -> LoggedRequest {
        LoggedRequest::Page {
            head: false,
            target: target.to_owned(),
        }
    }

    /// 29 November 2026, 09:03:32 UTC.
    const TIME: i64 = 1_795_943_012 * SECOND as i64;

    #[test]
    fn text_lines_of_all_formats_are_parsed() {
        let common = r#"127.0.0.1 - - [29/Nov/2026:09:03:32 +0000] "GET /?page HTTP/2.0" 200 106"#;
        let combined = format!(r#"{common} "-" "curl/7.88.1""#);
        for (text, duration) in [
            (common.to_owned(), 0),
            (combined.clone(), 0),
            (
                format!("{combined} host=localhost rt=0.012571 qt=0.002293 id=1"),
                12_571_000,
            ),
            (format!("{combined} rt=- id=1"), 0),
            (common.replace("106", "-"), 0),
            (common.replace("09:03:32 +0000", "14:33:32 +0530"), 0),
            (common.replace("09:03:32 +0000", "01:03:32 -0800"), 0),
            (common.replace("- - [", "- a[b]c ["), 0),
            (format!("www.example:80 {common}\r"), 0),
        ] {
            let expected = LogLine {
                time: TIME,
                whole_second: true,
                duration,
                request: page("/?page"),
                status: 200,
            };
            assert_eq!(parse(text.as_bytes()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn json_line_has_milliseconds_and_a_duration() {
        let line = r#"{"time":"2026-11-29T09:03:32.601Z","client":"127.0.0.1","id":6,"host":"evil.example","method":"HEAD","target":"/a\u0020b\"","protocol":"HTTP/2.0","status":404,"bytes":71,"request_time":0.5}"#;
        let expected = LogLine {
            time: TIME + 601_000_000,
            whole_second: false,
            duration: 500_000_000,
            request: LoggedRequest::Page {
                head: true,
                target: "/a%20b%22".to_owned(),
            },
            status: 404,
        };
        assert_eq!(parse(line.as_bytes()), Ok(expected));
    }

    #[test]
    fn requests_are_told_apart() {
        for (request, expected) in [
            ("GET /a HTTP/1.1", page("/a")),
            ("GET /a", page("/a")),
            ("GET /a b HTTP/1.1", page("/a%20b")),
            (r"GET /\x22\xC3\xA9\\ HTTP/1.1", page("/%22%C3%A9%5C")),
            (r#"GET /\"x\" HTTP/1.1"#, page("/%22x%22")),
            ("GET /{seq}#top HTTP/1.1", page("/%7Bseq%7D")),
            ("GET /%41é HTTP/1.1", page("/%41%C3%A9")),
            ("GET http://evil.example/ HTTP/1.1", LoggedRequest::NoPath),
            ("GET * HTTP/1.1", LoggedRequest::NoPath),
            ("GET //evil.example/ HTTP/1.1", page("//evil.example/")),
            (
                "POST /form HTTP/1.1",
                LoggedRequest::OtherMethod("POST".to_owned()),
            ),
            (
                "OPTIONS * HTTP/1.1",
                LoggedRequest::OtherMethod("OPTIONS".to_owned()),
            ),
        ] {
            let line = format!(r#"::1 - - [29/Nov/2026:09:03:32 +0000] "{request}" 200 1"#);
            assert_eq!(
                parse(line.as_bytes()).unwrap().request,
                expected,
                "{request}"
            );
        }
    }

    #[test]
    fn faults_are_named() {
        let with = |time: &str, request: &str, status: &str| {
            format!("::1 - - [{time}] \"{request}\" {status} 1")
        };
        let time = "29/Nov/2026:09:03:32 +0000";
        for (line, fault) in [
            (String::new(), LineFault::NoTime),
            ("::1 - -".to_owned(), LineFault::NoTime),
            (
                with("31/Nov/2026:09:03:32 +0000", "GET / HTTP/1.1", "200"),
                LineFault::NoTime,
            ),
            (
                with("29/Nov/2026:24:03:32 +0000", "GET / HTTP/1.1", "200"),
                LineFault::NoTime,
            ),
            (
                with("2026-11-29 09:03:32", "GET / HTTP/1.1", "200"),
                LineFault::NoTime,
            ),
            (with(time, "-", "408"), LineFault::NoRequest),
            (with(time, r"\x16\x03\x01", "400"), LineFault::NoRequest),
            (with(time, "GET", "400"), LineFault::NoRequest),
            (
                format!("::1 - - [{time}] \"GET / HTTP/1.1"),
                LineFault::NoRequest,
            ),
            (format!("::1 - - [{time}] \"GET /\\"), LineFault::NoRequest),
            (format!("::1 - - [{time}]"), LineFault::NoRequest),
            (with(time, "GET / HTTP/1.1", "-"), LineFault::NoStatus),
            (with(time, "GET / HTTP/1.1", "99"), LineFault::NoStatus),
            (with(time, "GET / HTTP/1.1", "2000"), LineFault::NoStatus),
            ("{".to_owned(), LineFault::NotJson),
            ("{}".to_owned(), LineFault::NoTime),
            (r#"{"time":"yesterday"}"#.to_owned(), LineFault::NoTime),
            (
                r#"{"time":"2026-11-29T09:03:32Z","status":200}"#.to_owned(),
                LineFault::NoRequest,
            ),
            (
                r#"{"time":"2026-11-29T09:03:32Z","method":"GET","target":"/"}"#.to_owned(),
                LineFault::NoStatus,
            ),
        ] {
            assert_eq!(parse(line.as_bytes()), Err(fault), "{line}");
        }
    }
}
