//! The access log: one line for each request. This module only formats the lines; `sink.rs` writes them.

use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use howdah_cache::status::CacheVerdict;
use howdah_executor::RunTiming;
use howdah_http::tls::NegotiatedTls;

use super::clock::UtcDateTime;
use super::sink::LogSink;
use super::{escape, message};
use crate::traces::context::SpanContext;

/// The format of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessFormat {
    /// `%h - %u [%t] "%r" %s %b`: the common log format.
    Common,
    /// Common, then `"Referer" "User-Agent"`: the format that log analysers read.
    #[default]
    Combined,
    /// Combined, then `host=… rt=… qt=… child=… [cache=…] error=… id=…` (times in seconds; `-` for a missing value;
    /// `cache=HIT`, `MISS`, `STALE` or `PASS:NAME` if the page cache is on).
    Extended,
    /// One JSON object per line.
    Json,
}

/// The data of one request for the access log.
#[derive(Clone, Copy, Debug)]
pub struct AccessEntry<'a> {
    /// The time at which the response ended.
    pub at: SystemTime,
    /// The client; `None` for a unix socket's peer.
    pub client: Option<IpAddr>,
    /// The user name of Basic authentication. It is an unchecked claim (nginx's `$remote_user`).
    pub user: &'a [u8],
    /// The method; for a request that could not be parsed, the beginning of its request line.
    pub method: &'a [u8],
    /// The raw target; empty for a request that could not be parsed.
    pub target: &'a [u8],
    /// The protocol's version, such as `HTTP/1.1`.
    pub protocol: &'a str,
    /// What the TLS handshake agreed on, if the connection is encrypted.
    pub tls: Option<&'a NegotiatedTls>,
    /// The requested host, with its port if one was given.
    pub host: &'a [u8],
    /// The site's name in the configuration.
    pub site: &'a str,
    /// The status of the response; 0 if the client disconnected before there was one (logged as 499, as in nginx).
    pub status: u16,
    /// The number of bytes of the response body that were sent.
    pub bytes: u64,
    /// The time from the last byte of the request header to the last byte of the response.
    pub duration: Duration,
    /// The value of `Referer`, empty if the request has none.
    pub referer: &'a [u8],
    /// The value of `User-Agent`, empty if the request has none.
    pub user_agent: &'a [u8],
    /// Process and queue time, for scripts.
    pub run: RunTiming,
    /// What the page cache did, if it is on.
    pub cache: Option<CacheVerdict>,
    /// Why the response of the script is not shared, if that is known.
    pub cache_cause: Option<&'a str>,
    /// The name of the failure.
    pub error: Option<&'a str>,
    /// The request's number, which is the same in the error log.
    pub id: u64,
    /// The request's span, if requests are traced; only JSON contains it.
    pub trace: Option<&'a SpanContext>,
}

/// The access log of a server.
pub struct AccessLog {
    sink: LogSink,
    format: AccessFormat,
    /// Whether lines have fields for the journal.
    fields: bool,
}

impl AccessLog {
    /// Creates a log that writes lines of `format` into `sink`, with journal fields if `fields` is set
    /// ([`super::message`]).
    pub fn new(sink: LogSink, format: AccessFormat, fields: bool) -> AccessLog {
        AccessLog {
            sink,
            format,
            fields,
        }
    }

    /// Returns the sink, for reopening and flushing.
    pub fn sink(&self) -> &LogSink {
        &self.sink
    }

    /// Appends a line for this request; the writer's thread writes it to the log.
    pub fn write(&self, entry: &AccessEntry<'_>) {
        self.sink.append(|out| {
            entry.format(self.format, out);
            if self.fields {
                // The fields precede the line's end.
                out.pop();
                entry.append_journal_fields(out);
                out.push(b'\n');
            }
        });
    }
}

