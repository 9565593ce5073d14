//! Parses a request's head (RFC 9112 §2-§3, §5). Pure: bytes in, spans out; the caller reads, waits
//! and answers. Where the RFC lets a recipient be lenient (bare LF, folded lines, white space around
//! names), this parser refuses: leniency in front of another parser is what request smuggling needs.

use crate::framing::{Framing, Notes, check_target};
use crate::message::{RequestHead, Span, Version};
use crate::refusal::BadRequest;

/// How long the head of a request may be.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Bytes of the request line without its CRLF.
    pub request_line: usize,
    /// How many bytes the whole head may have.
    pub bytes: usize,
    /// How many header fields the head may have.
    pub fields: usize,
}

impl HeadLimits {
    /// Whether the last `new` bytes of `input` can have made a head of it, or one that is refused: a
    /// line has ended, or a limit is exceeded. Who parses only then is not charged a whole head for
    /// each byte that a client sends.
    pub fn may_be_head(&self, input: &[u8], new: usize) -> bool {
        input[input.len().saturating_sub(new)..].contains(&b'\n')
            || input.len() > self.bytes
            || input.len() > self.request_line && !input.contains(&b'\n')
    }
}

/// A complete head at the front of the input. It keeps the promises of
/// [`RequestHead`], and the body's framing is known.
#[derive(Clone, Copy, Debug)]
pub struct Parsed {
    /// Bytes of the input that the head takes, blank line included.
    pub len: usize,
    /// What follows the head, and whether the connection may live on.
    pub framing: Framing,
    method: Span,
    target: Span,
    version: Version,
}

impl Parsed {
    /// The head as a value of its own: copies it from `input`, which is what it was parsed from.
    /// `buf` and `fields` are reused: `buf` is overwritten, `fields` is what [`parse`] filled.
    pub fn into_head(
        self,
        input: &[u8],
        mut buf: Vec<u8>,
        fields: Vec<(Span, Span)>,
    ) -> RequestHead {
        buf.clear();
        buf.extend_from_slice(&input[..self.len]);
        RequestHead::new(buf, self.method, self.target, self.version, fields)
    }

    /// As [`Parsed::into_head`], of a head that was written as text for a request of HTTP/2 or HTTP/3;
    /// `input` itself becomes the head's.
    pub fn into_head_of(
        self,
        version: Version,
        input: Vec<u8>,
        fields: Vec<(Span, Span)>,
    ) -> RequestHead {
        RequestHead::new(input, self.method, self.target, version, fields)
    }
}

/// Empty lines ignored before a request line: clients that count a body wrongly send one or two more.
const MOST_EMPTY_LINES: usize = 8;

const TOKEN: u8 = 1;
const TARGET: u8 = 2;
const VALUE: u8 = 4;

/// What each byte may be a part of.
static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut b = 0;
    while b < 256 {
        let byte = b as u8;
        let mut class = 0;
        if byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            )
        {
            class |= TOKEN;
        }
        // Beyond RFC 3986: `"<>\^`{|}` and raw UTF-8 are sent by real clients and are data to PHP.
        // `#` begins a fragment, which a target does not contain (RFC 9110 §7.1).
        if byte > b' ' && byte != 0x7f && byte != b'#' {
            class |= TARGET;
        }
        if byte == b'\t' || (byte >= b' ' && byte != 0x7f) {
            class |= VALUE;
        }
        table[b] = class;
        b += 1;
    }
    table
}

/// `tchar` (RFC 9110 §5.6.2).
pub(crate) fn is_token_byte(b: u8) -> bool {
    CLASS[b as usize] & TOKEN != 0
}

/// Whether `name` is a `token` (RFC 9110 §5.6.2), as method and field names are.
pub fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|b| is_token_byte(*b))
}

/// Whether a field may have this value (RFC 9110 §5.5): no control characters but TAB.
pub fn is_field_value(value: &[u8]) -> bool {
    skip(value, 0, VALUE) == value.len()
}

/// The index of the first byte from `at` on that is not of `class`; `input.len()` if there is none.
fn skip(input: &[u8], at: usize, class: u8) -> usize {
    input[at..]
        .iter()
        .position(|b| CLASS[*b as usize] & class == 0)
        .map_or(input.len(), |n| at + n)
}

/// Parses the head at the front of `input`. `Ok(None)`: more bytes are needed. `fields` is cleared
/// and filled with the spans of names and values.
pub fn parse(
    input: &[u8],
    limits: &HeadLimits,
    fields: &mut Vec<(Span, Span)>,
) -> Result<Option<Parsed>, BadRequest> {
    fields.clear();
    match parse_all(input, limits, fields) {
        // Only what cannot become a head within the limits is refused before it is complete.
        Ok(None) if input.len() > limits.bytes => {
            if input[..limits.bytes].contains(&b'\n') {
                Err(BadRequest::HeaderTooLarge)
            } else {
                Err(BadRequest::UriTooLong)
            }
        }
        Ok(Some(parsed)) if parsed.len > limits.bytes => Err(BadRequest::HeaderTooLarge),
        other => other,
    }
}

