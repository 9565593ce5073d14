//! Regular expressions of a site's own rules (`regex` of `[[site.rule]]`), which nginx and Apache compile with PCRE.
//!
//! The `regex` crate runs them in time linear in the length of the path. Syntax that it does not have (look-around,
//! back-references, atomic groups, possessive quantifiers) is run by PCRE2 with a limit of steps and of the path's
//! length; if a match reaches a limit, its result is unknown and the caller must refuse the request. In both engines
//! `.` matches any byte and `$` only the very end, so a `%0a` in a path cannot end a match early.

use crate::pattern::{
    Groups, LimitReached, MAX_MATCH_STEPS, backtracking_groups, backtracking_match, linear_groups,
};

/// The maximum size of a compiled expression in bytes.
const MAX_COMPILED_BYTES: usize = 1 << 20;
/// The maximum length in bytes of an expression for PCRE2. Real expressions are shorter.
const MAX_EXPRESSION_BYTES: usize = 16 << 10;

/// A regular expression for paths; see the module's documentation.
#[derive(Clone, Debug)]
pub struct RuleExpression {
    text: Box<str>,
    engine: RuleEngine,
}

#[derive(Clone, Debug)]
enum RuleEngine {
    Linear(regex::bytes::Regex),
    Backtracking(Box<pcre2::bytes::Regex>),
}

impl RuleExpression {
    /// Compiles an expression.
    ///
    /// # Errors
    /// Returns the reason if the expression is wrong or too large.
    pub fn new(text: &str) -> Result<RuleExpression, String> {
        let scanned = scan(text.as_bytes());
        let engine = match scanned.needs_pcre && text.len() <= MAX_EXPRESSION_BYTES {
            true => RuleEngine::Backtracking(Box::new(backtracking(scanned)?)),
            false => RuleEngine::Linear(
                regex::bytes::RegexBuilder::new(text)
                    .unicode(false)
                    .dot_matches_new_line(true)
                    .size_limit(MAX_COMPILED_BYTES)
                    .build()
                    .map_err(|error| error.to_string())?,
            ),
        };
        Ok(RuleExpression {
            text: text.into(),
            engine,
        })
    }

    /// Returns the source text of the expression.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns true if the `regex` crate runs the expression, so a match never reaches a limit.
    pub fn is_linear(&self) -> bool {
        matches!(self.engine, RuleEngine::Linear(_))
    }

    /// Returns the number of groups of a match, including the whole match.
    pub fn groups_len(&self) -> usize {
        match &self.engine {
            RuleEngine::Linear(regex) => regex.captures_len(),
            RuleEngine::Backtracking(regex) => regex.captures_len(),
        }
    }

    /// Returns the number of the group with this name.
    pub fn group_of(&self, name: &str) -> Option<usize> {
        match &self.engine {
            RuleEngine::Linear(regex) => {
                regex.capture_names().position(|known| known == Some(name))
            }
            RuleEngine::Backtracking(regex) => {
                let mut names = regex.capture_names().iter();
                names.position(|known| known.as_deref() == Some(name))
            }
        }
    }

    /// Returns true if the expression matches anywhere in `path`.
    ///
    /// # Errors
    /// Fails if the match exceeds a limit.
    pub fn is_match(&self, path: &[u8]) -> Result<bool, LimitReached> {
        match &self.engine {
            RuleEngine::Linear(regex) => Ok(regex.is_match(path)),
            RuleEngine::Backtracking(regex) => backtracking_match(regex, path),
        }
    }

    /// Returns the ranges of the groups if the expression matches.
    ///
    /// # Errors
    /// Fails if the match exceeds a limit.
    pub fn groups(&self, path: &[u8]) -> Result<Option<Groups>, LimitReached> {
        match &self.engine {
            RuleEngine::Linear(regex) => Ok(linear_groups(regex, path)),
            RuleEngine::Backtracking(regex) => backtracking_groups(regex, path),
        }
    }
}

fn backtracking(scanned: ScannedExpression) -> Result<pcre2::bytes::Regex, String> {
    if let Some(what) = scanned.refused {
        return Err(format!(
            "an expression with look-around or back-references cannot use {what}"
        ));
    }
    let limited = format!(
        "(*LIMIT_MATCH={MAX_MATCH_STEPS})(*LIMIT_DEPTH={MAX_MATCH_STEPS}){}",
        scanned.text
    );
    let built = pcre2::bytes::RegexBuilder::new()
        .dotall(true)
        .build(&limited);
    built.map_err(|error| error.to_string())
}

