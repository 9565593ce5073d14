//! The condition of an `if` as conditions of a rule.

use super::variables::{Constants, constant, has_variables};
use crate::directive::Directive;
use crate::expression::{compile, compile_path};
use crate::when::{Match, When};

/// What an `if` asks, and whether the rule is for what it is not.
///
/// # Errors
/// What rules cannot ask: a sentence.
pub fn condition(block: &Directive, constants: &Constants) -> Result<When, String> {
    let words = words(block, constants);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [
            "!-e" | "!-f" | "!-d",
            "$request_filename" | "${request_filename}",
        ] => Ok(When::missing()),
        [variable] if variable.starts_with('$') => test(variable, "*"),
        [variable, "=", value] => equal(variable, value),
        [variable, "!=", value] => Ok(When::default().but(equal(variable, value)?)),
        [variable, "~", value] => matching(variable, value, false),
        [variable, "~*", value] => matching(variable, value, true),
        [variable, "!~", value] => Ok(When::default().but(matching(variable, value, false)?)),
        [variable, "!~*", value] => Ok(When::default().but(matching(variable, value, true)?)),
        _ => Err("rules have no such condition".to_owned()),
    }
}

/// Whether an `if` asks for what is no directory: a rule for what is missing leaves files alone, too.
pub fn asks_for_no_directory(block: &Directive, constants: &Constants) -> bool {
    words(block, constants)
        .first()
        .is_some_and(|word| word == "!-d")
}

/// Whether an `if` asks for what is no file: a directory is none, although it is not missing.
pub fn asks_for_no_file(block: &Directive, constants: &Constants) -> bool {
    words(block, constants)
        .first()
        .is_some_and(|word| word == "!-f")
}

/// Without the parentheses around them.
fn words(block: &Directive, constants: &Constants) -> Vec<String> {
    let mut words: Vec<String> = block
        .args
        .iter()
        .map(|word| constant(word, constants))
        .collect();
    if let Some(first) = words.first_mut()
        && let Some(rest) = first.strip_prefix('(')
    {
        *first = rest.to_owned();
    }
    if let Some(last) = words.last_mut()
        && let Some(rest) = last.strip_suffix(')')
    {
        *last = rest.to_owned();
    }
    // `( $a = "" )`: an empty word in the middle means something, at the ends it does not.
    if words.first().is_some_and(String::is_empty) {
        words.remove(0);
    }
    if words.len() > 3 && words.last().is_some_and(String::is_empty) {
        words.pop();
    }
    for word in &mut words {
        if let Some(name) = word
            .strip_prefix("${")
            .and_then(|rest| rest.strip_suffix('}'))
        {
            *word = format!("${name}");
        }
    }
    words
}

fn equal(variable: &str, value: &str) -> Result<When, String> {
    if has_variables(value) {
        return Err("rules compare with texts, not with variables".to_owned());
    }
    match variable {
        "$host" | "$http_host" => {
            let test = format!("~* ^{}(?::[0-9]+)?$", regex::escape(value));
            return Ok(When::test("header", "Host", test));
        }
        "$request_method" => {
            return Ok(When::methods(vec![value.to_owned()]));
        }
        "$remote_addr" if value.parse::<std::net::IpAddr>().is_ok() => {
            return Ok(When::clients(vec![value.to_owned()]));
        }
        "$uri" | "$document_uri" | "$request_uri"
            if value.starts_with('/') && !value.contains('?') =>
        {
            return Ok(When::paths(Match::Path(value.to_owned())));
        }
        _ => {}
    }
    match value.contains('*') || value.starts_with('~') {
        true => test(variable, &format!("~ ^{}$", regex::escape(value))),
        false => test(variable, value),
    }
}

fn matching(variable: &str, expression: &str, any_case: bool) -> Result<When, String> {
    if variable == "$request_method" {
        let names = expression.trim_start_matches('^').trim_end_matches('$');
        let names = names.trim_start_matches('(').trim_end_matches(')');
        let names: Vec<String> = names.split('|').map(str::to_owned).collect();
        let plain =
            |name: &String| !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase());
        if !names.iter().all(plain) {
            return Err("rules name methods".to_owned());
        }
        return Ok(When::methods(names));
    }
    if matches!(variable, "$uri" | "$document_uri")
        || variable == "$request_uri" && !expression.contains(r"\?") && !expression.contains('=')
    {
        let flags = if any_case { "(?i)" } else { "" };
        compile_path(expression)?;
        return Ok(When::paths(Match::Regex(format!("{flags}{expression}"))));
    }
    compile(expression)?;
    let mark = if any_case { "~*" } else { "~" };
    test(variable, &format!("{mark} {expression}"))
}

fn test(variable: &str, test: &str) -> Result<When, String> {
    let name = variable.trim_start_matches('$');
    if name.ends_with('_') {
        return Err(format!("rules cannot ask for ${name}"));
    }
    if matches!(name, "host" | "http_host") {
        return Ok(When::test("header", "Host", test));
    }
    if let Some(field) = name.strip_prefix("http_") {
        return Ok(When::test("header", field.replace('_', "-"), test));
    }
    if let Some(cookie) = name.strip_prefix("cookie_") {
        return Ok(When::test("cookie", cookie, test));
    }
    if let Some(parameter) = name.strip_prefix("arg_") {
        return Ok(When::test("query", parameter, test));
    }
    Err(format!("rules cannot ask for ${name}"))
}
