//! Parses purge commands: headers of a response, arguments of a command or a script. This is pure: it turns text into
//! [`PurgeCommand`]s, which `generation` carries out. A command that cannot be expressed exactly purges more than was
//! requested, never less; one that cannot be parsed is refused.

use std::fmt;

use crate::Millis;
use crate::field;
use crate::generation::{Force, Purge, canonical};
use crate::tags::{MAX_TAG_BYTES, TagSyntax};

/// Maximum number of purges that one response may request; more than these purge the whole site.
const MAX_PURGES_PER_RESPONSE: usize = 1024;
/// Longest path or prefix that can be purged, in bytes.
const MAX_PATH_BYTES: usize = 8192;

/// A purge to be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeCommand {
    /// Which pages are purged.
    pub what: Purge,
    /// Whether the purged pages may still be served for a while.
    pub is_soft: bool,
}

impl PurgeCommand {
    /// Returns the force of the purge if it is carried out at `now`.
    pub fn force(&self, now: Millis) -> Force {
        match self.is_soft {
            true => Force::Soft { at: now },
            false => Force::Hard,
        }
    }
}

/// Returns the purges that a response requests: LiteSpeed's headers on any response, `Cache-Group-Invalidation` only on
/// the response to an unsafe method (RFC 9875 §3).
pub fn response_purges<'a>(
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    is_safe: bool,
) -> Vec<PurgeCommand> {
    let mut commands = Vec::new();
    for (name, value) in fields {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name.len() {
            17 | 18 if is_litespeed_purge(name) => {
                parse_litespeed(value, Scope::Public, &mut commands);
            }
            24 if is("cache-group-invalidation") && !is_safe => {
                let groups = TagSyntax::Groups.parse(value).into_iter();
                commands.extend(groups.map(|group| PurgeCommand {
                    what: Purge::Tag(group),
                    is_soft: false,
                }));
            }
            _ => {}
        }
    }
    if commands.len() > MAX_PURGES_PER_RESPONSE {
        return vec![PurgeCommand {
            what: Purge::All,
            is_soft: commands.iter().all(|command| command.is_soft),
        }];
    }
    commands
}

/// Returns whether a header of that name may request a purge.
pub fn is_command_field(name: &[u8]) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    match name.len() {
        17 => is("x-litespeed-purge"),
        18 => is("x-litespeed-purge2"),
        24 => is("cache-group-invalidation"),
        _ => false,
    }
}

/// Returns what a response requests to be purged of its visitor's private pages (`X-LiteSpeed-Purge: private,…`). A soft
/// purge removes them, too.
pub fn private_purges<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Vec<Purge> {
    let mut commands = Vec::new();
    for (_, value) in fields.filter(|(name, _)| is_litespeed_purge(name)) {
        parse_litespeed(value, Scope::Private, &mut commands);
    }
    match commands.len() > MAX_PURGES_PER_RESPONSE {
        true => vec![Purge::All],
        false => commands.into_iter().map(|command| command.what).collect(),
    }
}

fn is_litespeed_purge(name: &[u8]) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    is("x-litespeed-purge") || is("x-litespeed-purge2")
}

/// Whose pages a clause of `X-LiteSpeed-Purge` concerns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Public,
    Private,
}

/// Parses `X-LiteSpeed-Purge: [public,|private,][stale,]item, …; …` as OpenLiteSpeed's cache.cpp (processPurge2) and
/// LiteSpeed's developer's guide describe it, and adds the purges of one scope. An item is `*`, `tag=NAME` or the bare
/// `NAME` of a tag, or `/path`; a `~s` after it means stale. In LiteSpeed, a star may be at either end of a tag; here
/// such a tag purges everything.
fn parse_litespeed(value: &[u8], wanted: Scope, commands: &mut Vec<PurgeCommand>) {
    for clause in value.split(|b| *b == b';') {
        let (mut scope, mut stale) = (Scope::Public, false);
        for (at, item) in clause
            .split(|b| *b == b',')
            .map(<[u8]>::trim_ascii)
            .filter(|item| !item.is_empty())
            .enumerate()
        {
            match (at, &item.to_ascii_lowercase()[..]) {
                (0, b"private") => scope = Scope::Private,
                (0, b"public") => {}
                (0 | 1, b"stale") => stale = true,
                _ if scope != wanted => {}
                _ => commands.push(litespeed_item(item, stale)),
            }
        }
    }
}