/// The result of [`scan`].
struct ScannedExpression {
    /// The expression with `\z` for each `$` that means the end, because PCRE2's `$` also matches before a final
    /// newline.
    text: String,
    needs_pcre: bool,
    /// Syntax that would change the meaning of `$`.
    refused: Option<&'static str>,
}

fn scan(text: &[u8]) -> ScannedExpression {
    let mut out = Vec::with_capacity(text.len());
    let (mut needs_pcre, mut refused) = (false, None);
    let mut at = 0;
    // Whether the last element was a quantifier, which a following `+` makes possessive.
    let mut quantified = false;
    while at < text.len() {
        let rest = &text[at..];
        let length = match rest {
            [b'\\', b'Q', ..] => {
                refused = Some("\\Q");
                2
            }
            [b'\\', b'1'..=b'9' | b'g' | b'k', ..] => {
                needs_pcre = true;
                2
            }
            [b'\\', _, ..] => 2,
            [b'[', ..] => {
                let length = class_length(rest);
                needs_pcre |= has_set_syntax(&rest[..length]);
                length
            }
            [b'(', b'*', ..] => {
                refused = Some("(*");
                2
            }
            [
                b'(',
                b'?',
                b'=' | b'!' | b'>' | b'(' | b'|' | b'R' | b'&' | b'0'..=b'9',
                ..,
            ]
            | [b'(', b'?', b'<', b'=' | b'!', ..] => {
                needs_pcre = true;
                3
            }
            [b'(', b'?', b'P' | b'<' | b'\'' | b':', ..] => 3,
            [b'(', b'?', flags @ ..] => {
                let flags = flags
                    .iter()
                    .take_while(|flag| flag.is_ascii_alphabetic() || **flag == b'-');
                if flags
                    .clone()
                    .any(|flag| !matches!(flag, b'i' | b's' | b'-'))
                {
                    refused = Some("flags other than i and s");
                } else if flags.clone().next().is_none() {
                    refused = Some("a comment");
                }
                2 + flags.count()
            }
            [b'+', ..] if quantified => {
                needs_pcre = true;
                1
            }
            _ => 1,
        };
        match rest[0] {
            b'$' => out.extend_from_slice(b"\\z"),
            _ => out.extend_from_slice(&rest[..length.min(rest.len())]),
        }
        quantified = matches!(rest[0], b'*' | b'+' | b'?' | b'}');
        at += length;
    }
    ScannedExpression {
        text: String::from_utf8_lossy(&out).into_owned(),
        needs_pcre,
        refused,
    }
}

/// Returns the length of the character class at the start of `rest`.
fn class_length(rest: &[u8]) -> usize {
    let mut at = 1;
    if rest.get(at) == Some(&b'^') {
        at += 1;
    }
    // A bracket in the first position is a member of the class.
    if rest.get(at) == Some(&b']') {
        at += 1;
    }
    while at < rest.len() {
        match &rest[at..] {
            [b']', ..] => return at + 1,
            [b'\\', _, ..] => at += 2,
            [b'[', b':', inside @ ..] => {
                let end = inside.windows(2).position(|two| two == b":]");
                at += end.map_or(1, |end| end + 4);
            }
            _ => at += 1,
        }
    }
    rest.len()
}

