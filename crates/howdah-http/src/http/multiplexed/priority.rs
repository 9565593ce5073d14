//! The order of responses that requests ask for (RFC 9218).

use http::HeaderMap;

/// Returns a request's urgency (§4.1): 0 goes first, 7 last.
pub(in crate::http) fn urgency(fields: &HeaderMap) -> u8 {
    const DEFAULT: u8 = 3;
    let field = fields.get("priority").map(|value| value.as_bytes());
    let members = field.unwrap_or_default().split(|b| *b == b',');
    let urgency = members
        .filter_map(|member| match member.trim_ascii().strip_prefix(b"u=")? {
            [digit @ b'0'..=b'7'] | [digit @ b'0'..=b'7', b';', ..] => Some(digit - b'0'),
            _ => None,
        })
        .next_back();
    urgency.unwrap_or(DEFAULT)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn urgency_is_parsed_from_priority() {
        for (text, of) in [
            ("u=0", 0),
            ("u=5, i", 5),
            ("i,u=7", 7),
            ("u=1, u=2", 2),
            ("i", 3),
            ("u=9", 3),
            ("u=", 3),
            ("", 3),
        ] {
            let fields = [(
                http::header::HeaderName::from_static("priority"),
                HeaderValue::from_static(text),
            )];
            assert_eq!(urgency(&fields.into_iter().collect()), of, "{text}");
        }
        assert_eq!(urgency(&HeaderMap::new()), 3);
    }
}
