//! Regular expressions for Howdah's rules. An expression that a rule does not support is refused here, with the reason,
//! before it is written. Expressions for paths may use the syntax of PCRE; those of conditions may not.

use howdah_htaccess::rule_expression::RuleExpression;
use regex::bytes::{Regex, RegexBuilder};

use crate::rule_condition::PathMatch;

/// Compiles an expression for paths as a rule does.
///
/// # Errors
/// Returns a sentence if the expression is invalid or not supported in rules.
pub fn compile_path(text: &str) -> Result<RuleExpression, String> {
    RuleExpression::new(text).map_err(|why| {
        let why = why.lines().last().unwrap_or_default();
        let why = why.strip_prefix("error: ").unwrap_or(why);
        format!("rules cannot use this expression ({why})")
    })
}

/// Returns whether an expression matches. If this cannot be determined, returns true.
pub fn may_match(expression: &RuleExpression, text: &str) -> bool {
    expression.is_match(text.as_bytes()).unwrap_or(true)
}

/// Returns whether a client could choose the host of a redirect through a variable or a group in the target. A group is
/// harmless if it begins the target or follows the host and always begins with a slash, or if it can only be a label of
/// the host's name.
pub fn client_may_choose_host(target: &str, paths: &PathMatch) -> bool {
    let marks = ["https://", "http://", "//"];
    let authority = marks.iter().find_map(|mark| target.strip_prefix(mark));
    let host = authority.unwrap_or(target);
    let host = &host[..host.find(['/', '?', '#']).unwrap_or(host.len())];
    // `$host` is the only variable that contains a host. In `https://$request_uri`, the client's path would determine
    // the host.
    let is_variable = host.starts_with('$') && !host.starts_with("${");
    if authority.is_some() && is_variable && !host.starts_with("$host") {
        return true;
    }
    let Some((before, rest)) = host.split_once("${") else {
        return false;
    };
    if authority.is_none() && !before.is_empty() {
        return false;
    }
    let (group, after) = rest.split_once('}').unwrap_or((rest, ""));
    // The groups of an expression that needs PCRE are not analysed.
    let (PathMatch::Regex(expression), Ok(group)) = (paths, group.parse()) else {
        return true;
    };
    if compile(expression).is_err() {
        return true;
    }
    let begins_path = authority.is_none() || !before.is_empty();
    let begins_label = before.is_empty() || before.ends_with('.');
    let is_label =
        begins_label && after.starts_with('.') && matches_only_label_chars(expression, group);
    !(begins_path && begins_with_slash(expression, group) || authority.is_some() && is_label)
}

/// The remark in the list where [`client_may_choose_host`] returns true.
pub const CLIENT_CHOOSES_HOST_REMARK: &str = "write a target that begins with a slash, because a client could choose the host here; until then, the response is a 404";

/// Returns whether the text that a group matches begins with a slash: the group's expression begins with one, or the
/// group is the `(.*)` at the beginning of the path.
fn begins_with_slash(expression: &str, group: usize) -> bool {
    let (_, body) = split_flags(expression);
    match group_text(body, group) {
        Some((at, inside)) => match inside.strip_prefix('/') {
            Some(rest) => !rest.starts_with(['?', '*', '{']),
            None => at == 1 && body.starts_with("^(.*)"),
        },
        None => false,
    }
}

/// Returns whether a group matches only letters, digits, `-` and `_`.
fn matches_only_label_chars(expression: &str, group: usize) -> bool {
    let found = group_text(split_flags(expression).1, group);
    found.is_some_and(|(_, inside)| {
        let inside = inside.trim_end_matches(['+', '*']);
        let class = inside
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        match class {
            Some(class) => class.chars().all(plain),
            None => inside.chars().all(plain),
        }
    })
}

/// Returns the position and content of a group; `None` in an expression with alternatives.
fn group_text(body: &str, group: usize) -> Option<(usize, &str)> {
    let plain = || {
        classify_chars(body).filter_map(|(at, mark)| match mark {
            ExpressionChar::Plain(c) => Some((at, c)),
            _ => None,
        })
    };
    if plain().any(|(_, c)| c == '|') {
        return None;
    }
    let opens = plain().filter(|(at, c)| {
        let rest = &body[at + 1..];
        *c == '(' && !rest.starts_with('?')
    });
    let (at, _) = opens.into_iter().nth(group.checked_sub(1)?)?;
    let mut depth = 0usize;
    let end = plain()
        .skip_while(|(place, _)| *place < at)
        .find_map(|(place, c)| {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            (depth == 0).then_some(place)
        })?;
    Some((at, &body[at + 1..end]))
}

