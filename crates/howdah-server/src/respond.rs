//! The one place that turns a failure into a response: status, `Howdah-Error: NAME`, `Retry-After`, and a small page as
//! HTML, JSON or plain text. It makes no decision about failures, and sends nothing. The page never shows more than the
//! name: paths, messages and stacks belong in the log.

use bytes::Bytes;
use howdah_http::message::{RequestHead, ResponseHead};

use crate::failure::Failure;
use howdah_site::encoding::negotiate::parse_weight;

/// The format of an error page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageFormat {
    Html,
    Json,
    Plain,
}

/// Chooses the format by `Accept` (RFC 9110 §12.5.1): HTML or JSON for clients that name them, plain text otherwise,
/// because `*/*` comes from a program or a person at a terminal.
fn page_format(request: &RequestHead) -> PageFormat {
    let mut best = (0, PageFormat::Plain);
    for member in request
        .header_all(b"accept")
        .flat_map(|line| line.split(|b| *b == b','))
    {
        let mut parts = member.split(|b| *b == b';').map(<[u8]>::trim_ascii);
        let range = parts.next().unwrap_or_default();
        let is = |name: &[u8]| range.eq_ignore_ascii_case(name);
        let page_format = if is(b"text/html") || is(b"application/xhtml+xml") {
            PageFormat::Html
        } else if is(b"application/json")
            || (range.len() > 5 && range[range.len() - 5..].eq_ignore_ascii_case(b"+json"))
        {
            PageFormat::Json
        } else if is(b"text/plain") {
            PageFormat::Plain
        } else {
            continue;
        };
        let q = parts
            .find_map(|p| match p {
                [b'q' | b'Q', b'=', value @ ..] => Some(parse_weight(value).unwrap_or(0)),
                _ => None,
            })
            .unwrap_or(1000);
        if q > best.0 {
            best = (q, page_format);
        }
    }
    best.1
}

/// Returns a status' standard phrase, and a sentence for the page.
fn phrase_and_sentence(status: u16) -> (&'static str, &'static str) {
    match status {
        400 => ("Bad Request", "The request could not be understood."),
        401 => (
            "Unauthorized",
            "This page requires a user name and a password.",
        ),
        403 => ("Forbidden", "Access to this page is denied."),
        404 => ("Not Found", "There is nothing at this address."),
        405 => (
            "Method Not Allowed",
            "This address does not support that method.",
        ),
        408 => ("Request Timeout", "The request took too long to arrive."),
        410 => ("Gone", "This page was removed permanently."),
        413 => (
            "Content Too Large",
            "The request is larger than this site accepts.",
        ),
        414 => ("URI Too Long", "The address is too long."),
        417 => (
            "Expectation Failed",
            "This server does not support what the request expects.",
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
        501 => (
            "Not Implemented",
            "This server does not support that method.",
        ),
        502 => (
            "Bad Gateway",
            "The application did not send a valid response.",
        ),
        503 => (
            "Service Unavailable",
            "The site is busy. Please try again in a moment.",
        ),
        504 => (
            "Gateway Timeout",
            "The application took too long to respond.",
        ),
        505 => (
            "HTTP Version Not Supported",
            "This server supports HTTP/1.0 and HTTP/1.1.",
        ),
        507 => (
            "Insufficient Storage",
            "There is no room to store the request.",
        ),
        402..500 => ("Client Error", "The request could not be answered."),
        _ => ("Server Error", "Something went wrong on this server."),
    }
}

/// Returns the status and the headers of the response to a failure. A configured page's body may follow it.
pub fn failure_head(failure: &Failure) -> ResponseHead {
    let mut head = ResponseHead::new(failure.status());
    head.header(b"Howdah-Error", failure.public_name().as_bytes());
    if let Some(seconds) = failure.retry_after() {
        head.header(b"Retry-After", seconds.to_string().as_bytes());
    }
    if let Failure::NotAuthenticated { challenge, .. }
    | Failure::Closed {
        challenge: Some(challenge),
        ..
    } = failure
    {
        head.header(b"WWW-Authenticate", challenge.as_bytes());
    }
    if let Failure::Refused {
        allow: Some(allow), ..
    } = failure
    {
        head.header(b"Allow", allow.as_bytes());
    }
    head
}

/// Prevents caches from storing an error: RFC 9111 §4.2.2 permits some statuses, 404 and 501 among them, to be stored
/// by default. A site may change that for permanent errors with a `Header` line of `.htaccess`, but not for temporary
/// ones.
pub fn forbid_storing(head: &mut ResponseHead) {
    const NAME: &[u8] = b"Cache-Control";
    let passes = matches!(head.status, 401 | 408 | 425 | 429 | 500..);
    let is_said = head
        .fields()
        .any(|(name, _)| name.eq_ignore_ascii_case(NAME));
    if passes || !is_said {
        head.remove(NAME);
        head.header(NAME, b"no-store");
    }
}

/// Adds the request's number in the log to a response with a status of 500 or more. A script's own response is often
/// empty, because PHP writes a fatal error into the log alone.
pub fn add_request_number(head: &mut ResponseHead, id: u64) {
    if head.status >= 500 {
        head.header(b"Howdah-Request", id.to_string().as_bytes());
    }
}

/// Returns header and body of the response to a failure. `id` is the request's number, by which a user's report can be
/// found in the log.
pub fn failure_page(failure: &Failure, request: &RequestHead, id: u64) -> (ResponseHead, Bytes) {
    let mut head = failure_head(failure);
    let (status, name) = (failure.status(), failure.public_name());
    let (phrase, sentence) = phrase_and_sentence(status);
    let (content_type, body) = match page_format(request) {
        PageFormat::Html => (
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
        PageFormat::Json => (
            &b"application/json"[..],
            format!(
                "{{\"status\":{status},\"error\":\"{name}\",\"message\":\"{sentence}\",\"request\":{id}}}\n"
            ),
        ),
        PageFormat::Plain => (
            &b"text/plain; charset=utf-8"[..],
            format!("{status} {phrase}: {sentence} ({name}, request {id})\n"),
        ),
    };
    head.header(b"Content-Type", content_type);
    (head, Bytes::from(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;
    use howdah_executor::ExecError;
    use howdah_http::BodyError;
    use howdah_proto::control::Exit;
    use howdah_proto::request::RequestFrameError;
    use howdah_site::refusal::Refusal;

    fn lines(head: &ResponseHead) -> String {
        String::from_utf8(head.lines().to_vec()).unwrap()
    }

    #[test]
    fn failure_page_has_status_name_and_retry_after() {
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
                Failure::Frame(RequestFrameError::TooLarge),
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
            let (head, body) = failure_page(&failure, &request("GET", "/", &[]), 7);
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
        assert!(lines(&failure_head(&not_allowed)).contains("Allow: GET, HEAD\r\n"));
    }

    #[test]
    fn failure_page_has_the_format_that_the_client_accepts() {
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
            let (head, body) =
                failure_page(&failure, &request("GET", "/", &[("Accept", accept)]), 7);
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
    fn failure_page_shows_nothing_that_belongs_in_the_log() {
        let secret = "/srv/secret/path";
        let failures = [
            Failure::SpillFailed(secret.into()),
            Failure::Run(ExecError::PoolDown {
                name: "PhpStartup".into(),
                message: secret.into(),
            }),
        ];
        for failure in failures {
            let (head, body) = failure_page(
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
