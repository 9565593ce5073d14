//! Edge side includes (ESI 1.0): tags in a page that the front replaces, for example by the responses to other requests.
//!
//! - [`parser`]: finds the tags in a page, in pieces of any size.
//! - [`tag`]: the attributes of one tag.
//! - `scan`: the searches that the parser makes in a piece.
//! - [`deflated`]: the texts between the tags, compressed once for all deliveries.
//! - [`rules`]: a site's settings: which URLs may be included.
//!
//! This module says what a page contains. Whether and how a fragment is requested is decided by the caller.

pub mod deflated;
pub mod parser;
pub mod rules;
mod scan;
mod tag;

pub use deflated::{DeflatedText, DeflatedTexts};
pub use parser::{EsiInclude, EsiParser, EsiPart, parse_page};
pub use rules::{EsiPath, EsiRules};

use crate::HeaderFields;
use crate::field::{self, members, unquoted};

/// The name of the header that marks a stored page whose tags are processed for each delivery.
pub const MARK_NAME: &[u8] = b"Surrogate-Control";
/// The value of that header.
pub const MARK_VALUE: &[u8] = b"content=\"ESI/1.0\"";

/// The name of this cache in `Surrogate-Capability`.
const OWN_NAME: &[u8] = b"howdah";

/// Returns whether the application asks for its tags to be processed: `Surrogate-Control: content="ESI/1.0"` (Edge
/// Architecture Specification §2.2), or `esi=on` in `X-LiteSpeed-Cache-Control`. No other response is processed.
pub fn is_marked(fields: &HeaderFields<'_>) -> bool {
    let names_esi = |member: &[u8]| {
        let Some(at) = member.iter().position(|b| *b == b'=') else {
            return false;
        };
        member[..at].eq_ignore_ascii_case(b"content")
            && unquoted(&member[at + 1..])
                .split(|b| *b == b' ')
                .any(|token| token == b"ESI/1.0")
    };
    let litespeed = |member: &[u8]| member.eq_ignore_ascii_case(b"esi=on");
    let mut surrogate = surrogate_directives(fields);
    let mut lscache = field::all(fields, b"x-litespeed-cache-control").flat_map(members);
    surrogate.any(names_esi) || lscache.any(litespeed)
}

/// Returns the directives of `Surrogate-Control` that are meant for this cache. A directive may end with the name of one
/// surrogate (`no-store;NAME`, Edge Architecture Specification §2.2.1); ours is the name in `Surrogate-Capability`.
pub fn surrogate_directives<'a>(fields: &'a HeaderFields<'a>) -> impl Iterator<Item = &'a [u8]> {
    let lines = field::all(fields, b"surrogate-control");
    lines.flat_map(members).filter_map(|member| {
        let mut parts = field::split(member, b';');
        let directive = parts.next()?;
        parts
            .next()
            .is_none_or(|name| name == OWN_NAME)
            .then_some(directive)
    })
}

/// Returns whether a body with these headers can be searched for tags: it is not encoded and not a part.
pub fn is_processable(status: u16, fields: &HeaderFields<'_>) -> bool {
    let plain = |value: &[u8]| value.eq_ignore_ascii_case(b"identity");
    !matches!(status, 204 | 206 | 304) && field::all(fields, b"content-encoding").all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_is_marked_by_the_words_of_both_dialects() {
        for (name, value, expected) in [
            ("Surrogate-Control", "content=\"ESI/1.0\"", true),
            (
                "surrogate-control",
                "max-age=600, content=\"ESI/1.0\"",
                true,
            ),
            (
                "Surrogate-Control",
                "content=\"ESI/1.0 ESI-Inline/1.0\"",
                true,
            ),
            ("Surrogate-Control", "content=ESI/1.0", true),
            ("Surrogate-Control", "content=\"ESI/1.0\";howdah", true),
            ("Surrogate-Control", "content=\"ESI/1.0\"; cdn", false),
            ("Surrogate-Control", "max-age=600", false),
            ("Surrogate-Control", "content=\"SSI/1.0\"", false),
            ("Surrogate-Control", "x-content=\"ESI/1.0\"", false),
            (
                "X-LiteSpeed-Cache-Control",
                "public,max-age=60,esi=on",
                true,
            ),
            ("X-LiteSpeed-Cache-Control", "public,esi=off", false),
            ("Cache-Control", "content=\"ESI/1.0\"", false),
            ("X-ESI", "1", false),
        ] {
            let fields = [(name.as_bytes(), value.as_bytes())];
            assert_eq!(is_marked(&fields), expected, "{name}: {value}");
        }
    }

    #[test]
    fn encoded_or_partial_response_is_not_processable() {
        let coded: [(&[u8], &[u8]); 1] = [(b"Content-Encoding", b"gzip")];
        assert!(is_processable(200, &[]) && is_processable(404, &[]));
        assert!(!is_processable(200, &coded));
        assert!(!is_processable(206, &[]) && !is_processable(304, &[]));
    }
}
