//! Recognises servers, or parts of them, that only redirect to HTTPS, in the forms that people, certbot and control
//! panels write.

use super::rules::{self, LocationContent};
use crate::directive::Directive;

/// A redirect of a server to HTTPS.
#[derive(Clone, Debug)]
pub struct NginxHttpsRedirect<'a> {
    /// The line with the redirect.
    pub line: &'a Directive,
    /// All lines that belong to the redirect.
    pub lines: Vec<&'a Directive>,
    /// The hosts that are redirected; empty for all hosts of the server.
    pub hosts: Vec<String>,
    /// Whether a condition limits the redirect to connections without TLS.
    pub only_plain: bool,
}

/// Returns how a server redirects to HTTPS on the same host, if it does.
pub fn find_https_redirect(server: &Directive) -> Option<NginxHttpsRedirect<'_>> {
    let names = server.last("server_name");
    let mut conditional: Option<NginxHttpsRedirect<'_>> = None;
    for directive in server.inner() {
        if directive.name == "if"
            && let Some((line, host)) = parse_https_condition(directive)
        {
            let found = conditional.get_or_insert(NginxHttpsRedirect {
                line,
                lines: Vec::new(),
                hosts: Vec::new(),
                only_plain: host.is_none(),
            });
            found.lines.extend([directive, line]);
            found.hosts.extend(host);
        }
    }
    if conditional.is_some() {
        return conditional;
    }
    let is_all = |d: &Directive| d.name == "location" && d.args == ["/"];
    let in_root = server.inner().iter().find(|d| is_all(d));
    for (block, around) in [(Some(server), None), (in_root, in_root)] {
        let Some(line) = block.and_then(|block| {
            block
                .inner()
                .iter()
                .find(|d| https_redirect_host(d).is_some())
        }) else {
            continue;
        };
        let host = https_redirect_host(line).unwrap_or_default();
        let names = names.map_or(&[][..], |names| &names.args);
        let same = is_variable(&host)
            || names.iter().any(|name| {
                let name = name.strip_prefix('.').unwrap_or(name);
                name.eq_ignore_ascii_case(&host)
            });
        if same {
            let hosts = match is_variable(&host) {
                true => Vec::new(),
                false => vec![host],
            };
            let lines = around.into_iter().chain([line]).collect();
            return Some(NginxHttpsRedirect {
                line,
                lines,
                hosts,
                only_plain: false,
            });
        }
    }
    None
}

fn is_variable(host: &str) -> bool {
    matches!(
        host,
        "$host" | "$server_name" | "$http_host" | "${host}" | "${server_name}"
    )
}

/// Parses `if ($host = x) { return 301 https://… }` and `if ($scheme = http) { … }`. Returns the line with the
/// redirect, and the host if the condition names one.
fn parse_https_condition(block: &Directive) -> Option<(&Directive, Option<String>)> {
    let words = block.args.join(" ");
    let words = words.trim_start_matches('(').trim_end_matches(')').trim();
    let line = block
        .inner()
        .iter()
        .find(|d| https_redirect_host(d).is_some())?;
    let plain = words.replace(['"', '\''], "");
    let mut words = plain.split_whitespace();
    match (words.next()?, words.next(), words.next()) {
        ("$host" | "$http_host" | "$server_name", Some("="), Some(host)) => {
            Some((line, Some(host.to_ascii_lowercase())))
        }
        ("$scheme", Some("="), Some("http"))
        | ("$scheme", Some("!="), Some("https"))
        | ("$https", Some("!="), Some("on"))
        | ("$https", Some("="), None)
        | ("$ssl_protocol", Some("="), None)
        | ("$server_port", Some("="), Some("80"))
        | ("$server_port", Some("!="), Some("443")) => Some((line, None)),
        _ => None,
    }
}