/// Combines two expressions into one for the paths that match both; the groups are those of the second.
///
/// # Errors
/// Returns an error if the first has named groups or refers to groups.
pub fn intersection(first: &str, second: &str) -> Result<String, String> {
    if begins_with_same_text(first, second) {
        return Ok(second.to_owned());
    }
    let ahead = as_look_ahead(first)?;
    let (flags, own) = split_flags(second);
    let anchored = own
        .strip_prefix('^')
        .filter(|rest| has_single_alternative(rest));
    let joined = match (anchored, flags) {
        (Some(rest), "") => format!("^(?={ahead}){rest}"),
        (Some(rest), _) => format!("^(?={ahead})(?i:{rest})"),
        (None, "") => format!("^(?={ahead}).*?(?:{own})"),
        (None, _) => format!("^(?={ahead}).*?(?i:{own})"),
    };
    compile_path(&joined)?;
    Ok(joined)
}

/// Returns whether the first expression is `^` with plain text and the second begins with the same text.
fn begins_with_same_text(first: &str, second: &str) -> bool {
    let (Some(escaped), Some(rest)) = (first.strip_prefix('^'), second.strip_prefix('^')) else {
        return false;
    };
    let text = escaped.replace('\\', "");
    if regex::escape(&text) != escaped || !has_single_alternative(second) {
        return false;
    }
    let rest = rest
        .strip_prefix(escaped)
        .or_else(|| rest.strip_prefix(text.as_str()));
    let operators = ['?', '*', '+', '{'];
    rest.is_some_and(|rest| !rest.starts_with(operators)) && !text.contains('.')
}

/// Rewrites an expression so that it can be used in a look-ahead at the beginning of the path without adding groups.
fn as_look_ahead(expression: &str) -> Result<String, String> {
    let (flags, body) = split_flags(expression);
    let mut out = String::new();
    let mut chars = body.chars().peekable();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                let next = chars.next();
                if !in_class && next.is_some_and(|next| matches!(next, '1'..='9' | 'g' | 'k')) {
                    return Err(
                        "write one expression that matches the paths of both patterns".to_owned(),
                    );
                }
                out.push(c);
                out.extend(next);
                continue;
            }
            '[' if !in_class => {
                in_class = true;
                out.push(c);
                // A `]` at the beginning of a class is a member of the class.
                out.extend(chars.next_if_eq(&'^'));
                out.extend(chars.next_if_eq(&']'));
                continue;
            }
            ']' => in_class = false,
            '(' if !in_class && chars.peek() != Some(&'?') => {
                out.push_str("(?:");
                continue;
            }
            '(' if !in_class => {
                let rest: String = chars.clone().take(3).collect();
                let is_named = rest.starts_with("?P<")
                    || rest.starts_with("?'")
                    || rest.starts_with("?<")
                        && !rest.starts_with("?<=")
                        && !rest.starts_with("?<!");
                if is_named {
                    return Err(
                        "write one expression that matches the paths of both patterns".to_owned(),
                    );
                }
            }
            _ => {}
        }
        out.push(c);
    }
    let anchored = out
        .strip_prefix('^')
        .filter(|rest| has_single_alternative(rest));
    let any_case = if flags.is_empty() { "(?:" } else { "(?i:" };
    Ok(match anchored {
        Some(rest) => format!("{any_case}{rest})"),
        None => format!(".*?{any_case}{out})"),
    })
}

/// Returns whether there is no `|` outside groups and classes.
fn has_single_alternative(expression: &str) -> bool {
    alternatives(expression).len() == 1
}

/// Compiles an expression for the value of a condition.
///
/// # Errors
/// Returns a sentence if the expression is invalid or uses features of PCRE only (look-around, back-references).
pub fn compile(text: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(text)
        .unicode(false)
        .dot_matches_new_line(true)
        .size_limit(1 << 20)
        .build();
    built.map_err(|error| {
        let error = error.to_string();
        let why = error.lines().last().unwrap_or_default();
        let why = why.strip_prefix("error: ").unwrap_or(why);
        format!("conditions cannot use this expression ({why}): write it without look-around and back-references")
    })
}

