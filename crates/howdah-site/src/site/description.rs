//! Actions and rules as text: for `howdah explain`, and for the guides' tables.

use std::fmt;

use howdah_http::message::RequestHead;
use howdah_http1::head::{HeadLimits, parse};

use super::config::{HeaderEdit, RuleAction};
use super::route::RouteAction;

/// Returns a request to be routed; `None` if method, host or target is not valid in a request.
pub fn build_request(method: &str, host: &str, target: &str) -> Option<RequestHead> {
    let text = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
    let limits = HeadLimits {
        request_line: text.len(),
        bytes: text.len(),
        fields: 1,
    };
    let mut fields = Vec::new();
    let parsed = parse(&text, &limits, &mut fields).ok()??;
    Some(parsed.into_head(&text, Vec::new(), fields))
}

impl fmt::Display for RouteAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self {
            RouteAction::Static(plan) => {
                write!(
                    f,
                    "file {}",
                    text(&plan.root.file_name(&[b"/", &plan.relative[..]].concat()))
                )
            }
            RouteAction::Proxy(target) => {
                let servers = target.servers.addresses().collect::<Vec<_>>().join(", ");
                write!(f, "proxied to {servers} as {}", text(&target.path))?;
                match &target.query {
                    Some(query) => write!(f, "?{}", text(query)),
                    None => Ok(()),
                }
            }
            RouteAction::Script(target) => {
                let script = &target.script;
                let what = if target.program { "program" } else { "script" };
                write!(f, "{what} {}", text(script.script_filename()))?;
                write!(f, ", SCRIPT_NAME {}", text(script.script_name()))?;
                if !script.path_info().is_empty() {
                    write!(f, ", PATH_INFO {}", text(script.path_info()))?;
                }
                if let Some(query) = &target.query {
                    write!(f, ", QUERY_STRING {}", text(query))?;
                }
                match &target.pool {
                    Some(pool) => write!(f, ", pool {pool}"),
                    None => Ok(()),
                }
            }
            RouteAction::Redirect { status, location } => {
                write!(f, "{status} to {}", text(location))
            }
            RouteAction::Return { status, .. } => write!(f, "{status}, by a rule"),
            RouteAction::Refused {
                status, refusal, ..
            } => write!(f, "{status} {refusal}"),
            RouteAction::Options { allow } => write!(f, "204, Allow: {allow}"),
        }
    }
}

/// Writes the action by its option: `deny 403`, `rewrite /index.php?q=$1`.
impl fmt::Display for RuleAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleAction::Redirect { status, to } => write!(f, "redirect {status} {to}"),
            RuleAction::Rewrite(to) => write!(f, "rewrite {to}"),
            RuleAction::Deny(status) => write!(f, "deny {status}"),
            RuleAction::Return { status, .. } => write!(f, "return {status}"),
            RuleAction::Pool(name) => write!(f, "pool {name}"),
            RuleAction::Cgi(name) => write!(f, "cgi {name}"),
            RuleAction::Proxy(servers) => {
                let servers = servers.addresses().collect::<Vec<_>>();
                write!(f, "proxy {}", servers.join(", "))
            }
            RuleAction::Authorize(authorizer) => write!(f, "authorizer {}", authorizer.pool),
            RuleAction::AuthRequest(server) => {
                let at = server.servers.addresses().next().unwrap_or_default();
                write!(f, "auth_request {at}{}", server.path)
            }
            RuleAction::Authenticate(demand) => write!(f, "auth_basic \"{}\"", demand.realm()),
            RuleAction::Limit(limit) => limit.fmt(f),
            RuleAction::Header(HeaderEdit::Set(name, value)) => {
                write!(f, "set_header {name}: {value}")
            }
            RuleAction::Header(HeaderEdit::Add(name, value)) => {
                write!(f, "add_header {name}: {value}")
            }
            RuleAction::Header(HeaderEdit::Unset(name)) => {
                write!(f, "set_header {name}, which removes it")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::config::FrontController;
    use crate::site::{Site, SiteConfig};

    #[test]
    fn route_actions_are_described() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["index.php", "a.css", "x.php"] {
            std::fs::write(dir.path().join(file), "").unwrap();
        }
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::write(dir.path().join("d/index.html"), "").unwrap();
        let mut config = SiteConfig::for_tests("s", dir.path());
        config.front_controller = Some(FrontController {
            script: "/index.php".into(),
            path_info: false,
        });
        let site = Site::new(config, 0).unwrap();
        let root = dir.path().canonicalize().unwrap().display().to_string();
        for (method, target, expected) in [
            ("GET", "/a.css", format!("file {root}/a.css")),
            (
                "GET",
                "/x.php/i?q",
                format!("script {root}/x.php, SCRIPT_NAME /x.php, PATH_INFO /i"),
            ),
            ("GET", "/d?q", "301 to /d/?q".into()),
            ("PUT", "/a.css", "405 MethodNotAllowed".into()),
            ("OPTIONS", "/a.css", "204, Allow: GET, HEAD, OPTIONS".into()),
            (
                "GET",
                "/.env",
                format!("script {root}/index.php, SCRIPT_NAME /index.php"),
            ),
        ] {
            let head = build_request(method, "h.example", target).unwrap();
            assert_eq!(site.route(&head).action.to_string(), expected);
        }
        for bad in ["a b", "x\r\nY: z", ""] {
            assert!(build_request("GET", "h", bad).is_none(), "{bad}");
        }
    }
}
