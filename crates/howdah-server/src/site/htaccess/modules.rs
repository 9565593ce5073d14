//! What `<IfModule>`, `<IfDefine>` and `<IfVersion>` find true: Apache 2.4 with the modules that its
//! distributions load for PHP sites, mod_php among them, and no defines. Pure.

/// The version that `<IfVersion>` compares with.
const VERSION: [u32; 3] = [2, 4, 66];

/// Modules taken to be loaded, without `mod_` and `_module`.
const MODULES: &[&str] = &[
    "access_compat",
    "alias",
    "asis",
    "auth_basic",
    "authn_core",
    "authn_file",
    "authz_core",
    "authz_groupfile",
    "authz_host",
    "authz_user",
    "autoindex",
    "brotli",
    "core",
    "deflate",
    "dir",
    "env",
    "expires",
    "ext_filter",
    "filter",
    "headers",
    "http",
    "include",
    "log_config",
    "mime",
    "mime_magic",
    "mpm_prefork",
    "negotiation",
    "php",
    "php4",
    "php5",
    "php7",
    "php8",
    "reqtimeout",
    "rewrite",
    "setenvif",
    "so",
    "ssl",
    "status",
    "unixd",
    "version",
];

/// `<IfModule NAME>`, with or without `!`.
pub(super) fn if_module(argument: &str) -> bool {
    let (negated, name) = negation(argument);
    let name = name
        .strip_prefix("mod_")
        .and_then(|name| name.strip_suffix(".c"))
        .or_else(|| name.strip_suffix("_module"))
        // `prefork.c`, `core.c`, `http_core.c`: files of the server itself.
        .or_else(|| name.strip_suffix(".c"))
        .unwrap_or(name);
    let name = match name {
        "http_core" => "http",
        name => name,
    };
    MODULES.contains(&name) != negated
}

/// `<IfDefine NAME>`, with or without `!`: nothing is defined.
pub(super) fn if_define(argument: &str) -> bool {
    negation(argument).0
}

/// `<IfVersion [[!]OPERATOR] VERSION>`. `None` if it cannot be read, or compares by an expression.
pub(super) fn if_version(words: &[String]) -> Option<bool> {
    let (operator, version) = match words {
        [version] => ("=", version),
        [operator, version] => (&**operator, version),
        _ => return None,
    };
    let (negated, operator) = negation(operator);
    let mut wanted = Vec::new();
    for part in version.split('.') {
        wanted.push(part.parse::<u32>().ok()?);
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
    fn it_is_apache_2_4_with_the_usual_modules() {
        for name in [
            "mod_rewrite.c",
            "rewrite_module",
            "mod_authz_core.c",
            "!mod_pagespeed.c",
            "mod_php.c",
            "mod_php5.c",
            "!LiteSpeed",
            "mod_access_compat.c",
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
        assert_eq!(holds("~ ^2"), None);
        assert_eq!(holds("> two"), None);
    }
}
