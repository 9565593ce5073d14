//! The arguments of `RewriteRule`, `RewriteCond` and `Redirect` into what `rewrite.rs` walks. Pure.

use super::pattern::Regex;
use super::rewrite::{Condition, RewriteRule, Target, Test};

/// The next argument as mod_rewrite splits them: quotes are taken off, backslashes stay.
fn argument(text: &str) -> (&str, &str) {
    let text = text.trim_ascii_start();
    let bytes = text.as_bytes();
    let quote = bytes.first().copied().filter(|b| matches!(b, b'"' | b'\''));
    let start = usize::from(quote.is_some());
    let mut at = start;
    while at < bytes.len() {
        match (bytes[at], quote) {
            (b'\\', _) if at + 1 < bytes.len() => at += 1,
            (byte, Some(quote)) if byte == quote => {
                return (&text[start..at], &text[at + 1..]);
            }
            (byte, None) if byte.is_ascii_whitespace() => return (&text[..at], &text[at..]),
            _ => {}
        }
        at += 1;
    }
    (&text[start..], "")
}

/// The flags in `[…]`, as (key in lower case, value). As in Apache they are one argument, and what
/// follows it is of no matter.
fn flags(text: &str) -> Option<Vec<(String, String)>> {
    let (text, _) = argument(text);
    if text.is_empty() {
        return Some(Vec::new());
    }
    let inside = text.strip_prefix('[')?.strip_suffix(']')?;
    let flags = inside.split(',').map(|flag| {
        let (key, value) = flag.split_once('=').unwrap_or((flag, ""));
        let key = key.trim_ascii().trim_matches('"').to_ascii_lowercase();
        (key, value.trim_ascii().trim_matches('"').to_owned())
    });
    Some(flags.filter(|(key, _)| !key.is_empty()).collect())
}

/// A `RewriteRule`. `None` if Apache would refuse it.
pub(super) fn rule(line: u32, rest: &str, conditions: Vec<Condition>) -> Option<RewriteRule> {
    let (pattern, rest) = argument(rest);
    let (to, rest) = argument(rest);
    if to.is_empty() {
        return None;
    }
    let (negated, pattern) = match pattern.strip_prefix('!') {
        Some(pattern) => (true, pattern),
        None => (false, pattern),
    };
    let flags = flags(rest)?;
    let ignore_case = flags
        .iter()
        .any(|(key, _)| matches!(&**key, "nc" | "nocase"));
    let mut rule = RewriteRule {
        line,
        pattern: Regex::new(pattern, ignore_case)?,
        negated,
        conditions,
        target: match to {
            "-" => Target::Same,
            to if is_url(to) => Target::Redirect,
            to => Target::Elsewhere(to.to_owned()),
        },
        last: false,
        chained: false,
        uses_groups: true,
        uses_condition_groups: true,
        skip: 0,
        again: false,
        handler: None,
    };
    for (key, value) in flags {
        match &*key {
            "f" | "forbidden" => rule.target = Target::Refuse(403),
            "g" | "gone" => rule.target = Target::Refuse(410),
            "r" | "redirect" => {
                let status = match &*value {
                    "" => 302,
                    value => status_of(value)?,
                };
                rule.target = match status {
                    400.. => Target::Refuse(status),
                    _ => Target::Redirect,
                };
            }
            "l" | "last" | "end" | "pt" | "passthrough" | "p" | "proxy" => rule.last = true,
            "c" | "chain" => rule.chained = true,
            "s" | "skip" => rule.skip = value.parse().ok()?,
            "n" | "next" => rule.again = true,
            "h" | "handler" | "t" | "type" => rule.handler = Some(is_php(&value)),
            "nc" | "nocase" | "co" | "cookie" | "e" | "env" | "ne" | "noescape" | "ns"
            | "nosubreq" | "qsa" | "qsappend" | "qsd" | "qsdiscard" | "qsl" | "qslast" | "b"
            | "bnp" | "bne" | "bctls" | "dpi" | "discardpath" | "unsafeallow3f"
            | "unsafeprefixstat" => {}
            // The rest of a quoted value with a comma in it.
            key if key.starts_with("backrefnoplus") || key.starts_with("bctls") => {}
            _ => return None,
        }
    }
    let mut texts: Vec<&str> = rule.conditions.iter().flat_map(Condition::texts).collect();
    if let Target::Elsewhere(to) = &rule.target {
        texts.push(to);
    }
    let name = |sign| texts.iter().any(|text| names_group(text, sign));
    (rule.uses_groups, rule.uses_condition_groups) = (name(b'$'), name(b'%'));
    Some(rule)
}

/// Whether a text has `$1` or, by the other sign, `%1`.
fn names_group(text: &str, sign: u8) -> bool {
    text.as_bytes()
        .windows(2)
        .any(|two| two[0] == sign && two[1].is_ascii_digit())
}

