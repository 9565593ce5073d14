//! Parses the head of a request (RFC 9112 §2-§3, §5). The parser does no I/O: it takes bytes and returns spans; the
//! caller reads, waits and responds. Where the RFC allows a recipient to be lenient (bare LF, folded lines, white space
//! around names), this parser refuses, because request smuggling relies on a lenient parser in front of another one.

use crate::framing::{FramingFields, RequestFraming, check_target};
use crate::message::{ByteSpan, HttpVersion, RequestHead};
use crate::refusal::BadRequest;

/// Maximum lengths of a request's head.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// The maximum length of the request line in bytes, without its CRLF.
    pub request_line: usize,
    /// The maximum length of the whole head in bytes.
    pub bytes: usize,
    /// The maximum number of header fields.
    pub fields: usize,
}

impl HeadLimits {
    /// Returns whether the last `new` bytes of `input` may have completed a head or made it one that is refused: a line
    /// has ended, or a limit is exceeded. A caller that parses only when this returns true does not parse the whole
    /// head again for each byte that a client sends.
    pub fn may_be_head(&self, input: &[u8], new: usize) -> bool {
        input[input.len().saturating_sub(new)..].contains(&b'\n')
            || input.len() > self.bytes
            || input.len() > self.request_line && !input.contains(&b'\n')
    }
}

/// A complete head at the start of the input. It fulfils the guarantees of [`RequestHead`], and the framing of the body
/// is known.
#[derive(Clone, Copy, Debug)]
pub struct ParsedHead {
    /// The length of the head in the input in bytes, blank line included.
    pub len: usize,
    /// The framing of the body, and whether the connection may stay open.
    pub framing: RequestFraming,
    method: ByteSpan,
    target: ByteSpan,
    version: HttpVersion,
}

impl ParsedHead {
    /// Converts this into a head that owns its bytes, copied from `input`, which must be the input that was parsed.
    /// `buf` is overwritten, and `fields` are the spans that [`parse`] returned; both are buffers for reuse.
    pub fn into_head(
        self,
        input: &[u8],
        mut buf: Vec<u8>,
        fields: Vec<(ByteSpan, ByteSpan)>,
    ) -> RequestHead {
        buf.clear();
        buf.extend_from_slice(&input[..self.len]);
        RequestHead::new(buf, self.method, self.target, self.version, fields)
    }

    /// Does the same as [`ParsedHead::into_head`] for the head of an HTTP/2 or HTTP/3 request that was written as text.
    /// The head takes ownership of `input`.
    pub fn into_head_of(
        self,
        version: HttpVersion,
        input: Vec<u8>,
        fields: Vec<(ByteSpan, ByteSpan)>,
    ) -> RequestHead {
        RequestHead::new(input, self.method, self.target, version, fields)
    }
}

/// The number of empty lines ignored before a request line: clients that count a body wrongly send one or two too many.
const MAX_LEADING_EMPTY_LINES: usize = 8;

const TOKEN: u8 = 1;
const TARGET: u8 = 2;
const VALUE: u8 = 4;

/// The classes that each byte belongs to.
static BYTE_CLASSES: [u8; 256] = byte_classes();

const fn byte_classes() -> [u8; 256] {
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
        // This accepts more than RFC 3986: real clients send `"<>\^`{|}` and raw UTF-8, and PHP treats them as data.
        // `#` begins a fragment, which is not part of a target (RFC 9110 §7.1).
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

/// Returns whether `b` is a `tchar` (RFC 9110 §5.6.2).
pub(crate) fn is_token_byte(b: u8) -> bool {
    BYTE_CLASSES[b as usize] & TOKEN != 0
}

/// Returns whether `name` is a `token` (RFC 9110 §5.6.2), as method and field names must be.
pub fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|b| is_token_byte(*b))
}

/// Returns whether `value` is allowed as a field value (RFC 9110 §5.5): no control characters except TAB.
pub fn is_field_value(value: &[u8]) -> bool {
    skip(value, 0, VALUE) == value.len()
}

