//! The target of a purge: pages by key, path or tag, compared in one canonical form.

use std::borrow::Cow;
use std::fmt;

use percent_encoding::percent_decode;

use crate::Millis;
use crate::key::target_of;

/// Which pages a purge concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purge {
    /// All pages of the site.
    All,
    /// One URL with all its variants, by its key ([`crate::key::PageKey::as_bytes`]).
    Url(Vec<u8>),
    /// A path of the site, under any host and scheme, with all its queries; or all paths with that prefix. `/%C3%A4`,
    /// `/%c3%a4` and the bytes themselves are the same path.
    Path {
        /// The path, percent-encoded or not; a query may follow.
        text: Vec<u8>,
        /// Whether only this path is purged; otherwise every path that begins with `text` is.
        exact: bool,
    },
    /// All pages that have this tag.
    Tag(Vec<u8>),
}

/// Whether purged pages may still be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// A purged page is never served again.
    Hard,
    /// A purged page is stale, as if its lifetime had ended at this time: it may be served for a while, until a new one is
    /// rendered, or if that fails.
    Soft {
        /// When the purge was carried out; 0 if that is not known, which makes the page too old to be served.
        at: Millis,
    },
}

/// Returns a URL's key without the number of its site, which may change with a reload or a start.
pub(crate) fn without_site(key: &[u8]) -> &[u8] {
    match key {
        [_, _, _, _, rest @ ..] if rest.len() > 1 => rest,
        short => short,
    }
}

/// Returns the form in which targets are compared: the path's escapes are decoded, and the query is unchanged. No two
/// stored paths have the same form: a path with an encoded slash, `?` or control character is never cached.
pub(crate) fn canonical(target: &[u8]) -> Cow<'_, [u8]> {
    let path = path_of(target);
    match Cow::from(percent_decode(path)) {
        Cow::Borrowed(_) => Cow::Borrowed(target),
        Cow::Owned(mut decoded) => {
            decoded.extend_from_slice(&target[path.len()..]);
            Cow::Owned(decoded)
        }
    }
}

/// Returns a target whose canonical form is `canonical`.
pub(super) fn encoded(canonical: &[u8]) -> Vec<u8> {
    let path = path_of(canonical);
    let mut out = Vec::with_capacity(canonical.len());
    for byte in path {
        match byte {
            b'%' => out.extend_from_slice(b"%25"),
            other => out.push(*other),
        }
    }
    out.extend_from_slice(&canonical[path.len()..]);
    out
}

/// Returns a target without its query.
pub(super) fn path_of(target: &[u8]) -> &[u8] {
    target.split(|b| *b == b'?').next().unwrap_or_default()
}

impl Purge {
    /// Returns whether this purge concerns a page of its site with this key and these tags.
    pub fn concerns(&self, url_key: &[u8], tags: &[Vec<u8>]) -> bool {
        let target = canonical(target_of(url_key));
        match self {
            Purge::All => true,
            Purge::Url(key) => without_site(key) == without_site(url_key),
            Purge::Tag(tag) => tags.contains(tag),
            Purge::Path { text, exact: true } => {
                let text = canonical(text);
                *text == *target || *text == *path_of(&target)
            }
            Purge::Path { text, exact: false } => target.starts_with(&canonical(text)),
        }
    }
}

impl fmt::Display for Purge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Purge::All => f.write_str("everything"),
            Purge::Url(key) => write!(f, "{}", key.escape_ascii()),
            Purge::Tag(tag) => write!(f, "tag {}", tag.escape_ascii()),
            Purge::Path { text, exact } => {
                let star = if *exact { "" } else { "*" };
                write!(f, "{}{star}", text.escape_ascii())
            }
        }
    }
}
