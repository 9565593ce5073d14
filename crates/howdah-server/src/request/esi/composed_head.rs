//! The header of a page that is composed of fragments. It is sent before the fragments are known, so nothing in it may
//! depend on them: it has no validators and no length, and no cache between this server and the browser may store the
//! page, because a fragment may be the visitor's own.

use howdah_executor::ScriptHead;

use crate::cache::OwnedHeader;

/// Returns whether a header describes the page without its fragments, or addresses other caches.
fn is_dropped(name: &[u8]) -> bool {
    const DROPPED: [&[u8]; 14] = [
        b"accept-ranges",
        b"age",
        b"cache-control",
        b"content-digest",
        b"content-length",
        b"content-md5",
        b"digest",
        // Of Akamai's servers.
        b"edge-control",
        b"etag",
        b"expires",
        b"last-modified",
        b"pragma",
        b"repr-digest",
        b"surrogate-control",
    ];
    // `CDN-Cache-Control` and the headers that address one cache (RFC 9213), such as `Akamai-Cache-Control`.
    const TARGETED: &[u8] = b"-cache-control";
    let ends = name.len().checked_sub(TARGETED.len());
    ends.is_some_and(|at| name[at..].eq_ignore_ascii_case(TARGETED))
        || DROPPED.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Returns the `Cache-Control` of a composed page. The stricter words of the page are kept.
fn cache_control(headers: &[OwnedHeader]) -> Vec<u8> {
    let has = |word: &[u8]| {
        let mut lines = headers
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(b"cache-control"));
        lines.any(|(_, value)| {
            let mut members = howdah_cache::field::members(value);
            members.any(|member| member.eq_ignore_ascii_case(word))
        })
    };
    let mut value = b"private, no-cache".to_vec();
    for word in [&b"no-store"[..], b"no-transform"] {
        if has(word) {
            value.extend_from_slice(b", ");
            value.extend_from_slice(word);
        }
    }
    value
}

/// Turns the header of a page into that of the composed response.
pub(super) fn compose(head: &mut ScriptHead) {
    let control = cache_control(&head.headers);
    head.headers.retain(|(name, _)| !is_dropped(name));
    head.headers.push((b"Cache-Control".to_vec(), control));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script_head(headers: &[(&str, &str)]) -> ScriptHead {
        let bytes = |text: &str| text.as_bytes().to_vec();
        ScriptHead {
            status: 200,
            reason: Vec::new(),
            headers: headers.iter().map(|(n, v)| (bytes(n), bytes(v))).collect(),
            rejected: 0,
            local_redirect: false,
        }
    }

    #[test]
    fn composed_response_has_no_validators_and_is_private() {
        let mut head = script_head(&[
            ("Content-Type", "text/html"),
            ("Content-Length", "9"),
            ("ETag", "\"a\""),
            ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("Cache-Control", "public, s-maxage=600"),
            ("CDN-Cache-Control", "max-age=600"),
            ("Cloudflare-CDN-Cache-Control", "max-age=600"),
            ("Akamai-Cache-Control", "max-age=600"),
            ("Edge-Control", "cache-maxage=10m"),
            ("Surrogate-Control", "content=\"ESI/1.0\""),
            ("Expires", "0"),
            ("Vary", "Accept"),
        ]);
        compose(&mut head);
        let names: Vec<_> = head
            .headers
            .iter()
            .map(|(n, v)| [&n[..], b": ", v].concat())
            .collect();
        let expected: [&[u8]; 3] = [
            b"Content-Type: text/html",
            b"Vary: Accept",
            b"Cache-Control: private, no-cache",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn stricter_words_are_kept() {
        let mut head = script_head(&[("cache-control", "no-store, max-age=9, No-Transform")]);
        compose(&mut head);
        let (_, value) = &head.headers[0];
        assert_eq!(value, b"private, no-cache, no-store, no-transform");
    }
}
