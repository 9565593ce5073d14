//! Patterns that select the paths of a rule: exact, prefix, glob or regular expression, and what they capture. Patterns
//! match cleaned, decoded paths (`path.rs`), so no encoding slips past a rule. This module has no side effects.
//!
//! Regular expressions match bytes; `.` matches every byte and `$` only the very end, so a `%0a` in a path cannot end a
//! match early. They run in time linear in the path, except those with look-around or other features that only PCRE has
//! ([`RuleExpression`]). One of these may reach its limit; it is then unknown whether the rule applies to the path. A
//! rule that refuses or asks for a password treats this as a match, and an exception does not. If the rule would answer
//! the request, the request is refused.

use std::fmt;

use howdah_htaccess::pattern::Groups;
pub use howdah_htaccess::pattern::LimitReached;
use howdah_htaccess::rule_expression::RuleExpression;
use regex::bytes::{Captures, Regex, RegexBuilder};

/// A pattern for the paths that a rule applies to.
#[derive(Clone, Debug)]
pub enum PathPattern {
    /// This path and no other.
    Exact(Vec<u8>),
    /// This path and all below it. `/admin` matches `/admin` and `/admin/x` but not `/administrator` (unlike nginx's
    /// `location /admin`, a well-known trap); `/img/` matches every path that begins with it. `$1` is the rest of the
    /// path.
    Prefix(Vec<u8>),
    /// `*` matches within a segment, `**` across segments, `?` one byte of a segment. `$1`, `$2` … are what the stars
    /// matched. The second value is the text of the glob.
    Glob(Regex, Box<str>),
    /// An unanchored regular expression. `$1` and `${name}` are its groups.
    Regex(Box<RuleExpression>),
}