/// Returns whether a server does nothing but redirect to HTTPS. If the target names a host without a variable, the
/// redirect must also keep the path. Locations for ACME challenges are ignored, because the challenges can be answered
/// over HTTPS as well. Locations that only return a response are also ignored.
pub fn is_redirect_only(server: &Directive, found: &NginxHttpsRedirect<'_>) -> bool {
    let named = found.line.args.iter().any(|arg| {
        let host = arg.strip_prefix("https://");
        host.is_some_and(|host| !host.starts_with('$'))
    });
    let serves = |d: &&Directive| {
        d.name == "location"
            && !d.args.iter().any(|arg| arg.contains("acme-challenge"))
            && !d.inner().iter().any(|line| line.id == found.line.id)
            && rules::content_of(d) != LocationContent::Response
    };
    (keeps_the_path(found.line) || !named) && !server.inner().iter().any(|d| serves(&d))
}

/// Returns whether the redirect leads the client to the same path.
pub fn keeps_the_path(line: &Directive) -> bool {
    let target = line.args.iter().find(|arg| arg.starts_with("https://"));
    let ends = [
        "$request_uri",
        "${request_uri}",
        "$request_uri?",
        "$uri$is_args$args",
        "$1",
        "$uri",
    ];
    target.is_some_and(|target| ends.iter().any(|end| target.ends_with(end)))
}

/// Returns the host to which a line redirects all paths over HTTPS.
fn https_redirect_host(line: &Directive) -> Option<String> {
    let target = match line.name.as_str() {
        "return" if line.args.len() == 1 => line.arg(0),
        "return" if matches!(line.arg(0), "301" | "302" | "307" | "308") => line.arg(1),
        "rewrite"
            if matches!(
                line.arg(0),
                "^" | "^(.*)$" | "^(.*)" | "^/(.*)$" | "^/(.*)" | "^.*$" | ".*" | "(.*)"
            ) =>
        {
            line.arg(1)
        }
        _ => return None,
    };
    let rest = target.strip_prefix("https://")?;
    // The host may be a variable.
    let variable = rest
        .get(1..)
        .and_then(|rest| rest.find('$'))
        .map(|at| at + 1);
    let end = rest.find('/').into_iter().chain(variable).min();
    let (host, path) = rest.split_at(end.unwrap_or(rest.len()));
    // A redirect of all paths to a single page counts as well, because the server then sends no content without TLS
    // either.
    let is_host = is_variable(host) || !host.contains('$');
    let is_path = path.is_empty() || path.starts_with(['/', '$']);
    (is_host && is_path && !host.is_empty()).then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::ledger::ImportLedger;
    use crate::nginx::parser::NginxParser;
    use crate::source::{IncludeChain, SourceText};

    #[test]
    fn https_redirects_are_recognised_in_common_forms() {
        for (text, hosts) in [
            ("return 301 https://$host$request_uri;", Some("")),
            (
                "server_name a; return 301 https://a$request_uri;",
                Some("a"),
            ),
            ("server_name a; return 301 https://b$request_uri;", None),
            (
                "if ($host = a) { return 301 https://$host$request_uri; } return 404;",
                Some("a"),
            ),
            (
                "if ($scheme != \"https\") { rewrite ^ https://$host$request_uri? permanent; }",
                Some(""),
            ),
            (
                "location / { return 301 https://$host$request_uri; }",
                Some(""),
            ),
            ("rewrite ^/(.*)$ https://$host/$1 permanent;", Some("")),
            ("rewrite ^ https://$host permanent;", Some("")),
            ("rewrite ^ https://$host/webmail permanent;", Some("")),
            (
                "server_name .a; return 301 https://a$request_uri;",
                Some("a"),
            ),
            (
                "server_name a; rewrite ^(.*) https://a$1/ permanent;",
                Some("a"),
            ),
            ("return 301 http://$host$request_uri;", None),
        ] {
            let ledger = ImportLedger::default();
            let mut parser = NginxParser::new(&ledger, PathBuf::new());
            let text = SourceText {
                name: "x".into(),
                text: format!("server {{ {text} }}"),
            };
            let tree = parser.parse_text(&text, &IncludeChain::default()).unwrap();
            let found = find_https_redirect(&tree[0]).map(|found| found.hosts.concat());
            assert_eq!(found.as_deref(), hosts, "{}", text.text);
        }
    }
}
