//! Tags: names that an application gives to its pages to purge by them. They are read from the headers of every cache
//! that has such names. One set serves all of them, so a page tagged in one syntax may be purged in another.
//! `generation` stores which tags were purged, and when.
//!
//! The number of a page's tags is bounded. A page with more tags is not stored, because a purge by an omitted tag would
//! miss it.

use crate::HeaderFields;
use crate::field::{members, split, unquoted};
use crate::pass::Pass;

/// Maximum number of tags of a page. A category of a large shop has hundreds; RFC 9875 §2 requires 32.
pub const MAX_TAGS: usize = 1024;
/// Maximum length of a tag in bytes: Fastly's and Cloudflare's limit; RFC 9875 §2 requires 32.
pub const MAX_TAG_BYTES: usize = 1024;

/// Headers that carry tags for a cache like this one. They are removed on the way to the client, as Fastly, Cloudflare
/// and Magento's VCL do, unless a cache in front needs them (`cache_keep_tags`). `Cache-Groups` (RFC 9875) is passed
/// on, since it addresses every cache on the path. If configured (`http.response.debug_cacheability_headers`), Drupal
/// also sends what a page varies by and how long it lives.
pub const TAG_HEADERS: [&[u8]; 10] = [
    b"surrogate-key",
    b"surrogate-control",
    b"xkey",
    b"cache-tag",
    b"cache-tags",
    b"edge-cache-tag",
    b"x-magento-tags",
    b"x-drupal-cache-tags",
    b"x-drupal-cache-contexts",
    b"x-drupal-cache-max-age",
];

/// The header by which LiteSpeed's server tells that a response comes from its cache. The LiteSpeed Cache plugin for
/// WordPress reads it.
pub const LITESPEED_STATUS: &[u8] = b"X-LiteSpeed-Cache";

/// Returns whether a header addresses this cache alone, whatever is in front of it: LiteSpeed's, which its own server
/// removes as well, and Howdah's.
pub fn is_instruction(name: &[u8]) -> bool {
    const OTHERS: [&[u8]; 2] = [b"howdah-cache-control", b"lsc-cookie"];
    const LITESPEED: &[u8] = b"x-litespeed-";
    let begins = name
        .get(..LITESPEED.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(LITESPEED));
    (begins && !name.eq_ignore_ascii_case(LITESPEED_STATUS))
        || OTHERS.iter().any(|other| name.eq_ignore_ascii_case(other))
}

/// The tags of a page: each once, within the limits.
#[derive(Clone, Debug, Default)]
pub struct Tags(Vec<Vec<u8>>);

impl Tags {
    /// Returns the tags in a response's headers.
    pub fn from_headers(fields: &HeaderFields<'_>) -> Result<Tags, Pass> {
        let mut tags = Tags::default();
        for (name, value) in fields {
            let Some(syntax) = syntax_of(name) else {
                continue;
            };
            for tag in syntax.parse(value) {
                tags.push(&tag)?;
            }
        }
        tags.0.sort();
        tags.0.dedup();
        Ok(tags)
    }

    /// Adds a tag, unless it is already in the set.
    pub fn add(&mut self, tag: &[u8]) -> Result<(), Pass> {
        match self.0.iter().any(|known| known == tag) {
            true => Ok(()),
            false => self.push(tag),
        }
    }

    fn push(&mut self, tag: &[u8]) -> Result<(), Pass> {
        if tag.is_empty() {
            return Ok(());
        }
        if tag.len() > MAX_TAG_BYTES || self.0.len() >= MAX_TAGS {
            return Err(Pass::TooManyTags);
        }
        self.0.push(tag.to_vec());
        Ok(())
    }

    /// Returns all tags of the page, sorted, each once.
    pub fn as_slice(&self) -> &[Vec<u8>] {
        &self.0
    }
}

/// How a header lists its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagSyntax {
    /// Separated by white space or commas: Fastly's `Surrogate-Key`, Varnish's `xkey`, Drupal's, and `Cache-Tags`, for
    /// which FOSHttpCache and Drupal's purger use different separators.
    Words,
    /// Separated by commas: Cloudflare's `Cache-Tag`, Akamai's `Edge-Cache-Tag`, Magento's.
    Members,
    /// Separated by commas, with `public:` before a public tag of a private page: LiteSpeed's.
    LiteSpeed,
    /// A list of strings with parameters (RFC 9875 §2, RFC 9651 §3.1).
    Groups,
}