/// Returns the index of the first byte at or after `at` that is not of `class`, or `input.len()` if there is none.
fn skip(input: &[u8], at: usize, class: u8) -> usize {
    input[at..]
        .iter()
        .position(|b| BYTE_CLASSES[*b as usize] & class == 0)
        .map_or(input.len(), |n| at + n)
}

/// Parses the head at the start of `input`. `Ok(None)` means that more bytes are needed. `fields` is cleared and filled
/// with the spans of names and values.
pub fn parse(
    input: &[u8],
    limits: &HeadLimits,
    fields: &mut Vec<(ByteSpan, ByteSpan)>,
) -> Result<Option<ParsedHead>, BadRequest> {
    fields.clear();
    match parse_all(input, limits, fields) {
        // An incomplete head is refused only when it can no longer end within the limits.
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
    fields: &mut Vec<(ByteSpan, ByteSpan)>,
) -> Result<Option<ParsedHead>, BadRequest> {
    // RFC 9112 §2.2: a server should ignore at least one empty line before the request line.
    let mut start = 0;
    while start < 2 * MAX_LEADING_EMPTY_LINES && input[start..].starts_with(b"\r\n") {
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
        return Err(unexpected_byte(*stop, BadRequest::BadMethod));
    }
    let target_start = method_end + 1;
    let target_end = skip(input, target_start, TARGET);
    let Some(stop) = input.get(target_end) else {
        return line_may_go_on(target_end);
    };
    if target_end - start > limits.request_line {
        return Err(BadRequest::UriTooLong);
    }
    // A target has no fragment (RFC 9112 §3.2), and clients do not send one. `DELETE /report#3` must not delete
    // `/report`.
    match stop {
        b' ' if target_end > target_start => {}
        b' ' | b'\r' => return Err(BadRequest::BadRequestLine),
        other => return Err(unexpected_byte(*other, BadRequest::BadTarget)),
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
        (other, _) => return Err(unexpected_byte(*other, BadRequest::BadRequestLine)),
    }
    let version = match &input[version_start..line_end] {
        b"HTTP/1.1" => HttpVersion::Http11,
        b"HTTP/1.0" => HttpVersion::Http10,
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

    let mut notes = FramingFields::default();
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
            Some(other) => return Err(unexpected_byte(*other, BadRequest::BadHeaderName)),
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
            (Some(other), _) => return Err(unexpected_byte(*other, BadRequest::ControlCharacter)),
        }
        let mut value_end = stop_at;
        while value_end > value_start && matches!(input[value_end - 1], b' ' | b'\t') {
            value_end -= 1;
        }
        if fields.len() == limits.fields {
            return Err(BadRequest::TooManyHeaders);
        }
        fields.push((span(at, name_end), span(value_start, value_end)));
        notes.add_field(&input[at..name_end], &input[value_start..value_end])?;
        at = stop_at + 2;
    }
    Ok(Some(ParsedHead {
        len: at + 2,
        framing: notes.framing(version)?,
        method,
        target,
        version,
    }))
}

fn unexpected_byte(byte: u8, otherwise: BadRequest) -> BadRequest {
    match byte {
        0 => BadRequest::NulByte,
        // If there were a CR before it, parsing would have stopped at the CR.
        b'\n' => BadRequest::BareLf,
        _ => otherwise,
    }
}

fn span(start: usize, end: usize) -> ByteSpan {
    // Heads are shorter than `max_header_bytes`, which the configuration limits to less than 4 GiB.
    ByteSpan {
        start: start as u32,
        end: end as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_received_byte_by_byte_is_parsed_once_per_line() {
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
        // A head that will be refused is refused at once.
        assert_eq!(parsed(&[b'a'; (8 << 10) + 1]), 1);
        let endless = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(32 << 10));
        assert_eq!(parsed(&endless.as_bytes()[..(32 << 10) + 1]), 2);
    }
}
