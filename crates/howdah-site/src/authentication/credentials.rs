//! The credentials of a request: `Authorization: Basic` (RFC 7617 §2), base64 of `user-id ":" password`. Parses bytes
//! that clients send, and does not check whether the credentials are valid.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

/// The maximum length of encoded credentials. It leaves room for a password of 511 bytes, the longest that libcrypt
/// takes.
const MAX_ENCODED_BYTES: usize = 2048;

/// The user that a client claims to be, and the password that is to prove it.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name, without a colon or control characters.
    pub user: Box<[u8]>,
    /// The password, which may have any bytes but control characters.
    pub password: Box<[u8]>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials of {}", self.user.escape_ascii())
    }
}

impl Credentials {
    /// Parses the value of `Authorization`. `None` if the scheme is another one, or the value does not conform to RFC
    /// 7617.
    pub fn parse(authorization: &[u8]) -> Option<Credentials> {
        let (scheme, token) = authorization.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"basic ") || token.len() > MAX_ENCODED_BYTES {
            return None;
        }
        let token = token.trim_ascii();
        let decoded = STANDARD.decode(token);
        let pair = decoded.or_else(|_| STANDARD_NO_PAD.decode(token)).ok()?;
        // §2: "the user-id and password MUST NOT contain any control characters".
        if pair.iter().any(u8::is_ascii_control) {
            return None;
        }
        let colon = pair.iter().position(|b| *b == b':')?;
        Some(Credentials {
            user: pair[..colon].into(),
            password: pair[colon + 1..].into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_those_of_rfc_7617() {
        for (field, pair) in [
            (
                "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
                Some("Aladdin|open sesame"),
            ),
            (
                "basic  QWxhZGRpbjpvcGVuIHNlc2FtZQ",
                Some("Aladdin|open sesame"),
            ),
            // §2.1: "test", "123£".
            ("Basic dGVzdDoxMjPCow==", Some("test|123£")),
            ("Basic OmI6Yw==", Some("|b:c")),
            ("Basic YTo=", Some("a|")),
            ("Basic YWJj", None),
            ("Basic YTpiAA==", None),
            ("Basic YTpiCg==", None),
            ("Basic !", None),
            ("Basic ", None),
            ("Bearer YTo=", None),
            ("BasicYTo=", None),
            ("", None),
        ] {
            let found = Credentials::parse(field.as_bytes());
            let found = found.map(|c| [&c.user[..], b"|", &c.password].concat());
            assert_eq!(found.as_deref(), pair.map(str::as_bytes), "{field}");
        }
        let long = format!("Basic {}", "QUFB".repeat(MAX_ENCODED_BYTES));
        assert_eq!(Credentials::parse(long.as_bytes()), None);
    }
}
