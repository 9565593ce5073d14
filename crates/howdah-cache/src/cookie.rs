//! Cookies under the names that `$_COOKIE` has: a bypass rule must match the name that the script will see, not the
//! bytes that were sent. Follows php_default_treat_data and php_register_variable_ex (main/php_variables.c).

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// A cookie whose name in PHP cannot be determined, or that is an attempted trick (`__Host-` made from another
/// spelling, which PHP itself drops since CVE-2022-31629). The request must not be answered from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadableName;

/// Returns whether a pattern of the configuration matches a name: a `*` at its end stands for any ending.
pub(crate) fn matches_pattern(pattern: &str, name: &[u8]) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start.as_bytes()),
        None => name == pattern.as_bytes(),
    }
}

/// Returns the names in a `Cookie` header, as the outermost keys under which PHP registers them.
pub fn names(line: &[u8]) -> impl Iterator<Item = Result<Cow<'_, [u8]>, UnreadableName>> {
    pairs(line).map(|(_, name, _)| name)
}

/// A cookie as the name that was sent, the outermost key under which PHP registers it, and the value that was sent.
pub(crate) type CookiePair<'a> = (&'a [u8], Result<Cow<'a, [u8]>, UnreadableName>, &'a [u8]);

/// Returns the cookies in a `Cookie` header.
pub(crate) fn pairs(line: &[u8]) -> impl Iterator<Item = CookiePair<'_>> {
    line.split(|b| *b == b';').filter_map(|pair| {
        // PHP skips white space only before the name.
        let pair = pair.trim_ascii_start();
        let end = pair.iter().position(|b| *b == b'=').unwrap_or(pair.len());
        let (name, value) = (&pair[..end], pair.get(end + 1..).unwrap_or_default());
        // A cookie with an empty value counts: PHP still sees `wordpress_logged_in_x=`.
        (end > 0).then(|| (name, php_name(name), value))
    })
}

/// Returns the name that PHP registers: the raw name is URL-decoded and white space before it is dropped; `.`, space
/// and an unmatched `[` become `_`; the text after the first `[` is an index and not part of the name.
pub(crate) fn php_name(raw: &[u8]) -> Result<Cow<'_, [u8]>, UnreadableName> {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if raw.iter().all(plain) {
        return Ok(Cow::Borrowed(raw));
    }
    let decoded = url_decode(raw);
    if decoded.contains(&0) {
        return Err(UnreadableName);
    }
    let mut name = Vec::with_capacity(decoded.len());
    let start = decoded
        .iter()
        .position(|b| *b != b' ')
        .unwrap_or(decoded.len());
    for (at, byte) in decoded[start..].iter().enumerate() {
        match byte {
            b'[' if decoded[start + at..].contains(&b']') => break,
            b' ' | b'.' | b'[' => name.push(b'_'),
            other => name.push(*other),
        }
    }
    let special = |name: &[u8]| name.starts_with(b"__Host-") || name.starts_with(b"__Secure-");
    if name.is_empty() || (special(&name) && !special(raw)) {
        return Err(UnreadableName);
    }
    Ok(Cow::Owned(name))
}

/// Decodes as php_url_decode does: `+` is a space, `%XX` a byte, and everything else is unchanged.
pub fn url_decode(raw: &[u8]) -> Cow<'_, [u8]> {
    if !raw.contains(&b'+') {
        return percent_decode(raw).into();
    }
    let spaced: Vec<u8> = raw
        .iter()
        .map(|b| if *b == b'+' { b' ' } else { *b })
        .collect();
    Cow::Owned(percent_decode(&spaced).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &[Option<&str>]) {
        let got: Vec<_> = names(line.as_bytes())
            .map(|name| name.ok().map(|n| String::from_utf8_lossy(&n).into_owned()))
            .collect();
        let expected: Vec<_> = expected.iter().map(|n| n.map(str::to_owned)).collect();
        assert_eq!(got, expected, "{line}");
    }

    #[test]
    fn cookie_names_are_read_as_php_reads_them() {
        check("a=1; b_2=2;c", &[Some("a"), Some("b_2"), Some("c")]);
        check(
            "wordpress%5Flogged_in_x=1",
            &[Some("wordpress_logged_in_x")],
        );
        check("wordpress.logged.in=1", &[Some("wordpress_logged_in")]);
        check("+PHPSESSID=1", &[Some("PHPSESSID")]);
        check("PHPSESSID[x]=1", &[Some("PHPSESSID")]);
        check("%50HPSESSID=1", &[Some("PHPSESSID")]);
        check("wordpress[logged_in_x=1", &[Some("wordpress_logged_in_x")]);
        check("; ;=x; a=1", &[Some("a")]);
    }

    #[test]
    fn url_decode_leaves_broken_escapes() {
        for (raw, decoded) in [
            ("a%2Bb+c%20", "a+b c "),
            ("%+1%zz%4", "% 1%zz%4"),
            ("%252e%", "%2e%"),
        ] {
            assert_eq!(*url_decode(raw.as_bytes()), *decoded.as_bytes(), "{raw}");
        }
    }

    #[test]
    fn tricky_cookie_names_are_unreadable() {
        check("a%00b=1", &[None]);
        check("%5F_Host-x=1", &[None]);
        check("__Host-x=1", &[Some("__Host-x")]);
        check("%20=1", &[None]);
    }
}
