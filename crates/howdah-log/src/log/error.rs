//! The error log: one line for each problem, with its name, tied to the request that it belongs to.
//!
//! ```text
//! 2026-11-20T19:13:29.250Z error ChildDied pool=www: signal 11 | GET example.org/a.php client=192.0.2.7 id=17
//! 2026-11-20T19:13:29.251Z warning php pool=www: PHP Warning:  Undefined variable $x in … | GET …
//! ```
//! On a terminal the line begins with `howdah: ` instead of the time. By default, messages less severe than `notice`
//! are not written. The same message is written a few times, then counted (`repeats.rs`).

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use howdah_executor::ScriptLog;
use howdah_proto::level::LogLevel;
use howdah_proto::request::RequestFrame;

use super::clock::UtcDateTime;
use super::repeats::RepeatFilter;
use super::sink::{LogSink, LogTarget};
use super::{escape, message};
use crate::traces::context::{SpanContext, parse_traceparent};

/// How many bytes of one message are kept. A PHP process may send more at once, which belongs in its own logs; a line
/// of this log should stay readable.
const MAX_MESSAGE_BYTES: usize = 8 << 10;
/// How many bytes of a request's target are kept.
const MAX_TARGET_BYTES: usize = 512;

/// How a line of the error log begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorStyle {
    /// With the time: for files, and for output that is read later.
    File,
    /// With `howdah: ` instead of the time: for a terminal.
    Terminal,
    /// With the severity instead of the time: see [`super::message`].
    Syslog,
    /// Like `Syslog`, with fields.
    Journal,
}

impl ErrorStyle {
    const ALL: [ErrorStyle; 4] = [
        ErrorStyle::File,
        ErrorStyle::Terminal,
        ErrorStyle::Syslog,
        ErrorStyle::Journal,
    ];
}

/// The request that a line is about.
#[derive(Clone, Copy, Debug)]
pub struct RequestDetails<'a> {
    /// The request's method, as the client sent it.
    pub method: &'a [u8],
    /// The requested host.
    pub host: &'a [u8],
    /// The request target as the client sent it, not decoded.
    pub target: &'a [u8],
    /// The client's address.
    pub client: &'a str,
    /// The request's number, as in the access log.
    pub id: u64,
    /// The request's span, if requests are traced.
    pub trace: Option<&'a SpanContext>,
}

impl RequestDetails<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b" | ");
        escape::word(out, self.method);
        out.push(b' ');
        escape::quoted(out, self.host);
        escape::quoted(out, &self.target[..self.target.len().min(MAX_TARGET_BYTES)]);
        if self.target.len() > MAX_TARGET_BYTES {
            out.extend_from_slice(b"...");
        }
        let mut tail = format!(" client={} id={}", self.client, self.id);
        if let Some(context) = self.trace {
            tail += &format!(" trace_id={} span_id={}", context.trace(), context.span());
        }
        out.extend_from_slice(tail.as_bytes());
    }
}

/// The part of the server that a line comes from.
#[derive(Clone, Copy, Hash)]
enum LineOrigin<'a> {
    Server,
    Pool(&'a str),
    Job(&'a str),
}

impl LineOrigin<'_> {
    /// Returns the key (in lower case) and the name, as they appear in the line and in the journal's field.
    fn key_and_name(&self) -> Option<(&'static str, &str)> {
        match self {
            LineOrigin::Server => None,
            LineOrigin::Pool(name) => Some(("pool", name)),
            LineOrigin::Job(name) => Some(("job", name)),
        }
    }
}

/// What a line is about. It is not part of the message that is compared for repeats.
#[derive(Clone, Copy)]
enum LineSubject<'a> {
    Server,
    Request(&'a RequestDetails<'a>),
    Connection(&'a str),
}

/// The error log of a server.
pub struct ErrorLog {
    sink: LogSink,
    /// How lines begin and end: an [`ErrorStyle`].
    style: AtomicU8,
    /// The least severe [`LogLevel`] that is written.
    level: AtomicU8,
    /// Whether requests are traced, in which case a script's lines contain the trace ID.
    traced: AtomicBool,
    repeats: Mutex<RepeatFilter>,
}

impl ErrorLog {
    /// Creates a log that writes lines up to `level` into `sink`, which should have no delay: an error should be
    /// readable when it happens.
    pub fn new(sink: LogSink, style: ErrorStyle, level: LogLevel) -> ErrorLog {
        ErrorLog {
            sink,
            style: AtomicU8::new(style as u8),
            level: AtomicU8::new(level as u8),
            traced: AtomicBool::new(false),
            repeats: Mutex::new(RepeatFilter::default()),
        }
    }

    /// Returns the sink, for reopening and flushing.
    pub fn sink(&self) -> &LogSink {
        &self.sink
    }

