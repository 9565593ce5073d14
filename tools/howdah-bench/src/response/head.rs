//! The head of a response: status line and fields, and what they say about the body. The parser needs the whole head,
//! or reports that it is incomplete.

use memchr::memchr;

use super::ResponseFault;

/// The maximum length of a head, in bytes. nginx and Apache send at most a few KiB; ab gives up at 8.
pub const MAX_HEAD_BYTES: usize = 64 << 10;

/// The properties of a head that the reader needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http1Head {
    /// The status, 100 to 999.
    pub status: u16,
    /// Whether the version is HTTP/1.0.
    pub http10: bool,
    /// Whether the sender keeps the connection open.
    pub keep: bool,
    /// How the body ends, before the method and the status are taken into account.
    pub framing: BodyFraming,
}

/// How the body ends (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// After this many bytes.
    Length(u64),
    /// With the last chunk of the chunked coding.
    Chunked,
    /// With the end of the connection.
    Close,
}

/// Parses a head. Returns `None` if it is not complete, otherwise the head and its length, the empty line included.
/// Calls `field` for every field, in order, once its line is known to be valid.
pub fn parse(
    bytes: &[u8],
    mut field: impl FnMut(&[u8], &[u8]),
) -> Result<Option<(Http1Head, usize)>, ResponseFault> {
    let Some(end) = memchr(b'\n', bytes) else {
        return if could_be_status_line(bytes) {
            too_long(bytes)
        } else {
            Err(ResponseFault::StatusLine)
        };
    };
    let (status, http10) = status_line(line(&bytes[..end]))?;
    let (mut length, mut coding, mut close, mut keep_alive) = (None, None, false, false);
    let mut at = end + 1;
    loop {
        let Some(end) = memchr(b'\n', &bytes[at..]) else {
            return too_long(bytes);
        };
        let text = line(&bytes[at..at + end]);
        at += end + 1;
        if text.is_empty() {
            break;
        }
        let colon = memchr(b':', text).ok_or(ResponseFault::Field)?;
        let (name, value) = (&text[..colon], text[colon + 1..].trim_ascii());
        if name.is_empty() || !name.iter().all(|b| is_token(*b)) {
            return Err(ResponseFault::Field);
        }
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let number = content_length(value)?;
                if length.is_some_and(|known| known != number) {
                    return Err(ResponseFault::ContentLength);
                }
                length = Some(number);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                let last = value.rsplit(|b| *b == b',').next().unwrap_or_default();
                coding = Some(last.trim_ascii().eq_ignore_ascii_case(b"chunked"));
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for option in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
                    close |= option.eq_ignore_ascii_case(b"close");
                    keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            _ => {}
        }
        field(name, value);
    }
    if at > MAX_HEAD_BYTES {
        return Err(ResponseFault::HeadTooLong);
    }
    let framing = match (coding, length) {
        (Some(_), Some(_)) => return Err(ResponseFault::LengthAndCoding),
        (Some(true), None) => BodyFraming::Chunked,
        (Some(false), None) | (None, None) => BodyFraming::Close,
        (None, Some(length)) => BodyFraming::Length(length),
    };
    let head = Http1Head {
        status,
        http10,
        keep: !close && (keep_alive || !http10),
        framing,
    };
    Ok(Some((head, at)))
}

fn too_long<T>(bytes: &[u8]) -> Result<Option<T>, ResponseFault> {
    if bytes.len() > MAX_HEAD_BYTES {
        Err(ResponseFault::HeadTooLong)
    } else {
        Ok(None)
    }
}

