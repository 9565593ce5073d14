//! Translates texts with nginx's variables into targets of Howdah's rules.

use std::collections::HashMap;

use crate::target::variable_reference;

/// Variables to which `set` or `map` gives a single value.
pub type Constants = HashMap<String, String>;

enum TextPart<'t> {
    Text(&'t str),
    Variable(&'t str),
}

fn split_variables(text: &str) -> Vec<TextPart<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let after = &rest[at + 1..];
        let (name, next) = match after.strip_prefix('{') {
            Some(inner) => match inner.split_once('}') {
                Some((name, next)) => (name, next),
                None => break,
            },
            None => {
                let digit = after.starts_with(|c: char| c.is_ascii_digit());
                let end = match digit {
                    true => 1,
                    false => after
                        .find(|c: char| c != '_' && !c.is_ascii_alphanumeric())
                        .unwrap_or(after.len()),
                };
                after.split_at(end)
            }
        };
        if name.is_empty() {
            pieces.push(TextPart::Text(&rest[..at + 1]));
            rest = after;
            continue;
        }
        pieces.push(TextPart::Text(&rest[..at]));
        pieces.push(TextPart::Variable(name));
        rest = next;
    }
    pieces.push(TextPart::Text(rest));
    pieces
}

/// Replaces the variables that have a single value.
pub fn replace_constants(text: &str, constants: &Constants) -> String {
    let mut out = String::new();
    for piece in split_variables(text) {
        match piece {
            TextPart::Text(text) => out += text,
            TextPart::Variable(name) => match constants.get(name) {
                Some(value) => out += value,
                None => out += &format!("${{{name}}}"),
            },
        }
    }
    out
}

/// Returns whether a string contains variables.
pub fn has_variables(text: &str) -> bool {
    split_variables(text)
        .iter()
        .any(|piece| matches!(piece, TextPart::Variable(_)))
}

/// Translates the text into a target of a rule or of `try_files`.
///
/// # Errors
/// Returns a sentence that names a variable that rules do not support.
pub fn rule_target(text: &str) -> Result<String, String> {
    let mut out = String::new();
    // A redirect of Howdah without a scheme keeps the client's scheme.
    let text = text.strip_prefix("$scheme:").unwrap_or(text);
    let text = text.strip_prefix("${scheme}:").unwrap_or(text);
    let mut pieces = split_variables(text).into_iter().peekable();
    while let Some(piece) = pieces.next() {
        let after = match pieces.peek() {
            Some(TextPart::Text(text)) => text,
            _ => "",
        };
        match piece {
            TextPart::Text(text) => out += &text.replace('$', "$$"),
            TextPart::Variable(name) => match name {
                "uri" | "document_uri" | "fastcgi_script_name" => {
                    out += &variable_reference("uri", after)
                }
                "args" | "query_string" => out += &variable_reference("query", after),
                "is_args" => out += "?",
                "host" | "http_host" | "hostname" => out += &variable_reference("host", after),
                "request_uri" => out += &variable_reference("request_uri", after),
                name if name.len() == 1 && name.as_bytes()[0].is_ascii_digit() => {
                    out += &format!("${{{name}}}");
                }
                name => return Err(format!("a rule's target cannot contain ${name}")),
            },
        }
    }
    Ok(out)
}

/// Removes the query from the end of a target if it is the request's own query, because a rule keeps that query by
/// default.
pub fn strip_request_query(target: &str) -> &str {
    let kept = ["?$query", "&$query"].iter();
    let mut kept = kept.filter_map(|query| target.strip_suffix(query));
    kept.next().unwrap_or(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_translated_to_rule_variables() {
        for (text, target) in [
            ("/index.php?$args", Ok("/index.php")),
            ("/index.php$is_args$query_string", Ok("/index.php")),
            ("/i.php?q=$uri&$args", Ok("/i.php?q=$uri")),
            ("https://$host$request_uri", Ok("https://$host$request_uri")),
            ("$scheme://www.x$1", Ok("//www.x${1}")),
            ("/x${uri}y", Ok("/x${uri}y")),
            ("/x${uri}/y", Ok("/x$uri/y")),
            ("/$geoip", Err("a rule's target cannot contain $geoip")),
        ] {
            let target = target.map(str::to_owned).map_err(str::to_owned);
            let found = rule_target(text).map(|t| strip_request_query(&t).to_owned());
            assert_eq!(found, target, "{text}");
        }
        let constants = Constants::from([("base".to_owned(), "/srv".to_owned())]);
        assert_eq!(replace_constants("$base/public", &constants), "/srv/public");
        assert_eq!(replace_constants("${base}$uri", &constants), "/srv${uri}");
    }
}
