//! A CGI response (RFC 3875 §6), as CGI programs write it to their standard output and FastCGI applications to their
//! STDOUT stream. The parser turns the header block into a [`ScriptHead`] and reports where the body begins. It is
//! incremental, does no I/O, and knows neither pipes nor records.
//!
//! It is strict where a lenient parser could be misled, and tolerant where PHP needs it:
//!
//! | input | treatment | reason |
//! |---|---|---|
//! | line ends | LF or CRLF, mixed | RFC 3875 §6.2 leaves it to the system; PHP writes CRLF, shell scripts LF |
//! | `Status:` | the first counts, 200..=999 | nginx; PHP may write its own and then the script's |
//! | `Location:` without `Status:` | 302; a path is marked as a local redirect | RFC 3875 §6.2.2–6.2.4 |
//! | `HTTP/1.1 404 Not Found` as first line | its status | PHP with `cgi.rfc2616_headers=1` writes it; lighttpd accepts it, too |
//! | an empty header block | 200 | a script that calls `header_remove()` with `default_mimetype=""` |
//! | a name or value that cannot be sent | the line is skipped and counted ([`ScriptHead::rejected`]) | as in the frames of [`crate::response`] |
//! | a block in which no line is a header | [`CgiError::NotAResponse`] | it is text, not a response; guessing would send it as a page |
//! | a folded line | [`CgiError::FoldedLine`] | RFC 9112 §5.2; a truncated header would be worse than no header |

use crate::response::{MAX_HEAD_BYTES, ScriptHead, is_field_value, is_token};

/// Why the output of a program is not a CGI response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgiError {
    /// The header block exceeds [`MAX_HEAD_BYTES`] bytes, or it has no end.
    HeadTooLong,
    /// The output ended before the empty line that ends the header block. The parser does not see the end of the
    /// output, so its caller reports this error.
    HeadUnfinished,
    /// No line of the header block is a header.
    NotAResponse,
    /// A line begins with a blank. It would be a continuation line, which RFC 3875 §6.3 does not allow.
    FoldedLine,
    /// `Status:` (or the status line) is not a number in 200..=999.
    BadStatus,
}

/// A complete header block, as [`CgiParser::feed`] returns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgiHead {
    /// Status, reason and headers. `Status:` itself is not among the headers.
    pub head: ScriptHead,
    /// The number of bytes of the last fed piece that belong to the header block. The body follows them.
    pub used: usize,
}

/// Collects the output of a program until the header block is complete.
#[derive(Debug, Default)]
pub struct CgiParser {
    /// Input without an end of the block. It stays empty if the first piece holds the whole block.
    block: Vec<u8>,
}

impl CgiParser {
    /// Parses the next piece of output. Returns `None` if the header block is not complete yet. After `Some` or an
    /// error the parser must not be fed again.
    pub fn feed(&mut self, piece: &[u8]) -> Result<Option<CgiHead>, CgiError> {
        if self.block.is_empty()
            && let Some(end) = block_end(piece, 0)
        {
            return parse_block(&piece[..end], end).map(Some);
        }
        let before = self.block.len();
        // Nothing beyond the limit is stored, not even temporarily.
        let take = piece.len().min(MAX_HEAD_BYTES + 1 - before);
        self.block.extend_from_slice(&piece[..take]);
        // The end of the block may begin up to two bytes earlier, in the previous piece.
        if let Some(end) = block_end(&self.block, before.saturating_sub(2)) {
            return parse_block(&self.block[..end], end - before).map(Some);
        }
        if self.block.len() > MAX_HEAD_BYTES {
            return Err(CgiError::HeadTooLong);
        }
        Ok(None)
    }

    /// Returns whether the parser has received nothing at all. If the output ends here, it is missing rather than
    /// unfinished.
    pub fn is_empty(&self) -> bool {
        self.block.is_empty()
    }
}

/// Returns the position just after the empty line that ends the block. The search begins at `from`.
fn block_end(bytes: &[u8], from: usize) -> Option<usize> {
    if from == 0 {
        match bytes {
            [b'\n', ..] => return Some(1),
            [b'\r', b'\n', ..] => return Some(2),
            _ => {}
        }
    }
    let mut at = from;
    while let Some(line) = bytes[at..].iter().position(|b| *b == b'\n') {
        at += line + 1;
        match bytes.get(at..) {
            Some([b'\n', ..]) => return Some(at + 1),
            Some([b'\r', b'\n', ..]) => return Some(at + 2),
            _ => {}
        }
    }
    None
}

fn parse_block(block: &[u8], used: usize) -> Result<CgiHead, CgiError> {
    if block.len() > MAX_HEAD_BYTES {
        return Err(CgiError::HeadTooLong);
    }
    let mut out = CgiHead {
        head: ScriptHead {
            headers: Vec::with_capacity(8),
            ..ScriptHead::default()
        },
        used,
    };
    let (mut fields, mut location) = (0, None);
    let lines = block.split(|b| *b == b'\n');
    for (number, line) in lines.enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            // The end of the block. `split` yields another empty piece after it.
            break;
        }
        if matches!(line[0], b' ' | b'\t') {
            return Err(CgiError::FoldedLine);
        }
        if number == 0 && line.starts_with(b"HTTP/") {
            let code = line.iter().position(|b| *b == b' ');
            let code = code.ok_or(CgiError::BadStatus)?;
            set_status(&mut out.head, &line[code + 1..])?;
            fields += 1;
            continue;
        }
        let Some(colon) = line.iter().position(|b| *b == b':') else {
            out.head.rejected += 1;
            continue;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if !is_token(name) || !is_field_value(value) {
            out.head.rejected += 1;
            continue;
        }
        fields += 1;
        if name.eq_ignore_ascii_case(b"status") {
            if out.head.status == 0 {
                set_status(&mut out.head, value)?;
            }
            continue;
        }
        if location.is_none() && name.eq_ignore_ascii_case(b"location") {
            location = Some(value);
        }
        out.head.headers.push((name.to_vec(), value.to_vec()));
    }
    if fields == 0 && out.head.rejected > 0 {
        return Err(CgiError::NotAResponse);
    }
    if out.head.status == 0 {
        out.head.status = match location {
            None => 200,
            Some(target) => {
                // `//host/…` is a reference to another host, not a path of this one.
                let path = target.starts_with(b"/") && !target.starts_with(b"//");
                // A fragment is for the client, and a blank cannot be in a request line.
                let plain = |b: &u8| b.is_ascii_graphic() && *b != b'#';
                out.head.local_redirect = path && target.iter().all(plain);
                302
            }
        };
    }
    Ok(out)
}

/// Sets status and reason of `head` from a value like `404 Not Found` or `404`.
fn set_status(head: &mut ScriptHead, value: &[u8]) -> Result<(), CgiError> {
    let value = value.trim_ascii();
    let (digits, reason) = value.split_at(value.len().min(3));
    let number = std::str::from_utf8(digits)
        .ok()
        .and_then(|d| d.parse().ok());
    let whole = digits.iter().all(u8::is_ascii_digit)
        && reason.first().is_none_or(|b| b.is_ascii_whitespace());
    match number {
        Some(code @ 200..=999) if whole => head.status = code,
        _ => return Err(CgiError::BadStatus),
    }
    let reason = reason.trim_ascii();
    if is_field_value(reason) {
        head.reason = reason.to_vec();
    }
    Ok(())
}

#[cfg(test)]
#[path = "cgi_response/tests.rs"]
mod tests;