/// Returns a line without its CR. A bare LF counts as a line end (RFC 9112 §2.2), because CGI programs send it.
fn line(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

/// Returns whether the bytes so far can be the beginning of a status line, so that garbage without line ends is an
/// error at once and not at the timeout.
fn could_be_status_line(bytes: &[u8]) -> bool {
    let shown = bytes.len().min(5);
    bytes[..shown] == b"HTTP/"[..shown]
}

/// Parses `HTTP/1.1 200 OK`. The reason may be missing, together with the space before it.
fn status_line(line: &[u8]) -> Result<(u16, bool), ResponseFault> {
    let rest = line
        .strip_prefix(b"HTTP/")
        .ok_or(ResponseFault::StatusLine)?;
    let (version, rest) = rest.split_at_checked(4).ok_or(ResponseFault::StatusLine)?;
    let http10 = match version {
        b"1.1 " => false,
        b"1.0 " => true,
        [b'0'..=b'9', b'.', b'0'..=b'9', b' '] => return Err(ResponseFault::Version),
        _ => return Err(ResponseFault::StatusLine),
    };
    let (digits, after) = rest.split_at_checked(3).ok_or(ResponseFault::StatusLine)?;
    if !digits.iter().all(u8::is_ascii_digit) || !matches!(after.first(), None | Some(b' ')) {
        return Err(ResponseFault::StatusLine);
    }
    let status = digits
        .iter()
        .fold(0, |number, digit| number * 10 + u16::from(digit - b'0'));
    if status < 100 {
        return Err(ResponseFault::StatusLine);
    }
    Ok((status, http10))
}

/// Parses a number, or a list of equal numbers (RFC 9110 §8.6).
fn content_length(value: &[u8]) -> Result<u64, ResponseFault> {
    let mut numbers = value.split(|b| *b == b',').map(|part| {
        let part = part.trim_ascii();
        if part.is_empty() || part.len() > 18 || !part.iter().all(u8::is_ascii_digit) {
            return Err(ResponseFault::ContentLength);
        }
        Ok(part
            .iter()
            .fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
    });
    let first = numbers.next().ok_or(ResponseFault::ContentLength)??;
    for other in numbers {
        if other? != first {
            return Err(ResponseFault::ContentLength);
        }
    }
    Ok(first)
}

fn is_token(byte: u8) -> bool {
    IS_TOKEN_BYTE[usize::from(byte)]
}

/// The token characters (RFC 9110 §5.6.2), as a table, because every byte of every field's name is looked up.
static IS_TOKEN_BYTE: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let (others, mut at) = (b"!#$%&'*+-.^_`|~", 0);
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Option<(Http1Head, usize)>, ResponseFault> {
        parse(text.as_bytes(), |_, _| {})
    }

    #[track_caller]
    fn check(text: &str, status: u16, keep: bool, framing: BodyFraming) {
        let (head, length) = head(text).unwrap().unwrap();
        assert_eq!(length, text.len());
        assert_eq!(
            (head.status, head.keep, head.framing),
            (status, keep, framing)
        );
    }

    #[test]
    fn head_gives_framing_and_keep_alive() {
        use BodyFraming::{Chunked, Close, Length};
        check(
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            200,
            true,
            Length(5),
        );
        check(
            "HTTP/1.1 200\r\ncontent-length:5, 5\r\n\r\n",
            200,
            true,
            Length(5),
        );
        check("HTTP/1.1 200 OK\nConnection: close\n\n", 200, false, Close);
        check(
            "HTTP/1.1 200 OK\r\nConnection: x, Close\r\n\r\n",
            200,
            false,
            Close,
        );
        check(
            "HTTP/1.0 404 \r\nContent-Length: 0\r\n\r\n",
            404,
            false,
            Length(0),
        );
        check(
            "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n\r\n",
            200,
            true,
            Close,
        );
        check(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            200,
            true,
            Chunked,
        );
        check(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            200,
            true,
            Close,
        );
    }

    #[test]
    fn head_may_be_incomplete() {
        for text in [
            "",
            "H",
            "HTTP/1.1 200 OK",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n\r",
        ] {
            assert_eq!(head(text), Ok(None), "{text:?}");
        }
    }

    #[test]
    fn head_faults_are_named() {
        for (text, fault) in [
            ("\x16\x03\x01", ResponseFault::StatusLine),
            ("<html>\n", ResponseFault::StatusLine),
            ("HTTP/2.0 200 OK\r\n\r\n", ResponseFault::Version),
            ("HTTP/1.1 2000 OK\r\n\r\n", ResponseFault::StatusLine),
            ("HTTP/1.1 099 OK\r\n\r\n", ResponseFault::StatusLine),
            ("HTTP/1.1 abc\r\n\r\n", ResponseFault::StatusLine),
            ("HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", ResponseFault::Field),
            (
                "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
                ResponseFault::Field,
            ),
            ("HTTP/1.1 200 OK\r\n: b\r\n\r\n", ResponseFault::Field),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
                ResponseFault::ContentLength,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                ResponseFault::ContentLength,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999\r\n\r\n",
                ResponseFault::ContentLength,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                ResponseFault::LengthAndCoding,
            ),
        ] {
            assert_eq!(head(text), Err(fault), "{text:?}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(MAX_HEAD_BYTES));
        assert_eq!(head(&endless), Err(ResponseFault::HeadTooLong));
        assert_eq!(
            head(&format!("{endless}\r\n\r\n")),
            Err(ResponseFault::HeadTooLong)
        );
    }
}