/// Returns true if the `regex` crate would find a class or an operator of sets inside of a character class, where PCRE
/// finds only bytes: `[[a]`, `[a&&b]`.
fn has_set_syntax(class: &[u8]) -> bool {
    let mut rest = &class[1..];
    loop {
        rest = match rest {
            [b'\\', _, after @ ..] | [b'[', b':', after @ ..] => after,
            [b'[', ..] | [b'&', b'&', ..] | [b'-', b'-', ..] | [b'~', b'~', ..] => return true,
            [_, after @ ..] => after,
            [] => return false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::MAX_TEXT_BYTES;

    fn matches(text: &str, path: &[u8]) -> bool {
        let expression = RuleExpression::new(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        let found = expression.is_match(path).unwrap();
        assert_eq!(expression.groups(path).unwrap().is_some(), found);
        found
    }

    #[test]
    fn look_around_and_other_pcre_syntax_is_accepted() {
        for (text, yes, no) in [
            (r"(?i)/\.(?!well-known\/)", "/.git/x", "/.WELL-known/x"),
            (r"^/setup/(?!pub/).", "/setup/x", "/setup/pub/x"),
            (r"(?<!ext/)phpbb(?!\w+)", "/phpbb/x", "/ext/phpbb"),
            (r"^/(a|b)/\1$", "/a/a", "/a/b"),
            (r"^/(?>a+)b", "/aab", "/aac"),
            (r"^/a++b", "/aab", "/acb"),
            (r"^/(?=x)[x$]*$", "/x$x", "/x$y"),
            (r"^/(?=[]$])[]$]$", "/$", "/]]"),
        ] {
            assert!(
                matches(text, yes.as_bytes()) && !matches(text, no.as_bytes()),
                "{text}"
            );
            assert!(!RuleExpression::new(text).unwrap().is_linear(), "{text}");
        }
        assert!(RuleExpression::new("^/a(b)*$").unwrap().is_linear());
    }

    #[test]
    fn dollar_matches_only_the_end_in_both_engines() {
        for text in [r"\.php$", r"(?!z)\.php$", r"(?=.)\.php$"] {
            assert!(matches(text, b"/x.php"), "{text}");
            assert!(!matches(text, b"/x.php\n"), "{text}");
        }
        assert!(matches(r"^/(?!z)a.b", b"/a\nb"), "a dot is any byte");
        assert!(matches(r"^/(?!z)\$", b"/$"), "an escaped sign is a sign");
    }

    #[test]
    fn groups_have_numbers_and_names() {
        let expression = RuleExpression::new(r"^/(?!x)(?<first>[a-z]+)/(.*)$").unwrap();
        assert_eq!(
            (expression.groups_len(), expression.group_of("first")),
            (3, Some(1))
        );
        let groups = expression.groups(b"/ab/c").unwrap().unwrap();
        assert_eq!(groups, [Some(0..5), Some(1..3), Some(4..5)]);
        assert_eq!(expression.groups(b"/xb/c").unwrap(), None);
    }

    #[test]
    fn expressions_that_are_wrong_or_mean_something_else_are_refused() {
        for text in [
            "(",
            "a{1000}{1000}",
            "(?=a",
            r"(?m)(?=a)$",
            r"(?=a)\Q$\E",
            "(*UTF)(?=a)",
            "(?x)(?=a) # $",
        ] {
            assert!(RuleExpression::new(text).is_err(), "{text}");
        }
    }

    #[test]
    fn class_with_brackets_or_operators_of_sets_has_only_bytes() {
        assert!(!matches("^/[[$]]$", b"/$"));
        assert!(matches("^/[[$]]$", b"/$]"));
        assert!(matches("^/[^[]+$", b"/a"));
        assert!(!matches("^/[^[]+$", b"/["));
        assert!(matches("^/[a&&b]$", b"/&"));
        assert!(matches("^/[+--]$", b"/,"));
        assert!(matches("^/[~~]$", b"/~"));
        for text in ["^/[[:alpha:]]$", r"^/[\[\]]$", "^/[a-c&~-]$"] {
            assert!(RuleExpression::new(text).unwrap().is_linear(), "{text}");
        }
    }

    #[test]
    fn match_that_reaches_a_limit_returns_an_error() {
        let expression = RuleExpression::new(r"^/(?!x)(a*)*$").unwrap();
        let path = [b"/".as_slice(), &[b'a'; 64], b"b"].concat();
        assert_eq!(expression.is_match(&path), Err(LimitReached));
        let long = [b'/'; MAX_TEXT_BYTES + 1];
        assert_eq!(expression.is_match(&long), Err(LimitReached));
        assert_eq!(expression.groups(&long), Err(LimitReached));
    }

    proptest::proptest! {
        /// The translation changes only `$`, and both engines agree on expressions that both can run.
        #[test]
        fn engines_agree(text in "[a-c^$|()\\[\\]*+?.]{1,12}", path in "/[a-c$.\\n]{0,8}") {
            let Ok(linear) = RuleExpression::new(&text) else { return Ok(()) };
            if !linear.is_linear() {
                return Ok(());
            }
            let Ok(other) = RuleExpression::new(&format!("(?=){text}")) else { return Ok(()) };
            if let Ok(found) = other.is_match(path.as_bytes()) {
                // `(?=)` binds only to the first alternative, which changes nothing.
                proptest::prop_assert_eq!(linear.is_match(path.as_bytes()).unwrap(), found, "{}", text);
            }
        }
    }
}
