//! Patterns for names and paths: regular expressions as Apache compiles them (PCRE2), and shell patterns
//! (`apr_fnmatch`).
//!
//! An expression that means the same in both libraries is run by the `regex` crate. That crate takes linear time, so no
//! visitor's path or query can make it slow. All other expressions (look-around, back-references, possessive
//! quantifiers) are run by PCRE2 with a limit of steps and a limit of the text's length; a request that reaches one of
//! them is refused. Apache compiles with DOTALL and DOLLAR_ENDONLY. PCRE2 has only the former here: `$` also matches
//! before a newline at the end, but real file names do not end in a newline.

use std::cell::Cell;
use std::ops::Range;
use std::sync::OnceLock;

/// The limit of PCRE2's match steps for each position in the text where a match may begin.
pub(crate) const MAX_MATCH_STEPS: u32 = 10_000;
/// The maximum length in bytes of a string that PCRE2 matches; its time may grow with the square of the length.
pub(crate) const MAX_TEXT_BYTES: usize = 2048;
/// The maximum length of an expression in bytes. Real expressions are shorter.
const MAX_EXPRESSION_BYTES: usize = 16 << 10;

/// The weight of each pattern in addition to that of its text.
const WEIGHT_PER_PATTERN: usize = 16;

thread_local! {
    /// The total weight of the patterns that were parsed since the last [`start_weighing`].
    static WEIGHT: Cell<usize> = const { Cell::new(0) };
}

/// Resets the total weight of new patterns. A short file may contain patterns that become long when their repetitions
/// are written out (`(?:[a-z]{99}){60}`), and compiling these takes as much time as a much longer file.
pub(crate) fn start_weighing() {
    WEIGHT.set(0);
}

/// Returns the total weight of the patterns since [`start_weighing`].
pub(crate) fn weight() -> usize {
    WEIGHT.get()
}

/// A regular expression as Apache understands it.
#[derive(Debug)]
pub struct Regex {
    engine: RegexEngine,
}

#[derive(Debug)]
enum RegexEngine {
    Linear(Box<LinearRegex>),
    Backtracking(Box<pcre2::bytes::Regex>),
}

/// An expression that is compiled when it is first used, because a file may contain thousands and is parsed while other
/// requests wait.
#[derive(Debug)]
struct LinearRegex {
    text: String,
    ignore_case: bool,
    compiled: OnceLock<Option<regex::bytes::Regex>>,
}

impl LinearRegex {
    /// Returns the compiled expression, or an error if it exceeds the size limit.
    fn get(&self) -> Result<&regex::bytes::Regex, LimitReached> {
        let compile = || {
            regex::bytes::RegexBuilder::new(&self.text)
                .unicode(false)
                .dot_matches_new_line(true)
                .case_insensitive(self.ignore_case)
                .size_limit(1 << 20)
                .build()
                .ok()
        };
        self.compiled
            .get_or_init(compile)
            .as_ref()
            .ok_or(LimitReached)
    }
}

/// The match exceeded a limit, so its result is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReached;

/// The ranges of a match's groups; the first is the whole match.
pub type Groups = Vec<Option<Range<usize>>>;

impl Regex {
    /// Parses an expression. Returns `None` if Apache could not compile it either, or if it is far too long.
    pub fn new(text: &str, ignore_case: bool) -> Option<Regex> {
        if text.len() > MAX_EXPRESSION_BYTES {
            return None;
        }
        let weight = written_out_length(text.as_bytes()).saturating_add(WEIGHT_PER_PATTERN);
        WEIGHT.set(WEIGHT.get().saturating_add(weight));
        if is_common_syntax(text) {
            let linear = LinearRegex {
                text: text.to_owned(),
                ignore_case,
                compiled: OnceLock::new(),
            };
            let engine = RegexEngine::Linear(Box::new(linear));
            return Some(Regex { engine });
        }
        let limited =
            format!("(*LIMIT_MATCH={MAX_MATCH_STEPS})(*LIMIT_DEPTH={MAX_MATCH_STEPS}){text}");
        let regex = pcre2::bytes::RegexBuilder::new()
            .dotall(true)
            .caseless(ignore_case)
            .build(&limited)
            .ok()?;
        let engine = RegexEngine::Backtracking(Box::new(regex));
        Some(Regex { engine })
    }

