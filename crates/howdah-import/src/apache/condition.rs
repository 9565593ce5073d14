//! Translates tests of Apache's variables into conditions of rules, for `RewriteCond`, `SetEnvIf` and expressions.

use crate::expression::compile;
use crate::rule_condition::{PathMatch, RuleCondition};

/// How a variable is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VariableTest {
    /// Equality with a string. Case is ignored if the second value is true.
    Equals(String, bool),
    /// A match of a regular expression.
    Matches(String),
}

/// The translation of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TranslatedCondition {
    /// A condition that is true for all requests, or false for all.
    Always(bool),
    /// A condition that is true for these requests.
    Requests(RuleCondition),
    /// A condition that is true for all other requests.
    OtherRequests(RuleCondition),
    /// A condition that is true if the path names a file (`true`), or if the path does not (`false`).
    FileExists(bool),
}

impl TranslatedCondition {
    /// Returns the negated condition.
    pub fn not(self) -> TranslatedCondition {
        match self {
            TranslatedCondition::Always(holds) => TranslatedCondition::Always(!holds),
            TranslatedCondition::Requests(when) => TranslatedCondition::OtherRequests(when),
            TranslatedCondition::OtherRequests(when) => TranslatedCondition::Requests(when),
            TranslatedCondition::FileExists(there) => TranslatedCondition::FileExists(!there),
        }
    }
}

/// Translates the test of a variable, which is named without `%{` and `}`.
///
/// # Errors
/// Returns a sentence if rules cannot test the variable.
pub fn translate_test(variable: &str, test: &VariableTest) -> Result<TranslatedCondition, String> {
    if let VariableTest::Matches(expression) = test {
        compile(expression)?;
    }
    let upper = variable.to_ascii_uppercase();
    if let Some(field) = upper.strip_prefix("HTTP:") {
        return Ok(TranslatedCondition::Requests(header_condition(field, test)));
    }
    if let Some(name) = upper.strip_prefix("SSL:") {
        return Ok(TranslatedCondition::Requests(condition_on(
            "env", name, test,
        )));
    }
    match upper.as_str() {
        "HTTPS" => https_condition(test, "on"),
        "REQUEST_SCHEME" => https_condition(test, "https"),
        "SERVER_PORT" => https_condition(test, "443"),
        "HTTP_HOST" | "SERVER_NAME" => Ok(TranslatedCondition::Requests(host_condition(test))),
        "REQUEST_URI" | "DOCUMENT_URI" | "SCRIPT_NAME" => {
            path_condition(test).map(TranslatedCondition::Requests)
        }
        // An expression without `^` matches at the end of the file name, which is also the end of the URL path.
        "REQUEST_FILENAME" | "SCRIPT_FILENAME" if matches!(test, VariableTest::Matches(text) if !text.contains('^')) => {
            path_condition(test).map(TranslatedCondition::Requests)
        }
        "REQUEST_METHOD" => method_condition(test).map(TranslatedCondition::Requests),
        "REMOTE_ADDR" | "CONN_REMOTE_ADDR" => {
            address_condition(test).map(TranslatedCondition::Requests)
        }
        "QUERY_STRING" => query_condition(test).map(TranslatedCondition::Requests),
        // Rules run once, so no earlier internal redirect has set this variable.
        "ENV:REDIRECT_STATUS" => {
            let VariableTest::Matches(expression) = test else {
                return Ok(TranslatedCondition::Always(false));
            };
            Ok(TranslatedCondition::Always(
                compile(expression)?.is_match(b""),
            ))
        }
        "IS_SUBREQ" => Ok(TranslatedCondition::Always(
            matches!(test, VariableTest::Equals(text, _) if text == "false"),
        )),
        _ => match upper.strip_prefix("HTTP_") {
            Some(field) => Ok(TranslatedCondition::Requests(header_condition(
                &field.replace('_', "-"),
                test,
            ))),
            None => Err(format!("rules cannot check %{{{variable}}}")),
        },
    }
}

/// Returns the condition on a request header.
pub fn header_condition(name: &str, test: &VariableTest) -> RuleCondition {
    match name.eq_ignore_ascii_case("host") {
        true => host_condition(test),
        false => condition_on("header", name, test),
    }
}

fn condition_on(kind: &'static str, name: &str, test: &VariableTest) -> RuleCondition {
    let text = match test {
        VariableTest::Equals(text, false) if text.is_empty() => String::new(),
        VariableTest::Equals(text, false) if !text.contains('*') && !text.starts_with('~') => {
            text.clone()
        }
        VariableTest::Equals(text, any_case) => {
            let mark = if *any_case { "~*" } else { "~" };
            format!("{mark} ^{}$", regex::escape(text))
        }
        // A missing value counts as empty.
        VariableTest::Matches(text) if text == "^$" => String::new(),
        VariableTest::Matches(text)
            if matches!(text.as_str(), "." | ".+" | "(.+)" | "^.+$" | "^(.+)$") =>
        {
            "*".to_owned()
        }
        VariableTest::Matches(text) => match text.strip_prefix("(?i)") {
            Some(text) => format!("~* {text}"),
            None => format!("~ {text}"),
        },
    };
    RuleCondition::test(kind, name, text)
}

