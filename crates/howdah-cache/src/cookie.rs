//! Cookies as PHP makes `$_COOKIE` of them: what a bypass rule must look at is the name the script
//! will see, not the bytes on the wire. Follows php_default_treat_data and
//! php_register_variable_ex (main/php_variables.c).

use std::borrow::Cow;

/// A cookie whose name in PHP is not known, or is a trick (`__Host-` made from another spelling,
/// which PHP itself drops since CVE-2022-31629): the request must not be answered from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

/// The names of a `Cookie` field's pairs, as the outermost key PHP registers them under.
pub fn names(line: &[u8]) -> impl Iterator<Item = Result<Cow<'_, [u8]>, Unreadable>> {
    line.split(|b| *b == b';').filter_map(|pair| {
        // PHP skips white space before the name only.
        let pair = pair.trim_ascii_start();
        let end = pair.iter().position(|b| *b == b'=').unwrap_or(pair.len());
        // An empty value counts: `wordpress_logged_in_x=` is still a cookie PHP sees.
        (end > 0).then(|| php_name(&pair[..end]))
    })
}

/// The name PHP registers: url-decoded, white space before it dropped, `.`, space and an unmatched
/// `[` become `_`, and what follows the first `[` is an index, not a name.
pub(crate) fn php_name(raw: &[u8]) -> Result<Cow<'_, [u8]>, Unreadable> {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if raw.iter().all(plain) {
        return Ok(Cow::Borrowed(raw));
    }
    let decoded = url_decode(raw);
    if decoded.contains(&0) {
        return Err(Unreadable);
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
        return Err(Unreadable);
    }
    Ok(Cow::Owned(name))
}

/// php_url_decode: `+` is a space, `%XX` a byte, anything else itself.
pub(crate) fn url_decode(raw: &[u8]) -> Vec<u8> {
    let hex = |b: u8| (b as char).to_digit(16).map(|d| d as u8);
    let mut out = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        let pair = (raw.get(at + 1).copied(), raw.get(at + 2).copied());
        match (raw[at], pair) {
            (b'+', _) => out.push(b' '),
            (b'%', (Some(high), Some(low))) => match (hex(high), hex(low)) {
                (Some(high), Some(low)) => {
                    out.push(high << 4 | low);
                    at += 2;
                }
                _ => out.push(b'%'),
            },
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    out
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
    fn a_cookie_has_the_name_php_gives_it() {
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
    fn a_name_that_is_a_trick_is_unreadable() {
        check("a%00b=1", &[None]);
        check("%5F_Host-x=1", &[None]);
        check("__Host-x=1", &[Some("__Host-x")]);
        check("%20=1", &[None]);
    }
}