/// A `RewriteCond`. `None` if Apache would refuse it.
pub(super) fn condition(rest: &str) -> Option<Condition> {
    let (text, rest) = argument(rest);
    let (pattern, rest) = argument(rest);
    let (mut or, mut ignore_case) = (false, false);
    for (key, _) in flags(rest)? {
        match &*key {
            "or" | "ornext" => or = true,
            "nc" | "nocase" => ignore_case = true,
            "nv" | "novary" => {}
            _ => return None,
        }
    }
    let (negated, pattern) = match pattern.strip_prefix('!') {
        Some(pattern) => (true, pattern),
        None => (false, pattern),
    };
    let test = match pattern.as_bytes() {
        _ if text.eq_ignore_ascii_case("expr") => Test::Unknown,
        [b'-', letter] if b"fdslhLxFU".contains(letter) => Test::Is(*letter),
        [b'-', b'e' | b'n' | b'l' | b'g', b'q' | b'e' | b't', ..] => Test::Unknown,
        [b'>' | b'<', ..] => Test::Unknown,
        [b'=', b'"', b'"'] => Test::Equals(String::new()),
        [b'=', ..] => Test::Equals(pattern[1..].to_owned()),
        _ => Test::Matches(Regex::new(pattern, ignore_case)?),
    };
    Some(Condition {
        text: text.to_owned(),
        test,
        negated,
        ignore_case,
        or,
    })
}

/// The condition of an `<If>` that compares one variable of the request with one expression or text, as
/// `%{REQUEST_URI} =~ m#\.log$#`. `None` for any other.
pub(super) fn simple_expression(text: &str) -> Option<Condition> {
    let text = text.trim_ascii();
    let end = text.find('}')?;
    let (variable, rest) = text.split_at(end + 1);
    let rest = rest.trim_ascii_start();
    let (negated, equals, value) = if let Some(value) = rest.strip_prefix("=~") {
        (false, false, value)
    } else if let Some(value) = rest.strip_prefix("!~") {
        (true, false, value)
    } else if let Some(value) = rest.strip_prefix("==") {
        (false, true, value)
    } else if let Some(value) = rest.strip_prefix("!=") {
        (true, true, value)
    } else {
        return None;
    };
    let value = value.trim_ascii();
    let test = match equals {
        true => {
            let value = value.strip_prefix('\'')?.strip_suffix('\'')?;
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./ ".contains(c);
            Test::Equals(value.chars().all(plain).then(|| value.to_owned())?)
        }
        false => {
            let value = value.strip_prefix('m').unwrap_or(value);
            let delimiter = value.chars().next().filter(char::is_ascii_punctuation)?;
            let (pattern, flags) = value[1..].rsplit_once(delimiter)?;
            if pattern.contains(delimiter) || !matches!(flags, "" | "i") {
                return None;
            }
            Test::Matches(Regex::new(pattern, flags == "i")?)
        }
    };
    let condition = Condition {
        text: variable.to_owned(),
        test,
        negated,
        ignore_case: false,
        or: false,
    };
    let is_one = variable.starts_with("%{") && variable.matches("%{").count() == 1;
    (is_one && !depends(&condition)).then_some(condition)
}

/// What the condition asks is not known here: who the visitor is, by which way the request came,
/// what time it is.
pub(super) fn depends(condition: &Condition) -> bool {
    const KNOWN: &[&str] = &[
        "DOCUMENT_ROOT",
        "ENV:REDIRECT_STATUS",
        "HTTP_ACCEPT",
        "HTTP_COOKIE",
        "HTTP_FORWARDED",
        "HTTP_HOST",
        "HTTP_REFERER",
        "HTTP_USER_AGENT",
        "IS_SUBREQ",
        "PATH_INFO",
        "QUERY_STRING",
        "REQUEST_FILENAME",
        "REQUEST_METHOD",
        "REQUEST_URI",
        "SCRIPT_FILENAME",
        "SERVER_NAME",
        "THE_REQUEST",
    ];
    let unknown = condition.text.split("%{").skip(1).any(|rest| {
        let name = rest.split('}').next().unwrap_or_default();
        !name.starts_with("HTTP:") && !KNOWN.contains(&name)
    });
    unknown || condition.text.contains("${") || matches!(condition.test, Test::Unknown)
}

/// `https://…`, `ftp:…`
fn is_url(to: &str) -> bool {
    let scheme = to.split(':').next().unwrap_or_default();
    scheme.len() < to.len()
        && scheme.len() > 1
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'+')
        && (to[scheme.len()..].starts_with("://") || scheme == "mailto")
        || to.starts_with("%{REQUEST_SCHEME}://")
}

/// A status by number or by mod_alias' words; `None` for anything else.
pub(super) fn status_of(word: &str) -> Option<u16> {
    match &*word.to_ascii_lowercase() {
        "permanent" => Some(301),
        "temp" => Some(302),
        "seeother" => Some(303),
        "gone" => Some(410),
        "forbidden" => Some(403),
        number if number.len() == 3 => number.parse().ok().filter(|s| (100..600).contains(s)),
        _ => None,
    }
}

/// A handler or media type by which PHP is run: mod_php's and php-fpm's names for it.
pub(super) fn is_php(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    (name.contains("php") && !name.contains("source"))
        || name.starts_with("proxy:")
        || matches!(&*name, "fcgid-script" | "fastcgi-script")
}