fn litespeed_item(item: &[u8], stale: bool) -> PurgeCommand {
    let bare = item
        .strip_suffix(b"~stale")
        .or_else(|| item.strip_suffix(b"~s"));
    let is_soft = stale || bare.is_some();
    let item = bare.unwrap_or(item);
    let what = match item {
        [b'/', ..] => parse_path(item),
        _ => {
            let tag = item.strip_prefix(b"tag=").unwrap_or(item);
            match tag.contains(&b'*') || tag.is_empty() {
                true => Purge::All,
                false => Purge::Tag(tag.to_vec()),
            }
        }
    };
    PurgeCommand { what, is_soft }
}

/// Parses a path, or with `*` at its end a prefix.
fn parse_path(text: &[u8]) -> Purge {
    match text.strip_suffix(b"*") {
        Some(b"/") => Purge::All,
        Some(prefix) => Purge::Path {
            text: prefix.to_vec(),
            exact: false,
        },
        None => Purge::Path {
            text: text.to_vec(),
            exact: true,
        },
    }
}

/// A purge that a person or a script requests in one word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeArgument {
    /// The host of the URL, if the word was a URL.
    pub host: Option<String>,
    /// Which pages are purged.
    pub what: Purge,
}

/// Why a word does not name anything that can be purged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurgeArgumentError {
    /// The word is neither a path, a URL, `tag:NAME` nor `*`.
    BadUrl(String),
    /// The word is longer than a path or tag can be.
    TooLong(usize),
}

impl fmt::Display for PurgeArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PurgeArgumentError::BadUrl(word) => write!(
                f,
                "BadUrl: `{word}` is neither a path (`/…`), a URL (`http://host/…`), `tag:NAME` nor `*`"
            ),
            PurgeArgumentError::TooLong(length) => write!(
                f,
                "BadUrl: {length} bytes are too long for a path (at most {MAX_PATH_BYTES}) and for a tag (at most {MAX_TAG_BYTES})"
            ),
        }
    }
}

impl std::error::Error for PurgeArgumentError {}

/// Parses a word: `*` for everything, `tag:NAME`, or `/path` or `https://host/path` with all its queries, the last two
/// with `*` at the end for a prefix. A fragment is not part of a page's name.
pub fn parse_argument(word: &str) -> Result<PurgeArgument, PurgeArgumentError> {
    if word.len() > MAX_PATH_BYTES {
        return Err(PurgeArgumentError::TooLong(word.len()));
    }
    let bad = || PurgeArgumentError::BadUrl(word.to_owned());
    if word == "*" {
        return Ok(PurgeArgument {
            host: None,
            what: Purge::All,
        });
    }
    if let Some(tag) = word.strip_prefix("tag:") {
        return match tag.len() {
            0 => Err(bad()),
            1..=MAX_TAG_BYTES => Ok(PurgeArgument {
                host: None,
                what: Purge::Tag(tag.as_bytes().to_vec()),
            }),
            _ => Err(PurgeArgumentError::TooLong(word.len())),
        };
    }
    let word = word.split('#').next().unwrap_or_default();
    let rest = word
        .strip_prefix("http://")
        .or_else(|| word.strip_prefix("https://"));
    let (host, target) = match rest {
        Some(rest) => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            let (host, target) = rest.split_at(end);
            if host.is_empty() || host == "*" {
                return Err(bad());
            }
            (Some(host.to_owned()), target)
        }
        None if word.starts_with('/') => (None, word),
        None => return Err(bad()),
    };
    // `http://host` and `http://host?query` mean the path `/`.
    let target = match target.starts_with('/') {
        true => target.to_owned(),
        false => format!("/{target}"),
    };
    let what = match (host.is_some(), &target[..]) {
        // Everything of the host's site: `Purge::All` itself has no host.
        (_, "/*") => Purge::All,
        (_, target) => parse_path(target.as_bytes()),
    };
    Ok(PurgeArgument { host, what })
}

