//! The key of a stored page: site, scheme, host, path, query, and the values of the headers by which the response
//! varies. The key contains the whole text, so two URLs can never collide through a hash.
//!
//! A request whose URL another program could read differently gets a [`Pass`] instead of a key: nothing is normalised
//! without the router's knowledge. The only change, the removal of tracking parameters, also applies to what the script
//! sees ([`PageKey::target`]).

use crate::cookie::{php_name, url_decode};
use crate::pass::Pass;
use crate::preset::{NamePattern, TRACKING_PARAMETERS};

/// Longest query of a page that is cached, in bytes.
const MAX_QUERY_BYTES: usize = 2048;
/// Longest host name in a key, in bytes.
const MAX_HOST_BYTES: usize = 255;

/// The parts of a request from which its key is made.
#[derive(Clone, Copy, Debug)]
pub struct Url<'a> {
    /// The number of the site in the configuration.
    pub site: u32,
    /// Whether the client's connection is encrypted.
    pub https: bool,
    /// The host as the client named it, with the port if there was one.
    pub host: &'a [u8],
    /// The path as it arrived, percent-encoded.
    pub path: &'a [u8],
    /// The text after the first `?`.
    pub query: Option<&'a [u8]>,
}

/// Which query parameters the cache ignores or excludes.
#[derive(Clone, Copy, Debug)]
pub struct QueryRules<'a> {
    /// Whether tracking parameters are omitted from the key.
    pub drop_tracking: bool,
    /// Names of further parameters that are omitted from the key.
    pub ignored: &'a [String],
    /// Names of parameters that exclude a request from the cache.
    pub excluded: &'a [NamePattern],
}

/// The key of a URL. It is reused for the next request: [`PageKey::make`] overwrites it.
#[derive(Clone, Debug, Default)]
pub struct PageKey {
    bytes: Vec<u8>,
    /// The offset at which the path begins.
    target: usize,
    /// The offset at which the query begins, after its `?`.
    query: Option<usize>,
    host: (usize, usize),
}

impl PageKey {
    /// Builds the key of `url` in place.
    pub fn make(&mut self, url: &Url<'_>, rules: &QueryRules<'_>) -> Result<(), Pass> {
        self.bytes.clear();
        self.bytes.extend_from_slice(&url.site.to_le_bytes());
        self.bytes.push(u8::from(url.https));
        self.host.0 = self.bytes.len();
        host(&mut self.bytes, url)?;
        self.host.1 = self.bytes.len();
        self.bytes.push(0);
        self.target = self.bytes.len();
        if is_ambiguous(url.path) {
            return Err(Pass::AmbiguousPath);
        }
        self.bytes.extend_from_slice(url.path);
        self.query = None;
        let Some(text) = url.query else {
            return Ok(());
        };
        // A NUL ends the target within a variant's key. The HTTP parser lets no NUL pass.
        if text.len() > MAX_QUERY_BYTES || text.contains(&0) {
            return Err(Pass::UnreadableQuery);
        }
        let start = self.bytes.len() + 1;
        if !rules.drop_tracking {
            self.bytes.push(b'?');
            self.bytes.extend_from_slice(text);
        }
        for pair in text.split(|b| *b == b'&') {
            let end = pair.iter().position(|b| *b == b'=').unwrap_or(pair.len());
            if end == 0 {
                // PHP registers no variable without a name, but the application still sees the text.
                if pair.is_empty() && rules.drop_tracking {
                    continue;
                }
            } else {
                let name = parameter_name(&pair[..end])?;
                if rules.excluded.iter().any(|never| never.matches(&name)) {
                    return Err(Pass::NeverCachedParameter);
                }
                if name == b"_method" {
                    return Err(Pass::MethodOverride);
                }
                let tracking = || TRACKING_PARAMETERS.iter().any(|known| known.matches(&name));
                let ignored = || rules.ignored.iter().any(|i| i.as_bytes() == &*name);
                if rules.drop_tracking && (tracking() || ignored()) {
                    continue;
                }
            }
            if rules.drop_tracking {
                self.bytes
                    .push(if self.bytes.len() < start { b'?' } else { b'&' });
                self.bytes.extend_from_slice(pair);
            }
        }
        self.query = (self.bytes.len() >= start).then_some(start);
        Ok(())
    }

    /// Returns the key's bytes, by which the stores look up pages.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the host as it is in the key: in lower case, without a default port.
    pub fn push_host(&self) -> &[u8] {
        &self.bytes[self.host.0..self.host.1]
    }

    /// Returns the path and query that the script of a shared page sees.
    pub fn target(&self) -> &[u8] {
        &self.bytes[self.target..]
    }

    /// Returns the query of [`PageKey::target`].
    pub fn query(&self) -> Option<&[u8]> {
        self.query.map(|at| &self.bytes[at..])
    }

