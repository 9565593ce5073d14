//! The one place that turns a failure into a response: status, `Howdah-Error: NAME`, `Retry-After`,
//! and a small page as HTML, JSON or plain text. Decides nothing about what failed, sends nothing.
//!
//! Failures are sorted by who can act: the client (4xx), the script or its process (502, 504),
//! saturation (503 with `Retry-After`), the server's own resources (500, 507). The page never shows
//! more than the name: paths, messages and stacks belong in the log.

use std::borrow::Cow;

use bytes::Bytes;
use howdah_executor::ExecError;
use howdah_proto::control::Exit;
use howdah_proto::level::Level;
use howdah_proto::request::FrameError;

use crate::encoding::negotiate::weight;
use crate::http::BodyError;
use crate::http::message::{RequestHead, ResponseHead};
use crate::script::spill::SpillError;
use crate::site::refusal::Refusal;

/// Everything that ends a request without the answer it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The router refused the request before any file was sent or script run.
    Refused {
        /// Why the router refused the request.
        refusal: Refusal,
        /// The status; mostly the refusal's own.
        status: u16,
        /// The value of `Allow`, for a 405; otherwise none.
        allow: Option<&'static str>,
    },
    /// An `.htaccess` file refused the request.
    Closed {
        /// Why the request was refused.
        refusal: Refusal,
        /// The status code of the answer.
        status: u16,
        /// The `.htaccess` file, the number of the line that refuses the request, and its text.
        because: Box<str>,
    },
    /// The request body could not be read.
    Body(BodyError),
    /// The request does not fit a frame, or carries a NUL byte.
    Frame(FrameError),
    /// The request body could not be kept for the script: disk full, no temporary directory.
    SpillFailed(String),
    /// The request body could not be kept for the script: all files together have what they may have.
    SpillFull,
    /// The front has as much memory as it may have; the request was not looked at.
    MemoryLimit,
    /// The script's run failed before it gave a response.
    Run(ExecError),
    /// The response is shorter than the `Content-Length` the script gave: what is there was sent,
    /// and the connection closed so that the client sees that the rest is missing.
    LengthMismatch {
        /// The `Content-Length` that the script gave.
        announced: u64,
        /// How many bytes the script wrote.
        written: u64,
    },
    /// Programs point from one path of this server to the next without an end; the last of them.
    LocalRedirectLoop(Vec<u8>),
    /// A compressor could not be set up: out of memory.
    EncoderFailed(String),
    /// A purge request that is not carried out.
    Purge(crate::cache::protocol::Refused),
    /// The client takes its answer more slowly than `limits.send_rate`, or than a script that waits
    /// for it is to wait. Nobody sees the status.
    ClientTooSlow,
    /// The client left before the answer was complete. Nobody sees the status.
    ClientGone,
}

impl From<FrameError> for Failure {
    fn from(error: FrameError) -> Failure {
        Failure::Frame(error)
    }
}

impl From<SpillError> for Failure {
    fn from(error: SpillError) -> Failure {
        match error {
            SpillError::Full => Failure::SpillFull,
            SpillError::Failed(error) => Failure::SpillFailed(error.to_string()),
        }
    }
}