/// Parses Magento's `X-Magento-Tags-Pattern` (Magento\CacheInvalidate\Model\PurgeCache): `.*` for everything, or
/// `((^|,)TAG(,|$))` joined by `|`. Returns `None` for any other expression.
pub fn parse_magento_pattern(pattern: &[u8]) -> Option<Vec<Purge>> {
    if pattern == b".*" {
        return Some(vec![Purge::All]);
    }
    let text = std::str::from_utf8(pattern).ok()?;
    let mut purges = Vec::new();
    for part in text.split("))|((") {
        let part = part.strip_prefix("((").unwrap_or(part);
        let part = part.strip_suffix("))").unwrap_or(part);
        let tag = part.strip_prefix("^|,)")?.strip_suffix("(,|$")?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b':' | b'/');
        if tag.is_empty() || tag.len() > MAX_TAG_BYTES || !tag.bytes().all(plain) {
            return None;
        }
        purges.push(Purge::Tag(tag.as_bytes().to_vec()));
    }
    (purges.len() <= MAX_PURGES_PER_RESPONSE).then_some(purges)
}

/// Parses a path in the form in which plugins for Varnish write it as an expression: text with `.*` at its end, dots
/// and slashes escaped or not, `^` and `$` around it. Returns `None` for any other expression.
pub fn parse_prefix_pattern(pattern: &[u8]) -> Option<Purge> {
    let text = pattern.strip_prefix(b"^").unwrap_or(pattern);
    let text = text.strip_suffix(b"$").unwrap_or(text);
    let text = text.strip_suffix(b".*")?;
    let mut prefix = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => match bytes.next() {
                Some(escaped) if !escaped.is_ascii_alphanumeric() => prefix.push(*escaped),
                _ => return None,
            },
            b'*' | b'+' | b'?' | b'[' | b']' | b'(' | b')' | b'{' | b'}' | b'|' | b'^' | b'$' => {
                return None;
            }
            other => prefix.push(*other),
        }
    }
    Some(match &prefix[..] {
        [] | [b'/'] => Purge::All,
        [b'/', ..] => Purge::Path {
            text: prefix,
            exact: false,
        },
        _ => return None,
    })
}

/// Parses a path that can only be an expression, although nothing declares it as one: W3 Total Cache (2.10,
/// Varnish_Flush, `pgcache.purge.sitemap_regex`) sends `/([a-z0-9_\-]*?)sitemap([a-z0-9_\-]*)?\.(?:xml|xsl)` with every
/// post, percent-encoded or not. The purge covers everything with the prefix that the expression has before its first
/// special character. Parentheses and stars alone are literal, since MediaWiki's titles contain them. Returns `None`
/// for an ordinary path.
pub fn parse_undeclared_expression(path: &[u8], query: Option<&[u8]>) -> Option<Purge> {
    let text = [path, query.unwrap_or_default()];
    let path = canonical(path);
    if !path.iter().any(|b| b"[]{}\\^|".contains(b)) {
        return None;
    }
    // After a bar, a path with any beginning may match.
    let bar = |text: &[u8]| text == b"|" || text.eq_ignore_ascii_case(b"%7c");
    if text
        .iter()
        .any(|text| text.windows(1).chain(text.windows(3)).any(bar))
    {
        return Some(Purge::All);
    }
    let end = path.iter().position(|b| b"%()[]{}\\^$*+.".contains(b));
    let mut prefix = &path[..end.unwrap_or(path.len())];
    // The character before these is optional.
    if matches!(path.get(prefix.len()), Some(b'*' | b'{')) {
        prefix = &prefix[..prefix.len().saturating_sub(1)];
    }
    Some(match prefix {
        [] | [b'/'] => Purge::All,
        prefix => Purge::Path {
            text: prefix.to_vec(),
            exact: false,
        },
    })
}