    /// Returns the key of the variant for a request that has these headers. It contains the values as PHP sees them,
    /// byte by byte: RFC 9111 §4.1 would allow `de,en` and `, de , en` to be treated as equal, but an application that
    /// inspects the first two letters makes two different pages of them.
    pub fn variant_key<'f>(
        &self,
        names: &[Vec<u8>],
        values: impl Fn(&[u8], &mut dyn FnMut(&[u8])) + 'f,
    ) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        // No target contains a NUL, so no other URL's key begins like this.
        bytes.extend_from_slice(b"\0v");
        for name in names {
            bytes.extend_from_slice(name);
            bytes.push(0);
            values(name, &mut |line| {
                bytes.extend_from_slice(line);
                // This byte ends a line, which contains no control character except tab. It is also written for an
                // empty line.
                bytes.push(1);
            });
            bytes.push(0);
        }
        bytes
    }
}

/// Returns the path and query of a URL's key.
pub fn target_of(key: &[u8]) -> &[u8] {
    // The key begins with the site number and the scheme, then the host, which contains no NUL.
    let rest = key.get(5..).unwrap_or_default();
    let nul = rest.iter().position(|b| *b == 0);
    nul.map_or(&b""[..], |at| &rest[at + 1..])
}

/// Appends the canonical host (RFC 9110 §4.2.3).
fn host(out: &mut Vec<u8>, url: &Url<'_>) -> Result<(), Pass> {
    let default: &[u8] = if url.https { b":443" } else { b":80" };
    let name = url.host.strip_suffix(default).unwrap_or(url.host);
    let (name, port) = match name.iter().rposition(|b| *b == b':') {
        Some(at) if !name[at..].contains(&b']') => name.split_at(at),
        _ => (name, &b""[..]),
    };
    let name = name.strip_suffix(b".").unwrap_or(name);
    let fits =
        |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':' | b'[' | b']');
    let bad_port = port.len() == 1 || !port.iter().skip(1).all(u8::is_ascii_digit);
    if name.is_empty() || url.host.len() > MAX_HOST_BYTES || !name.iter().all(fits) || bad_port {
        return Err(Pass::NoHost);
    }
    out.extend(name.iter().map(u8::to_ascii_lowercase));
    out.extend_from_slice(port);
    Ok(())
}

/// Returns the name that PHP gives to a parameter.
fn parameter_name(raw: &[u8]) -> Result<Vec<u8>, Pass> {
    let name = php_name(raw).map_err(|_| Pass::UnreadableQuery)?;
    Ok(name.into_owned())
}

