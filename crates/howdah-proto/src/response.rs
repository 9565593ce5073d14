//! Response frames: the messages of a PHP process about one request, and the strict parser that turns these untrusted
//! bytes into values. The front uses the parser on its own private copy of the bytes.
//!
//! ```text
//! frame = u32 kind | u32 length | payload[length]          (native-endian)
//! head  = u16 status | u16 reason_len | u32 header_count | reason
//!         | { u32 name_len | u32 value_len | name | value } * header_count
//! log   = u32 level (syslog 0..7) | text
//! effect = u32 name_len | name | value
//! ```
//! The order is: any number of `Informational`, one `Head`, any number of `Body`, at most one `Finish`. `Log`, `Effect`
//! and `BailedOut` may come anywhere. Anything else is a [`ResponseError`].

use crate::level::LogLevel;
/// `kind` of a frame on the wire.
pub mod kind {
    /// Status and headers of the final response.
    pub const HEAD: u32 = 1;
    /// Bytes of the response body.
    pub const BODY: u32 = 2;
    /// A 1xx response (103 Early Hints); payload as in `HEAD`.
    pub const INFORMATIONAL: u32 = 3;
    /// One message for the error log, belonging to this request.
    pub const LOG: u32 = 4;
    /// The response is complete although the script continues (`fastcgi_finish_request()`).
    pub const FINISH: u32 = 5;
    /// A side effect of the run that may concern the front (a cookie was set, a table was written).
    pub const EFFECT: u32 = 6;
    /// PHP has bailed out of the run, and the process will exit. The frame has no payload.
    pub const BAILED_OUT: u32 = 7;
}

/// Size of a frame's kind and length, in bytes.
pub const FRAME_HEADER_BYTES: usize = 8;
/// The maximum length of a response head, in bytes. A longer one is refused.
pub const MAX_HEAD_BYTES: usize = 128 * 1024;
/// The maximum length of a log message, in bytes. The shim truncates longer messages; the parser refuses them.
pub const MAX_LOG_BYTES: usize = 64 * 1024;

/// Status and headers as the PHP process sent them, after validation: the status is in range, names are tokens (RFC
/// 9110 §5.6.2), values contain no CR, LF or NUL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptHead {
    /// 100..=199 for an informational head, 200..=999 otherwise.
    pub status: u16,
    /// The reason phrase that the script set with `header('HTTP/1.1 404 Gone Fishing')`. It is often empty.
    pub reason: Vec<u8>,
    /// Headers in the order they were set; names keep the script's case.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// The number of headers that were skipped because their name or value cannot be sent. (nginx also skips a line
    /// that it cannot parse.) The log warns about them.
    pub rejected: u32,
    /// Whether a CGI program requested a local redirect (RFC 3875 §6.2.2): `Location` is a path of this server, and the
    /// program gave no status, so the status here is 302. PHP always gives one (`sapi_header_op`), so a script's
    /// `header('Location: /x')` reaches the client.
    pub local_redirect: bool,
}

