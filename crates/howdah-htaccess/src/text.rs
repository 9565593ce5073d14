//! String functions that behave like Apache's: escaping, substitution, numbers.

use crate::pattern::Groups;

/// Escapes every byte that is not allowed in a path (`ap_escape_uri`).
pub(crate) fn escape_uri(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        match byte.is_ascii_alphanumeric() || b"$-_.+!*'(),:;@&=/~".contains(byte) {
            true => out.push(*byte),
            false => hex(*byte, &mut out),
        }
    }
    out
}

pub(crate) fn hex(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.push(b'%');
    out.push(DIGITS[usize::from(byte >> 4)]);
    out.push(DIGITS[usize::from(byte & 15)]);
}

/// Decodes `%XX`. Returns `None` if an escape is malformed.
pub(crate) fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at] != b'%' {
            out.push(text[at]);
            at += 1;
            continue;
        }
        let digit = |at: usize| char::from(*text.get(at)?).to_digit(16);
        out.push((digit(at + 1)? * 16 + digit(at + 2)?) as u8);
        at += 3;
    }
    Some(out)
}

/// Returns the part of `text` that group `number` has matched, or an empty string if the group did not match.
pub(crate) fn group<'t>(text: &'t [u8], found: &Groups, number: usize) -> &'t [u8] {
    match found.get(number) {
        Some(Some(range)) => text.get(range.clone()).unwrap_or_default(),
        _ => b"",
    }
}

/// Replaces `$1` and the like in `template` (`ap_pregsub`). A backslash makes the next character literal.
pub(crate) fn pregsub(template: &[u8], text: &[u8], found: &Groups) -> Vec<u8> {
    let mut out = Vec::with_capacity(template.len());
    let mut rest = template.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        match byte {
            b'$' if rest.peek().is_some_and(u8::is_ascii_digit) => {
                let digit = rest.next().unwrap_or(b'0');
                out.extend_from_slice(group(text, found, usize::from(digit - b'0')));
            }
            b'\\' => out.push(rest.next().unwrap_or(b'\\')),
            byte => out.push(byte),
        }
    }
    out
}

/// Parses a number as `atoi` does.
pub(crate) fn number(text: &[u8]) -> i64 {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        all => (false, all),
    };
    let digits = digits.iter().take_while(|b| b.is_ascii_digit());
    let value = digits.fold(0_i64, |value, digit| {
        value
            .saturating_mul(10)
            .saturating_add(i64::from(digit - b'0'))
    });
    match negative {
        true => -value,
        false => value,
    }
}

/// Returns the length of an absolute URI's scheme including `://`, or 0 if mod_rewrite does not know the scheme; and
/// whether a question mark in such a URI begins a query string.
pub(crate) fn absolute_uri(text: &[u8]) -> (usize, bool) {
    const SCHEMES: &[(&[u8], bool)] = &[
        (b"ajp://", true),
        (b"balancer://", true),
        (b"ftp://", false),
        (b"fcgi://", true),
        (b"gopher://", false),
        (b"http://", true),
        (b"https://", true),
        (b"h2://", true),
        (b"h2c://", true),
        (b"ldap://", false),
        (b"mailto:", true),
        (b"news:", false),
        (b"nntp://", false),
        (b"scgi://", true),
        (b"ws://", true),
        (b"wss://", true),
        (b"unix:", true),
    ];
    if text.len() <= 5 {
        return (0, false);
    }
    let is = |scheme: &[u8]| {
        text.len() >= scheme.len() && text[..scheme.len()].eq_ignore_ascii_case(scheme)
    };
    let found = SCHEMES.iter().find(|(scheme, _)| is(scheme));
    found.map_or((0, false), |(scheme, query)| (scheme.len(), *query))
}

/// Returns true if the text begins with a scheme and `://` (`ap_is_url`).
pub(crate) fn is_url(text: &[u8]) -> bool {
    let end = text.iter().position(|b| *b == b':');
    let Some(end) = end.filter(|end| *end > 0) else {
        return false;
    };
    let scheme = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    text[..end].iter().all(scheme) && text[end..].starts_with(b"://")
}

/// Returns the directory of a path, including its slash.
pub(crate) fn parent(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|b| *b == b'/');
    slash.map_or(&b""[..], |slash| &path[..=slash])
}

/// Returns the part after the last slash.
pub(crate) fn last_segment(path: &[u8]) -> &[u8] {
    &path[parent(path).len()..]
}

/// Returns a line of a file with its control characters escaped, because they would garble a log or a terminal.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => shown.extend(c.escape_debug()),
            false => shown.push(c),
        }
    }
    shown
}

/// Converts text for `String` fields. Names of directives are ASCII, but values may be any bytes.
pub(crate) fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// Normalizes a URL path: removes `.`, `..` and empty segments. Returns `None` if the path leads above the root.
pub(crate) fn normalize(path: &[u8]) -> Option<Vec<u8>> {
    let mut segments: Vec<&[u8]> = Vec::new();
    let mut directory = false;
    for segment in path.split(|b| *b == b'/').skip(1) {
        directory = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" | b"." => {}
            b".." => {
                segments.pop()?;
            }
            segment => segments.push(segment),
        }
    }
    let mut out = Vec::with_capacity(path.len());
    for segment in &segments {
        out.push(b'/');
        out.extend_from_slice(segment);
    }
    if directory || out.is_empty() {
        out.push(b'/');
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_normalized() {
        for (path, clean) in [
            ("/", Some("/")),
            ("/a//b/./c/../d", Some("/a/b/d")),
            ("/a/..", Some("/")),
            ("/a/.", Some("/a/")),
            ("/..", None),
        ] {
            let found = normalize(path.as_bytes()).map(|p| lossy(&p));
            assert_eq!(found.as_deref(), clean, "{path}");
        }
    }

    #[test]
    fn schemes_are_those_of_mod_rewrite() {
        assert_eq!(absolute_uri(b"https://x"), (8, true));
        assert_eq!(absolute_uri(b"HTTP://x"), (7, true));
        assert_eq!(absolute_uri(b"foo://bar"), (0, false));
        assert!(is_url(b"foo://bar") && !is_url(b"/a://b"));
    }

    #[test]
    fn groups_are_substituted() {
        let found = vec![Some(0..3), Some(1..2)];
        assert_eq!(pregsub(b"<$1$2\\$1>", b"abc", &found), b"<b$1>");
    }
}
