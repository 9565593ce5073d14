//! Recognises hosts and rules that only redirect to HTTPS, in the forms that people, certbot and control panels write.

use super::condition::{TranslatedCondition, VariableTest, translate_test};
use super::host::ApacheHost;
use crate::directive::Directive;
use crate::rule_condition::RuleCondition;

/// A redirect of all requests to HTTPS: the line, all lines that belong to it, and the host, if it names one.
pub struct ApacheHttpsRedirect<'a> {
    pub line: &'a Directive,
    pub lines: Vec<&'a Directive>,
    pub host: Option<String>,
}

/// Returns how a host without TLS redirects to HTTPS, if it redirects all requests except ACME challenges.
pub fn find_https_redirect<'a>(host: &ApacheHost<'a>) -> Option<ApacheHttpsRedirect<'a>> {
    let mut conditions: Vec<&Directive> = Vec::new();
    let mut before: Vec<&Directive> = Vec::new();
    for line in host.lines {
        match line.name.as_str() {
            "redirect" | "redirectpermanent" | "redirecttemp" => {
                let (path, target) = match line.args.len() {
                    3.. => (line.arg(1), line.arg(2)),
                    _ => (line.arg(0), line.arg(1)),
                };
                if path == "/"
                    && let Some(host) = https_host(target, &["", "/"])
                {
                    let lines = vec![line];
                    return Some(ApacheHttpsRedirect { line, lines, host });
                }
            }
            "redirectmatch" => {
                let (pattern, target) = match line.args.len() {
                    3.. => (line.arg(1), line.arg(2)),
                    _ => (line.arg(0), line.arg(1)),
                };
                let all = ["^/(.*)$", "^/(.*)", "^(.*)$", "(.*)", "^/?(.*)$"].contains(&pattern);
                let but_proofs = pattern.starts_with("^/(?!")
                    && pattern.contains("well-known")
                    && pattern.ends_with("(.*)$");
                if (all || but_proofs)
                    && let Some(host) = https_host(target, &["$1", "/$1"])
                {
                    let lines = vec![line];
                    return Some(ApacheHttpsRedirect { line, lines, host });
                }
            }
            "rewritecond" => conditions.push(line),
            "rewriterule" => {
                let own = std::mem::take(&mut conditions);
                let is_harmless = own.iter().all(|c| is_always_true(c, host));
                let everything = [
                    "^", "^/?(.*)", "^/?(.*)$", "^(.*)$", "(.*)", ".*", "^.*$", "^/(.*)$", "^(.*)",
                ]
                .contains(&line.arg(0));
                let ends = [
                    "%{REQUEST_URI}",
                    "/%{REQUEST_URI}",
                    "$1",
                    "/$1",
                    "%{REQUEST_URI}?%{QUERY_STRING}",
                ];
                let found = https_host(line.arg(1), &ends);
                let is_redirect = line.arg(2).contains('R') || line.arg(2).contains("redirect");
                if is_harmless
                    && everything
                    && is_redirect
                    && let Some(host) = found
                {
                    before.extend(own);
                    before.push(line);
                    return Some(ApacheHttpsRedirect {
                        line,
                        lines: before,
                        host,
                    });
                }
                // `RewriteRule ^/.well-known - [L]` excludes ACME challenges.
                match line.arg(1) == "-" && line.arg(0).contains("well-known") {
                    true => before.push(line),
                    false => return None,
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns whether a condition holds for all requests of a host without TLS, ACME challenges aside.
fn is_always_true(condition: &Directive, host: &ApacheHost<'_>) -> bool {
    let (variable, pattern) = (condition.arg(0), condition.arg(1));
    let variable = variable.trim_start_matches("%{").trim_end_matches('}');
    if variable == "REQUEST_URI" && pattern.starts_with('!') && pattern.contains("well-known") {
        return true;
    }
    if matches!(variable, "SERVER_NAME" | "HTTP_HOST") {
        let name = pattern.trim_start_matches('=').trim_matches('"');
        return host.names.iter().any(|known| known == name);
    }
    let (pattern, negated) = match pattern.strip_prefix('!') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let comparison = match pattern.strip_prefix('=') {
        Some(text) => VariableTest::Equals(text.to_owned(), true),
        None => VariableTest::Matches(pattern.to_owned()),
    };
    let is_of_tls = matches!(variable, "HTTPS" | "SERVER_PORT" | "REQUEST_SCHEME");
    match translate_test(variable, &comparison) {
        Ok(TranslatedCondition::OtherRequests(_)) => is_of_tls && !negated,
        Ok(TranslatedCondition::Requests(_)) => is_of_tls && negated,
        _ => false,
    }
}

/// Returns the host of a URL with `https://`; the inner `None` means the host of the request.
fn https_host(target: &str, ends: &[&str]) -> Option<Option<String>> {
    let rest = target.strip_prefix("https://")?;
    ends.iter().find_map(|end| {
        let host = rest.strip_suffix(end)?;
        let host = host.strip_suffix(":443").unwrap_or(host);
        match host {
            "%{HTTP_HOST}" | "%{SERVER_NAME}" => Some(None),
            host if !host.is_empty() && !host.contains(['%', '$', '/', ':']) => {
                Some(Some(host.to_ascii_lowercase()))
            }
            _ => None,
        }
    })
}

/// Returns whether the condition holds exactly for all requests without TLS.
pub fn is_without_tls(when: &RuleCondition) -> bool {
    let plain = translate_test("HTTPS", &VariableTest::Equals("off".to_owned(), false));
    let Ok(TranslatedCondition::OtherRequests(secure)) = plain else {
        return false;
    };
    *when == RuleCondition::default().but(secure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_host_is_named_or_the_requests_own() {
        assert_eq!(
            https_host("https://a.org/", &["", "/"]),
            Some(Some("a.org".into()))
        );
        assert_eq!(
            https_host("https://%{HTTP_HOST}%{REQUEST_URI}", &["%{REQUEST_URI}"]),
            Some(None)
        );
        assert_eq!(https_host("http://a.org/", &["/"]), None);
    }
}