    /// Returns the source text if the `regex` crate runs the expression.
    pub fn text(&self) -> Option<&str> {
        match &self.engine {
            RegexEngine::Linear(linear) => Some(&linear.text),
            RegexEngine::Backtracking(_) => None,
        }
    }

    /// Returns true if the expression matches anywhere in `text`.
    pub fn is_match(&self, text: &[u8]) -> Result<bool, LimitReached> {
        match &self.engine {
            RegexEngine::Linear(linear) => Ok(linear.get()?.is_match(text)),
            RegexEngine::Backtracking(regex) => backtracking_match(regex, text),
        }
    }

    /// Returns the names of the groups by number; `None` for a group without a name.
    pub fn group_names(&self) -> Result<Vec<Option<String>>, LimitReached> {
        Ok(match &self.engine {
            RegexEngine::Linear(linear) => {
                let names = linear.get()?.capture_names();
                names.map(|name| name.map(str::to_owned)).collect()
            }
            RegexEngine::Backtracking(regex) => regex.capture_names().to_vec(),
        })
    }

    /// Returns the ranges of the groups if the expression matches.
    pub fn groups(&self, text: &[u8]) -> Result<Option<Groups>, LimitReached> {
        match &self.engine {
            RegexEngine::Linear(linear) => Ok(linear_groups(linear.get()?, text)),
            RegexEngine::Backtracking(regex) => backtracking_groups(regex, text),
        }
    }
}

/// Returns the ranges of the groups that the `regex` crate has matched.
pub(crate) fn linear_groups(regex: &regex::bytes::Regex, text: &[u8]) -> Option<Groups> {
    let found = regex.captures(text)?;
    let groups = found.iter();
    Some(groups.map(|group| group.map(|g| g.range())).collect())
}

/// Returns true if PCRE2 finds a match. The text must not be longer than [`MAX_TEXT_BYTES`].
pub(crate) fn backtracking_match(
    regex: &pcre2::bytes::Regex,
    text: &[u8],
) -> Result<bool, LimitReached> {
    match text.len() > MAX_TEXT_BYTES {
        true => Err(LimitReached),
        false => regex.is_match(text).map_err(|_| LimitReached),
    }
}

/// Returns the ranges of the groups that PCRE2 has matched. The text must not be longer than [`MAX_TEXT_BYTES`].
pub(crate) fn backtracking_groups(
    regex: &pcre2::bytes::Regex,
    text: &[u8],
) -> Result<Option<Groups>, LimitReached> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(LimitReached);
    }
    let found = regex.captures(text).map_err(|_| LimitReached)?;
    Ok(found.map(|found| {
        let groups = (0..found.len()).map(|at| found.get(at));
        groups
            .map(|group| group.map(|g| g.start()..g.end()))
            .collect()
    }))
}

