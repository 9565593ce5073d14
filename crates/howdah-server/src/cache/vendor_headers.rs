//! Instructions to the cache in headers of other vendors' caches: purges that are carried out (`X-LiteSpeed-Purge`,
//! `Cache-Group-Invalidation`), and headers that no client may see. What such headers say about the lifetime of the
//! page is handled by the policy (`howdah_cache::policy`).

use howdah_cache::{purge, tags};
use howdah_http::message::ResponseHead;

use super::{SiteCache, now};

/// Returns whether a method is safe (RFC 9110 §9.2.1).
pub fn is_safe(method: &[u8]) -> bool {
    matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE")
}

/// Carries out the purges in the headers of a response, on this site's pages alone. Any response may ask for purges,
/// whatever its status and whether or not it is cached: plugins purge from the dashboard.
pub fn apply_purges<'a>(
    part: &SiteCache,
    is_safe: bool,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) {
    for command in purge::response_purges(fields, is_safe) {
        part.generations.purge(&command.what, command.force(now()));
    }
}

/// Carries out the purges of a response that is not stored, before its head is sent, and removes the headers that
/// clients must not see. A stored page is kept without these headers.
pub fn apply_and_remove(part: &SiteCache, method: &[u8], head: &mut ResponseHead) {
    let ours = |name: &[u8]| {
        let tags = !part.rules().keep_tags && is_tag_field(name);
        tags || tags::is_instruction(name)
    };
    let mut commands = false;
    let mut found: Vec<Vec<u8>> = Vec::new();
    for (name, _) in head.fields() {
        commands |= purge::is_command_field(name);
        if ours(name) && !found.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            found.push(name.to_vec());
        }
    }
    if commands {
        apply_purges(part, is_safe(method), head.fields());
    }
    for name in &found {
        head.remove(name);
    }
}

fn is_tag_field(name: &[u8]) -> bool {
    tags::TAG_HEADERS
        .iter()
        .any(|field| field.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{CacheConfig, CacheRules};

    fn head() -> ResponseHead {
        let mut head = ResponseHead::new(200);
        for (name, value) in [
            ("X-LiteSpeed-Purge", "public,a;private,*"),
            ("Surrogate-Key", "b"),
            ("Cache-Groups", "\"c\""),
            ("lsc-cookie", "d=e"),
            ("X-Powered-By", "f"),
        ] {
            head.header(name.as_bytes(), value.as_bytes());
        }
        head
    }

    #[test]
    fn vendor_headers_are_carried_out_and_removed() {
        for keep_tags in [false, true] {
            let config = CacheConfig {
                rules: CacheRules {
                    keep_tags,
                    ..CacheRules::for_tests()
                },
                ..CacheConfig::default()
            };
            let part = SiteCache::new(config);
            let before = part.generations.now();
            let mut head = head();
            apply_and_remove(&part, b"GET", &mut head);
            assert_eq!(part.generations.now(), before + 1);
            let kept = match keep_tags {
                true => "Surrogate-Key: b\r\n",
                false => "",
            };
            let lines = format!("{kept}Cache-Groups: \"c\"\r\nX-Powered-By: f\r\n");
            assert_eq!(head.lines(), lines.as_bytes());
        }
    }

    #[test]
    fn cache_group_is_invalidated_by_unsafe_methods_only() {
        for (method, purges) in [("GET", 0), ("HEAD", 0), ("POST", 1), ("QUERY", 1)] {
            let part = SiteCache::new(CacheConfig::default());
            let before = part.generations.now();
            let mut head = ResponseHead::new(204);
            head.header(b"Cache-Group-Invalidation", b"\"a\"");
            apply_and_remove(&part, method.as_bytes(), &mut head);
            assert_eq!(part.generations.now(), before + purges, "{method}");
            assert!(!head.lines().is_empty(), "other caches get the field, too");
        }
    }
}
