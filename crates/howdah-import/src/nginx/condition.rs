//! Translates the condition of an `if` into the conditions of a rule.

use super::variables::{Constants, has_variables, replace_constants};
use crate::directive::Directive;
use crate::expression::{compile, compile_path};
use crate::rule_condition::{PathMatch, RuleCondition};

/// Returns the requests for which an `if` is true.
///
/// # Errors
/// Returns a sentence if rules cannot express the condition.
pub fn translate_condition(
    block: &Directive,
    constants: &Constants,
) -> Result<RuleCondition, String> {
    let words = condition_words(block, constants);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [
            "!-e" | "!-f" | "!-d",
            "$request_filename" | "${request_filename}",
        ] => Ok(RuleCondition::missing()),
        [variable] if variable.starts_with('$') => variable_condition(variable, "*"),
        [variable, "=", value] => equality_condition(variable, value),
        [variable, "!=", value] => {
            Ok(RuleCondition::default().but(equality_condition(variable, value)?))
        }
        [variable, "~", value] => regex_condition(variable, value, false),
        [variable, "~*", value] => regex_condition(variable, value, true),
        [variable, "!~", value] => {
            Ok(RuleCondition::default().but(regex_condition(variable, value, false)?))
        }
        [variable, "!~*", value] => {
            Ok(RuleCondition::default().but(regex_condition(variable, value, true)?))
        }
        _ => Err("Howdah's rules have no equivalent of this condition".to_owned()),
    }
}

/// Returns whether an `if` checks that the path is not a directory. A rule with `if_missing` also skips files.
pub fn checks_not_a_directory(block: &Directive, constants: &Constants) -> bool {
    condition_words(block, constants)
        .first()
        .is_some_and(|word| word == "!-d")
}

/// Returns whether an `if` checks that the path is not a file. A directory is not a file, although it is not missing.
pub fn checks_not_a_file(block: &Directive, constants: &Constants) -> bool {
    condition_words(block, constants)
        .first()
        .is_some_and(|word| word == "!-f")
}

/// Returns the words of a condition without the parentheses around them.
fn condition_words(block: &Directive, constants: &Constants) -> Vec<String> {
    let mut words: Vec<String> = block
        .args
        .iter()
        .map(|word| replace_constants(word, constants))
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
    // In `( $a = "" )` an empty word in the middle is an operand; at the ends it is left over from a parenthesis.
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

fn equality_condition(variable: &str, value: &str) -> Result<RuleCondition, String> {
    if has_variables(value) {
        return Err("rules compare with fixed text, not with variables".to_owned());
    }
    match variable {
        "$host" | "$http_host" => {
            let test = format!("~* ^{}(?::[0-9]+)?$", regex::escape(value));
            return Ok(RuleCondition::test("header", "Host", test));
        }
        "$request_method" => {
            return Ok(RuleCondition::methods(vec![value.to_owned()]));
        }
        "$remote_addr" if value.parse::<std::net::IpAddr>().is_ok() => {
            return Ok(RuleCondition::clients(vec![value.to_owned()]));
        }
        "$uri" | "$document_uri" | "$request_uri"
            if value.starts_with('/') && !value.contains('?') =>
        {
            return Ok(RuleCondition::paths(PathMatch::Path(value.to_owned())));
        }
        _ => {}
    }
    match value.contains('*') || value.starts_with('~') {
        true => variable_condition(variable, &format!("~ ^{}$", regex::escape(value))),
        false => variable_condition(variable, value),
    }
}

fn regex_condition(
    variable: &str,
    expression: &str,
    any_case: bool,
) -> Result<RuleCondition, String> {
    if variable == "$request_method" {
        let names = expression.trim_start_matches('^').trim_end_matches('$');
        let names = names.trim_start_matches('(').trim_end_matches(')');
        let names: Vec<String> = names.split('|').map(str::to_owned).collect();
        let plain =
            |name: &String| !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase());
        if !names.iter().all(plain) {
            return Err(
                "a rule can compare the method only with a list of methods, such as GET and POST"
                    .to_owned(),
            );
        }
        return Ok(RuleCondition::methods(names));
    }
    if matches!(variable, "$uri" | "$document_uri")
        || variable == "$request_uri" && !expression.contains(r"\?") && !expression.contains('=')
    {
        let flags = if any_case { "(?i)" } else { "" };
        compile_path(expression)?;
        return Ok(RuleCondition::paths(PathMatch::Regex(format!(
            "{flags}{expression}"
        ))));
    }
    compile(expression)?;
    let mark = if any_case { "~*" } else { "~" };
    variable_condition(variable, &format!("{mark} {expression}"))
}

fn variable_condition(variable: &str, test: &str) -> Result<RuleCondition, String> {
    let name = variable.trim_start_matches('$');
    if name.ends_with('_') {
        return Err(format!("rules cannot check ${name}"));
    }
    if matches!(name, "host" | "http_host") {
        return Ok(RuleCondition::test("header", "Host", test));
    }
    if let Some(field) = name.strip_prefix("http_") {
        return Ok(RuleCondition::test("header", field.replace('_', "-"), test));
    }
    if let Some(cookie) = name.strip_prefix("cookie_") {
        return Ok(RuleCondition::test("cookie", cookie, test));
    }
    if let Some(parameter) = name.strip_prefix("arg_") {
        return Ok(RuleCondition::test("query", parameter, test));
    }
    Err(format!("rules cannot check ${name}"))
}