/// Returns true if the expression uses only syntax that PCRE2 and the `regex` crate interpret alike.
fn is_common_syntax(text: &str) -> bool {
    let bytes = text.as_bytes();
    if !bytes.is_ascii() {
        return false;
    }
    let mut at = 0;
    let mut after_quantifier = false;
    // Whether a quantifier may follow, and how many groups are open.
    let (mut repeatable, mut open) = (false, 0_u32);
    while at < bytes.len() {
        let rest = &bytes[at..];
        match rest[0] {
            b'*' | b'+' | b'?' | b'{' if !repeatable => return false,
            b'(' => open += 1,
            b')' => match open.checked_sub(1) {
                Some(less) => open = less,
                None => return false,
            },
            _ => {}
        }
        repeatable = !matches!(rest[0], b'(' | b'|' | b'^' | b'$') && !rest.starts_with(b"\\b");
        let (length, quantifier) = match rest {
            [b'\\', escaped, ..] => {
                let known = matches!(escaped, b'd' | b'D' | b'w' | b'W' | b's' | b'S' | b'b')
                    || b".\\/-+*?()[]{}|^$#&~".contains(escaped);
                if !known {
                    return false;
                }
                (2, false)
            }
            [b'\\'] => return false,
            [b'[', ..] => match class_length(rest) {
                Some(length) => (length, false),
                None => return false,
            },
            [b'(', b'?', b':', ..] => (3, false),
            [b'(', b'?' | b'*', ..] => return false,
            [b'{', ..] => match parse_count(rest) {
                Some((length, _)) => (length, true),
                None => return false,
            },
            [b'}' | b']', ..] => return false,
            // This is possessive in PCRE2, and a repetition of the repetition in `regex`.
            [b'+', ..] if after_quantifier => return false,
            [b'*', ..] if after_quantifier => return false,
            // A second sign makes the quantifier lazy in both; a third one does not mean the same.
            [b'?', ..] if after_quantifier => {
                if matches!(rest.get(1), Some(b'?' | b'+' | b'*' | b'{')) {
                    return false;
                }
                (1, false)
            }
            [b'+' | b'*' | b'?', ..] => (1, true),
            _ => (1, false),
        };
        if matches!(rest, [b'{', ..]) && after_quantifier {
            return false;
        }
        after_quantifier = quantifier;
        at += length;
    }
    open == 0
}

/// Returns the length of a plain character class at the start of `rest`.
fn class_length(rest: &[u8]) -> Option<usize> {
    let mut at = 1;
    if rest.get(at) == Some(&b'^') {
        at += 1;
    }
    // A bracket in the first position is a member of the class.
    if rest.get(at) == Some(&b']') {
        return None;
    }
    let first = at;
    loop {
        match rest.get(at)? {
            // `[.x.]` and similar forms are names of characters in PCRE2.
            b']' if at > first + 1
                && rest[first] == rest[at - 1]
                && matches!(rest[first], b'.' | b':' | b'=') =>
            {
                return None;
            }
            b']' => return Some(at + 1),
            b'[' => return None,
            b'&' | b'-' | b'~' if rest.get(at) == rest.get(at + 1) => return None,
            b'\\' => {
                let escaped = rest.get(at + 1)?;
                let known = matches!(escaped, b'd' | b'w' | b's')
                    || b".\\/-+*?()[]{}|^$#&~".contains(escaped);
                // A range that begins with an escaped character, or an escape that PCRE2 refuses.
                let hyphen = rest.get(at + 2) == Some(&b'-') && rest.get(at + 3) != Some(&b']');
                if !known || hyphen {
                    return None;
                }
                at += 2;
            }
            _ if rest.get(at + 1) == Some(&b'-') => {
                // A range of letters or digits, or a hyphen at the end.
                match rest.get(at + 2)? {
                    b']' => at += 2,
                    to if to.is_ascii_alphanumeric() && rest[at] <= *to => at += 3,
                    _ => return None,
                }
            }
            _ => at += 1,
        }
    }
}

/// Returns the length of `{n}`, `{n,}` or `{n,m}` at the start of `rest`, and the greater number.
fn parse_count(rest: &[u8]) -> Option<(usize, usize)> {
    let end = rest.iter().position(|b| *b == b'}')?;
    let inside = &rest[1..end];
    let (low, high) = match inside.iter().position(|b| *b == b',') {
        Some(comma) => (&inside[..comma], &inside[comma + 1..]),
        None => (inside, &inside[..0]),
    };
    let digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    let value = |text: &[u8]| {
        let text = std::str::from_utf8(text).ok()?;
        text.parse::<u16>().ok().filter(|n| *n <= 100)
    };
    if low.is_empty() || !digits(low) || !digits(high) {
        return None;
    }
    let low = value(low)?;
    let high = match high.is_empty() {
        true => low,
        false => value(high)?,
    };
    (high >= low).then_some((end + 1, usize::from(high)))
}

