//! Turns the headers of a script's response into those for the client: decides which headers are passed on and which
//! are instructions to the server. The functions are pure; `pump.rs` handles the bytes of the body.

use howdah_executor::ScriptHead;

use howdah_http::message::{ResponseHead, describes_content};

/// What a script asks of the server in its response headers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Instructions<'h> {
    /// The value of `Content-Length`, if there is exactly one such header and its value is a number.
    pub announced: Option<u64>,
    /// `X-Accel-Redirect` or `X-Sendfile`: send this file in place of the body.
    pub send_file: Option<SendFile<'h>>,
    /// `X-Accel-Buffering: no`: whether output is passed on immediately, without buffering.
    pub unbuffered: bool,
    /// The status, after a `Status:` header has been taken into account.
    pub status: u16,
    /// The reason phrase, empty if the script gave none.
    pub reason: &'h [u8],
}

/// A file that a script names to be sent in place of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFile<'h> {
    /// nginx's `X-Accel-Redirect`: a URL path of an internal location.
    AccelRedirect(&'h [u8]),
    /// Apache's and lighttpd's `X-Sendfile`: a file name.
    Sendfile(&'h [u8]),
}

/// Returns the value of the first `Location` header of a script.
pub fn location(head: &ScriptHead) -> Option<&[u8]> {
    let is = |name: &[u8]| name.eq_ignore_ascii_case(b"location");
    let found = head.headers.iter().find(|(name, _)| is(name))?;
    Some(&found.1)
}

/// Reads what a script's headers instruct the server to do.
pub fn instructions(head: &ScriptHead) -> Instructions<'_> {
    let mut instructions = Instructions {
        status: head.status,
        reason: &head.reason,
        ..Instructions::default()
    };
    let (mut lengths, mut status) = (0, None);
    for (name, value) in &head.headers {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            6 if is(b"status") => status = status.or_else(|| status_field(value)),
            10 if is(b"x-sendfile") => instructions.send_file = Some(SendFile::Sendfile(value)),
            14 if is(b"content-length") => {
                lengths += 1;
                instructions.announced = parse_decimal(value);
            }
            16 if is(b"x-accel-redirect") => {
                instructions.send_file = Some(SendFile::AccelRedirect(value))
            }
            17 if is(b"x-accel-buffering") => {
                instructions.unbuffered = value.eq_ignore_ascii_case(b"no")
            }
            _ => {}
        }
    }
    // Several lengths count as none, even if they are equal.
    if lengths > 1 {
        instructions.announced = None;
    }
    // As in sapi_cgi_send_headers of php-fpm, `Status:` applies only if no other status was set.
    if let (200, Some((code, reason))) = (head.status, status) {
        (instructions.status, instructions.reason) = (code, reason);
    }
    instructions
}

fn parse_decimal(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value)
        .ok()
        .filter(|_| digits)?
        .parse()
        .ok()
}

fn status_field(value: &[u8]) -> Option<(u16, &[u8])> {
    let (code, reason) = value.split_at_checked(3)?;
    let code = std::str::from_utf8(code).ok()?.parse().ok()?;
    let fits = (200..=999).contains(&code) && reason.first().is_none_or(|b| *b == b' ');
    fits.then_some((code, reason.trim_ascii()))
}

/// Returns whether a header is not passed on to the client, because it concerns only one connection (RFC 9110 §7.6.1),
/// because the connection to the client writes it itself, or because it is an instruction to the server.
fn is_not_forwarded(name: &[u8]) -> bool {
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    match name.len() {
        2 => is(b"te"),
        4 => is(b"date"),
        6 => is(b"status") || is(b"server"),
        7 => is(b"trailer") || is(b"upgrade"),
        10 => is(b"connection") || is(b"keep-alive") || is(b"x-sendfile"),
        14 => is(b"content-length"),
        15 => is(b"x-accel-charset") || is(b"x-accel-expires"),
        16 => is(b"proxy-connection") || is(b"x-accel-redirect"),
        17 => is(b"transfer-encoding") || is(b"x-accel-buffering"),
        18 => is(b"x-accel-limit-rate"),
        _ => false,
    }
}

/// Returns the status and the headers for the client, before the site's rules and compression change them.
pub fn for_client(head: &ScriptHead, instructions: &Instructions<'_>) -> ResponseHead {
    let mut out = ResponseHead::new(instructions.status);
    if !instructions.reason.is_empty() {
        out.reason = Some(instructions.reason.to_vec());
    }
    // Four bytes for each header are its `: ` and its CRLF. The other 64 are for the headers that compression adds.
    let fields = head.headers.iter();
    out.reserve(
        64 + fields
            .map(|(name, value)| name.len() + value.len() + 4)
            .sum::<usize>(),
    );
    for (name, value) in head
        .headers
        .iter()
        .filter(|(name, _)| !is_not_forwarded(name))
    {
        out.header(name, value);
    }
    out
}

/// Returns whether a header describes the bytes of a script's own body, as output compression adds it, for example.
/// Such a header is dropped when a file replaces that body, because the file has headers of its own.
fn describes_body(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 7] = [
        b"accept-ranges",
        b"content-digest",
        b"content-encoding",
        b"content-md5",
        b"content-range",
        b"digest",
        b"repr-digest",
    ];
    NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Adds a script's headers to those of the file that it named. The file's own headers (its type, validators, ranges)