impl AccessEntry<'_> {
    /// Appends the line including its end.
    pub fn format(&self, format: AccessFormat, out: &mut Vec<u8>) {
        match format {
            AccessFormat::Json => self.json(out),
            AccessFormat::Common => self.common(out),
            AccessFormat::Combined => self.combined(out),
            AccessFormat::Extended => {
                self.combined(out);
                self.extra(out);
            }
        }
        out.push(b'\n');
    }

    /// Appends the fields by which the journal can be searched.
    fn append_journal_fields(&self, out: &mut Vec<u8>) {
        let fields = [
            ("STATUS", Some(self.status().to_string())),
            ("SITE", Some(self.site.to_owned())),
            ("REQUEST", Some(self.id.to_string())),
            ("NAME", self.error.map(str::to_owned)),
            (
                "TRACE",
                self.trace.map(|context| context.trace().to_string()),
            ),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                message::append_field(out, name, &value);
            }
        }
    }

    fn status(&self) -> u16 {
        if self.status == 0 { 499 } else { self.status }
    }

    fn common(&self, out: &mut Vec<u8>) {
        self.client(out);
        out.extend_from_slice(b" - ");
        escape::word(out, self.user);
        out.extend_from_slice(b" [");
        UtcDateTime::of(self.at).common_log(out);
        out.extend_from_slice(b"] \"");
        escape::quoted(out, self.method);
        if !self.target.is_empty() {
            out.push(b' ');
            escape::quoted(out, self.target);
            write_formatted(out, format_args!(" {}", self.protocol));
        }
        write_formatted(out, format_args!("\" {} {}", self.status(), self.bytes));
    }

    fn client(&self, out: &mut Vec<u8>) {
        match self.client {
            Some(address) => write_formatted(out, format_args!("{address}")),
            None => out.extend_from_slice(b"unix:"),
        }
    }

    fn combined(&self, out: &mut Vec<u8>) {
        self.common(out);
        for text in [self.referer, self.user_agent] {
            out.extend_from_slice(b" \"");
            if text.is_empty() {
                out.push(b'-');
            }
            escape::quoted(out, text);
            out.push(b'"');
        }
    }

    fn extra(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b" host=");
        escape::word(out, self.host);
        write_formatted(
            out,
            format_args!(" rt={:.6} qt=", self.duration.as_secs_f64()),
        );
        match self.run.queued {
            Some(time) => write_formatted(out, format_args!("{:.6}", time.as_secs_f64())),
            None => out.push(b'-'),
        }
        out.extend_from_slice(b" child=");
        match self.run.child {
            Some(index) => write_formatted(out, format_args!("{index}")),
            None => out.push(b'-'),
        }
        if let Some(verdict) = self.cache {
            write_formatted(out, format_args!(" cache={}", verdict.label()));
            if let CacheVerdict::Pass(why) = verdict {
                write_formatted(out, format_args!(":{why}"));
            }
        }
        write_formatted(
            out,
            format_args!(" error={} id={}", self.error.unwrap_or("-"), self.id),
        );
    }

    fn json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"time\":\"");
        UtcDateTime::of(self.at).rfc3339(out);
        out.extend_from_slice(b"\",\"client\":\"");
        self.client(out);
        write_formatted(out, format_args!("\",\"id\":{}", self.id));
        if let Some(context) = self.trace {
            let (trace, span) = (context.trace(), context.span());
            write_formatted(
                out,
                format_args!(",\"trace_id\":\"{trace}\",\"span_id\":\"{span}\""),
            );
        }
        for (name, text) in [
            ("site", self.site.as_bytes()),
            ("host", self.host),
            ("method", self.method),
            ("target", self.target),
            ("protocol", self.protocol.as_bytes()),
        ] {
            write_formatted(out, format_args!(",\"{name}\":"));
            escape::json(out, text);
        }
        if let Some(tls) = self.tls {
            let (protocol, cipher, resumed) = (tls.protocol, tls.cipher, tls.resumed);
            write_formatted(
                out,
                format_args!(
                    ",\"tls_protocol\":\"{protocol}\",\"tls_cipher\":\"{cipher}\",\"tls_resumed\":{resumed}"
                ),
            );
        }
        let seconds = self.duration.as_secs_f64();
        let (status, bytes) = (self.status(), self.bytes);
        write_formatted(
            out,
            format_args!(",\"status\":{status},\"bytes\":{bytes},\"request_time\":{seconds:.6}"),
        );
        if let Some(time) = self.run.queued {
            write_formatted(
                out,
                format_args!(",\"queue_time\":{:.6}", time.as_secs_f64()),
            );
        }
        if let Some(index) = self.run.child {
            write_formatted(out, format_args!(",\"child\":{index}"));
        }
        if let Some(verdict) = self.cache {
            write_formatted(out, format_args!(",\"cache\":\"{}\"", verdict.label()));
            if let CacheVerdict::Pass(why) = verdict {
                write_formatted(out, format_args!(",\"cache_reason\":\"{why}\""));
            }
        }
        if let Some(cause) = self.cache_cause {
            out.extend_from_slice(b",\"cache_cause\":");
            escape::json(out, cause.as_bytes());
        }
        let error = self.error.unwrap_or_default().as_bytes();
        for (name, text) in [
            ("user", self.user),
            ("referer", self.referer),
            ("user_agent", self.user_agent),
            ("error", error),
        ] {
            if !text.is_empty() {
                write_formatted(out, format_args!(",\"{name}\":"));
                escape::json(out, text);
            }
        }
        out.push(b'}');
    }
}