/// Returns one expression for the paths that begin with `prefix` and match `expression`.
pub fn limit_to_prefix(prefix: &str, expression: &str) -> Result<String, String> {
    let escaped = regex::escape(prefix);
    let (flags, body) = split_flags(expression);
    if prefix.is_empty() || prefix == "/" || prefix == "^" {
        return Ok(expression.to_owned());
    }
    match body.strip_prefix('^') {
        None => Ok(format!("{flags}^{escaped}.*(?:{body})")),
        Some(rest) if rest.starts_with(&escaped) || rest.starts_with(prefix) => {
            Ok(expression.to_owned())
        }
        // `^(.*)$` and `^/(.*)$` match the whole path.
        Some("(.*)$" | "(.*)" | "(.+)$") => Ok(format!("{flags}^({escaped}.*)$")),
        Some("/(.*)$" | "/(.*)" | "/(.+)$") => {
            let rest = regex::escape(prefix.trim_start_matches('/'));
            Ok(format!("{flags}^/({rest}.*)$"))
        }
        Some("" | ".*" | ".*$" | ".") => Ok(format!("{flags}^{escaped}")),
        Some(_) => intersection(&format!("^{escaped}"), expression),
    }
}

/// Splits off a leading `(?i)`.
fn split_flags(expression: &str) -> (&str, &str) {
    match expression.strip_prefix("(?i)") {
        Some(rest) => ("(?i)", rest),
        None => ("", expression),
    }
}

/// Returns the extensions that an expression of the form `\.(a|b)$` matches; `None` for any other form.
pub fn extensions(expression: &str) -> Option<Vec<String>> {
    let text = expression.strip_prefix("(?i)").unwrap_or(expression);
    let text = text.strip_suffix('$')?;
    let at = text.rfind(r"\.")?;
    let names = &text[at + 2..];
    let names = match names
        .strip_prefix("(?:")
        .or_else(|| names.strip_prefix('('))
    {
        Some(names) => names.strip_suffix(')')?,
        None => names,
    };
    let mut found = Vec::new();
    for name in names.split('|') {
        if !name.is_ascii() {
            return None;
        }
        // An optional letter gives two extensions, as in `jpe?g` and `woff2?`.
        let variants = match name.find('?') {
            Some(0) => return None,
            Some(at) => vec![
                format!("{}{}", &name[..at], &name[at + 1..]),
                format!("{}{}", &name[..at - 1], &name[at + 1..]),
            ],
            None => vec![name.to_owned()],
        };
        for name in variants {
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
                return None;
            }
            found.push(name.to_ascii_lowercase());
        }
    }
    Some(found)
}

/// Checks that the rule's own expression has all groups that its target uses.
///
/// # Errors
/// Returns a sentence that names the missing group.
pub fn check_groups(target: &str, paths: &PathMatch) -> Result<(), String> {
    let groups = match paths {
        PathMatch::Regex(expression) => compile_path(expression)?.groups_len(),
        _ => 1,
    };
    let named = (0..10).find(|n| *n >= groups && target.contains(&format!("${{{n}}}")));
    match named {
        Some(n) => Err(format!(
            "${n} must be a group of the expression of the same rule"
        )),
        None => Ok(()),
    }
}

/// Removes look-ahead and look-behind groups. The result matches everything that the original expression matches.
pub fn without_look_around(expression: &str) -> String {
    let mut out = String::new();
    let mut rest = expression;
    while let Some(at) = ["(?!", "(?=", "(?<!", "(?<="]
        .iter()
        .filter_map(|mark| rest.find(mark))
        .min()
    {
        out += &rest[..at];
        let mut depth = 0usize;
        let mut escaped = false;
        let end = rest[at..].char_indices().find_map(|(index, c)| {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            (depth == 0 && index > 0).then_some(at + index + 1)
        });
        let Some(end) = end else {
            return expression.to_owned();
        };
        rest = &rest[end..];
    }
    out + rest
}