const TAG_SYNTAXES: [(&str, TagSyntax); 9] = [
    ("surrogate-key", TagSyntax::Words),
    ("xkey", TagSyntax::Words),
    ("cache-tags", TagSyntax::Words),
    ("x-drupal-cache-tags", TagSyntax::Words),
    ("cache-tag", TagSyntax::Members),
    ("edge-cache-tag", TagSyntax::Members),
    ("x-magento-tags", TagSyntax::Members),
    ("x-litespeed-tag", TagSyntax::LiteSpeed),
    ("cache-groups", TagSyntax::Groups),
];

/// Returns the syntax of a response header that carries tags.
pub fn syntax_of(name: &[u8]) -> Option<TagSyntax> {
    let known = TAG_SYNTAXES
        .iter()
        .find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
    known.map(|(_, syntax)| *syntax)
}

impl TagSyntax {
    /// Returns the tags of one line as they are there, neither limited nor sorted.
    pub fn parse(self, value: &[u8]) -> Vec<Vec<u8>> {
        match self {
            TagSyntax::Words => value
                .split(|b| b.is_ascii_whitespace() || *b == b',')
                .filter(|tag| !tag.is_empty())
                .map(<[u8]>::to_vec)
                .collect(),
            TagSyntax::Members => members(value).map(unquoted).collect(),
            TagSyntax::LiteSpeed => members(value)
                .map(|tag| tag.strip_prefix(b"public:").unwrap_or(tag).to_vec())
                .collect(),
            TagSyntax::Groups => members(value)
                .filter_map(|member| Some(unquoted(split(member, b';').next()?)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: &str) -> Result<Vec<String>, Pass> {
        let tags = Tags::from_headers(&[(name.as_bytes(), value.as_bytes())])?;
        let text = |tag: &Vec<u8>| String::from_utf8(tag.clone()).unwrap();
        Ok(tags.as_slice().iter().map(text).collect())
    }

    #[test]
    fn tags_of_every_dialect_are_parsed() {
        for (name, value) in [
            ("Surrogate-Key", "post-1  home post-1"),
            ("xkey", "post-1 home"),
            ("Cache-Tags", "home,post-1"),
            ("Cache-Tag", "post-1, home"),
            ("Edge-Cache-Tag", "post-1, home"),
            ("X-Drupal-Cache-Tags", "post-1 home"),
            ("X-Magento-Tags", "post-1,home"),
            ("X-LiteSpeed-Tag", "public:post-1,home"),
            ("Cache-Groups", "\"post-1\";x=1, \"home\""),
        ] {
            assert_eq!(read(name, value).unwrap(), ["home", "post-1"], "{name}");
        }
        assert_eq!(read("Cache-Groups", "\"a, b\"").unwrap(), ["a, b"]);
        assert!(read("X-Tag", "a").unwrap().is_empty());
    }

    #[test]
    fn a_page_with_more_or_longer_tags_than_are_kept_is_not_stored() {
        let many = |n: usize| (0..n).map(|n| format!("t{n} ")).collect::<String>();
        assert_eq!(read("xkey", &many(MAX_TAGS)).unwrap().len(), MAX_TAGS);
        assert_eq!(read("xkey", &many(MAX_TAGS + 1)), Err(Pass::TooManyTags));
        assert!(read("xkey", &"x".repeat(MAX_TAG_BYTES)).is_ok());
        let long = read("xkey", &"x".repeat(MAX_TAG_BYTES + 1));
        assert_eq!(long, Err(Pass::TooManyTags));
        let mut tags = Tags::from_headers(&[(b"xkey", many(MAX_TAGS).as_bytes())]).unwrap();
        assert_eq!(tags.add(b"t7"), Ok(()));
        assert_eq!(tags.add(b"another"), Err(Pass::TooManyTags));
    }

    #[test]
    fn every_field_with_tags_is_taken_out_but_the_one_for_every_cache() {
        for name in TAG_SYNTAXES.map(|(name, _)| name.as_bytes()) {
            let taken = TAG_HEADERS.contains(&name) || is_instruction(name);
            assert_eq!(taken, name != b"cache-groups", "{}", name.escape_ascii());
        }
    }

    #[test]
    fn instruction_headers_are_recognised() {
        for name in ["X-LiteSpeed-Purge2", "x-litespeed-vary", "lsc-cookie"] {
            assert!(is_instruction(name.as_bytes()), "{name}");
        }
        for name in [
            "X-LiteSpeed",
            "X-LiteSpeed-Cache",
            "Cache-Groups",
            "Surrogate-Key",
        ] {
            assert!(!is_instruction(name.as_bytes()), "{name}");
        }
    }
}
