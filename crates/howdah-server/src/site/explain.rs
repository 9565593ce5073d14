//! A route in words: what `howdah check --route` prints, and what the guides' tables are checked
//! by. Changes nothing.

use std::fmt;

use super::Site;
use super::config::RuleAction;
use super::route::{Action, Route};
use crate::http::head::{HeadLimits, parse};
use crate::http::message::RequestHead;

/// A request for `explain`: `None` if method, host or target cannot stand in one.
pub fn request(method: &str, host: &str, target: &str) -> Option<RequestHead> {
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

impl Site {
    /// Where a request goes, in words.
    pub fn explain(&self, head: &RequestHead) -> String {
        let Route { action, info } = self.route(head);
        let mut text = String::new();
        for guard in self.guards(&info) {
            text += &match guard {
                RuleAction::Authorize(authorizer) => {
                    format!("if pool {} allows it: ", authorizer.pool)
                }
                RuleAction::AuthRequest(server) => {
                    let at = &server.proxy.servers()[0].at;
                    format!("if {at} allows it, asked for {}: ", server.path)
                }
                RuleAction::Authenticate(demand) => {
                    format!("if a password satisfies {}: ", demand.challenge())
                }
                _ => String::new(),
            };
        }
        text += &action.to_string();
        if let Some(refusal) = info.passed_over {
            text += &format!(" (the path itself is never sent: {refusal})");
        }
        if let Some(because) = &info.because {
            text += &format!(" ({because})");
        }
        text
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self {
            Action::Static(plan) => {
                write!(
                    f,
                    "file {}",
                    text(&plan.root.file_name(&[b"/", &plan.relative[..]].concat()))
                )
            }
            Action::Proxy(target) => {
                let servers = target.proxy.servers().iter().map(|s| s.at.to_string());
                let servers = servers.collect::<Vec<_>>().join(", ");
                write!(f, "proxied to {servers} as {}", text(&target.path))?;
                match &target.query {
                    Some(query) => write!(f, "?{}", text(query)),
                    None => Ok(()),
                }
            }
            Action::Script(target) => {
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
            Action::Redirect { status, location } => write!(f, "{status} to {}", text(location)),
            Action::Return { status, .. } => write!(f, "{status}, by a rule"),
            Action::Refused {
                status, refusal, ..
            } => write!(f, "{status} {refusal}"),
            Action::Options { allow } => write!(f, "204, Allow: {allow}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::SiteConfig;
    use crate::site::config::FrontController;

    #[test]
    fn routes_read_well() {
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
                format!(
                    "script {root}/index.php, SCRIPT_NAME /index.php (the path itself is never sent: DotFile)"
                ),
            ),
        ] {
            let head = request(method, "h.example", target).unwrap();
            assert_eq!(site.explain(&head), expected);
        }
        for bad in ["a b", "x\r\nY: z", ""] {
            assert!(request("GET", "h", bad).is_none(), "{bad}");
        }
    }
}