/// One parsed frame. Borrowed parts point into the input of [`ResponseParser::parse`].
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Status and headers of the final response.
    Head(ScriptHead),
    /// A piece of the body. One frame may be returned in several pieces.
    Body(&'a [u8]),
    /// Status and headers of a 1xx response.
    Informational(ScriptHead),
    /// A log message with its syslog level.
    Log(LogLevel, &'a [u8]),
    /// The response is complete, although the script may continue (`fastcgi_finish_request()`).
    Finish,
    /// A reported effect: name and value.
    Effect(&'a [u8], &'a [u8]),
    /// PHP has bailed out of the run, and the process will exit.
    BailedOut,
}

/// Why the bytes of a PHP process are not a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseError {
    /// The kind of the frame is not defined.
    UnknownKind(u32),
    /// A head, log message or effect is longer than allowed.
    TooLong,
    /// The inner lengths of a payload do not add up.
    Malformed,
    /// The status is outside 100..=999, or is 1xx in a final head, or is not 1xx in an informational head.
    BadStatus(u16),
    /// A frame is out of order (body before head, second head, output after the end).
    OutOfOrder,
    /// The response over FastCGI or CGI has no usable header block.
    Cgi(crate::cgi_response::CgiError),
    /// The bytes from a FastCGI backend are not FastCGI.
    FastCgi(crate::fastcgi::RecordError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseStage {
    BeforeHead,
    InBody,
    Finished,
}

/// Parses the frames of one response.
#[derive(Debug)]
pub struct ResponseParser {
    stage: ResponseStage,
    remaining_body_bytes: u32,
}

impl Default for ResponseParser {
    fn default() -> Self {
        ResponseParser {
            stage: ResponseStage::BeforeHead,
            remaining_body_bytes: 0,
        }
    }
}

impl ResponseParser {
    /// Parses the next frame at the start of `input`. Returns the frame and the number of bytes it used, or `None` if
    /// more bytes are needed. Never reads beyond `input`, never panics.
    pub fn parse<'a>(
        &mut self,
        input: &'a [u8],
    ) -> Result<Option<(Frame<'a>, usize)>, ResponseError> {
        if self.remaining_body_bytes > 0 {
            if input.is_empty() {
                return Ok(None);
            }
            let take = input.len().min(self.remaining_body_bytes as usize);
            self.remaining_body_bytes -= take as u32;
            return Ok(Some((Frame::Body(&input[..take]), take)));
        }
        let (Some(kind), Some(len)) = (u32_at(input, 0), u32_at(input, 4)) else {
            return Ok(None);
        };
        if kind == kind::BODY {
            if self.stage != ResponseStage::InBody {
                return Err(ResponseError::OutOfOrder);
            }
            let rest = &input[FRAME_HEADER_BYTES..];
            let take = rest.len().min(len as usize);
            self.remaining_body_bytes = len - take as u32;
            return Ok(Some((
                Frame::Body(&rest[..take]),
                FRAME_HEADER_BYTES + take,
            )));
        }
        let limit = match kind {
            kind::HEAD | kind::INFORMATIONAL => MAX_HEAD_BYTES,
            kind::LOG | kind::EFFECT => MAX_LOG_BYTES,
            kind::FINISH | kind::BAILED_OUT => 0,
            other => return Err(ResponseError::UnknownKind(other)),
        };
        let len = len as usize;
        if len > limit {
            return Err(ResponseError::TooLong);
        }
        let Some(payload) = input.get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + len) else {
            return Ok(None);
        };
        let frame = match kind {
            kind::HEAD => {
                if self.stage != ResponseStage::BeforeHead {
                    return Err(ResponseError::OutOfOrder);
                }
                let head = parse_head(payload)?;
                if head.status < 200 {
                    return Err(ResponseError::BadStatus(head.status));
                }
                self.stage = ResponseStage::InBody;
                Frame::Head(head)
            }
            kind::INFORMATIONAL => {
                if self.stage != ResponseStage::BeforeHead {
                    return Err(ResponseError::OutOfOrder);
                }
                let head = parse_head(payload)?;
                if head.status >= 200 {
                    return Err(ResponseError::BadStatus(head.status));
                }
                Frame::Informational(head)
            }
            kind::FINISH => {
                if self.stage != ResponseStage::InBody {
                    return Err(ResponseError::OutOfOrder);
                }
                self.stage = ResponseStage::Finished;
                Frame::Finish
            }
            kind::BAILED_OUT => Frame::BailedOut,
            kind::LOG => {
                let level = u32_at(payload, 0).ok_or(ResponseError::Malformed)?;
                Frame::Log(LogLevel::of(level), &payload[4..])
            }
            _ => {
                let name_len = u32_at(payload, 0).ok_or(ResponseError::Malformed)? as usize;
                let rest = &payload[4..];
                if name_len > rest.len() {
                    return Err(ResponseError::Malformed);
                }
                let (name, value) = rest.split_at(name_len);
                Frame::Effect(name, value)
            }
        };
        Ok(Some((frame, FRAME_HEADER_BYTES + len)))
    }

    /// Returns whether a head has been parsed. Without a head there is no response.
    pub fn saw_head(&self) -> bool {
        self.stage != ResponseStage::BeforeHead
    }

    /// Returns whether the input may end here: no body frame is partly returned.
    pub fn at_frame_end(&self) -> bool {
        self.remaining_body_bytes == 0
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}

fn parse_head(payload: &[u8]) -> Result<ScriptHead, ResponseError> {
    let bad = ResponseError::Malformed;
    let fixed = payload.get(..8).ok_or(bad)?;
    let status = u16::from_ne_bytes([fixed[0], fixed[1]]);
    let reason_len = u16::from_ne_bytes([fixed[2], fixed[3]]) as usize;
    let count = u32_at(fixed, 4).ok_or(bad)?;
    if !(100..=999).contains(&status) {
        return Err(ResponseError::BadStatus(status));
    }
    let mut at = 8 + reason_len;
    let reason = payload.get(8..at).ok_or(bad)?;
    let mut head = ScriptHead {
        status,
        reason: if is_field_value(reason) {
            reason.to_vec()
        } else {
            Vec::new()
        },
        // Reserve no more than the payload can hold, whatever count it claims.
        headers: Vec::with_capacity((count as usize).min(payload.len() / 8)),
        rejected: 0,
        local_redirect: false,
    };
    for _ in 0..count {
        let name_len = u32_at(payload, at).ok_or(bad)? as usize;
        let value_len = u32_at(payload, at + 4).ok_or(bad)? as usize;
        let name_at = at + 8;
        let value_at = name_at.checked_add(name_len).ok_or(bad)?;
        let end = value_at.checked_add(value_len).ok_or(bad)?;
        let name = payload.get(name_at..value_at).ok_or(bad)?;
        let value = payload.get(value_at..end).ok_or(bad)?;
        at = end;
        if is_token(name) && is_field_value(value) {
            head.headers.push((name.to_vec(), value.to_vec()));
        } else {
            head.rejected += 1;
        }
    }
    if at != payload.len() {
        return Err(bad);
    }
    Ok(head)
}

/// Returns whether `name` is a `token` of RFC 9110 §5.6.2.
pub fn is_token(name: &[u8]) -> bool {
    !name.is_empty()
        && name
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
}

/// Returns whether a header value may contain these bytes (RFC 9110 §5.5): no control characters except TAB.
pub fn is_field_value(value: &[u8]) -> bool {
    value
        .iter()
        .all(|b| *b == b'\t' || (*b >= 0x20 && *b != 0x7f))
}

/// Appends an encoded head payload to `out`, which `parse_head` can parse.
pub fn encode_head<'a>(
    out: &mut Vec<u8>,
    status: u16,
    reason: &[u8],
    headers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) {
    let start = out.len();
    let reason = &reason[..reason.len().min(1024)];
    out.extend_from_slice(&status.to_ne_bytes());
    out.extend_from_slice(&(reason.len() as u16).to_ne_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(reason);
    let mut count = 0u32;
    for (name, value) in headers {
        out.extend_from_slice(&(name.len() as u32).to_ne_bytes());
        out.extend_from_slice(&(value.len() as u32).to_ne_bytes());
        out.extend_from_slice(name);
        out.extend_from_slice(value);
        count += 1;
    }
    out[start + 4..start + 8].copy_from_slice(&count.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = kind.to_ne_bytes().to_vec();
        out.extend_from_slice(&(payload.len() as u32).to_ne_bytes());
        out.extend_from_slice(payload);
        out
    }

    fn head(status: u16, headers: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_head(&mut out, status, b"", headers.iter().copied());
        out
    }

    #[test]
    fn response_split_at_every_byte_parses_the_same() {
        let mut wire = frame(kind::INFORMATIONAL, &head(103, &[(b"Link", b"</a.css>")]));
        wire.extend(frame(kind::HEAD, &head(200, &[(b"X", b"1"), (b"X", b"2")])));
        wire.extend(frame(kind::BODY, b"hello "));
        wire.extend(frame(kind::LOG, b"\x04\0\0\0warn"));
        wire.extend(frame(kind::BODY, b"world"));
        wire.extend(frame(kind::FINISH, b""));
        for cut in 0..=wire.len() {
            let (mut parser, mut body, mut finished) =
                (ResponseParser::default(), Vec::new(), false);
            let mut pending = Vec::new();
            for part in [&wire[..cut], &wire[cut..]] {
                pending.extend_from_slice(part);
                while let Some((frame, used)) = parser.parse(&pending).unwrap() {
                    match frame {
                        Frame::Body(b) => body.extend_from_slice(b),
                        Frame::Head(h) => assert_eq!(h.headers.len(), 2),
                        Frame::Finish => finished = true,
                        _ => {}
                    }
                    pending.drain(..used);
                }
            }
            assert_eq!(
                (&body[..], finished, pending.len()),
                (&b"hello world"[..], true, 0)
            );
        }
    }

    #[test]
    fn frames_out_of_order_or_with_bad_lengths_are_refused() {
        let err = |wire: &[u8]| {
            let mut p = ResponseParser::default();
            let mut at = 0;
            loop {
                match p.parse(&wire[at..]) {
                    Ok(Some((_, n))) => at += n,
                    Ok(None) => return None,
                    Err(e) => return Some(e),
                }
            }
        };
        let ok = frame(kind::HEAD, &head(200, &[]));
        assert_eq!(
            err(&frame(kind::BODY, b"x")),
            Some(ResponseError::OutOfOrder)
        );
        assert_eq!(
            err(&[ok.clone(), ok.clone()].concat()),
            Some(ResponseError::OutOfOrder)
        );
        assert_eq!(err(&frame(9, b"")), Some(ResponseError::UnknownKind(9)));
        assert_eq!(
            err(&frame(kind::HEAD, &head(99, &[]))),
            Some(ResponseError::BadStatus(99))
        );
        assert_eq!(
            err(&frame(kind::HEAD, &head(101, &[]))),
            Some(ResponseError::BadStatus(101))
        );
        assert_eq!(
            err(&frame(kind::HEAD, b"abc")),
            Some(ResponseError::Malformed)
        );
        let mut lying = head(200, &[(b"A", b"b")]);
        lying[8..12].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(
            err(&frame(kind::HEAD, &lying)),
            Some(ResponseError::Malformed)
        );
        let mut huge = kind::LOG.to_ne_bytes().to_vec();
        huge.extend_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(err(&huge), Some(ResponseError::TooLong));
    }

    #[test]
    fn header_that_cannot_be_sent_is_skipped_and_counted() {
        let payload = head(
            200,
            &[
                (b"Good", b"1"),
                (b"Bad Name", b"2"),
                (b"Split", b"a\r\nb: c"),
            ],
        );
        let wire = frame(kind::HEAD, &payload);
        let Ok(Some((Frame::Head(h), _))) = ResponseParser::default().parse(&wire) else {
            panic!("no head");
        };
        assert_eq!((h.headers.len(), h.rejected), (1, 2));
    }
}