impl Failure {
    /// The failure's name in logs, metrics, the `Howdah-Error` field and docs/failures.md.
    pub fn name(&self) -> &'static str {
        match self {
            Failure::Refused { refusal, .. } | Failure::Closed { refusal, .. } => refusal.name(),
            Failure::Body(error) => error.name(),
            Failure::Frame(FrameError::TooLarge) => "RequestTooLarge",
            Failure::Frame(FrameError::NulByte) => "NulByte",
            Failure::SpillFailed(_) => "SpillFailed",
            Failure::SpillFull => "SpillFull",
            Failure::MemoryLimit => "MemoryLimit",
            Failure::Run(error) => error.name(),
            Failure::LengthMismatch { .. } => "LengthMismatch",
            Failure::LocalRedirectLoop(_) => "LocalRedirectLoop",
            Failure::EncoderFailed(_) => "EncoderFailed",
            Failure::Purge(refused) => refused.name(),
            Failure::ClientTooSlow => "ClientTooSlow",
            Failure::ClientGone => "ClientGone",
        }
    }

    /// The status it is answered with.
    pub fn status(&self) -> u16 {
        match self {
            Failure::Refused { status, .. } | Failure::Closed { status, .. } => *status,
            Failure::Body(error) => error.status(),
            // The variables are header fields and the target: RFC 6585 §5.
            Failure::Frame(FrameError::TooLarge) => 431,
            Failure::Frame(FrameError::NulByte) => 400,
            // RFC 4918 §11.5: "unable to store the representation needed to complete the request".
            Failure::SpillFailed(_) => 507,
            Failure::SpillFull | Failure::MemoryLimit => 503,
            Failure::Run(error) => match error {
                ExecError::QueueFull
                | ExecError::QueueTimeout
                | ExecError::PoolDown { .. }
                | ExecError::BackendDown { .. }
                | ExecError::Stopping => 503,
                ExecError::ChildDied(_)
                | ExecError::ResponseInvalid(_)
                | ExecError::ResponseCorrupt
                | ExecError::ResponseMissing
                | ExecError::BackendClosed { .. }
                | ExecError::BackendRefused => 502,
                ExecError::TerminateTimeout | ExecError::BackendTimeout => 504,
                // As `RequestTooLarge`: the variables are header fields and the target.
                ExecError::VariableTooLong { .. } => 431,
                ExecError::BodyUnreadable | ExecError::CannotExecute(_) => 500,
            },
            Failure::LengthMismatch { .. } => 502,
            Failure::LocalRedirectLoop(_) | Failure::EncoderFailed(_) => 500,
            Failure::Purge(refused) => refused.status(),
            // In logs only, as nginx logs a client that takes nothing.
            Failure::ClientTooSlow => 408,
            // nginx' number for it, in logs only.
            Failure::ClientGone => 499,
        }
    }

    /// Seconds after which trying again may help. A full queue drains within a second or not at
    /// all; a pool that cannot start needs somebody to look.
    pub fn retry_after(&self) -> Option<u32> {
        match self {
            Failure::Run(ExecError::QueueFull | ExecError::Stopping) => Some(1),
            Failure::Run(ExecError::QueueTimeout) => Some(2),
            Failure::Run(ExecError::PoolDown { .. } | ExecError::BackendDown { .. }) => Some(10),
            other if other.status() == 503 => Some(5),
            _ => None,
        }
    }

    /// The weight of its line in the error log. What a client did wrong, or did not wait for, is no
    /// problem of the server's.
    pub fn level(&self) -> Level {
        match self.status() {
            // It may have held a process.
            408 if *self == Failure::ClientTooSlow => Level::Notice,
            ..500 => Level::Info,
            503 => Level::Warning,
            _ => Level::Error,
        }
    }

    /// What the log says about the failure, in one sentence.
    pub fn message(&self) -> Cow<'static, str> {
        match self {
            Failure::Closed { because, .. } => because.to_string().into(),
            Failure::SpillFailed(error) => format!(
                "the request body could not be written to the temporary directory: {error}; make room there or set another directory"
            )
            .into(),
            Failure::SpillFull => "limits.spill_total is used up: many large uploads or slow downloads at once".into(),
            Failure::MemoryLimit => "limits.memory is used up".into(),
            Failure::Run(error) => match error {
                ExecError::PoolDown { name, message } => format!("{name}: {message}").into(),
                ExecError::ChildDied(Exit::Code(code)) => {
                    format!("the script's process left with exit code {code}").into()
                }
                ExecError::ChildDied(Exit::Signal(signal)) => {
                    format!("the script's process was ended by signal {signal}").into()
                }
                ExecError::ResponseInvalid(what) => format!("{what:?}").into(),
                ExecError::CannotExecute(why) => {
                    format!("the script cannot be executed: {why}").into()
                }
                ExecError::QueueFull => "the queue is full: more requests than the children can serve".into(),
                ExecError::QueueTimeout => "no child became free in time".into(),
                ExecError::TerminateTimeout => {
                    "the script ran longer than request_terminate_timeout and was killed".into()
                }
                ExecError::BackendDown { message } => {
                    format!("no FastCGI backend can be reached: {message}").into()
                }
                ExecError::BackendClosed { answering: true } => {
                    "the FastCGI backend closed the connection within its answer".into()
                }
                ExecError::BackendClosed { answering: false } => {
                    "the FastCGI backend closed the connection without an answer: its process died, or it was stopped".into()
                }
                ExecError::BackendTimeout => {
                    "the FastCGI backend took or gave nothing within send_timeout or read_timeout".into()
                }
                ExecError::BackendRefused => {
                    "the FastCGI backend refused the request; is it a responder?".into()
                }
                ExecError::VariableTooLong { length } => format!(
                    "a header field or other variable of {length} bytes does not fit a FastCGI record"
                )
                .into(),
                _ => "".into(),
            },
            Failure::LengthMismatch { announced, written } => format!(
                "the script announced Content-Length {announced} and wrote {written} bytes"
            )
            .into(),
            Failure::LocalRedirectLoop(target) => format!(
                "programs redirect locally without an end, last to {}; a program that means the client to go there says `Status: 302`",
                target.escape_ascii()
            )
            .into(),
            Failure::Purge(refused) => refused.message().into(),
            Failure::ClientTooSlow => {
                "the client took its answer too slowly: below limits.send_rate, or while its script waited for it".into()
            }
            Failure::EncoderFailed(error) => format!("the response could not be compressed: {error}").into(),
            _ => "".into(),
        }
    }
}