fn parse_all(
    input: &[u8],
    limits: &HeadLimits,
    fields: &mut Vec<(Span, Span)>,
) -> Result<Option<Parsed>, BadRequest> {
    // RFC 9112 §2.2: at least one empty line before the request line is to be ignored.
    let mut start = 0;
    while start < 2 * MOST_EMPTY_LINES && input[start..].starts_with(b"\r\n") {
        start += 2;
    }
    if matches!(&input[start..], [] | [b'\r']) {
        return Ok(None);
    }
    let line_may_go_on = |end: usize| {
        if end - start > limits.request_line {
            Err(BadRequest::UriTooLong)
        } else {
            Ok(None)
        }
    };

    let method_end = skip(input, start, TOKEN);
    let Some(stop) = input.get(method_end) else {
        return line_may_go_on(method_end);
    };
    if *stop != b' ' || method_end == start {
        return Err(unexpected(*stop, BadRequest::BadMethod));
    }
    let target_start = method_end + 1;
    let target_end = skip(input, target_start, TARGET);
    let Some(stop) = input.get(target_end) else {
        return line_may_go_on(target_end);
    };
    if target_end - start > limits.request_line {
        return Err(BadRequest::UriTooLong);
    }
    // A target has no fragment (RFC 9112 §3.2), and clients keep theirs to themselves. `DELETE /report#3` must not
    // delete `/report`.
    match stop {
        b' ' if target_end > target_start => {}
        b' ' | b'\r' => return Err(BadRequest::BadRequestLine),
        other => return Err(unexpected(*other, BadRequest::BadTarget)),
    }
    let version_start = target_end + 1;
    let line_end = skip(input, version_start, VALUE);
    let Some(stop) = input.get(line_end) else {
        return line_may_go_on(line_end);
    };
    if line_end - start > limits.request_line {
        return Err(BadRequest::UriTooLong);
    }
    match (stop, input.get(line_end + 1)) {
        (b'\r', Some(b'\n')) => {}
        (b'\r', None) => return Ok(None),
        (b'\r', Some(_)) => return Err(BadRequest::BareCr),
        (other, _) => return Err(unexpected(*other, BadRequest::BadRequestLine)),
    }
    let version = match &input[version_start..line_end] {
        b"HTTP/1.1" => Version::Http11,
        b"HTTP/1.0" => Version::Http10,
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            return Err(BadRequest::BadVersion);
        }
        _ => return Err(BadRequest::BadRequestLine),
    };
    let method = span(start, method_end);
    let target = span(target_start, target_end);
    check_target(&input[start..method_end], &input[target_start..target_end])?;

    let mut notes = Notes::default();
    let mut at = line_end + 2;
    loop {
        match &input[at..] {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] => break,
            [b'\r', ..] => return Err(BadRequest::BareCr),
            [b' ' | b'\t', ..] => return Err(BadRequest::ObsFold),
            _ => {}
        }
        let name_end = skip(input, at, TOKEN);
        match input.get(name_end) {
            None => return Ok(None),
            Some(b':') if name_end > at => {}
            Some(other) => return Err(unexpected(*other, BadRequest::BadHeaderName)),
        }
        let mut value_start = name_end + 1;
        while matches!(input.get(value_start), Some(b' ' | b'\t')) {
            value_start += 1;
        }
        let stop_at = skip(input, value_start, VALUE);
        match (input.get(stop_at), input.get(stop_at + 1)) {
            (None, _) | (Some(b'\r'), None) => return Ok(None),
            (Some(b'\r'), Some(b'\n')) => {}
            (Some(b'\r'), Some(_)) => return Err(BadRequest::BareCr),
            (Some(other), _) => return Err(unexpected(*other, BadRequest::ControlCharacter)),
        }
        let mut value_end = stop_at;
        while value_end > value_start && matches!(input[value_end - 1], b' ' | b'\t') {
            value_end -= 1;
        }
        if fields.len() == limits.fields {
            return Err(BadRequest::TooManyHeaders);
        }
        fields.push((span(at, name_end), span(value_start, value_end)));
        notes.field(&input[at..name_end], &input[value_start..value_end])?;
        at = stop_at + 2;
    }
    Ok(Some(Parsed {
        len: at + 2,
        framing: notes.framing(version)?,
        method,
        target,
        version,
    }))
}

fn unexpected(byte: u8, otherwise: BadRequest) -> BadRequest {
    match byte {
        0 => BadRequest::NulByte,
        // A CR before it would have been met first.
        b'\n' => BadRequest::BareLf,
        _ => otherwise,
    }
}

fn span(start: usize, end: usize) -> Span {
    // Heads are below `max_header_bytes`, which the configuration keeps below 4 GiB.
    Span {
        start: start as u32,
        end: end as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_comes_byte_by_byte_is_parsed_once_a_line() {
        let limits = HeadLimits {
            request_line: 8 << 10,
            bytes: 32 << 10,
            fields: 100,
        };
        let parsed = |head: &[u8]| {
            (1..=head.len())
                .filter(|len| limits.may_be_head(&head[..*len], 1))
                .count()
        };
        let field = format!("X-Long: {}\r\n", "x".repeat(10_000));
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{field}{field}{field}\r\n");
        assert_eq!(parsed(head.as_bytes()), 6);
        // What is refused is refused at once.
        assert_eq!(parsed(&[b'a'; (8 << 10) + 1]), 1);
        let endless = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(32 << 10));
        assert_eq!(parsed(&endless.as_bytes()[..(32 << 10) + 1]), 2);
    }
}