    /// Continues at another target or with another level; see [`LogSink::move_to`]. On an error nothing has changed.
    pub fn reconfigure(
        &self,
        target: &LogTarget,
        file: Option<File>,
        style: ErrorStyle,
        level: LogLevel,
    ) -> io::Result<()> {
        self.sink.move_to(target.clone(), file)?;
        self.style.store(style as u8, Ordering::Relaxed);
        self.level.store(level as u8, Ordering::Relaxed);
        Ok(())
    }

    /// Sets whether a script's lines contain the ID of the trace that its request belongs to.
    pub fn show_traces(&self, traced: bool) {
        self.traced.store(traced, Ordering::Relaxed);
    }

    /// Returns whether a message of that level would be written.
    pub fn is_enabled(&self, level: LogLevel) -> bool {
        level as u8 <= self.level.load(Ordering::Relaxed)
    }

    /// Logs a problem of the server itself, with its name and a sentence.
    pub fn problem(&self, level: LogLevel, name: &str, message: &str) {
        self.line(
            level,
            name,
            LineOrigin::Server,
            message.as_bytes(),
            LineSubject::Server,
        );
    }

    /// Logs a problem with one connection. `name` and `message` are the same for every connection; `details` are not:
    /// the client's address, and what it sent. However many connections have the problem, the log gets a few lines and
    /// their number.
    pub fn connection(&self, level: LogLevel, name: &str, message: &str, details: &str) {
        let subject = LineSubject::Connection(details);
        self.line(level, name, LineOrigin::Server, message.as_bytes(), subject);
    }

    /// Logs a message about a background job, or a line that it has printed, with a name and a sentence.
    pub fn job(&self, job: &str, level: LogLevel, name: &str, message: &str) {
        self.line(
            level,
            name,
            LineOrigin::Job(job),
            message.as_bytes(),
            LineSubject::Server,
        );
    }

    /// Logs a problem with one request, with its name and a sentence.
    pub fn request(&self, level: LogLevel, name: &str, message: &str, about: &RequestDetails<'_>) {
        self.line(
            level,
            name,
            LineOrigin::Server,
            message.as_bytes(),
            LineSubject::Request(about),
        );
    }

    fn line(
        &self,
        level: LogLevel,
        name: &str,
        origin: LineOrigin<'_>,
        message: &[u8],
        subject: LineSubject<'_>,
    ) {
        if !self.is_enabled(level) {
            return;
        }
        let mut hasher = DefaultHasher::new();
        (level, name, origin, message).hash(&mut hasher);
        let now = Instant::now();
        let (told, admitted) = {
            let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
            let told = repeats.close_expired(now);
            let first = || {
                let mut text = Vec::new();
                escape::message(&mut text, message, 80);
                format!("{name}: {}", String::from_utf8_lossy(&text))
            };
            (told, repeats.admit(hasher.finish(), now, first))
        };
        self.write_repeats(told);
        if !admitted {
            return;
        }
        self.sink.append(|out| {
            self.begin(out, level);
            escape::word(out, name.as_bytes());
            if let Some((key, name)) = origin.key_and_name() {
                out.extend_from_slice(format!(" {key}=").as_bytes());
                escape::word(out, name.as_bytes());
            }
            if !message.trim_ascii().is_empty() {
                out.extend_from_slice(b": ");
                escape::message(out, message, MAX_MESSAGE_BYTES);
            }
            match subject {
                LineSubject::Server => {}
                LineSubject::Request(about) => about.write(out),
                LineSubject::Connection(details) => {
                    out.extend_from_slice(b" | ");
                    escape::message(out, details.as_bytes(), MAX_MESSAGE_BYTES);
                }
            }
            if self.style() == ErrorStyle::Journal {
                append_journal_fields(out, name, origin, subject);
            }
            out.push(b'\n');
        });
    }

    fn begin(&self, out: &mut Vec<u8>, level: LogLevel) {
        match self.style() {
            ErrorStyle::File => {
                UtcDateTime::of(SystemTime::now()).rfc3339(out);
                out.push(b' ');
            }
            ErrorStyle::Terminal => out.extend_from_slice(b"howdah: "),
            ErrorStyle::Syslog | ErrorStyle::Journal => {
                out.extend_from_slice(&[b'<', b'0' + level as u8, b'>']);
            }
        }
        out.extend_from_slice(level.name().as_bytes());
        out.push(b' ');
    }

    fn style(&self) -> ErrorStyle {
        ErrorStyle::ALL[usize::from(self.style.load(Ordering::Relaxed))]
    }

    fn write_repeats(&self, told: Vec<(u32, String)>) {
        for (count, first) in told {
            self.sink.append(|out| {
                self.begin(out, LogLevel::Notice);
                out.extend_from_slice(format!("Repeated {count} more times: {first}\n").as_bytes());
            });
        }
    }
}