/// take precedence.
pub fn merge_script_headers(file: &mut ResponseHead, script: &ScriptHead) {
    let own: Vec<Vec<u8>> = file
        .fields()
        .map(|(name, _)| name.to_ascii_lowercase())
        .collect();
    for (name, value) in &script.headers {
        // `Vary` may be repeated: the response varies by the headers that the file names and by those that the script
        // names.
        let may_repeat = name.eq_ignore_ascii_case(b"vary");
        let is_new = may_repeat || !own.contains(&name.to_ascii_lowercase());
        if is_new && !is_not_forwarded(name) && !describes_body(name) {
            file.header(name, value);
        }
    }
}

/// Returns the status and the headers of a 1xx response for the client.
pub fn informational_for_client(head: &ScriptHead) -> ResponseHead {
    let mut out = ResponseHead::new(head.status);
    for (name, value) in &head.headers {
        // A 1xx response has no content, so headers that describe it are dropped (RFC 9110 §15.2). The other headers
        // are filtered as for any response.
        if !is_not_forwarded(name) && !describes_content(name) {
            out.header(name, value);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::pump_rig::script_head as script;

    fn check(head: &ScriptHead, status: u16, lines: &str) {
        let out = for_client(head, &instructions(head));
        let got = String::from_utf8(out.lines().to_vec()).unwrap();
        assert_eq!((out.status, got.as_str()), (status, lines));
    }

    #[test]
    fn connection_headers_and_instructions_are_not_forwarded() {
        let head = script(
            201,
            &[
                ("Connection", "close"),
                ("Keep-Alive", "x"),
                ("Transfer-Encoding", "chunked"),
                ("Content-Length", "5"),
                ("Upgrade", "h2c"),
                ("Date", "x"),
                ("Server", "x"),
                ("X-Accel-Limit-Rate", "1"),
                ("X-Accel-Expires", "60"),
                ("X-Accel-Charset", "utf-8"),
                ("X-Accel-Redirected", "no"),
                ("Proxy-Connection", "close"),
                ("X-Accel-Buffering", "no"),
                ("Set-Cookie", "a=1"),
                ("set-cookie", "b=2"),
                ("Content-Type", "image/png"),
            ],
        );
        let lines = "X-Accel-Redirected: no\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nContent-Type: image/png\r\n";
        check(&head, 201, lines);
        let instructions = instructions(&head);
        assert_eq!(
            (
                instructions.announced,
                instructions.unbuffered,
                instructions.send_file
            ),
            (Some(5), true, None)
        );
    }

    #[test]
    fn status_header_applies_if_no_status_was_set() {
        check(&script(200, &[("Status", "404 Gone Fishing")]), 404, "");
        check(&script(301, &[("Status", "404")]), 301, "");
        for bad in ["99 x", "4040", "abc", "", "100"] {
            check(&script(200, &[("Status", bad)]), 200, "");
        }
        let head = script(200, &[("Status", "404 Gone Fishing")]);
        assert_eq!(instructions(&head).reason, b"Gone Fishing");
    }

    #[test]
    fn content_length_is_ignored_if_repeated_or_invalid() {
        for fields in [
            &[("Content-Length", "5"), ("content-length", "5")][..],
            &[("Content-Length", "+5")],
            &[("Content-Length", "")],
        ] {
            assert_eq!(
                instructions(&script(200, fields)).announced,
                None,
                "{fields:?}"
            );
        }
    }

    #[test]
    fn informational_head_carries_only_its_links() {
        let head = script(
            103,
            &[
                ("Link", "</a.css>; rel=preload"),
                ("Content-Type", "text/html"),
                ("Connection", "x"),
            ],
        );
        let out = informational_for_client(&head);
        assert_eq!(
            (out.status, out.lines()),
            (103, &b"Link: </a.css>; rel=preload\r\n"[..])
        );
    }

    #[test]
    fn merge_keeps_the_files_headers_and_adds_the_scripts() {
        let mut file = ResponseHead::new(200);
        file.header(b"Content-Type", b"image/png")
            .header(b"ETag", b"\"f\"");
        let head = script(
            200,
            &[
                ("etag", "\"s\""),
                ("Set-Cookie", "a=1"),
                ("X-Accel-Redirect", "/f"),
                ("Cache-Control", "private"),
            ],
        );
        merge_script_headers(&mut file, &head);
        let lines = std::str::from_utf8(file.lines()).unwrap();
        assert_eq!(
            lines,
            "Content-Type: image/png\r\nETag: \"f\"\r\nSet-Cookie: a=1\r\nCache-Control: private\r\n"
        );
    }

    #[test]
    fn send_file_headers_are_instructions() {
        assert_eq!(
            instructions(&script(200, &[("X-Accel-Redirect", "/f")])).send_file,
            Some(SendFile::AccelRedirect(b"/f"))
        );
        assert_eq!(
            instructions(&script(200, &[("x-sendfile", "/srv/f")])).send_file,
            Some(SendFile::Sendfile(b"/srv/f"))
        );
    }
}