/// Why a string is not a valid pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// Paths begin with a slash; this one would never match.
    NoLeadingSlash(String),
    /// The regular expression does not parse, or is too large; the reason.
    BadRegex(String),
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatternError::NoLeadingSlash(text) => {
                write!(f, "`{text}` would never match: paths begin with `/`")
            }
            PatternError::BadRegex(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for PatternError {}

/// The maximum size of a compiled expression, in bytes.
const MAX_REGEX_BYTES: usize = 1 << 20;

impl PathPattern {
    /// Returns a pattern that matches this path and no other.
    pub fn exact(text: &str) -> Result<PathPattern, PatternError> {
        require_leading_slash(text).map(|path| PathPattern::Exact(path.to_vec()))
    }

    /// Returns a pattern that matches this path and all paths below it.
    pub fn prefix(text: &str) -> Result<PathPattern, PatternError> {
        require_leading_slash(text).map(|path| PathPattern::Prefix(path.to_vec()))
    }

    /// Returns a glob pattern. Without a leading slash it may match below any directory: `*.log` is `/**/*.log`.
    pub fn glob(text: &str) -> Result<PathPattern, PatternError> {
        let expression = glob_expression(text) + "$";
        compile(&expression).map(|regex| PathPattern::Glob(regex, text.into()))
    }

    /// Returns the glob `text`, whose extension `.php` also stands for the other extensions that PHP has been run by,
    /// and for `extensions`.
    pub(super) fn scripts(text: &str, extensions: &[String]) -> Result<PathPattern, PatternError> {
        let mut expression = glob_expression(text.strip_suffix(".php").unwrap_or(text));
        expression += r"(?:\.(?:php[0-9s]?|phtml|pht|phar)";
        for extension in extensions {
            expression += &format!("|{}", regex::escape(extension));
        }
        expression += ")$";
        compile(&expression).map(|regex| PathPattern::Glob(regex, text.into()))
    }

    /// Returns a pattern that is a regular expression.
    pub fn regex(text: &str) -> Result<PathPattern, PatternError> {
        let expression = RuleExpression::new(text).map_err(PatternError::BadRegex)?;
        Ok(PathPattern::Regex(Box::new(expression)))
    }

    /// Returns a regular expression that matches the same paths.
    pub(super) fn to_regex(&self) -> String {
        let escaped = |bytes: &[u8]| regex::escape(&String::from_utf8_lossy(bytes));
        match self {
            PathPattern::Exact(path) => format!("^{}$", escaped(path)),
            PathPattern::Prefix(prefix) if prefix.ends_with(b"/") => {
                format!("^{}", escaped(prefix))
            }
            PathPattern::Prefix(prefix) => format!("^{}(?:/|$)", escaped(prefix)),
            PathPattern::Glob(regex, _) => regex.as_str().to_owned(),
            PathPattern::Regex(expression) => expression.as_str().to_owned(),
        }
    }

    /// Returns the name of the rule option for this kind of pattern.
    pub fn option_name(&self) -> &'static str {
        match self {
            PathPattern::Exact(_) => "path",
            PathPattern::Prefix(_) => "prefix",
            PathPattern::Glob(..) => "glob",
            PathPattern::Regex(_) => "regex",
        }
    }

    /// Returns the number of numbered captures of a match.
    pub fn capture_count(&self) -> usize {
        match self {
            PathPattern::Exact(_) => 0,
            PathPattern::Prefix(_) => 1,
            PathPattern::Glob(regex, _) => regex.captures_len() - 1,
            PathPattern::Regex(expression) => expression.groups_len() - 1,
        }
    }

    /// Returns whether the pattern has a capture of that name.
    pub fn has_capture(&self, name: &str) -> bool {
        match self {
            PathPattern::Exact(_) | PathPattern::Prefix(_) | PathPattern::Glob(..) => false,
            PathPattern::Regex(expression) => expression.group_of(name).is_some(),
        }
    }

    /// Returns whether the pattern matches `path`. If that is unknown, the result is true.
    pub fn is_match(&self, path: &[u8]) -> bool {
        self.try_match(path).unwrap_or(true)
    }

    /// Returns whether the pattern certainly matches `path`; exceptions use this. If that is unknown, the result is
    /// false.
    pub fn is_sure_match(&self, path: &[u8]) -> bool {
        self.try_match(path).unwrap_or(false)
    }

    fn try_match(&self, path: &[u8]) -> Result<bool, LimitReached> {
        match self {
            PathPattern::Exact(exact) => Ok(path == &exact[..]),
            PathPattern::Prefix(prefix) => Ok(strip_segments(path, prefix).is_some()),
            PathPattern::Glob(regex, _) => Ok(regex.is_match(path)),
            PathPattern::Regex(expression) => expression.is_match(path),
        }
    }

    /// Returns the match with its captures.
    ///
    /// # Errors
    /// The expression reached its limit, so it is unknown whether it matches.
    pub fn captures<'p>(
        &'p self,
        path: &'p [u8],
    ) -> Result<Option<PatternMatch<'p>>, LimitReached> {
        Ok(match self {
            PathPattern::Exact(exact) => (path == &exact[..]).then_some(PatternMatch::Whole(path)),
            PathPattern::Prefix(prefix) => {
                strip_segments(path, prefix).map(|rest| PatternMatch::Rest { path, rest })
            }
            PathPattern::Glob(regex, _) => regex.captures(path).map(PatternMatch::Stars),
            PathPattern::Regex(expression) => {
                let groups = expression.groups(path)?;
                groups.map(|groups| PatternMatch::Groups {
                    path,
                    groups,
                    expression,
                })
            }
        })
    }
}

/// Writes the pattern as in the configuration of a rule: `prefix "/admin"`.
impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            PathPattern::Exact(path) | PathPattern::Prefix(path) => String::from_utf8_lossy(path),
            PathPattern::Glob(_, text) => (&**text).into(),
            PathPattern::Regex(expression) => expression.as_str().into(),
        };
        write!(f, "{} \"{}\"", self.option_name(), text.escape_debug())
    }
}