/// Appends the fields by which the journal can be searched.
fn append_journal_fields(
    out: &mut Vec<u8>,
    name: &str,
    origin: LineOrigin<'_>,
    subject: LineSubject<'_>,
) {
    message::append_field(out, "NAME", name);
    if let Some((key, name)) = origin.key_and_name() {
        message::append_field(out, &key.to_ascii_uppercase(), name);
    }
    if let LineSubject::Request(about) = subject {
        message::append_field(out, "REQUEST", &about.id.to_string());
        if let Some(context) = about.trace {
            message::append_field(out, "TRACE", &context.trace().to_string());
        }
    }
}

impl Drop for ErrorLog {
    fn drop(&mut self) {
        let told = self
            .repeats
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .drain();
        self.write_repeats(told);
    }
}

impl ScriptLog for ErrorLog {
    fn script(
        &self,
        pool: &str,
        request: u64,
        frame: &RequestFrame,
        level: LogLevel,
        message: &[u8],
    ) {
        let value = |name| frame.variable(name).unwrap_or_default();
        let client = String::from_utf8_lossy(value("REMOTE_ADDR"));
        let traced = self.traced.load(Ordering::Relaxed);
        let context = traced
            .then(|| parse_traceparent(value("HTTP_TRACEPARENT")))
            .flatten();
        let about = RequestDetails {
            method: value("REQUEST_METHOD"),
            host: value("HTTP_HOST"),
            target: value("REQUEST_URI"),
            client: &client,
            id: request,
            trace: context.as_ref().map(|(context, _)| context),
        };
        self.line(
            level,
            "php",
            LineOrigin::Pool(pool),
            message,
            LineSubject::Request(&about),
        );
    }

    fn pool(&self, pool: &str, level: LogLevel, name: &str, message: &str) {
        self.line(
            level,
            name,
            LineOrigin::Pool(pool),
            message.as_bytes(),
            LineSubject::Server,
        );
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use howdah_proto::request::FrameBuilder;

    use super::super::repeats::MAX_REPEATS;
    use super::*;

    fn written(name: &str, style: ErrorStyle, log: impl FnOnce(&ErrorLog)) -> String {
        let file = format!("howdah-error-{}-{name}.log", std::process::id());
        let path: PathBuf = std::env::temp_dir().join(file);
        let sink = LogSink::start("error", LogTarget::File(path.clone()), Duration::ZERO).unwrap();
        let error_log = ErrorLog::new(sink, style, LogLevel::Notice);
        log(&error_log);
        drop(error_log);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        text
    }

    #[test]
    fn error_log_writes_a_php_message_as_one_line_with_its_request() {
        let text = written("php", ErrorStyle::Terminal, |log| {
            let mut frame = FrameBuilder::new(Vec::new());
            for (name, value) in [
                ("REQUEST_METHOD", "POST"),
                ("HTTP_HOST", "example.org"),
                ("REQUEST_URI", "/a.php?x=1"),
                ("REMOTE_ADDR", "192.0.2.7"),
            ] {
                frame.named(name.as_bytes(), value.as_bytes());
            }
            let frame = frame.finish(None, 0).unwrap();
            let message = b"PHP Fatal error:  Uncaught E in /a.php:3\nStack trace:\n#0 {main}\n";
            log.script("www", 17, &frame, LogLevel::Error, message);
            log.pool("www", LogLevel::Error, "ChildDied", "signal 11");
            log.problem(LogLevel::Info, "Quiet", "not written");
        });
        assert_eq!(
            text,
            "howdah: error php pool=www: PHP Fatal error:  Uncaught E in /a.php:3\\nStack trace:\\n#0 {main} \
             | POST example.org/a.php?x=1 client=192.0.2.7 id=17\n\
             howdah: error ChildDied pool=www: signal 11\n"
        );
    }

    #[test]
    fn error_log_counts_repeats_of_a_message() {
        let text = written("flood", ErrorStyle::File, |log| {
            for _ in 0..1000 {
                log.problem(LogLevel::Warning, "SpillFailed", "no space left");
            }
        });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), MAX_REPEATS as usize + 1, "{text}");
        assert!(
            lines[0].ends_with("Z warning SpillFailed: no space left"),
            "{text}"
        );
        assert!(
            lines[5].ends_with("notice Repeated 995 more times: SpillFailed: no space left"),
            "{text}"
        );
    }

    #[test]
    fn error_log_counts_repeats_across_connections() {
        let text = written("connections", ErrorStyle::Terminal, |log| {
            for port in 0..1000 {
                let details = format!("client=192.0.2.7:{port} \n");
                log.connection(
                    LogLevel::Warning,
                    "PingFlood",
                    "the connection was closed",
                    &details,
                );
            }
        });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), MAX_REPEATS as usize + 1, "{text}");
        assert_eq!(
            lines[1],
            "howdah: warning PingFlood: the connection was closed | client=192.0.2.7:1"
        );
        assert!(
            lines[5].contains("Repeated 995 more times: PingFlood"),
            "{text}"
        );
    }
}