/// Returns the length of an expression with its counted repetitions written out. Syntax that only PCRE2 knows counts as
/// plain text.
fn written_out_length(text: &[u8]) -> usize {
    // The lengths before each open group, the length so far, and the length of the last piece.
    let mut before = Vec::new();
    let (mut length, mut last) = (0_usize, 0_usize);
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let mut read = 1;
        match rest[0] {
            b'(' => {
                before.push(length);
                length = 0;
            }
            b')' => {
                last = length + 2;
                length = before.pop().unwrap_or_default().saturating_add(last);
            }
            b'{' if let Some((end, times)) = parse_count(rest) => {
                read = end;
                let more = last.saturating_mul(times.saturating_sub(1));
                (length, last) = (length.saturating_add(more), last.saturating_add(more));
            }
            first => {
                read = match first {
                    b'\\' => 2,
                    b'[' => class_length(rest).unwrap_or(1),
                    _ => 1,
                };
                last = read;
                length = length.saturating_add(read);
            }
        }
        at += read;
    }
    before.into_iter().fold(length, usize::saturating_add)
}

/// Implements `apr_fnmatch` without flags: `*` and `?` also match a slash, `[…]` is a class, and a backslash makes the
/// next character literal.
pub fn fnmatch(pattern: &[u8], name: &[u8]) -> bool {
    // The position to resume from if the text after the last star does not match. The time is linear for one star, and
    // quadratic at worst.
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p + 1, n));
            p += 1;
            continue;
        }
        if n == name.len() {
            return pattern[p..].iter().all(|b| *b == b'*');
        }
        match matched_element_length(&pattern[p..], name[n]) {
            Some(length) => {
                p += length;
                n += 1;
            }
            None => {
                let Some((after, from)) = star else {
                    return false;
                };
                star = Some((after, from + 1));
                p = after;
                n = from + 1;
            }
        }
    }
}

