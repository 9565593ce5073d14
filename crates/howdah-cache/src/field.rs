//! The building blocks of header values: lists (RFC 9110 §5.6.1), quoted strings (§5.6.4), seconds (RFC 9111 §1.2.2),
//! dates (RFC 9110 §5.6.7). Every function takes bytes, returns values and never panics.

use std::time::{Duration, UNIX_EPOCH};

use crate::{HeaderFields, Millis};

/// The largest delta-seconds; a larger value is replaced by this one (RFC 9111 §1.2.2).
pub const MAX_SECONDS: u64 = 1 << 31;

/// Returns all values of a header, in order.
pub fn all<'a>(
    fields: &'a HeaderFields<'a>,
    name: &'static [u8],
) -> impl Iterator<Item = &'a [u8]> {
    fields
        .iter()
        .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
        .map(|(_, value)| *value)
}

/// Returns the first value of a header.
pub fn first<'a>(fields: &'a HeaderFields<'a>, name: &'static [u8]) -> Option<&'a [u8]> {
    all(fields, name).next()
}

/// Returns the members of a comma-separated list, trimmed, without the empty ones. A comma within a quoted string does
/// not separate; an unclosed quote extends to the end.
pub fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    split(value, b',')
}

/// Splits like [`members`], at another separator.
pub fn split(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(value);
    std::iter::from_fn(move || {
        let text = rest?;
        let (mut quoted, mut escaped) = (false, false);
        let end = text.iter().position(|byte| {
            if escaped {
                escaped = false;
            } else if quoted && *byte == b'\\' {
                escaped = true;
            } else if *byte == b'"' {
                quoted = !quoted;
            }
            *byte == separator && !quoted && !escaped
        });
        rest = end.map(|end| &text[end + 1..]);
        Some(text[..end.unwrap_or(text.len())].trim_ascii())
    })
    .filter(|member| !member.is_empty())
}

/// Returns the text of a quoted string, or other bytes unchanged.
pub fn unquoted(value: &[u8]) -> Vec<u8> {
    let Some(inner) = value
        .strip_prefix(b"\"")
        .and_then(|v| v.strip_suffix(b"\""))
    else {
        return value.to_vec();
    };
    let mut text = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => text.extend(bytes.next()),
            other => text.push(*other),
        }
    }
    text
}

/// Parses delta-seconds, which consist only of digits; a value that is too large becomes [`MAX_SECONDS`].
pub fn seconds(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let read = |sum: u64, digit: &u8| {
        sum.saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
            .min(MAX_SECONDS)
    };
    Some(value.iter().fold(0, read))
}

/// Parses an HTTP-date in any of its three forms. Only `GMT` is accepted: another zone is a mistake of the sender.
pub fn date(value: &[u8]) -> Option<Millis> {
    let text = std::str::from_utf8(value.trim_ascii()).ok()?;
    let time = httpdate::parse_http_date(text).ok()?;
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// Formats a time as an HTTP-date; a time after the year 9999 becomes the last second of that year.
pub fn http_date(at: Millis) -> String {
    const LAST: Millis = 253_402_300_799_000;
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(at.min(LAST)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_in_quotes_separates_nothing() {
        let check = |value: &str, expected: &[&str]| {
            let got: Vec<_> = members(value.as_bytes())
                .map(|m| String::from_utf8_lossy(m).into_owned())
                .collect();
            assert_eq!(got, expected, "{value}");
        };
        check("a, b ,,c", &["a", "b", "c"]);
        check("a=\"x, y\", b", &["a=\"x, y\"", "b"]);
        check("a=\"x\\\", y\", b", &["a=\"x\\\", y\"", "b"]);
        check("a=\"x, b", &["a=\"x, b"]);
        check(" , ", &[]);
    }

    #[test]
    fn seconds_are_digits_and_never_overflow() {
        for (text, expected) in [
            ("0", Some(0)),
            ("0003600", Some(3600)),
            ("99999999999999999999999", Some(MAX_SECONDS)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.0", None),
            ("1 ", None),
        ] {
            assert_eq!(seconds(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn dates_are_gmt_in_three_forms() {
        let at = Some(784_111_777_000);
        assert_eq!(date(b"Sun, 06 Nov 1994 08:49:37 GMT"), at);
        assert_eq!(date(b"Sunday, 06-Nov-94 08:49:37 GMT"), at);
        assert_eq!(date(b"Sun Nov  6 08:49:37 1994"), at);
        assert_eq!(date(b"Sun, 06 Nov 1994 08:49:37 CET"), None);
        assert_eq!(date(b"0"), None);
        assert_eq!(http_date(784_111_777_000), "Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn a_quoted_string_is_its_text() {
        assert_eq!(unquoted(b"\"a\\\"b\""), b"a\"b");
        assert_eq!(unquoted(b"plain"), b"plain");
        assert_eq!(unquoted(b"\"open"), b"\"open");
    }
}
