//! Turns the conditions of a rule besides its path into the server's conditions: `methods`, `query`, `cookie`,
//! `header`, `env`, `from`, `from_file`, `not`.

use howdah_proto::response::is_token;
use howdah_site::site::condition::{ClientAddresses, RuleConditions, RuleException, ValueTest};
use howdah_site::site::config::{SiteConfig, SiteRule};

use super::reader::ConfigSection;
use super::rules::{given_pattern, pattern_error_text};
use super::server::{network_file, networks};

pub(super) const CONDITION_KEYS: [&str; 8] = [
    "methods",
    "query",
    "cookie",
    "header",
    "env",
    "from",
    "from_file",
    "not",
];

/// Returns all conditions of a rule, including those of its `not`.
pub(super) fn conditions(section: &ConfigSection<'_>) -> RuleConditions {
    let tables = section.one_or_more_sections("not", "site.rule.not");
    let exceptions = tables.iter().filter_map(exception);
    RuleConditions {
        not: exceptions.collect(),
        ..conditions_without_not(section)
    }
}

/// Returns one table of `not`.
fn exception(section: &ConfigSection<'_>) -> Option<RuleException> {
    let pattern = given_pattern(section)?;
    let conditions = conditions_without_not(section);
    if section.given_options().next().is_none() {
        let message = "not: the table is empty, so it would exempt every request; write the conditions of the requests to which the rule should not apply";
        section.file().mistake(section.place.clone(), message);
    }
    Some(RuleException {
        pattern,
        conditions,
    })
}

fn conditions_without_not(section: &ConfigSection<'_>) -> RuleConditions {
    let methods = section.texts("methods").into_iter();
    RuleConditions {
        methods: methods.map(|text| text.value).collect(),
        query: value_tests(section, "query"),
        cookie: value_tests(section, "cookie"),
        header: value_tests(section, "header"),
        env: value_tests(section, "env"),
        from: client_addresses(section),
        not: Vec::new(),
    }
}

/// Returns names and the tests for their values.
fn value_tests(section: &ConfigSection<'_>, key: &str) -> Vec<(String, ValueTest)> {
    let mut tests = Vec::new();
    for pair in section.pairs(key) {
        let (name, text) = pair.value;
        let mistake = |why: String| {
            let name = name.escape_debug();
            section
                .file()
                .mistake(pair.place.clone(), format!("{key}: `{name}`: {why}"));
        };
        if let Some(why) = name_mistake(key, &name) {
            mistake(why);
        }
        match ValueTest::parse(&text) {
            Ok(test) => tests.push((name, test)),
            Err(why) => mistake(pattern_error_text(&why)),
        }
    }
    tests
}

/// Returns the mistake in a name, if it has one.
fn name_mistake(key: &str, name: &str) -> Option<String> {
    match key {
        "header" if !is_token(name.as_bytes()) => Some("is not a valid header name".to_owned()),
        "header" if name.eq_ignore_ascii_case("cookie") => {
            Some("use `cookie`, which compares each cookie".to_owned())
        }
        "env" => better_condition(name).map(|key| format!("use `{key}` instead")),
        _ if name.is_empty() => Some("the name is empty".to_owned()),
        _ => None,
    }
}

/// Returns the condition to use instead of `env`, for a CGI variable that another condition covers.
fn better_condition(variable: &str) -> Option<&'static str> {
    match variable {
        "REMOTE_ADDR" => Some("from"),
        "REQUEST_METHOD" => Some("methods"),
        "QUERY_STRING" => Some("query"),
        "HTTP_COOKIE" => Some("cookie"),
        "REQUEST_URI" | "SCRIPT_NAME" | "PATH_INFO" | "DOCUMENT_URI" => Some("path"),
        name if name.starts_with("HTTP_") => Some("header"),
        _ => None,
    }
}

/// Returns the client addresses of `from` and `from_file`; a client in either of them matches.
fn client_addresses(section: &ConfigSection<'_>) -> Option<ClientAddresses> {
    if !section.has("from") && !section.has("from_file") {
        return None;
    }
    let mut unix = false;
    let networks = networks(section, "from", Some(&mut unix));
    Some(ClientAddresses {
        networks,
        unix,
        file: network_file(section, "from_file"),
    })
}

/// Returns the variables of the server's environment that the site's rules use.
pub(super) fn server_env(site: &SiteConfig, rules: &[SiteRule]) -> Vec<(String, String)> {
    let mut names: Vec<&str> = rules
        .iter()
        .flat_map(|rule| rule.conditions.variables())
        .collect();
    names.sort_unstable();
    names.dedup();
    let own = |name: &&str| site.env.iter().any(|(known, _)| known == name);
    let names = names.into_iter().filter(|name| !own(name));
    let value = |name: &str| Some((name.to_owned(), std::env::var(name).ok()?));
    names.filter_map(value).collect()
}
