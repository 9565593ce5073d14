//! A site's settings for edge side includes. A page can name any URL in its tags, also because a visitor has typed one
//! into it; [`EsiRules::allows`] is the list of those that are ever requested.

use crate::cookie::matches_pattern;

/// The query parameter of the fragments of the LiteSpeed Cache plugin for WordPress.
const LITESPEED_PARAMETER: &[u8] = b"lsesi";

/// A URL that pages may include.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EsiPath {
    /// This path and everything below it.
    Below(Vec<u8>),
    /// This path with a query that has the named parameter.
    WithParameter {
        /// The decoded path.
        path: Vec<u8>,
        /// The name of the parameter, as it is written in a query.
        parameter: Vec<u8>,
    },
}

impl EsiPath {
    /// Parses an entry of `paths`: a path, a path with `?PARAMETER=`, or the name of an application.
    ///
    /// # Errors
    /// The text says what is wrong with the entry.
    pub fn parse(text: &str) -> Result<EsiPath, String> {
        match text {
            // The default of Symfony's `framework.fragments.path`.
            "symfony" => return Ok(EsiPath::Below(b"/_fragment".to_vec())),
            "litespeed" => {
                return Ok(EsiPath::WithParameter {
                    path: b"/".to_vec(),
                    parameter: LITESPEED_PARAMETER.to_vec(),
                });
            }
            _ => {}
        }
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (text, None),
        };
        let is_plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'%' | b'#' | b'\\' | b'*');
        let is_clean = path.starts_with('/')
            && path.bytes().all(is_plain)
            && !path.contains("//")
            && !path.split('/').any(|name| matches!(name, "." | ".."));
        if !is_clean {
            return Err(format!(
                "`{}` is neither a path, such as `/_fragment`, nor `symfony` or `litespeed`; a path is written without `%`, `*` and dot segments",
                text.escape_debug()
            ));
        }
        match query {
            None if path == "/" => Err(
                "`/` would let a page include every URL of the site; name the paths of fragments"
                    .to_owned(),
            ),
            None => Ok(EsiPath::Below(path.trim_end_matches('/').into())),
            Some(query) => match query.strip_suffix('=') {
                Some(name) if !name.is_empty() && !name.contains(['&', '=']) => {
                    Ok(EsiPath::WithParameter {
                        path: path.into(),
                        parameter: name.into(),
                    })
                }
                _ => Err(format!(
                    "`{}`: the query has to be the name of one parameter, such as `/?lsesi=`",
                    text.escape_debug()
                )),
            },
        }
    }

    fn matches(&self, path: &[u8], query: Option<&[u8]>) -> bool {
        match self {
            EsiPath::Below(prefix) => path
                .strip_prefix(&prefix[..])
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/")),
            EsiPath::WithParameter {
                path: own,
                parameter,
            } => {
                let has_it = |pair: &[u8]| {
                    pair.strip_prefix(&parameter[..])
                        .is_some_and(|rest| rest.starts_with(b"="))
                };
                path == own && query.is_some_and(|q| q.split(|b| *b == b'&').any(has_it))
            }
        }
    }
}

/// `[site.esi]`: which URLs may be included, and which cookies only fragments read.
#[derive(Clone, Debug, Default)]
pub struct EsiRules {
    /// `paths`: the URLs that may be included.
    pub paths: Vec<EsiPath>,
    /// `cookies`: names of cookies that only fragments read; a `*` at the end matches any ending.
    pub cookies: Vec<String>,
}

impl EsiRules {
    /// Returns whether a URL may be included. `path` is the decoded and cleaned path.
    pub fn allows(&self, path: &[u8], query: Option<&[u8]>) -> bool {
        self.paths.iter().any(|own| own.matches(path, query))
    }

    /// Returns whether the fragments of the LiteSpeed Cache plugin for WordPress may be included.
    pub fn has_litespeed_fragments(&self) -> bool {
        self.paths.iter().any(|path| match path {
            EsiPath::WithParameter { parameter, .. } => parameter == LITESPEED_PARAMETER,
            EsiPath::Below(_) => false,
        })
    }

    /// Returns whether only fragments read a cookie of this name, read as PHP reads it.
    pub fn is_cookie_of_fragments(&self, name: &[u8]) -> bool {
        self.cookies.iter().any(|own| matches_pattern(own, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(entry: &str, path: &str, query: Option<&str>) -> bool {
        let rules = EsiRules {
            paths: vec![EsiPath::parse(entry).unwrap()],
            ..EsiRules::default()
        };
        rules.allows(path.as_bytes(), query.map(str::as_bytes))
    }

    #[test]
    fn path_allows_itself_and_what_is_below() {
        for entry in ["/_fragment", "/_fragment/", "symfony"] {
            assert!(allows(entry, "/_fragment", None));
            assert!(allows(entry, "/_fragment", Some("_hash=1")));
            assert!(allows(entry, "/_fragment/a", None));
            for other in ["/_fragments", "/", "/a/_fragment", "/_Fragment"] {
                assert!(!allows(entry, other, None), "{entry} {other}");
            }
        }
        assert!(allows("/esi/cart.php", "/esi/cart.php", Some("x=1")));
    }

    #[test]
    fn parameter_is_required_where_the_entry_has_one() {
        assert!(allows("litespeed", "/", Some("lsesi=widget&_hash=1")));
        assert!(allows("/blog/?lsesi=", "/blog/", Some("a=1&lsesi=w")));
        for (path, query) in [
            ("/", None),
            ("/", Some("")),
            ("/", Some("lsesi")),
            ("/", Some("xlsesi=1")),
            ("/", Some("a=lsesi=1")),
            ("/admin", Some("lsesi=w")),
        ] {
            assert!(!allows("litespeed", path, query), "{path} {query:?}");
        }
    }

    #[test]
    fn entry_that_names_no_fragments_is_refused() {
        for entry in [
            "",
            "/",
            "fragment",
            "*",
            "/a*",
            "/a/../b",
            "//a",
            "/a%20b",
            "/?",
            "/?a",
            "/?a=1",
            "/?=",
            "/?a&b=",
            "http://a/b",
            "/a b",
        ] {
            assert!(EsiPath::parse(entry).is_err(), "{entry}");
        }
    }

    #[test]
    fn cookies_of_fragments_are_named_like_ignored_ones() {
        let rules = EsiRules {
            cookies: vec!["cart".to_owned(), "PHPSESS*".to_owned()],
            ..EsiRules::default()
        };
        assert!(rules.is_cookie_of_fragments(b"cart"));
        assert!(rules.is_cookie_of_fragments(b"PHPSESSID"));
        assert!(!rules.is_cookie_of_fragments(b"carts"));
    }
}