/// Returns the condition on the host. Host names are compared without regard to case, and with an optional port.
fn host_condition(test: &VariableTest) -> RuleCondition {
    let test = match test {
        VariableTest::Equals(text, _) if !text.is_empty() => {
            VariableTest::Matches(format!("(?i)^{}(?::[0-9]+)?$", regex::escape(text)))
        }
        test => test.clone(),
    };
    condition_on("header", "Host", &test)
}

fn https_condition(test: &VariableTest, on: &str) -> Result<TranslatedCondition, String> {
    let off = match on {
        "on" => "off",
        "https" => "http",
        _ => "80",
    };
    let holds = |value: &str| match test {
        VariableTest::Equals(text, _) => Ok(text.eq_ignore_ascii_case(value)),
        VariableTest::Matches(text) => compile(text).map(|regex| regex.is_match(value.as_bytes())),
    };
    let secure = RuleCondition::https();
    Ok(match (holds(on)?, holds(off)?) {
        (true, false) => TranslatedCondition::Requests(secure),
        (false, true) => TranslatedCondition::OtherRequests(secure),
        (both, _) => TranslatedCondition::Always(both),
    })
}

fn path_condition(test: &VariableTest) -> Result<RuleCondition, String> {
    Ok(RuleCondition::paths(match test {
        VariableTest::Equals(text, false) if text.starts_with('/') => PathMatch::Path(text.clone()),
        VariableTest::Equals(text, any_case) => {
            let flags = if *any_case { "(?i)" } else { "" };
            PathMatch::Regex(format!("{flags}^{}$", regex::escape(text)))
        }
        VariableTest::Matches(text) => super::region::location_match_paths(text)?,
    }))
}

fn method_condition(test: &VariableTest) -> Result<RuleCondition, String> {
    let text = match test {
        VariableTest::Equals(text, _) => text.clone(),
        VariableTest::Matches(text) => text.replace("(?i)", ""),
    };
    let names = text.trim_start_matches('^').trim_end_matches('$');
    let names = names
        .trim_start_matches('(')
        .trim_start_matches("?:")
        .trim_end_matches(')');
    let methods: Vec<String> = names.split('|').map(str::to_ascii_uppercase).collect();
    let plain = |name: &String| !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase());
    match methods.iter().all(plain) {
        true => Ok(RuleCondition::methods(methods)),
        false => Err(
            "a rule can compare the method only with a list of methods, such as GET and POST"
                .to_owned(),
        ),
    }
}

/// Translates addresses, and prefixes of addresses such as `^192\.0\.2\.`.
fn address_condition(test: &VariableTest) -> Result<RuleCondition, String> {
    let need = || "use `from` in a rule, with addresses and networks".to_owned();
    let texts = match test {
        VariableTest::Equals(text, _) => vec![text.clone()],
        VariableTest::Matches(text) => {
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
        .map(|text| super::networks::parse_apache_network(text))
        .collect();
    Ok(RuleCondition::clients(networks.ok_or_else(need)?))
}

/// Translates an expression that tests a single query parameter: `^p=(\d+)$`, `(^|&)author=`.
fn query_condition(test: &VariableTest) -> Result<RuleCondition, String> {
    let need = || "use `query` in a rule for conditions on parameters".to_owned();
    let VariableTest::Matches(text) = test else {
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
        (_, "" | "(.*)" | "(.*)$" | ".*" | ".*$") => VariableTest::Matches(".+".to_owned()),
        (Some(value), _) => VariableTest::Matches(format!("^{value}$")),
        (None, value) => VariableTest::Matches(format!("^{value}")),
    };
    if let VariableTest::Matches(expression) = &test {
        compile(expression)?;
    }
    Ok(condition_on("query", name, &test))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(variable: &str, test: &str) -> String {
        let test = match test.strip_prefix('=') {
            Some(text) => VariableTest::Equals(text.to_owned(), false),
            None => VariableTest::Matches(test.to_owned()),
        };
        let (not, when) = match super::translate_test(variable, &test) {
            Ok(TranslatedCondition::Requests(when)) => ("", when),
            Ok(TranslatedCondition::OtherRequests(when)) => ("not ", when),
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
            when.client_networks.join(" "),
            when.methods.join(" ")
        )
    }

    #[test]
    fn variables_are_translated_to_conditions() {
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
                "use `from` in a rule, with addresses and networks",
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
                "use `query` in a rule for conditions on parameters",
            ),
            ("ENV:REDIRECT_STATUS", "^$", "Always(true)"),
            ("TIME_HOUR", "^1", "rules cannot check %{TIME_HOUR}"),
        ] {
            assert_eq!(shown(variable, test), expected, "{variable} {test}");
        }
    }
}