/// Returns the alternatives of an expression, split at each `|` outside parentheses.
pub fn alternatives(expression: &str) -> Vec<&str> {
    let mut depth = 0usize;
    let mut begin = 0;
    let mut found = Vec::new();
    for (at, mark) in classify_chars(expression) {
        match mark {
            ExpressionChar::Plain('(') => depth += 1,
            ExpressionChar::Plain(')') => depth = depth.saturating_sub(1),
            ExpressionChar::Plain('|') if depth == 0 => {
                found.push(&expression[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.push(&expression[begin..]);
    found
}

/// How a character of an expression is to be read.
pub enum ExpressionChar {
    /// A literal or an operator.
    Plain(char),
    /// A backslash, or the character after it.
    Escaped,
    /// A character of a class in brackets, including the brackets.
    InClass,
}

/// Returns the characters of an expression, each with its position.
pub fn classify_chars(expression: &str) -> impl Iterator<Item = (usize, ExpressionChar)> + '_ {
    let mut escaped = false;
    let mut class: Option<usize> = None;
    expression.char_indices().map(move |(at, c)| {
        if std::mem::take(&mut escaped) {
            return (at, ExpressionChar::Escaped);
        }
        if c == '\\' {
            escaped = true;
            return (at, ExpressionChar::Escaped);
        }
        match class {
            Some(begin) => {
                let first =
                    at == begin + 1 || at == begin + 2 && expression[begin + 1..].starts_with('^');
                if c == ']' && !first {
                    class = None;
                }
                (at, ExpressionChar::InClass)
            }
            None if c == '[' => {
                class = Some(at);
                (at, ExpressionChar::InClass)
            }
            None => (at, ExpressionChar::Plain(c)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expression_is_limited_to_a_prefix() {
        for (prefix, expression, both) in [
            ("/a/", r"\.php$", Ok(r"^/a/.*(?:\.php$)")),
            ("/a/", r"(?i)\.php$", Ok(r"(?i)^/a/.*(?:\.php$)")),
            ("/a", "^/a/x", Ok("^/a/x")),
            ("/", "^/b", Ok("^/b")),
            ("/a/", "^/(.*)$", Ok("^/(a/.*)$")),
            ("/a/", "^(.*)$", Ok("^(/a/.*)$")),
        ] {
            assert_eq!(limit_to_prefix(prefix, expression), both.map(str::to_owned));
        }
        assert_eq!(
            limit_to_prefix("/a/", "^/[ab]/").unwrap(),
            "^(?=(?:/a/))/[ab]/"
        );
        assert!(compile("(?=x)").unwrap_err().contains("look-around"));
    }

    #[test]
    fn client_chosen_host_is_detected() {
        for (expression, target, may) in [
            ("^/cgi-bin(.*)$", "${1}", true),
            ("^/cgi-bin(/.*)$", "${1}", false),
            ("^(.*)$", "${1}", false),
            ("^/a(?:b)(/c)", "${1}", false),
            ("^/a(/?c)", "${1}", true),
            ("^/a(/c|b)", "${1}", true),
            ("^/a(.*)$", "/b${1}", false),
            ("^/a(.*)$", "https://b.test${1}", true),
            ("^/a(.*)$", "https://b.test/${1}", false),
            ("^(.*)$", "https://b.test${1}", false),
            ("^(.*)$", "https://${1}", true),
            ("^/([a-z]+)/(.*)$", "https://${1}.b.test/${2}", false),
            ("^/([^.]+)/(.*)$", "https://${1}.b.test/${2}", true),
            ("^/a", "//b.test$request_uri", false),
            ("^/a", "https://$request_uri", true),
            ("^/a", "https://$host$request_uri", false),
        ] {
            let paths = PathMatch::Regex(expression.to_owned());
            let found = client_may_choose_host(target, &paths);
            assert_eq!(found, may, "{expression} {target}");
        }
    }

    #[test]
    fn extensions_are_read_from_expressions() {
        for (expression, names) in [
            (r"\.php$", Some("php")),
            (r"(?i)^.+\.(?:css|jpe?g)$", Some("css jpeg jpg")),
            (r"\.(woff2?)$", Some("woff2 woff")),
            (r"\.php(/|$)", None),
            (r"\.[a-z]+$", None),
            ("^/a", None),
        ] {
            let found = extensions(expression).map(|names| names.join(" "));
            assert_eq!(found.as_deref(), names, "{expression}");
        }
        assert!(extensions(r"\.é?$").is_none());
    }

    #[test]
    fn expressions_are_widened_where_they_look_around() {
        assert_eq!(without_look_around(r"/\.(?!well-known).*"), r"/\..*");
        assert_eq!(without_look_around(r"^/a(?!b(c)\)d)e$"), "^/ae$");
        assert_eq!(without_look_around("^/a(?!b"), "^/a(?!b");
        assert_eq!(without_look_around("^/a"), "^/a");
    }
}
