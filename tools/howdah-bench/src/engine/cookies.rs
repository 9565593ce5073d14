//! The cookies of one client, which it sends back to its only server. Unlike a browser's jar, it supports one host, no
//! paths and no expiry dates in the future (RFC 6265 §5 for the parts used), which is enough for a visitor who is
//! logged in.

/// The maximum number of cookies of one client, and the maximum length of one in bytes. RFC 6265 §6.1 asks for 50 and
/// 4096.
const MAX_COOKIES: usize = 64;
const MAX_COOKIE_BYTES: usize = 8192;

/// A client's cookies, as names and values.
#[derive(Clone, Debug, Default)]
pub struct CookieJar(Vec<(Vec<u8>, Vec<u8>)>);

impl CookieJar {
    /// Takes the value of a Set-Cookie header. Ignores values that are not cookies or that exceed the limits.
    pub fn set(&mut self, field: &[u8]) {
        let mut parts = field.split(|b| *b == b';').map(<[u8]>::trim_ascii);
        let pair = parts.next().unwrap_or_default();
        let Some(equals) = memchr::memchr(b'=', pair) else {
            return;
        };
        let (name, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
        if name.is_empty() || pair.len() > MAX_COOKIE_BYTES {
            return;
        }
        let gone = value.is_empty() || parts.any(has_expired);
        let known = self.0.iter().position(|(n, _)| n == name);
        match (known, gone) {
            (Some(at), true) => drop(self.0.remove(at)),
            (Some(at), false) => self.0[at].1 = value.to_vec(),
            (None, false) if self.0.len() < MAX_COOKIES => {
                self.0.push((name.to_vec(), value.to_vec()))
            }
            (None, _) => {}
        }
    }

    /// Writes `a=1; b=2`, preceded by a separator if `separated` is set.
    pub fn write(&self, mut separated: bool, out: &mut Vec<u8>) {
        for (name, value) in &self.0 {
            if separated {
                out.extend_from_slice(b"; ");
            }
            separated = true;
            out.extend_from_slice(name);
            out.push(b'=');
            out.extend_from_slice(value);
        }
    }

    /// Returns whether the client has no cookies.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns whether an attribute is `Max-Age=0` or less, or an `Expires` in 1970. Programs delete cookies this way.
fn has_expired(attribute: &[u8]) -> bool {
    let Some(equals) = memchr::memchr(b'=', attribute) else {
        return false;
    };
    let (name, value) = (attribute[..equals].trim_ascii(), &attribute[equals + 1..]);
    if name.eq_ignore_ascii_case(b"max-age") {
        return value.first() == Some(&b'-') || value == b"0";
    }
    name.eq_ignore_ascii_case(b"expires") && memchr::memmem::find(value, b"1970").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_stored_replaced_and_deleted() {
        let mut jar = CookieJar::default();
        let mut check = |field: &str, sent: &str| {
            jar.set(field.as_bytes());
            let mut out = Vec::new();
            jar.write(false, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), sent, "after {field}");
        };
        check("a=1; Path=/; HttpOnly", "a=1");
        check("b = x=y ;Secure", "a=1; b=x=y");
        check("a=2", "a=2; b=x=y");
        check("nonsense", "a=2; b=x=y");
        check("=1", "a=2; b=x=y");
        check(
            "b=deleted; expires=Thu, 01-Jan-1970 00:00:01 GMT; Max-Age=0",
            "a=2",
        );
        check("a=; Max-Age=-1", "");
    }

    #[test]
    fn cookie_jar_is_bounded() {
        let mut jar = CookieJar::default();
        for n in 0..1000 {
            jar.set(format!("c{n}=1").as_bytes());
        }
        assert_eq!(jar.0.len(), MAX_COOKIES);
        jar.set(format!("c0={}", "x".repeat(MAX_COOKIE_BYTES)).as_bytes());
        assert_eq!(jar.0[0].1, b"1");
    }
}