/// The format of an error page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Html,
    Json,
    Plain,
}

/// By `Accept` (RFC 9110 §12.5.1): HTML or JSON for who names them, plain text otherwise: `*/*` is
/// a program or a person at a terminal.
fn form(request: &RequestHead) -> Form {
    let mut best = (0, Form::Plain);
    for member in request
        .header_all(b"accept")
        .flat_map(|line| line.split(|b| *b == b','))
    {
        let mut parts = member.split(|b| *b == b';').map(<[u8]>::trim_ascii);
        let range = parts.next().unwrap_or_default();
        let is = |name: &[u8]| range.eq_ignore_ascii_case(name);
        let form = if is(b"text/html") || is(b"application/xhtml+xml") {
            Form::Html
        } else if is(b"application/json")
            || (range.len() > 5 && range[range.len() - 5..].eq_ignore_ascii_case(b"+json"))
        {
            Form::Json
        } else if is(b"text/plain") {
            Form::Plain
        } else {
            continue;
        };
        let q = parts
            .find_map(|p| match p {
                [b'q' | b'Q', b'=', value @ ..] => Some(weight(value).unwrap_or(0)),
                _ => None,
            })
            .unwrap_or(1000);
        if q > best.0 {
            best = (q, form);
        }
    }
    best.1
}

/// A status' standard phrase and a sentence for who sees the page.
fn words(status: u16) -> (&'static str, &'static str) {
    match status {
        400 => ("Bad Request", "The request could not be understood."),
        401 => ("Unauthorized", "This page asks for a name and a password."),
        403 => ("Forbidden", "This page may not be seen."),
        404 => ("Not Found", "There is nothing at this address."),
        405 => (
            "Method Not Allowed",
            "This address does not answer to that method.",
        ),
        408 => ("Request Timeout", "The request took too long to arrive."),
        410 => ("Gone", "What was here is gone for good."),
        413 => (
            "Content Too Large",
            "What was sent is larger than this site takes.",
        ),
        414 => ("URI Too Long", "The address is too long."),
        417 => (
            "Expectation Failed",
            "The request expects what this server does not do.",
        ),
        429 => ("Too Many Requests", "Please wait a moment."),
        431 => (
            "Request Header Fields Too Large",
            "The request's header or cookies are too large.",
        ),
        500 => (
            "Internal Server Error",
            "Something went wrong on this server.",
        ),
        501 => ("Not Implemented", "This server does not know that method."),
        502 => ("Bad Gateway", "The application failed to answer."),
        503 => (
            "Service Unavailable",
            "The site is busy. Please try again in a moment.",
        ),
        504 => (
            "Gateway Timeout",
            "The application took too long to answer.",
        ),
        505 => (
            "HTTP Version Not Supported",
            "This server speaks HTTP/1.0 and HTTP/1.1.",
        ),
        507 => (
            "Insufficient Storage",
            "There is no room to store what was sent.",
        ),
        402..500 => ("Client Error", "The request could not be answered."),
        _ => ("Server Error", "Something went wrong on this server."),
    }
}

/// The head every answer to a failure has; a configured page's body may follow it.
pub fn head(failure: &Failure) -> ResponseHead {
    let mut head = ResponseHead::new(failure.status());
    head.header(b"Howdah-Error", failure.name().as_bytes());
    if let Some(seconds) = failure.retry_after() {
        head.header(b"Retry-After", seconds.to_string().as_bytes());
    }
    if let Failure::Refused {
        allow: Some(allow), ..
    } = failure
    {
        head.header(b"Allow", allow.as_bytes());
    }
    head
}

/// Gives an answer from 500 on the request's number in the log. A script's own answer is often empty:
/// PHP writes a fatal error into the log alone.
pub fn number(head: &mut ResponseHead, id: u64) {
    if head.status >= 500 {
        head.header(b"Howdah-Request", id.to_string().as_bytes());
    }
}