fn require_leading_slash(text: &str) -> Result<&[u8], PatternError> {
    if text.starts_with('/') {
        Ok(text.as_bytes())
    } else {
        Err(PatternError::NoLeadingSlash(text.to_owned()))
    }
}

/// Returns a glob as a regular expression, without the end of the text.
fn glob_expression(text: &str) -> String {
    let mut regex = String::from("^");
    if !text.starts_with('/') {
        regex.push_str("/(?:.*/)?");
    }
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        // A double star between slashes also matches no directory at all: `/a/**/b` matches `/a/b`.
        if let Some(after) = rest.strip_prefix("/**/") {
            regex.push_str("/(?:(.*)/)?");
            rest = after;
        } else if let Some(after) = rest.strip_prefix("**") {
            regex.push_str("(.*)");
            rest = after;
        } else {
            match next {
                '*' => regex.push_str("([^/]*)"),
                '?' => regex.push_str("[^/]"),
                other => regex.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
            }
            rest = &rest[next.len_utf8()..];
        }
    }
    regex
}

fn compile(text: &str) -> Result<Regex, PatternError> {
    RegexBuilder::new(text)
        .unicode(false)
        .dot_matches_new_line(true)
        .size_limit(MAX_REGEX_BYTES)
        .build()
        .map_err(|error| PatternError::BadRegex(error.to_string()))
}

/// Returns `path` without `prefix`, if the prefix ends at the end of a segment.
fn strip_segments<'p>(path: &'p [u8], prefix: &[u8]) -> Option<&'p [u8]> {
    let rest = path.strip_prefix(prefix)?;
    (prefix.ends_with(b"/") || rest.is_empty() || rest[0] == b'/').then_some(rest)
}

