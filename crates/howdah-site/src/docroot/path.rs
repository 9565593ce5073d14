//! The path of a URL, decoded once and cleaned. The functions are pure and access no file.
//!
//! The rules, in the order in which they apply to `http://host/THIS?query`:
//! 1. `%XX` is decoded once; the result is never decoded again (`%252e` stays `%2e`, a file name). A bad escape is
//!    refused, and so is NUL. All other bytes pass unchanged: a file name consists of bytes, so overlong UTF-8
//!    (`%c0%ae`) is an odd name and never a dot.
//! 2. `%2F` is a slash, as for nginx. (Apache responds with 404; MediaWiki titles need it. The script sees the raw form
//!    in `REQUEST_URI`.) Since decoding comes first, rule 4 finds `..%2f`.
//! 3. Consecutive slashes are one slash (nginx's `merge_slashes on`), so no cleaned path begins with `//`.
//! 4. `.` and `..` segments are removed (RFC 3986 §5.2.4), but `..` above the root is refused instead of ignored, as
//!    nginx does: no legitimate client requests it.
//! 5. `\` is an ordinary byte. A segment that would climb if it were a separator is refused.
//!
//! These rules suffice to keep a cleaned path below the directory that it is resolved in: without its leading slash it
//! is relative, and it has no `..`. `root.rs` handles symbolic links.

use std::borrow::Cow;

use howdah_http1::percent::{self, PercentError};

use crate::refusal::Refusal;

/// A cleaned URL path.
///
/// Every `UrlPath` begins with exactly one `/`, has no empty, `.` or `..` segment, contains no NUL, and has been
/// decoded exactly once. A trailing `/` means that the URL names a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlPath<'a>(Cow<'a, [u8]>);

impl<'a> UrlPath<'a> {
    /// Decodes and cleans a raw path from a request (without the query).
    pub fn parse(raw: &'a [u8]) -> Result<UrlPath<'a>, Refusal> {
        if raw.first() != Some(&b'/') {
            return Err(Refusal::BadTarget);
        }
        if is_clean(raw) {
            return Ok(UrlPath(Cow::Borrowed(raw)));
        }
        clean(&decode(raw)?).map(|path| UrlPath(Cow::Owned(path)))
    }

    /// Cleans a path that is already decoded, such as the result of a rewrite.
    pub fn from_decoded(path: &[u8]) -> Result<UrlPath<'static>, Refusal> {
        if path.first() != Some(&b'/') {
            return Err(Refusal::BadTarget);
        }
        if path.contains(&0) {
            return Err(Refusal::NulByte);
        }
        clean(path).map(|path| UrlPath(Cow::Owned(path)))
    }

    /// Returns the path with its leading slash.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the path as a file name below a directory, without a slash at either end. It is empty for `/`.
    pub fn relative(&self) -> &[u8] {
        let path = &self.0[1..];
        path.strip_suffix(b"/").unwrap_or(path)
    }

    /// Returns whether the URL names a directory, because it ends in a slash.
    pub fn is_directory(&self) -> bool {
        self.0.ends_with(b"/")
    }
}

/// Returns whether a path needs neither decoding nor cleaning. May return false for a clean path (one with a dotfile).
fn is_clean(raw: &[u8]) -> bool {
    let mut previous = 0;
    for &byte in raw {
        match byte {
            b'%' | b'\\' | 0 => return false,
            b'/' | b'.' if previous == b'/' => return false,
            _ => {}
        }
        previous = byte;
    }
    true
}

/// Decodes percent-encoded bytes, once.
///
/// # Errors
/// A bad escape; NUL.
pub fn decode(raw: &[u8]) -> Result<Vec<u8>, Refusal> {
    percent::decode(raw).map_err(|error| match error {
        PercentError::BadEscape => Refusal::BadEscape,
        PercentError::NulByte => Refusal::NulByte,
    })
}

/// Merges slashes and removes dot segments of a decoded path.
fn clean(path: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::with_capacity(path.len());
    let mut directory = false;
    for segment in path.split(|b| *b == b'/') {
        match segment {
            b"" | b"." => directory = true,
            b".." => {
                let Some(slash) = out.iter().rposition(|b| *b == b'/') else {
                    return Err(Refusal::AboveRoot);
                };
                out.truncate(slash);
                directory = true;
            }
            _ => {
                if segment.contains(&b'\\')
                    && segment.split(|b| *b == b'\\').any(|piece| piece == b"..")
                {
                    return Err(Refusal::BackslashTraversal);
                }
                out.push(b'/');
                out.extend_from_slice(segment);
                directory = false;
            }
        }
    }
    if directory || out.is_empty() {
        out.push(b'/');
    }
    Ok(out)
}

/// Appends `path` to `out`, percent-encoded for a `Location`: everything but RFC 3986's unreserved and sub-delims, `/`,
/// `:` and `@`. In particular `\` is encoded, because browsers treat `/\host` as `//host`, and so are CR and LF.
pub fn encode_path(path: &[u8], out: &mut Vec<u8>) {
    encode(path, b"-._~!$&'()*+,;=:@/", out);
}

/// Appends `value` to `out`, percent-encoded for use inside a query: only unreserved bytes and `/` are not encoded.
pub fn encode_query_value(value: &[u8], out: &mut Vec<u8>) {
    encode(value, b"-._~/", out);
}

/// Appends `bytes` to `out`, and percent-encodes all except letters, digits and those in `keep`.
pub fn encode(bytes: &[u8], keep: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || keep.contains(&byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[
                b'%',
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]);
        }
    }
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