/// Returns purges of the tags that a header of a purge request lists.
pub fn tag_purges(syntax: TagSyntax, value: &[u8]) -> Option<Vec<Purge>> {
    let tags = syntax.parse(value);
    let fits =
        tags.len() <= MAX_PURGES_PER_RESPONSE && tags.iter().all(|tag| tag.len() <= MAX_TAG_BYTES);
    fits.then(|| tags.into_iter().map(Purge::Tag).collect())
}

/// Returns whether a header value is a number other than zero: `Fastly-Soft-Purge: 1`.
pub fn is_nonzero(value: &[u8]) -> bool {
    field::seconds(value.trim_ascii()).is_some_and(|n| n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(name: &str) -> Purge {
        Purge::Tag(name.as_bytes().to_vec())
    }

    fn url(text: &str, exact: bool) -> Purge {
        let text = text.as_bytes().to_vec();
        Purge::Path { text, exact }
    }

    fn commands(name: &str, value: &str, is_safe: bool) -> Vec<(Purge, Force)> {
        let fields = [(name.as_bytes(), value.as_bytes())];
        response_purges(fields.into_iter(), is_safe)
            .into_iter()
            .map(|command| (command.what.clone(), command.force(0)))
            .collect()
    }

    #[test]
    fn litespeed_purge_clauses_are_parsed() {
        const SOFT: Force = Force::Soft { at: 0 };
        use Force::Hard;
        for (value, expected) in [
            ("*", vec![(Purge::All, Hard)]),
            ("public,*", vec![(Purge::All, Hard)]),
            (
                "public,abc_Po.1,abc_F",
                vec![(tag("abc_Po.1"), Hard), (tag("abc_F"), Hard)],
            ),
            ("stale,tag=x", vec![(tag("x"), SOFT)]),
            ("public,stale,x", vec![(tag("x"), SOFT)]),
            (
                "x~s, y~stale, z",
                vec![(tag("x"), SOFT), (tag("y"), SOFT), (tag("z"), Hard)],
            ),
            ("/a/b?c", vec![(url("/a/b?c", true), Hard)]),
            ("/a/*", vec![(url("/a/", false), Hard)]),
            ("tag=pre*", vec![(Purge::All, Hard)]),
            ("private,*", vec![]),
            ("public,x;private,*", vec![(tag("x"), Hard)]),
            ("", vec![]),
        ] {
            assert_eq!(
                commands("X-LiteSpeed-Purge", value, true),
                expected,
                "{value}"
            );
            assert_eq!(commands("x-litespeed-purge2", value, false), expected);
        }
    }

    #[test]
    fn private_clauses_are_purges_of_the_visitors_own_pages() {
        let purges = |value: &str| {
            let fields = [(&b"X-LiteSpeed-Purge"[..], value.as_bytes())];
            private_purges(fields.into_iter())
        };
        for (value, expected) in [
            ("private,*", vec![Purge::All]),
            ("Private, tag=cart, other", vec![tag("cart"), tag("other")]),
            ("private,/cart/", vec![url("/cart/", true)]),
            ("private,/cart/*", vec![url("/cart/", false)]),
            ("public,x;private,stale,tag=y;z", vec![tag("y")]),
            ("private,pre*", vec![Purge::All]),
            ("*", vec![]),
            ("public,private", vec![]),
            ("private", vec![]),
        ] {
            assert_eq!(purges(value), expected, "{value}");
        }
        let many = format!("private,{}", "x,".repeat(MAX_PURGES_PER_RESPONSE + 1));
        assert_eq!(purges(&many), vec![Purge::All]);
    }

    #[test]
    fn rfc_9875_3_a_group_is_invalidated_by_an_unsafe_method_only() {
        let name = "Cache-Group-Invalidation";
        let expected = vec![(tag("a"), Force::Hard), (tag("b"), Force::Hard)];
        assert_eq!(commands(name, "\"a\", \"b\"", false), expected);
        assert!(commands(name, "\"a\", \"b\"", true).is_empty());
    }

    #[test]
    fn undeclared_expression_purges_its_prefix() {
        for (target, what) in [
            (
                "/([a-z0-9_\\-]*?)sitemap([a-z0-9_\\-]*)?\\.(?:xml|xsl)",
                Some(Purge::All),
            ),
            (
                "/(%5Ba-z0-9_%5C-%5D*?)sitemap%5C.(?:xml%7Cxsl)",
                Some(Purge::All),
            ),
            ("/blog/[a-z]*", Some(url("/blog/", false))),
            ("/blog/a*[b]", Some(url("/blog/", false))),
            ("/blog[0-9]?c%7cd", Some(Purge::All)),
            ("/caf%C3%A9/ab%7B2%7D", Some(url("/caf\u{e9}/a", false))),
            ("/wiki/Title_(film)", None),
            ("/wiki/C*", None),
            ("/?filter[a]=1", None),
        ] {
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let parsed = parse_undeclared_expression(path.as_bytes(), Some(query.as_bytes()));
            assert_eq!(parsed, what, "{target}");
        }
    }

    #[test]
    fn too_many_purges_in_a_response_purge_everything() {
        let many = "x,".repeat(MAX_PURGES_PER_RESPONSE + 1);
        let all = vec![(Purge::All, Force::Hard)];
        assert_eq!(commands("X-LiteSpeed-Purge", &many, true), all);
    }

    #[test]
    fn purge_argument_is_a_path_a_url_a_tag_or_everything() {
        let check = |word: &str, host: Option<&str>, what: Purge| {
            let host = host.map(str::to_owned);
            assert_eq!(
                parse_argument(word),
                Ok(PurgeArgument { host, what }),
                "{word}"
            );
        };
        check("*", None, Purge::All);
        check("/*", None, Purge::All);
        check("/a", None, url("/a", true));
        check("/a?b=1", None, url("/a?b=1", true));
        check("/a*", None, url("/a", false));
        check("tag:post-1", None, tag("post-1"));
        check("https://h/a#b", Some("h"), url("/a", true));
        check("http://h", Some("h"), url("/", true));
        check("http://h?x", Some("h"), url("/?x", true));
        check("http://h/*", Some("h"), Purge::All);
        for bad in ["", "a", "tag:", "ftp://h/", "http:///a", "http://*"] {
            assert!(
                matches!(parse_argument(bad), Err(PurgeArgumentError::BadUrl(_))),
                "{bad}"
            );
        }
        let long = format!("/{}", "x".repeat(MAX_PATH_BYTES));
        assert_eq!(
            parse_argument(&long),
            Err(PurgeArgumentError::TooLong(MAX_PATH_BYTES + 1))
        );
    }

    #[test]
    fn expressions_of_known_forms_are_read_and_others_refused() {
        let read = |text: &str| parse_magento_pattern(text.as_bytes());
        assert_eq!(read(".*"), Some(vec![Purge::All]));
        assert_eq!(read("((^|,)cat_p_1(,|$))"), Some(vec![tag("cat_p_1")]));
        let two = "((^|,)cat_p_1(,|$))|((^|,)cms_b(,|$))";
        assert_eq!(read(two), Some(vec![tag("cat_p_1"), tag("cms_b")]));
        for bad in ["", "cat_p_1", "((^|,)a.*(,|$))", "((^|,)(,|$))", "(("] {
            assert_eq!(read(bad), None, "{bad}");
        }
        let read = |text: &str| parse_prefix_pattern(text.as_bytes());
        assert_eq!(read("/.*"), Some(Purge::All));
        assert_eq!(read(".*"), Some(Purge::All));
        assert_eq!(read("^/blog/.*$"), Some(url("/blog/", false)));
        assert_eq!(read("/a\\.b.*"), Some(url("/a.b", false)));
        for bad in ["/a", "/(a|b).*", "/a\\d.*", "a.*", "/a.*b.*"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