/// What a pattern captured of the path, for the variables of a target.
#[derive(Debug)]
pub enum PatternMatch<'p> {
    /// The pattern matched and has only `$0`.
    Whole(&'p [u8]),
    /// `$0`, and what follows the prefix as `$1`.
    Rest {
        /// The whole path, `$0`.
        path: &'p [u8],
        /// What follows the prefix in the path, `$1`.
        rest: &'p [u8],
    },
    /// What the stars of a glob matched.
    Stars(Captures<'p>),
    /// The groups of a regular expression.
    Groups {
        /// The whole path.
        path: &'p [u8],
        /// Where the groups lie in the path; the first is the whole match.
        groups: Groups,
        /// The expression, which has the names of the groups.
        expression: &'p RuleExpression,
    },
}

impl<'p> PatternMatch<'p> {
    /// Returns the capture of that number; empty if it took no part in the match.
    pub fn capture(&self, number: usize) -> &'p [u8] {
        match (self, number) {
            (PatternMatch::Whole(path), 0) | (PatternMatch::Rest { path, .. }, 0) => path,
            (PatternMatch::Rest { rest, .. }, 1) => rest,
            (PatternMatch::Stars(stars), _) => {
                stars.get(number).map_or(b"", |found| found.as_bytes())
            }
            (PatternMatch::Groups { path, groups, .. }, _) => {
                let range = groups.get(number).and_then(Option::clone);
                range.and_then(|range| path.get(range)).unwrap_or_default()
            }
            _ => b"",
        }
    }

    /// Returns the capture of that name; empty if it took no part in the match.
    pub fn named_capture(&self, name: &str) -> &'p [u8] {
        match self {
            PatternMatch::Groups { expression, .. } => expression
                .group_of(name)
                .map_or(b"", |number| self.capture(number)),
            _ => b"",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: Result<PathPattern, PatternError>, path: &str, expected: Option<&[&str]>) {
        let pattern = pattern.unwrap();
        let found = pattern.captures(path.as_bytes()).unwrap();
        assert_eq!(found.is_some(), pattern.is_match(path.as_bytes()));
        let found = found.map(|found| {
            (1..=pattern.capture_count())
                .map(|n| String::from_utf8_lossy(found.capture(n)).into_owned())
                .collect::<Vec<_>>()
        });
        let expected = expected.map(|list| list.iter().map(|s| (*s).to_owned()).collect());
        assert_eq!(found, expected, "{pattern:?} {path}");
    }

    #[test]
    fn prefix_ends_at_a_segment_boundary() {
        check(PathPattern::prefix("/admin"), "/admin", Some(&[""]));
        check(PathPattern::prefix("/admin"), "/admin/x", Some(&["/x"]));
        check(PathPattern::prefix("/admin"), "/administrator", None);
        check(
            PathPattern::prefix("/wiki/"),
            "/wiki/Main_Page",
            Some(&["Main_Page"]),
        );
        check(PathPattern::prefix("/"), "/x", Some(&["x"]));
    }

    #[test]
    fn glob_stars_respect_segments() {
        check(PathPattern::glob("/img/*.png"), "/img/a.png", Some(&["a"]));
        check(PathPattern::glob("/img/*.png"), "/img/a/b.png", None);
        check(
            PathPattern::glob("/up/**.php"),
            "/up/2024/x.php",
            Some(&["2024/x"]),
        );
        check(
            PathPattern::glob("/up/**/*.php"),
            "/up/x.php",
            Some(&["", "x"]),
        );
        check(
            PathPattern::glob("/up/**/*.php"),
            "/up/a/b/x.php",
            Some(&["a/b", "x"]),
        );
        check(PathPattern::glob("*.log"), "/a/b/x.log", Some(&["x"]));
        check(PathPattern::glob("*.log"), "/x.log", Some(&["x"]));
        check(PathPattern::glob("*.log"), "/x.log/y", None);
        check(PathPattern::glob("/a?c"), "/abc", Some(&[]));
        check(PathPattern::glob("/a?c"), "/a/c", None);
        check(PathPattern::glob("/a.c"), "/abc", None);
        check(PathPattern::glob("/x/**"), "/x/a\nb", Some(&["a\nb"]));
    }

    #[test]
    fn glob_of_scripts_covers_every_extension_of_php_and_no_picture() {
        let pattern = PathPattern::scripts("/up/**.php", &[".page".to_owned()]).unwrap();
        assert_eq!(pattern.to_string(), "glob \"/up/**.php\"");
        for name in ["x.php", "a/x.php7", "x.phtml", "x.pht", "x.phar", "x.page"] {
            assert!(pattern.is_match(format!("/up/{name}").as_bytes()), "{name}");
        }
        for name in [
            "my.photo.jpg",
            "a.phase2.pdf",
            "logo.phpbb.png",
            "x.php.jpg",
        ] {
            assert!(
                !pattern.is_match(format!("/up/{name}").as_bytes()),
                "{name}"
            );
        }
    }

    #[test]
    fn regex_matches_the_whole_path() {
        check(PathPattern::regex("^/u/([0-9]+)$"), "/u/42", Some(&["42"]));
        check(PathPattern::regex("^/u/([0-9]+)$"), "/u/42\n", None);
        check(PathPattern::regex("\\.php$"), "/x.php\n.jpg", None);
        check(PathPattern::regex("^/a.b$"), "/a\nb", Some(&[]));
        check(PathPattern::regex("^/é$"), "/é", Some(&[]));
    }

    #[test]
    fn invalid_pattern_is_refused() {
        assert!(matches!(
            PathPattern::exact("x"),
            Err(PatternError::NoLeadingSlash(_))
        ));
        assert!(matches!(
            PathPattern::prefix(""),
            Err(PatternError::NoLeadingSlash(_))
        ));
        assert!(matches!(
            PathPattern::regex("("),
            Err(PatternError::BadRegex(_))
        ));
        assert!(matches!(
            PathPattern::regex("a{1000}{1000}"),
            Err(PatternError::BadRegex(_))
        ));
    }
}