/// Returns whether routers, file systems and applications may disagree about the path, which cache deception exploits:
/// empty and dot segments, encoded slashes, backslashes and control characters.
fn is_ambiguous(path: &[u8]) -> bool {
    if !path.starts_with(b"/") {
        return true;
    }
    let mut segments = path[1..].split(|b| *b == b'/').peekable();
    while let Some(segment) = segments.next() {
        // Only the last segment may be empty: that is a directory.
        if (segment.is_empty() && segments.peek().is_some()) || matches!(segment, b"." | b"..") {
            return true;
        }
        if segment.contains(&b'%') {
            let decoded = url_decode(segment);
            let strange =
                |b: &u8| matches!(b, b'/' | b'\\' | b'#' | b'?' | b';') || b.is_ascii_control();
            if decoded.iter().any(strange) || matches!(&decoded[..], b"." | b"..") {
                return true;
            }
        }
        if segment.iter().any(|b| matches!(b, b'\\' | b';' | 0)) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::Preset;
    use proptest::prelude::*;

    const RULES: QueryRules<'_> = QueryRules {
        drop_tracking: true,
        ignored: &[],
        excluded: &[],
    };

    fn url<'a>(host: &'a str, target: &'a str) -> Url<'a> {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.as_bytes())),
            None => (target, None),
        };
        Url {
            site: 0,
            https: false,
            host: host.as_bytes(),
            path: path.as_bytes(),
            query,
        }
    }

    fn target(host: &str, text: &str) -> Result<String, Pass> {
        let mut key = PageKey::default();
        key.make(&url(host, text), &RULES)?;
        Ok(String::from_utf8(key.target().to_vec()).unwrap())
    }

    #[test]
    fn tracking_parameters_are_removed_from_key_and_target() {
        let check = |from: &str, to: &str| assert_eq!(target("a", from).as_deref(), Ok(to));
        check("/p?utm_source=x&id=3&fbclid=y", "/p?id=3");
        check("/p?utm%5fsource=x", "/p");
        check("/p?utm.source=x", "/p");
        check("/p?utm_source[]=x", "/p");
        check("/p?gclid", "/p");
        check("/p?", "/p");
        check("/p?a=1&a=2", "/p?a=1&a=2");
        check("/p?a=1;utm_source=2", "/p?a=1;utm_source=2");
        check("/p?xutm_source=1", "/p?xutm_source=1");
    }

    #[test]
    fn a_parameter_the_application_never_wants_cached_passes_however_it_is_written() {
        let rules = QueryRules {
            excluded: Preset::find("wordpress").unwrap().never_parameters,
            ..RULES
        };
        for text in [
            "/?preview=1",
            "/?%70review=1",
            "/?a=1&s=x",
            "/?add-to-cart=3",
            "/?s[]=x",
        ] {
            let made = PageKey::default().make(&url("a", text), &rules);
            assert_eq!(made, Err(Pass::NeverCachedParameter), "{text}");
        }
        let made = PageKey::default().make(&url("a", "/?_method=DELETE"), &rules);
        assert_eq!(made, Err(Pass::MethodOverride));
    }

    #[test]
    fn equal_hosts_share_a_key_and_others_do_not() {
        let key = |host: &str, https: bool| {
            let mut key = PageKey::default();
            let url = Url {
                https,
                ..url(host, "/")
            };
            key.make(&url, &RULES).map(|()| key.as_bytes().to_vec())
        };
        let one = key("example.org", false).unwrap();
        for same in ["Example.ORG", "example.org:80", "example.org."] {
            assert_eq!(key(same, false).unwrap(), one, "{same}");
        }
        for other in ["example.org:8080", "example.com"] {
            assert_ne!(key(other, false).unwrap(), one, "{other}");
        }
        assert_ne!(key("example.org", true).unwrap(), one);
        for bad in ["", "a b", "a:x", "a:", "u@h", "a/b", "a\0b"] {
            assert_eq!(key(bad, false), Err(Pass::NoHost), "{bad:?}");
        }
    }

    /// Found by fuzzing: the key of one URL could equal the key of another URL's variant.
    #[test]
    fn a_nul_in_a_query_is_not_cached() {
        for query in ["/a?b=\0c", "/a?utm_source=x\0v", "/a?\0"] {
            assert_eq!(target("a", query), Err(Pass::UnreadableQuery));
        }
    }

    #[test]
    fn ambiguous_path_is_not_cached() {
        for path in [
            "//a",
            "/a//b",
            "/./a",
            "/a/..",
            "/a/%2e%2e/b",
            "/a%2fb",
            "/a%5cb",
            "/a\\b",
            "/a%00b",
            "/a%0ab",
            "/account;x.css",
            "/a%3b.css",
            "/a%3fb",
            "/a%23b",
            "a",
        ] {
            assert_eq!(target("a", path), Err(Pass::AmbiguousPath), "{path}");
        }
        for path in ["/", "/a/", "/a.b/c-d", "/%C3%A4", "/a%20b"] {
            assert_eq!(target("a", path).as_deref(), Ok(path));
        }
    }

    #[test]
    fn variants_differ_by_everything_php_can_tell_apart() {
        let mut key = PageKey::default();
        key.make(&url("a", "/"), &RULES).unwrap();
        let names = [b"accept-language".to_vec(), b"foo".to_vec()];
        let of = |fields: &[(&str, &str)]| {
            key.variant_key(&names, |name, each| {
                for (_, value) in fields.iter().filter(|(n, _)| n.as_bytes() == name) {
                    each(value.as_bytes());
                }
            })
        };
        assert_eq!(of(&[("foo", "a,b")]), of(&[("foo", "a,b")]));
        for other in ["a, b", ",a,b", "a,,b", "a,b,", "A,b"] {
            assert_ne!(of(&[("foo", "a,b")]), of(&[("foo", other)]), "{other}");
        }
        assert_ne!(of(&[("foo", "a")]), of(&[("foo", "b")]));
        assert_ne!(of(&[("foo", "")]), of(&[]));
        assert_ne!(of(&[("accept-language", "a")]), of(&[("foo", "a")]));
        assert_ne!(of(&[("foo", "a,b")]), of(&[("foo", "a"), ("foo", "b")]));
    }

    proptest! {
        #[test]
        fn any_url_gives_a_key_or_a_reason(host in "\\PC{0,20}", path in "\\PC{0,40}", query in "\\PC{0,40}") {
            let url = Url { site: 1, https: true, host: host.as_bytes(), path: path.as_bytes(), query: Some(query.as_bytes()) };
            let mut key = PageKey::default();
            if key.make(&url, &RULES).is_ok() {
                prop_assert!(key.target().starts_with(path.as_bytes()));
                prop_assert!(!key.target().contains(&0));
                // A query that has been reduced once is not changed again.
                let again = key.query().map(<[u8]>::to_vec);
                let mut second = PageKey::default();
                second.make(&Url { query: again.as_deref(), ..url }, &RULES).unwrap();
                prop_assert_eq!(second.as_bytes(), key.as_bytes());
            }
        }
    }
}
