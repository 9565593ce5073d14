//! Apache's variables as conditions of rules: of `RewriteCond`, of `SetEnvIf`, of expressions.

use crate::expression::compile;
use crate::when::{Match, When};

/// How a variable is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// With a text, in any case or not.
    Equals(String, bool),
    /// With an expression.
    Matches(String),
}

/// What a condition comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It holds for all requests, or for none.
    Always(bool),
    /// It holds for these requests.
    Is(When),
    /// It holds for all others.
    IsNot(When),
    /// It holds where a file is there, or where none is.
    Exists(bool),
}

impl Asked {
    /// Holds where this one does not.
    pub fn not(self) -> Asked {
        match self {
            Asked::Always(holds) => Asked::Always(!holds),
            Asked::Is(when) => Asked::IsNot(when),
            Asked::IsNot(when) => Asked::Is(when),
            Asked::Exists(there) => Asked::Exists(!there),
        }
    }
}

/// A variable, without `%{` and `}`, and how it is compared.
///
/// # Errors
/// Rules cannot ask for it: a sentence.
pub fn test(variable: &str, test: &Test) -> Result<Asked, String> {
    if let Test::Matches(expression) = test {
        compile(expression)?;
    }
    let upper = variable.to_ascii_uppercase();
    if let Some(field) = upper.strip_prefix("HTTP:") {
        return Ok(Asked::Is(field_test(field, test)));
    }
    if let Some(name) = upper.strip_prefix("SSL:") {
        return Ok(Asked::Is(of("env", name, test)));
    }
    match upper.as_str() {
        "HTTPS" => https(test, "on"),
        "REQUEST_SCHEME" => https(test, "https"),
        "SERVER_PORT" => https(test, "443"),
        "HTTP_HOST" | "SERVER_NAME" => Ok(Asked::Is(host(test))),
        "REQUEST_URI" | "DOCUMENT_URI" | "SCRIPT_NAME" => paths(test).map(Asked::Is),
        // An expression for the end of a file's name is one for the end of its path.
        "REQUEST_FILENAME" | "SCRIPT_FILENAME" if matches!(test, Test::Matches(text) if !text.contains('^')) => {
            paths(test).map(Asked::Is)
        }
        "REQUEST_METHOD" => methods(test).map(Asked::Is),
        "REMOTE_ADDR" | "CONN_REMOTE_ADDR" => addresses(test).map(Asked::Is),
        "QUERY_STRING" => query(test).map(Asked::Is),
        // Rules run once: nothing has been redirected before.
        "ENV:REDIRECT_STATUS" => {
            let Test::Matches(expression) = test else {
                return Ok(Asked::Always(false));
            };
            Ok(Asked::Always(compile(expression)?.is_match(b"")))
        }
        "IS_SUBREQ" => Ok(Asked::Always(
            matches!(test, Test::Equals(text, _) if text == "false"),
        )),
        _ => match upper.strip_prefix("HTTP_") {
            Some(field) => Ok(Asked::Is(field_test(&field.replace('_', "-"), test))),
            None => Err(format!("rules cannot ask for %{{{variable}}}")),
        },
    }
}

/// The field of a request's header.
pub fn field_test(name: &str, test: &Test) -> When {
    match name.eq_ignore_ascii_case("host") {
        true => host(test),
        false => of("header", name, test),
    }
}

fn of(kind: &'static str, name: &str, test: &Test) -> When {
    let text = match test {
        Test::Equals(text, false) if text.is_empty() => String::new(),
        Test::Equals(text, false) if !text.contains('*') && !text.starts_with('~') => text.clone(),
        Test::Equals(text, any_case) => {
            let mark = if *any_case { "~*" } else { "~" };
            format!("{mark} ^{}$", regex::escape(text))
        }
        // What is not there is empty.
        Test::Matches(text) if text == "^$" => String::new(),
        Test::Matches(text) if matches!(text.as_str(), "." | ".+" | "(.+)" | "^.+$" | "^(.+)$") => {
            "*".to_owned()
        }
        Test::Matches(text) => match text.strip_prefix("(?i)") {
            Some(text) => format!("~* {text}"),
            None => format!("~ {text}"),
        },
    };
    When::test(kind, name, text)
}

/// Names of hosts are the same in any case, and with a port.
fn host(test: &Test) -> When {
    let test = match test {
        Test::Equals(text, _) if !text.is_empty() => {
            Test::Matches(format!("(?i)^{}(?::[0-9]+)?$", regex::escape(text)))
        }
        test => test.clone(),
    };
    of("header", "Host", &test)
}

fn https(test: &Test, on: &str) -> Result<Asked, String> {
    let off = match on {
        "on" => "off",
        "https" => "http",
        _ => "80",
    };
    let holds = |value: &str| match test {
        Test::Equals(text, _) => Ok(text.eq_ignore_ascii_case(value)),
        Test::Matches(text) => compile(text).map(|regex| regex.is_match(value.as_bytes())),
    };
    let secure = When::https();
    Ok(match (holds(on)?, holds(off)?) {
        (true, false) => Asked::Is(secure),
        (false, true) => Asked::IsNot(secure),
        (both, _) => Asked::Always(both),
    })
}

fn paths(test: &Test) -> Result<When, String> {
    Ok(When::paths(match test {
        Test::Equals(text, false) if text.starts_with('/') => Match::Path(text.clone()),
        Test::Equals(text, any_case) => {
            let flags = if *any_case { "(?i)" } else { "" };
            Match::Regex(format!("{flags}^{}$", regex::escape(text)))
        }
        Test::Matches(text) => super::region::location_match(text)?,
    }))
}

