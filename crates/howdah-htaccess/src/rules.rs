//! Parses mod_rewrite's directives (arguments, flags and tests), and merges the rules of directories. The module
//! `rewrite` applies the rules to a request.

use std::sync::Arc;

use crate::expression::{self, Condition};
use crate::lines::argument;
use crate::pattern::Regex;
use crate::text::number;

/// The rules of a scope.
#[derive(Clone, Debug, Default)]
pub(crate) struct RewriteSettings {
    pub engine: Option<bool>,
    pub base: Option<String>,
    pub options: Option<u8>,
    /// The directory's file name with a trailing slash; in a section, the name that the section has.
    pub directory: Arc<[u8]>,
    pub rules: Vec<Arc<Rule>>,
    /// The `RewriteCond` directives that precede the next rule.
    pub waiting: Vec<Cond>,
}

impl RewriteSettings {
    const INHERIT: u8 = 1;
    const BEFORE: u8 = 2;
    const DOWN: u8 = 4;
    const DOWN_BEFORE: u8 = 8;
    const IGNORE: u8 = 16;
    pub(crate) const NO_SLASH: u8 = 32;
    const MERGE_BASE: u8 = 64;

    pub(crate) fn merge(base: &RewriteSettings, add: &RewriteSettings) -> RewriteSettings {
        let options = add.options.or(base.options);
        let bits = options.unwrap_or_default();
        let has = |bit| bits & bit != 0;
        let parent =
            |bit| base.options.unwrap_or_default() & bit != 0 && !has(RewriteSettings::IGNORE);
        let rules = if has(RewriteSettings::INHERIT) || parent(RewriteSettings::DOWN) {
            [&add.rules[..], &base.rules].concat()
        } else if has(RewriteSettings::BEFORE) || parent(RewriteSettings::DOWN_BEFORE) {
            [&base.rules[..], &add.rules].concat()
        } else {
            add.rules.clone()
        };
        let url = match has(RewriteSettings::MERGE_BASE) {
            true => add.base.clone().or_else(|| base.base.clone()),
            false => add.base.clone(),
        };
        RewriteSettings {
            engine: add.engine.or(base.engine),
            base: url,
            options,
            directory: add.directory.clone(),
            rules,
            waiting: Vec::new(),
        }
    }

    /// Applies a word of `RewriteOptions`.
    pub(crate) fn option(&mut self, word: &str) -> Option<()> {
        let bit = match &*word.to_ascii_lowercase() {
            "inherit" => RewriteSettings::INHERIT,
            "inheritbefore" => RewriteSettings::BEFORE,
            "inheritdown" => RewriteSettings::DOWN,
            "inheritdownbefore" => RewriteSettings::DOWN_BEFORE,
            "ignoreinherit" => RewriteSettings::IGNORE,
            "allownoslash" => RewriteSettings::NO_SLASH,
            "mergebase" => RewriteSettings::MERGE_BASE,
            "allowanyuri"
            | "ignorecontextinfo"
            | "legacyprefixdocroot"
            | "unsafeprefixstat"
            | "longurloptimization" => 0,
            word if word.starts_with("maxredirects=") => 0,
            _ => return None,
        };
        *self.options.get_or_insert_default() |= bit;
        Some(())
    }
}

/// A `RewriteRule` with its conditions.
#[derive(Debug)]
pub(crate) struct Rule {
    /// The line, for messages.
    pub origin: Option<Arc<str>>,
    pub regex: Regex,
    pub output: Vec<u8>,
    pub flags: Flags,
    pub conditions: Vec<Cond>,
}

impl Rule {
    /// Returns true if the rule has a substitution that is applied: a path or a redirect.
    pub(crate) fn leads_elsewhere(&self) -> bool {
        !self.flags.no_sub && !self.flags.proxy
    }