/// The answer to a failure: head and body. `id` is the request's number, so that a user's report
/// finds its lines in the log.
pub fn page(failure: &Failure, request: &RequestHead, id: u64) -> (ResponseHead, Bytes) {
    let mut head = head(failure);
    let (status, name) = (failure.status(), failure.name());
    let (phrase, sentence) = words(status);
    let (content_type, body) = match form(request) {
        Form::Html => (
            &b"text/html; charset=utf-8"[..],
            format!(
                "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
                 <meta name=\"viewport\" content=\"width=device-width\">\n\
                 <title>{status} {phrase}</title>\n\
                 <style>body{{font:1.1em/1.5 system-ui,sans-serif;max-width:34em;margin:15vh auto;padding:0 1em;color:#333}}\
                 h1{{font-size:1.5em}}small{{color:#777}}</style>\n\
                 <h1>{status} {phrase}</h1>\n<p>{sentence}</p>\n<p><small>{name}, request {id}</small></p>\n</html>\n"
            ),
        ),
        Form::Json => (
            &b"application/json"[..],
            format!(
                "{{\"status\":{status},\"error\":\"{name}\",\"message\":\"{sentence}\",\"request\":{id}}}\n"
            ),
        ),
        Form::Plain => (
            &b"text/plain; charset=utf-8"[..],
            format!("{status} {phrase}: {sentence} ({name}, request {id})\n"),
        ),
    };
    head.header(b"Content-Type", content_type);
    // An error of this moment must not be kept by anybody (RFC 9111 §4.2.2 lets 404 and 501 be).
    head.header(b"Cache-Control", b"no-store");
    (head, Bytes::from(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;

    fn lines(head: &ResponseHead) -> String {
        String::from_utf8(head.lines().to_vec()).unwrap()
    }

    #[test]
    fn every_failure_has_the_status_of_who_can_act() {
        let run = Failure::Run;
        let not_allowed = Failure::Refused {
            refusal: Refusal::MethodNotAllowed,
            status: 405,
            allow: Some("GET, HEAD"),
        };
        for (failure, status, name, retry) in [
            (not_allowed.clone(), 405, "MethodNotAllowed", None),
            (
                Failure::Body(BodyError::TooLarge),
                413,
                "BodyTooLarge",
                None,
            ),
            (
                Failure::Frame(FrameError::TooLarge),
                431,
                "RequestTooLarge",
                None,
            ),
            (
                Failure::SpillFailed("full".into()),
                507,
                "SpillFailed",
                None,
            ),
            (run(ExecError::QueueFull), 503, "QueueFull", Some("1")),
            (run(ExecError::QueueTimeout), 503, "QueueTimeout", Some("2")),
            (run(ExecError::Stopping), 503, "Stopping", Some("1")),
            (
                run(ExecError::ChildDied(Exit::Signal(11))),
                502,
                "ChildDied",
                None,
            ),
            (
                run(ExecError::ResponseMissing),
                502,
                "ResponseMissing",
                None,
            ),
            (
                run(ExecError::TerminateTimeout),
                504,
                "TerminateTimeout",
                None,
            ),
            (run(ExecError::BodyUnreadable), 500, "BodyUnreadable", None),
            (
                Failure::LengthMismatch {
                    announced: 2,
                    written: 1,
                },
                502,
                "LengthMismatch",
                None,
            ),
        ] {
            let (head, body) = page(&failure, &request("GET", "/", &[]), 7);
            assert_eq!(head.status, status, "{failure:?}");
            let lines = lines(&head);
            assert!(
                lines.contains(&format!("Howdah-Error: {name}\r\n")),
                "{lines}"
            );
            let retry = retry.map(|s| format!("Retry-After: {s}\r\n"));
            assert_eq!(lines.contains("Retry-After"), retry.is_some(), "{lines}");
            assert!(retry.is_none_or(|r| lines.contains(&r)), "{lines}");
            assert!(std::str::from_utf8(&body).unwrap().contains(name));
        }
        assert!(lines(&head(&not_allowed)).contains("Allow: GET, HEAD\r\n"));
    }

    #[test]
    fn the_page_takes_the_form_the_client_names() {
        let failure = Failure::Run(ExecError::QueueFull);
        for (accept, expected) in [
            (
                "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8",
                "text/html",
            ),
            ("application/json", "application/json"),
            (
                "application/problem+json, text/html;q=0.5",
                "application/json",
            ),
            ("application/json;q=0.1, text/html", "text/html"),
            ("*/*", "text/plain"),
            ("text/html;q=0", "text/plain"),
            ("", "text/plain"),
        ] {
            let (head, body) = page(&failure, &request("GET", "/", &[("Accept", accept)]), 7);
            let lines = lines(&head);
            assert!(
                lines.contains(&format!("Content-Type: {expected}")),
                "{accept}: {lines}"
            );
            if expected == "application/json" {
                let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(
                    (&json["error"], &json["request"]),
                    (&"QueueFull".into(), &7.into())
                );
            }
        }
    }

    #[test]
    fn no_page_tells_what_belongs_in_the_log() {
        let secret = "/srv/secret/path";
        let failures = [
            Failure::SpillFailed(secret.into()),
            Failure::Run(ExecError::PoolDown {
                name: "PhpStartup".into(),
                message: secret.into(),
            }),
        ];
        for failure in failures {
            let (head, body) = page(
                &failure,
                &request("GET", "/", &[("Accept", "text/html")]),
                7,
            );
            assert!(!String::from_utf8_lossy(&body).contains(secret));
            assert!(!lines(&head).contains(secret));
            assert!(failure.message().contains(secret));
        }
    }
}