fn methods(test: &Test) -> Result<When, String> {
    let text = match test {
        Test::Equals(text, _) => text.clone(),
        Test::Matches(text) => text.replace("(?i)", ""),
    };
    let names = text.trim_start_matches('^').trim_end_matches('$');
    let names = names
        .trim_start_matches('(')
        .trim_start_matches("?:")
        .trim_end_matches(')');
    let methods: Vec<String> = names.split('|').map(str::to_ascii_uppercase).collect();
    let plain = |name: &String| !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase());
    match methods.iter().all(plain) {
        true => Ok(When::methods(methods)),
        false => Err("rules name methods".to_owned()),
    }
}

/// Addresses, and the beginnings of some: `^192\.0\.2\.`.
fn addresses(test: &Test) -> Result<When, String> {
    let need = || "addresses and networks, `from` of a rule".to_owned();
    let texts = match test {
        Test::Equals(text, _) => vec![text.clone()],
        Test::Matches(text) => {
            let body = text.strip_prefix('^').ok_or_else(need)?;
            let (body, end) = match body.strip_suffix('$') {
                Some(body) => (body, true),
                None => (body, false),
            };
            let body = body
                .strip_prefix('(')
                .and_then(|b| b.strip_suffix(')'))
                .unwrap_or(body);
            let whole = |text: &str| text.split('.').count() == 4 && !text.ends_with('.');
            let texts: Vec<String> = body
                .split('|')
                .map(|text| text.replace(r"\.", "."))
                .collect();
            if !texts
                .iter()
                .all(|text| whole(text) == end && (end || text.ends_with('.')))
            {
                return Err(need());
            }
            texts
        }
    };
    let networks: Option<Vec<String>> = texts
        .iter()
        .map(|text| super::legacy::network(text))
        .collect();
    Ok(When::clients(networks.ok_or_else(need)?))
}

/// An expression for one parameter: `^p=(\d+)$`, `(^|&)author=`.
fn query(test: &Test) -> Result<When, String> {
    let need = || "conditions on parameters, `query` of a rule".to_owned();
    let Test::Matches(text) = test else {
        return Err(need());
    };
    let body = text.strip_prefix("(?i)").unwrap_or(text);
    let starts = ["^", "(^|&)", "(?:^|&)"].iter();
    let body = starts
        .filter_map(|start| body.strip_prefix(start))
        .next()
        .unwrap_or(body);
    let (name, value) = body.split_once('=').ok_or_else(need)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.is_empty() || !name.chars().all(plain) {
        return Err(need());
    }
    let ends = ["$", "(&|$)", "(?:&|$)"].iter();
    let ended = ends.filter_map(|end| value.strip_suffix(end)).next();
    let test = match (ended, value) {
        (_, "" | "(.*)" | "(.*)$" | ".*" | ".*$") => Test::Matches(".+".to_owned()),
        (Some(value), _) => Test::Matches(format!("^{value}$")),
        (None, value) => Test::Matches(format!("^{value}")),
    };
    if let Test::Matches(expression) = &test {
        compile(expression)?;
    }
    Ok(of("query", name, &test))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(variable: &str, test: &str) -> String {
        let test = match test.strip_prefix('=') {
            Some(text) => Test::Equals(text.to_owned(), false),
            None => Test::Matches(test.to_owned()),
        };
        let (not, when) = match super::test(variable, &test) {
            Ok(Asked::Is(when)) => ("", when),
            Ok(Asked::IsNot(when)) => ("not ", when),
            Ok(other) => return format!("{other:?}"),
            Err(why) => return why,
        };
        let tests: Vec<String> = when
            .tests
            .iter()
            .map(|(kind, name, test)| format!("{kind} {name} {test}"))
            .collect();
        format!(
            "{not}{}{}{}",
            tests.concat(),
            when.from.join(" "),
            when.methods.join(" ")
        )
    }

    #[test]
    fn variables_become_conditions() {
        for (variable, test, expected) in [
            ("HTTPS", "=on", "env HTTPS *"),
            ("HTTPS", "off", "not env HTTPS *"),
            ("SERVER_PORT", "^80$", "not env HTTPS *"),
            ("REQUEST_SCHEME", "=http", "not env HTTPS *"),
            (
                "HTTP_HOST",
                "=a.org",
                r"header Host ~* ^a\.org(?::[0-9]+)?$",
            ),
            ("HTTP_USER_AGENT", "(?i)bot", "header USER-AGENT ~* bot"),
            ("HTTP_REFERER", "^$", "header REFERER "),
            ("HTTP:Upgrade", "websocket", "header UPGRADE ~ websocket"),
            ("REMOTE_ADDR", r"^192\.0\.2\.", "192.0.2.0/24"),
            ("REMOTE_ADDR", r"^192\.0\.2\.7$", "192.0.2.7"),
            (
                "REMOTE_ADDR",
                "^192",
                "addresses and networks, `from` of a rule",
            ),
            ("REQUEST_METHOD", "^(GET|HEAD)$", "GET HEAD"),
            (
                "QUERY_STRING",
                "^author=([0-9]+)",
                "query author ~ ^([0-9]+)",
            ),
            (
                "QUERY_STRING",
                "union.*select",
                "conditions on parameters, `query` of a rule",
            ),
            ("ENV:REDIRECT_STATUS", "^$", "Always(true)"),
            ("TIME_HOUR", "^1", "rules cannot ask for %{TIME_HOUR}"),
        ] {
            assert_eq!(shown(variable, test), expected, "{variable} {test}");
        }
    }
}