    /// Returns true if the rule's only effect is a redirect, so it does not refuse a request and no later rule depends
    /// on it.
    pub(crate) fn only_redirects(&self) -> bool {
        let flags = &self.flags;
        flags.redirect
            && !flags.status
            && !flags.chain
            && flags.next.is_none()
            && flags.skip == 0
            && flags.env.is_empty()
            && flags.media_type.is_none()
            && flags.handler.is_none()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Flags {
    pub negated: bool,
    pub no_case: bool,
    /// Whether there is no substitution: it is `-`, or the rule sets a status instead.
    pub no_sub: bool,
    /// Whether the rule ends the request with its status.
    pub status: bool,
    pub redirect: bool,
    pub proxy: bool,
    pub pass_through: bool,
    pub last: bool,
    pub end: bool,
    pub chain: bool,
    /// `N`: start again from the first rule, for at most this number of rounds.
    pub next: Option<i64>,
    pub skip: usize,
    pub no_sub_request: bool,
    pub no_escape: bool,
    pub append_query: bool,
    pub discard_query: bool,
    pub last_query: bool,
    pub no_query: bool,
    pub discard_path_info: bool,
    pub escape_groups: bool,
    pub escape_no_plus: bool,
    pub escape_controls: bool,
    pub escapes: Option<Vec<u8>>,
    pub no_escapes: Option<Vec<u8>>,
    pub unsafe_allow_3f: bool,
    pub unc: bool,
    /// The status of a redirect or refusal.
    pub code: u16,
    pub env: Vec<Vec<u8>>,
    pub cookies: Vec<Vec<u8>>,
    pub media_type: Option<Vec<u8>>,
    pub handler: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
pub(crate) struct CondFlags {
    pub no_case: bool,
    pub or_next: bool,
    pub no_vary: bool,
}

/// A `RewriteCond`.
#[derive(Clone, Debug)]
pub(crate) struct Cond {
    pub input: Arc<[u8]>,
    pub test: Arc<Test>,
    pub negated: bool,
    pub no_case: bool,
    pub or_next: bool,
    pub no_vary: bool,
}

#[derive(Debug)]
pub(crate) enum Test {
    Regex(Regex),
    Expression(Condition),
    /// The file tests `f`, `d`, `s`, `l`, `x`, and the subrequest tests `F`, `U`.
    File(u8),
    /// String comparisons such as `<` and `>=`.
    Text(TextTest, Vec<u8>),
    /// Number comparisons such as `-lt`.
    Number(NumberTest, i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextTest {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberTest {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

type Arguments<'t> = (&'t [u8], &'t [u8], Option<&'t [u8]>);

/// Splits the line into two arguments and optional flags as `parseargline` does. Returns `None` if there are fewer than
/// two arguments.
fn arguments(text: &[u8]) -> Option<Arguments<'_>> {
    let (first, rest) = argument(text);
    let rest = rest?;
    let (second, rest) = argument(rest);
    let third = rest
        .map(<[u8]>::trim_ascii_start)
        .filter(|rest| !rest.is_empty());
    Some((first, second, third.map(|rest| argument(rest).0)))
}

/// Returns the flags in brackets with their values, or `None` if there are no brackets.
fn flags(text: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let inner = text.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let mut all = Vec::new();
    for flag in inner.split(|b| *b == b',') {
        let flag = flag.trim_ascii();
        if flag.is_empty() {
            continue;
        }
        let (name, value) = match flag.iter().position(|b| *b == b'=') {
            Some(at) => (&flag[..at], &flag[at + 1..]),
            None => (flag, &b""[..]),
        };
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        all.push((name, value.to_vec()));
    }
    Some(all)
}

fn compile(text: &[u8], ignore_case: bool) -> Option<Regex> {
    Regex::new(std::str::from_utf8(text).ok()?, ignore_case)
}

/// Parses the arguments of a `RewriteCond`. Returns `None` where Apache reports a syntax error.
pub(crate) fn condition(line: &[u8]) -> Option<Cond> {
    let (input, pattern, extra) = arguments(line)?;
    let mut own = CondFlags::default();
    for (name, _) in extra.map_or(Some(Vec::new()), flags)? {
        match &*name {
            "nocase" | "nc" => own.no_case = true,
            "ornext" | "or" => own.or_next = true,
            "novary" | "nv" => own.no_vary = true,
            _ => return None,
        }
    }
    let (mut negated, pattern) = match pattern {
        [b'!', rest @ ..] => (true, rest),
        all => (false, all),
    };
    let test = if input.eq_ignore_ascii_case(b"expr") {
        Test::Expression(expression::condition(pattern)?)
    } else {
        test(pattern, own.no_case, &mut negated)?
    };
    Some(Cond {
        input: input.into(),
        test: Arc::new(test),
        negated,
        no_case: own.no_case,
        or_next: own.or_next,
        no_vary: own.no_vary,
    })
}

fn test(pattern: &[u8], no_case: bool, negated: &mut bool) -> Option<Test> {
    let text = |test, rest: &[u8]| Some(Test::Text(test, rest.to_vec()));
    let found = match pattern {
        [
            b'-',
            letter @ (b'f' | b's' | b'd' | b'x' | b'h' | b'L' | b'l' | b'U' | b'F'),
        ] => Some(Test::File(match letter {
            b'h' | b'L' => b'l',
            letter => *letter,
        })),
        [b'-', a, b, rest @ ..] if !rest.is_empty() => {
            let kind = match (a, b) {
                (b'l', b't') => Some(NumberTest::Less),
                (b'l', b'e') => Some(NumberTest::LessOrEqual),
                (b'g', b't') => Some(NumberTest::Greater),
                (b'g', b'e') => Some(NumberTest::GreaterOrEqual),
                (b'e', b'q') => Some(NumberTest::Equal),
                (b'n', b'e') => {
                    *negated = !*negated;
                    Some(NumberTest::Equal)
                }
                _ => None,
            };
            kind.map(|kind| Test::Number(kind, number(rest)))
        }
        [b'>', b'=', rest @ ..] => text(TextTest::GreaterOrEqual, rest),
        [b'>', rest @ ..] if !rest.is_empty() => text(TextTest::Greater, rest),
        [b'<', b'=', rest @ ..] => text(TextTest::LessOrEqual, rest),
        [b'<', rest @ ..] if !rest.is_empty() => text(TextTest::Less, rest),
        [b'=', b'"', b'"'] => text(TextTest::Equal, b""),
        [b'=', rest @ ..] if !rest.is_empty() => text(TextTest::Equal, rest),
        _ => None,
    };
    match found {
        Some(test) => Some(test),
        None => Some(Test::Regex(compile(pattern, no_case)?)),
    }
}

/// Parses the arguments of a `RewriteRule`. Returns `None` where Apache reports a syntax error.
pub(crate) fn rule(text: &[u8], conditions: Vec<Cond>) -> Option<Rule> {
    let (pattern, output, extra) = arguments(text)?;
    let mut own = Flags {
        code: 302,
        ..Flags::default()
    };
    for (name, value) in extra.map_or(Some(Vec::new()), flags)? {
        set_flag(&mut own, &name, value)?;
    }
    let (negated, pattern) = match pattern {
        [b'!', rest @ ..] => (true, rest),
        all => (false, all),
    };
    own.negated = negated;
    let regex = compile(pattern, own.no_case)?;
    let mut output = output.to_vec();
    own.no_sub |= output == b"-";
    if output.last() == Some(&b'?') {
        match own.append_query {
            true => own.last_query = true,
            false => {
                own.no_query = true;
                output.pop();
            }
        }
    } else if own.discard_query && !output.contains(&b'?') {
        own.no_query = true;
    }
    Some(Rule {
        origin: None,
        regex,
        output,
        flags: own,
        conditions,
    })
}

fn set_flag(own: &mut Flags, name: &str, value: Vec<u8>) -> Option<()> {
    let given = (!value.is_empty()).then(|| value.clone());
    match name {
        "b" | "backrefescaping" => {
            own.escape_groups = true;
            own.escapes = given.or(own.escapes.take());
        }
        "bne" => own.no_escapes = Some(given?),
        "bnp" | "backrefernoplus" => own.escape_no_plus = true,
        "bctls" => (own.escape_controls, own.escape_groups) = (true, true),
        "c" | "chain" => own.chain = true,
        "co" | "cookie" => own.cookies.push(value),
        "e" | "env" => own.env.push(value),
        "end" => own.end = true,
        "f" | "forbidden" => (own.status, own.no_sub, own.code) = (true, true, 403),
        "g" | "gone" => (own.status, own.no_sub, own.code) = (true, true, 410),
        "h" | "handler" => own.handler = Some(value),
        "l" | "last" => own.last = true,
        "ne" | "noescape" => own.no_escape = true,
        "n" | "next" => own.next = Some(given.map_or(10_000, |value| number(&value))),
        "ns" | "nosubreq" => own.no_sub_request = true,
        "nc" | "nocase" => own.no_case = true,
        "p" | "proxy" => own.proxy = true,
        "pt" | "passthrough" => own.pass_through = true,
        "qsa" | "qsappend" => own.append_query = true,
        "qsd" | "qsdiscard" => own.discard_query = true,
        "qsl" | "qslast" => own.last_query = true,
        "r" | "redirect" => {
            own.redirect = true;
            own.code = match &*String::from_utf8_lossy(&value).to_ascii_lowercase() {
                "" => own.code,
                "permanent" => 301,
                "temp" => 302,
                "seeother" => 303,
                digits if digits.starts_with(|c: char| c.is_ascii_digit()) => {
                    let code = u16::try_from(number(&value))
                        .ok()
                        .filter(|c| is_status(*c))?;
                    if !(300..400).contains(&code) {
                        (own.status, own.no_sub) = (true, true);
                    }
                    code
                }
                _ => 0,
            };
        }
        "s" | "skip" => own.skip = usize::try_from(number(&value)).unwrap_or_default(),
        "t" | "type" => own.media_type = Some(value),
        "unsafeprefixstat" => {}
        "unsafeallow3f" => own.unsafe_allow_3f = true,
        "unc" => own.unc = true,
        // Apache compares only the first letter.
        name if name.starts_with('d') => {
            own.discard_path_info |= matches!(name, "dpi" | "discardpath");
        }
        // `N` followed by other letters is not a flag of mod_rewrite either, although mod_rewrite does not report it.
        _ => return None,
    }
    Some(())
}

/// Returns true for a status that Apache knows.
pub(crate) fn is_status(code: u16) -> bool {
    matches!(code, 100..=103 | 200..=208 | 226 | 300..=308 | 400..=418 | 421..=426 | 428 | 429 | 431
        | 451 | 500..=508 | 510 | 511)
        && code != 306
        && code != 418
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_split_as_mod_rewrite_does() {
        let split = |text: &'static str| arguments(text.as_bytes());
        assert_eq!(
            split("^a$ b [L]"),
            Some((&b"^a$"[..], &b"b"[..], Some(&b"[L]"[..])))
        );
        assert_eq!(
            split("\"^a b$\" '-'"),
            Some((&b"^a b$"[..], &b"-"[..], None))
        );
        assert_eq!(split("^a\\ b$ -"), Some((&b"^a\\ b$"[..], &b"-"[..], None)));
        assert_eq!(split("^a$"), None);
    }

    #[test]
    fn rule_flags_and_condition_tests_are_parsed() {
        let rule = rule(b"^a$ /b? [R=301,L,NE,E=A:1,CO=n:v:d]", Vec::new()).unwrap();
        assert!(rule.flags.redirect && rule.flags.last && rule.flags.no_query);
        assert_eq!((rule.flags.code, &rule.output[..]), (301, &b"/b"[..]));
        for bad in ["^a$ b [Q]", "^a$ b L", "^(a$ b", "^a$ b [R=99]", "a"] {
            assert!(super::rule(bad.as_bytes(), Vec::new()).is_none(), "{bad}");
        }
        let test = |text: &str| condition(text.as_bytes()).unwrap();
        assert!(matches!(*test("%{X} !-f").test, Test::File(b'f')));
        assert!(test("%{X} !-f").negated);
        assert!(
            matches!(*test("%{X} =\"\"").test, Test::Text(TextTest::Equal, ref t) if t.is_empty())
        );
        assert!(matches!(
            *test("%{X} >=10").test,
            Test::Text(TextTest::GreaterOrEqual, _)
        ));
        assert!(matches!(
            *test("%{X} -ge10").test,
            Test::Number(NumberTest::GreaterOrEqual, 10)
        ));
        assert!(matches!(*test("%{X} ^a [NC,OR]").test, Test::Regex(_)));
        assert!(condition(b"%{X} ^a [ZZ]").is_none());
    }
}
