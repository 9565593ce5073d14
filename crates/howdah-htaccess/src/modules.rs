//! Evaluates `<IfModule>`, `<IfDefine>` and `<IfVersion>` for Apache 2.4 with no defines and with the modules that its
//! distributions load for PHP sites, mod_php among them.

use crate::pattern::Regex;

/// The version that `<IfVersion>` compares with.
const VERSION: [u32; 3] = [2, 4, 66];

/// The modules that count as loaded, without `mod_` and `_module`. A setting for mod_php counts as a setting for PHP,
/// whatever PHP version the file was written for.
const MODULES: &[&str] = &[
    "access_compat",
    "alias",
    "auth_basic",
    "authn_core",
    "authn_file",
    "authz_core",
    "authz_groupfile",
    "authz_host",
    "authz_user",
    "autoindex",
    "deflate",
    "dir",
    "env",
    "expires",
    "filter",
    "headers",
    "log_config",
    "mime",
    "negotiation",
    "php",
    "php5",
    "php7",
    "php8",
    "reqtimeout",
    "rewrite",
    "setenvif",
    "so",
    "status",
    "unixd",
    "version",
    "ssl",
];

/// Evaluates `<IfModule NAME>`, with or without `!`.
pub(crate) fn if_module(argument: &str) -> bool {
    let (negated, name) = negation(argument);
    let known = match (name.strip_prefix("mod_"), name.strip_suffix("_module")) {
        (Some(file), _) => file
            .strip_suffix(".c")
            .is_some_and(|name| MODULES.contains(&name)),
        (None, Some(name)) => {
            MODULES.contains(&name) || matches!(name, "core" | "http" | "mpm_prefork")
        }
        (None, None) => matches!(name, "core.c" | "http_core.c" | "prefork.c"),
    };
    known != negated
}

/// Evaluates `<IfDefine NAME>`, with or without `!`. Nothing is defined.
pub(crate) fn if_define(argument: &str) -> bool {
    negation(argument).0
}

/// Evaluates `<IfVersion [[!]OPERATOR] VERSION>`. Returns `None` if the arguments are not valid.
pub(crate) fn if_version(words: &[String]) -> Option<bool> {
    let (operator, version) = match words {
        [version] => ("=", &**version),
        [operator, version] => (&**operator, &**version),
        _ => return None,
    };
    let (negated, operator) = negation(operator);
    let slashed = version
        .strip_prefix('/')
        .and_then(|rest| rest.strip_suffix('/'));
    if operator == "~" || matches!(operator, "=" | "==") && slashed.is_some() {
        let own = VERSION.map(|part| part.to_string()).join(".");
        let regex = Regex::new(slashed.unwrap_or(version), false)?;
        return Some(regex.is_match(own.as_bytes()).ok()? != negated);
    }
    let mut wanted = Vec::new();
    for part in version.split('.') {
        wanted.push(part.parse::<u32>().ok()?);
    }
    if wanted.len() > VERSION.len() {
        return None;
    }
    wanted.resize(VERSION.len(), 0);
    let order = VERSION[..].cmp(&wanted);
    let holds = match operator {
        "=" | "==" => order.is_eq(),
        ">" => order.is_gt(),
        ">=" => order.is_ge(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        _ => return None,
    };
    Some(holds != negated)
}

fn negation(argument: &str) -> (bool, &str) {
    match argument.strip_prefix('!') {
        Some(rest) => (true, rest.trim_ascii_start()),
        None => (false, argument),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_describe_apache_2_4_with_the_usual_modules() {
        for name in [
            "mod_rewrite.c",
            "rewrite_module",
            "mod_authz_core.c",
            "!mod_pagespeed.c",
            "mod_php.c",
            "mod_php7.c",
            "!LiteSpeed",
            "mod_access_compat.c",
            "!mod_access_compat",
            "!rewrite",
        ] {
            assert!(if_module(name), "{name}");
        }
        for name in ["!mod_authz_core.c", "mod_security2.c", "LiteSpeed"] {
            assert!(!if_module(name), "{name}");
        }
        assert!(!if_define("X") && if_define("!X"));
    }

    #[test]
    fn versions_are_compared() {
        let holds = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            if_version(&words)
        };
        assert_eq!(holds(">= 2.4"), Some(true));
        assert_eq!(holds("< 2.4"), Some(false));
        assert_eq!(holds("!< 2.4"), Some(true));
        assert_eq!(holds("2.2"), Some(false));
        assert_eq!(holds("~ ^2.4"), Some(true));
        assert_eq!(holds("> two"), None);
    }
}