fn write_formatted(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to memory cannot fail.
    let _ = out.write_fmt(text);
}

/// Returns the user name of `Authorization: Basic` credentials without checking them; empty if there is none. RFC 7617
/// §2: base64 of `user-id ":" password`.
pub fn basic_user(authorization: &[u8]) -> Vec<u8> {
    let Some((scheme, rest)) = authorization.split_at_checked(6) else {
        return Vec::new();
    };
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return Vec::new();
    }
    let mut user = Vec::new();
    let (mut bits, mut have) = (0u32, 0);
    for byte in rest.trim_ascii() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => break,
        };
        bits = (bits << 6) | u32::from(value);
        have += 6;
        if have >= 8 {
            have -= 8;
            let byte = (bits >> have) as u8;
            if byte == b':' {
                return user;
            }
            user.push(byte);
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> AccessEntry<'static> {
        AccessEntry {
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_202_009_250),
            client: Some("192.0.2.7".parse().unwrap()),
            user: b"",
            method: b"GET",
            target: b"/a?b=\"c",
            protocol: "HTTP/1.1",
            tls: None,
            host: b"example.org:81",
            site: "blog",
            status: 200,
            bytes: 512,
            duration: Duration::from_micros(1500),
            referer: b"",
            user_agent: b"curl/8 \xff",
            run: RunTiming::default(),
            cache: None,
            cache_cause: None,
            error: None,
            id: 17,
            trace: None,
        }
    }

    fn line(entry: &AccessEntry<'_>, format: AccessFormat) -> String {
        let mut out = Vec::new();
        entry.format(format, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn access_formats_are_what_their_readers_expect() {
        let common =
            r#"192.0.2.7 - - [20/Nov/2026:19:13:29 +0000] "GET /a?b=\x22c HTTP/1.1" 200 512"#;
        let e = entry();
        assert_eq!(line(&e, AccessFormat::Common), format!("{common}\n"));
        let combined = format!(r#"{common} "-" "curl/8 \xFF""#);
        assert_eq!(line(&e, AccessFormat::Combined), format!("{combined}\n"));
        assert_eq!(
            line(&e, AccessFormat::Extended),
            format!("{combined} host=example.org:81 rt=0.001500 qt=- child=- error=- id=17\n")
        );
        let mut ran = e;
        ran.run = RunTiming {
            queued: Some(Duration::from_micros(20)),
            child: Some(3),
        };
        (ran.error, ran.status, ran.client, ran.user) = (Some("ChildDied"), 0, None, b"jo e");
        let extended = line(&ran, AccessFormat::Extended);
        assert!(extended.starts_with(r"unix: - jo\x20e ["), "{extended}");
        assert!(extended.contains(" 499 512 "), "{extended}");
        assert!(
            extended.ends_with(" qt=0.000020 child=3 error=ChildDied id=17\n"),
            "{extended}"
        );
        let refused = AccessEntry {
            method: b"GET /\0",
            target: b"",
            status: 400,
            ..e
        };
        let common = line(&refused, AccessFormat::Common);
        assert!(common.ends_with("] \"GET /\\x00\" 400 512\n"), "{common}");
        let json: serde_json::Value =
            serde_json::from_str(&line(&ran, AccessFormat::Json)).unwrap();
        assert_eq!(json["target"], "/a?b=\"c");
        assert_eq!(json["user_agent"], "curl/8 \u{fffd}");
        assert_eq!(json["queue_time"], 0.000_02);
        assert_eq!(json["error"], "ChildDied");
        assert_eq!(json["time"], "2026-11-20T19:13:29.250Z");
        assert_eq!((json.get("referer"), json.get("trace_id")), (None, None));
        let context = SpanContext {
            trace_id: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes(),
            span_id: 0xf0_67aa_0ba9_02b7_u64.to_be_bytes(),
        };
        let traced = AccessEntry {
            trace: Some(&context),
            ..ran
        };
        let json: serde_json::Value =
            serde_json::from_str(&line(&traced, AccessFormat::Json)).unwrap();
        assert_eq!(json["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(json["span_id"], "00f067aa0ba902b7");
    }

    /// Returns the first column of the tables of docs/access-log.md below a heading.
    fn documented_fields(heading: &str) -> Vec<String> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/access-log.md");
        let page = std::fs::read_to_string(path).unwrap();
        let section = page.split("\n## ").find(|part| part.starts_with(heading));
        let rows = section.unwrap().lines().filter_map(|line| {
            let (field, _) = line.strip_prefix("| `")?.split_once('`')?;
            Some(field.to_owned())
        });
        rows.collect()
    }

    #[test]
    fn access_log_fields_are_documented_in_their_order() {
        let context = SpanContext {
            trace_id: [1; 16],
            span_id: [2; 8],
        };
        let tls = NegotiatedTls {
            protocol: "TLSv1.3",
            cipher: "TLS_AES_128_GCM_SHA256",
            server_name: None,
            http2: false,
            challenge: false,
            resumed: false,
            client: Vec::new(),
            names: [].into(),
        };
        let full = AccessEntry {
            user: b"ann",
            referer: b"/",
            tls: Some(&tls),
            run: RunTiming {
                queued: Some(Duration::from_micros(20)),
                child: Some(3),
            },
            cache: Some(CacheVerdict::Pass(howdah_cache::pass::Pass::Method)),
            cache_cause: Some("a.php:1"),
            error: Some("ChildDied"),
            trace: Some(&context),
            ..entry()
        };
        let json = line(&full, AccessFormat::Json);
        // serde_json would sort the names.
        let names = json.split(",\"").map(|field| {
            let name = field.trim_start_matches("{\"").split('"').next();
            name.unwrap().to_owned()
        });
        assert_eq!(documented_fields("JSON\n"), names.collect::<Vec<_>>());

        let extended = line(&full, AccessFormat::Extended);
        let words = extended.split(' ').filter_map(|word| {
            let (name, _) = word.split_once('=')?;
            name.chars()
                .all(|c| c.is_ascii_lowercase())
                .then(|| format!("{name}="))
        });
        let documented = documented_fields("Text\n").into_iter();
        let documented: Vec<String> = documented.filter(|word| word.ends_with('=')).collect();
        assert_eq!(documented, words.collect::<Vec<_>>());
    }

    #[test]
    fn basic_user_is_read_from_the_header() {
        for (header, user) in [
            ("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "Aladdin"),
            ("basic dGVzdDoxMjPCow==", "test"),
            ("Basic OnB3", ""),
            ("Basic QWxhZGRpbg==", ""),
            ("Bearer abc", ""),
            ("Basic", ""),
            ("Basic *", ""),
        ] {
            assert_eq!(basic_user(header.as_bytes()), user.as_bytes(), "{header}");
        }
    }
}
