//! Translates file names and texts with `*` into expressions for paths.

use crate::expression::{ExpressionChar, alternatives, classify_chars, compile, compile_path};

/// Translates a text with `*`, `?` and `[…]` into an expression without anchors. The wildcards match a slash only if
/// `across` is true.
pub fn wildcard_regex(text: &str, across: bool) -> Result<String, String> {
    let (any, one) = if across {
        (".*", ".")
    } else {
        ("[^/]*", "[^/]")
    };
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '*' => out += any,
            '?' => out += one,
            '[' => {
                let rest = chars.as_str();
                let Some(end) = rest.char_indices().skip(1).find(|(_, c)| *c == ']') else {
                    return Err("`[` without `]`".to_owned());
                };
                let class = &rest[..end.0];
                let class = class
                    .strip_prefix('!')
                    .map_or(class.to_owned(), |class| format!("^/{class}"));
                out += &format!("[{class}]");
                chars = rest[end.0 + 1..].chars();
            }
            '\\' => {
                let next = chars.next().unwrap_or('\\');
                out += &regex::escape(&next.to_string());
            }
            c => out += &regex::escape(c.encode_utf8(&mut [0; 4])),
        }
    }
    compile(&out)?;
    Ok(out)
}

/// Returns the paths of files with a name of `<Files>`: the end of a path, from its last slash on.
pub fn file_name_regex(name: &str) -> Result<String, String> {
    Ok(format!("/{}$", wildcard_regex(name, false)?))
}

/// Returns the paths of files whose names match an expression of `<FilesMatch>`. No part of it matches across a slash.
///
/// # Errors
/// Returns a sentence if rules do not support the expression.
pub fn file_expression_regex(expression: &str) -> Result<String, String> {
    compile_path(expression)?;
    let (flags, body) = match expression.strip_prefix("(?i)") {
        Some(body) => ("(?i)", body),
        None => ("", expression),
    };
    let mut choices = Vec::new();
    for choice in alternatives(body) {
        let (begins, choice) = match choice.strip_prefix('^') {
            Some(choice) => (true, choice),
            None => (false, choice),
        };
        let ends = choice.ends_with('$') && !choice.ends_with("\\$");
        let choice = if ends {
            &choice[..choice.len() - 1]
        } else {
            choice
        };
        let begin = if begins { "/" } else { "/[^/]*" };
        let end = if ends { "$" } else { "[^/]*$" };
        choices.push(format!("{begin}{}{end}", exclude_slashes(choice)?));
    }
    let all = match &choices[..] {
        [only] => format!("{flags}{only}"),
        _ => format!("{flags}(?:{})", choices.join("|")),
    };
    compile_path(&all)?;
    Ok(all)
}

/// Rewrites `.` and `[^…]` so that they do not match a slash.
fn exclude_slashes(expression: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut before = 0;
    for (at, mark) in classify_chars(expression) {
        match mark {
            ExpressionChar::Plain('.') => {
                out += &expression[before..at];
                out += "[^/]";
                before = at + 1;
            }
            ExpressionChar::InClass if expression[at..].starts_with("[^") => {
                out += &expression[before..at];
                out += if expression[at + 2..].starts_with('/') {
                    "[^"
                } else {
                    "[^/"
                };
                before = at + 2;
            }
            ExpressionChar::Plain('^' | '$') => {
                return Err(
                    "write the expression with `^` at its beginning and `$` at its end only"
                        .to_owned(),
                );
            }
            ExpressionChar::Plain('(')
                if expression[at..].starts_with("(?<") || expression[at..].starts_with("(?P<") => {}
            _ => {}
        }
    }
    Ok(out + &expression[before..])
}

#[cfg(test)]
mod tests {
    use super::super::region::{contains_path, covers, file_paths_in};
    use super::*;
    use crate::rule_condition::PathMatch;

    #[test]
    fn file_names_match_the_end_of_paths() {
        for (expression, yes, no) in [
            (r"^\.ht", "/a/.htaccess", "/a.ht"),
            (r".+\.ph(?:ar|p|tml)$", "/a/b.php", "/a.php/c"),
            (r"\.(log|sql)", "/a/x.sql.gz", "/x.sql/index"),
            ("^(login|x).*$", "/a/login.php", "/login/secret"),
            (
                "^wp-config.php$|^readme",
                "/b/readme.html",
                "/b/wp-config.php5",
            ),
            ("[^.]+", "/abc", "/"),
            ("(?i)\\.INC$", "/x.inc", "/x.incl"),
        ] {
            let own = PathMatch::Regex(file_expression_regex(expression).unwrap());
            assert!(contains_path(&own, yes), "{expression}: {own:?}");
            assert!(!contains_path(&own, no), "{expression}: {own:?}");
        }
        assert!(file_expression_regex("a(^b|c$)").is_err());
        let inner = file_paths_in(
            &PathMatch::Prefix("/a".into()),
            &file_name_regex("*.inc").unwrap(),
        )
        .unwrap();
        assert!(
            contains_path(&inner, "/a/b/x.inc")
                && contains_path(&inner, "/a/x.inc")
                && !contains_path(&inner, "/b/x.inc")
        );
        assert!(covers(&PathMatch::Prefix("/a".into()), &inner));
        assert!(!covers(&PathMatch::Prefix("/b".into()), &inner));
    }
}