/// Returns the length of the first element of `pattern` if it matches `byte`.
fn matched_element_length(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', rest @ ..] => {
            let negated = matches!(rest.first(), Some(b'!' | b'^'));
            let start = usize::from(negated);
            let end = start + 1 + rest.get(start + 1..)?.iter().position(|b| *b == b']')?;
            let members = &rest[start..end];
            let mut at = 0;
            let mut found = false;
            while at < members.len() {
                if at + 2 < members.len() && members[at + 1] == b'-' {
                    found |= (members[at]..=members[at + 2]).contains(&byte);
                    at += 3;
                } else {
                    found |= members[at] == byte;
                    at += 1;
                }
            }
            (found != negated).then_some(end + 2)
        }
        [plain, ..] => (*plain == byte).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_without_backtracking_are_linear() {
        for text in [
            r"^(config|logs)/.*$",
            r"\.(php|phtml)(\.|$)",
            "^[a-z0-9_-]{2,}x*?$",
            r"(?:a|b)+\d\b",
        ] {
            let regex = Regex::new(text, false).unwrap();
            assert!(matches!(regex.engine, RegexEngine::Linear(_)), "{text}");
        }
        for text in [
            r"^\.(?!well-known)",
            r"(.)\1",
            "a*+b",
            r"\<b",
            "[a&&b]",
            "[[:alpha:]]",
            "(?i)x",
            "a{,3}",
            "é",
            r"\_x",
        ] {
            let regex = Regex::new(text, false).unwrap();
            assert!(
                matches!(regex.engine, RegexEngine::Backtracking(_)),
                "{text}"
            );
        }
        for text in [
            "(",
            "a)",
            "*a",
            "(|+)",
            "[z-a]",
            "a{3,1}",
            "a{999999}",
            "[a",
            "a\\",
        ] {
            // Every expression that is compiled later must compile.
            if let Some(RegexEngine::Linear(linear)) = Regex::new(text, false).map(|r| r.engine) {
                assert!(linear.get().is_ok(), "{text}");
            }
        }
        assert!(Regex::new("(", false).is_none() && Regex::new("*a", false).is_none());
    }

    #[test]
    fn engines_return_the_same_groups() {
        for (linear, backtracking) in [
            (r"^(a+)(b)?c$", r"^(a+)(b)?c$(?=)"),
            ("a.c", "a.c(?=)"),
            ("^$", "^$(?=)"),
            ("(a|ab)(c|bcd)", "(a|ab)(c|bcd)(?=)"),
            ("[^/]+$", "[^/]+$(?=)"),
        ] {
            let one = Regex::new(linear, true).unwrap();
            let other = Regex::new(backtracking, true).unwrap();
            assert!(matches!(
                (&one.engine, &other.engine),
                (RegexEngine::Linear(_), RegexEngine::Backtracking(_))
            ));
            for text in ["", "aac", "AABC", "a\nc", "xabcd", "a/b/c", "\u{e9}/\u{ff}"] {
                let (one, other) = (one.groups(text.as_bytes()), other.groups(text.as_bytes()));
                assert_eq!(one, other, "{linear} on {text}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn linear_expressions_match_as_in_pcre2(
            expression in r"([ab.^$|*+?()\[\]\\0-9,:-]|\\[wdsbWDS]|\{[0-3](,[0-9]?)?\}|\[\^?[a-c.\\w-]{1,4}\]){0,8}",
            texts in proptest::collection::vec("[abc01. /:$-]{0,6}", 4),
            ignore_case: bool,
        ) {
            let Some(regex) = Regex::new(&expression, ignore_case) else { return Ok(()) };
            let RegexEngine::Linear(linear) = &regex.engine else { return Ok(()) };
            proptest::prop_assert!(linear.get().is_ok(), "{}", expression);
            let other = pcre2::bytes::RegexBuilder::new()
                .dotall(true)
                .caseless(ignore_case)
                .build(&expression);
            proptest::prop_assert!(other.is_ok(), "only here: {}", expression);
            let other = Regex { engine: RegexEngine::Backtracking(Box::new(other.unwrap())) };
            // One of the engines omits groups that are not part of the match.
            let groups = |regex: &Regex, text: &str| {
                let groups = regex.groups(text.as_bytes()).unwrap();
                groups.map(|groups| (0..10).map(|n| groups.get(n).cloned().flatten()).collect::<Groups>())
            };
            for text in texts {
                let (one, other) = (groups(&regex, &text), groups(&other, &text));
                proptest::prop_assert_eq!(one, other, "{} on {}", expression, text);
            }
        }
    }

    #[test]
    fn repetitions_weigh_their_written_out_length() {
        for (text, weight) in [
            ("", 0),
            ("abc", 3),
            (r"a\.b", 4),
            ("a{3}b", 4),
            ("a{2,5}", 5),
            ("[a-z]{10}", 50),
            ("(ab){3}", 12),
            ("((?:ab){10}c){10}", 630),
            ("a{1,}", 1),
        ] {
            assert_eq!(written_out_length(text.as_bytes()), weight, "{text}");
        }
        assert_eq!(
            written_out_length("((((a{100}){100}){100}){100}){100}".as_bytes()) >> 33,
            1
        );
        written_out_length(b"((a{9}){9}){9");
    }

    #[test]
    fn explosive_expression_reaches_its_limit() {
        let regex = Regex::new(r"^(a*)*(?!b)$", false).unwrap();
        let text = [&b"a".repeat(40)[..], b"!"].concat();
        assert_eq!(regex.is_match(&text), Err(LimitReached));
        let long = b"a".repeat(MAX_TEXT_BYTES + 1);
        assert_eq!(regex.is_match(&long), Err(LimitReached));
    }

    #[test]
    fn shell_patterns_match_as_apr_fnmatch() {
        for (pattern, name, matches) in [
            ("*", "", true),
            ("*.php", "x.php", true),
            ("*.php", "x.php5", false),
            ("a?c", "abc", true),
            ("[a-c]x[!0-9]", "bxy", true),
            ("[a-c]x[!0-9]", "bx1", false),
            (r"\*x", "*x", true),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "aba", false),
            ("[x", "[x", false),
        ] {
            assert_eq!(
                fnmatch(pattern.as_bytes(), name.as_bytes()),
                matches,
                "{pattern} {name}"
            );
        }
        let stars = "*a".repeat(30);
        assert!(!fnmatch(stars.as_bytes(), &b"a".repeat(29)));
    }
}
