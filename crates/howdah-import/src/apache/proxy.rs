//! Translates `ProxyPass` and similar directives into `proxy` of rules. If rules cannot express a directive, its
//! requests get a 502 response, not the output of PHP.

use super::handlers::fastcgi_address;
use super::host_context::HostContext;
use super::known::restricts_access;
use super::region;
use crate::directive::Directive;
use crate::ledger::ImportLedger;
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::{RuleStage, StagedRules};
use crate::target::{TomlTable, TomlValue, UPSTREAM_CERTIFICATE_REMARK};

/// The upstream servers, and the path that replaces the request's.
struct ProxyPassTarget {
    servers: Vec<String>,
    path: String,
}

/// Translates the lines of all sections: those of the server in order, then those of `<Location>`. `rewrites` are the
/// rules of rewrites with `[P]`.
pub fn write_proxy_rules(
    context: &HostContext<'_, '_>,
    rewrites: Vec<TomlTable>,
    stages: &mut StagedRules,
) {
    // mod_rewrite precedes mod_proxy, and access control precedes both.
    for rule in rewrites {
        stages.push(RuleStage::Responses, rule);
    }
    let mut excepted: Vec<PathMatch> = Vec::new();
    for number in 0..context.layers.len() {
        let layer = &context.layers[number];
        for line in layer.directives {
            let is_match = match line.name.as_str() {
                "proxypass" => false,
                "proxypassmatch" => true,
                _ => continue,
            };
            let (paths, words) = match (
                &layer.section,
                line.arg(0).starts_with('/') || is_match && layer.section.is_none(),
            ) {
                (None, true) | (Some(_), true) => {
                    let paths = match is_match {
                        true => region::location_match_paths(line.arg(0)),
                        false => region::location_paths(line.arg(0)),
                    };
                    (paths, line.args.get(1..).unwrap_or_default())
                }
                (Some(_), false) => (Ok(layer.paths.clone()), &line.args[..]),
                (None, false) => (
                    Err("write a path that begins with a slash".to_owned()),
                    &line.args[..],
                ),
            };
            let target = words.first().map_or("", String::as_str);
            if fastcgi_address(target).is_some() {
                continue;
            }
            match paths {
                Ok(paths) if target == "!" => {
                    excepted.push(paths);
                    context.ledger.mark_carried(line.id);
                }
                Ok(paths) => translate_proxy_pass(context, stages, line, &paths, words, &excepted),
                Err(need) => context.ledger.mark_missing_protection(line.id, need),
            }
        }
    }
    record_other_directives(context);
}

/// Translates one `ProxyPass` line into a rule.
fn translate_proxy_pass(
    context: &HostContext<'_, '_>,
    stages: &mut StagedRules,
    line: &Directive,
    paths: &PathMatch,
    words: &[String],
    excepted: &[PathMatch],
) {
    let when = RuleCondition::except(
        paths.clone(),
        excepted
            .iter()
            .filter(|other| region::may_overlap(other, paths))
            .cloned()
            .collect(),
    );
    let found = parse_target(context, words.first().map_or("", String::as_str)).and_then(|target| {
        match keeps_the_path(line, paths, &target.path) {
            true => Ok(target.servers),
            false => Err(format!("this directive requests {} from the upstream server instead of the path of the request, but a rule with `proxy` passes on the path that it matched", target.path)),
        }
    });
    match found {
        Err(need) => {
            let mut rule = when.rule("return", 502, &line.place);
            rule.set("body", "This part has not been carried over.\n", None);
            stages.push(RuleStage::Responses, rule);
            context.ledger.mark_missing(
                line.id,
                format!("{need}; until then, the response is a 502"),
            );
        }
        Ok(servers) => {
            if servers.iter().any(|server| server.starts_with("https:")) {
                context
                    .ledger
                    .mark_different(line.id, UPSTREAM_CERTIFICATE_REMARK);
            }
            let mut rule = when.rule("proxy", TomlValue::Texts(servers), &line.place);
            let own = words.iter().find_map(|word| word.strip_prefix("timeout="));
            let timeout = context.layers.line_for("/", "proxytimeout");
            if let Some(seconds) = own
                .or(timeout.map(|line| line.arg(0)))
                .and_then(|text| text.parse::<u32>().ok())
            {
                rule.set(
                    "proxy_timeout",
                    format!("{}s", seconds.clamp(1, 86_400)),
                    None,
                );
                if let Some(line) = timeout {
                    context.ledger.mark_carried(line.id);
                }
            }
            stages.push(RuleStage::Responses, rule);
            let keeps_host = context
                .layers
                .line_for("/", "proxypreservehost")
                .is_some_and(|line| line.arg(0).eq_ignore_ascii_case("on"));
            match keeps_host {
                true => context.ledger.mark_carried(line.id),
                false => context
                    .ledger
                    .mark_different(line.id, "the upstream server gets the client's Host header"),
            }
        }
    }
}

/// Returns whether the upstream server gets the path that the client requests.
fn keeps_the_path(line: &Directive, paths: &PathMatch, target: &str) -> bool {
    let plain = |path: &str| path.trim_end_matches('/').to_owned();
    match paths {
        PathMatch::All => plain(target).is_empty() || target == "/$1" || target == "$1",
        PathMatch::Path(own) | PathMatch::Prefix(own) => plain(own) == plain(target),
        PathMatch::Regex(expression) if line.name == "proxypassmatch" => {
            // Compares `^/api/(.*)$` with `/api/$1`.
            let body = expression.trim_start_matches('^').trim_end_matches('$');
            let Some((begin, group)) = body.split_once('(') else {
                return target.is_empty();
            };
            let whole = group.ends_with(')') && !begin.contains(['.', '*', '[', '?', '\\']);
            target.is_empty() || whole && format!("{begin}$1") == target
        }
        PathMatch::Regex(_) => target.is_empty(),
    }
}

/// Parses `http://127.0.0.1:3000/path`, `unix:/run/x|http://h/path` or `balancer://name/path`.
fn parse_target(context: &HostContext<'_, '_>, text: &str) -> Result<ProxyPassTarget, String> {
    if let Some((socket, url)) = text.split_once('|') {
        let socket = socket
            .strip_prefix("unix:")
            .ok_or("write the server in a form that rules support (docs/proxy.md)")?;
        let path = url.split_once("://").map_or("", |(_, rest)| rest);
        let path = path.find('/').map_or("", |at| &path[at..]);
        return Ok(ProxyPassTarget {
            servers: vec![format!("unix:{socket}")],
            path: path.to_owned(),
        });
    }
    let (scheme, rest) = text
        .split_once("://")
        .ok_or("write the server in a form that rules support (docs/proxy.md)")?;
    let (server, path) = rest.split_at(rest.find(['/', '$']).unwrap_or(rest.len()));
    let servers = match scheme.to_ascii_lowercase().as_str() {
        "http" | "ws" => vec![format!("http://{}", with_port(server, 80)?)],
        "h2c" => vec![format!("h2c://{}", with_port(server, 80)?)],
        "balancer" => balancer_members(context, server)?,
        "https" | "wss" => vec![format!("https://{}", with_port(server, 443)?)],
        "h2" => {
            return Err(
                "Howdah does not use HTTP/2 over TLS to other servers: write https".to_owned(),
            );
        }
        _ => return Err("Howdah can forward requests only over HTTP and FastCGI".to_owned()),
    };
    Ok(ProxyPassTarget {
        servers,
        path: path.to_owned(),
    })
}

fn with_port(server: &str, usual: u16) -> Result<String, String> {
    let port = server.rsplit_once(':').filter(|_| !server.ends_with(']'));
    match port {
        _ if server.is_empty() || server.contains(['{', '%', '$', '@']) => {
            Err("name a server that does not depend on the request".to_owned())
        }
        None => Ok(format!("{server}:{usual}")),
        Some((_, port)) if port.parse::<u16>().is_ok() => Ok(server.to_owned()),
        Some(_) => Err(format!("{server} has no port")),
    }
}

/// Returns the members of `<Proxy balancer://NAME>`.
fn balancer_members(context: &HostContext<'_, '_>, name: &str) -> Result<Vec<String>, String> {
    let wanted = format!("balancer://{name}");
    let sections = context
        .layers
        .iter()
        .filter(|layer| layer.section.is_none())
        .flat_map(|layer| layer.directives);
    let sections: Vec<&Directive> = sections
        .filter(|d| d.name == "proxy" && d.arg(0).trim_end_matches('/') == wanted)
        .collect();
    let mut servers = Vec::new();
    for section in sections {
        context.ledger.mark_carried(section.id);
        for line in section.inner() {
            if line.name != "balancermember" {
                context
                    .ledger
                    .mark_different(line.id, "each request goes to the least busy server");
                continue;
            }
            let member = parse_target(context, line.arg(0))?;
            let Some(mut server) = member
                .servers
                .into_iter()
                .next()
                .filter(|_| member.path.trim_matches('/').is_empty())
            else {
                return Err("name the servers of a balancer without paths".to_owned());
            };
            let mut others = Vec::new();
            for word in line.args.iter().skip(1) {
                match word
                    .strip_prefix("loadfactor=")
                    .and_then(|n| n.parse::<f32>().ok())
                {
                    Some(factor) if (1.0..=100.0).contains(&factor) => {
                        server += &format!(" weight={}", factor.round())
                    }
                    _ => others.push(word.as_str()),
                }
            }
            match others.is_empty() {
                true => context.ledger.mark_carried(line.id),
                false => context.ledger.mark_different(
                    line.id,
                    format!(
                        "{} is not carried over: each request goes to the least busy server that is not down",
                        others.join(" ")
                    ),
                ),
            }
            servers.push(server);
        }
    }
    match servers.is_empty() {
        true => Err(format!("the balancer {name} has no members here")),
        false => Ok(servers),
    }
}

/// Translates `RewriteRule … [P]`.
pub fn translate_proxy_rewrite(
    context: &HostContext<'_, '_>,
    line: &Directive,
    when: &RuleCondition,
    everything: bool,
) -> Result<TomlTable, String> {
    let found = parse_target(context, line.arg(1))?;
    let same = match (&when.paths, found.path.as_str()) {
        (PathMatch::All, "%{REQUEST_URI}" | "" | "/") => true,
        (_, "$1" | "/$1") if everything => true,
        (PathMatch::Regex(expression), path) => {
            let body = expression
                .trim_start_matches('^')
                .trim_end_matches('$')
                .trim_start_matches("/?");
            let body = body.replace("(.*)", "$1").replace("(.+)", "$1");
            format!("/{}", body.trim_start_matches('/')) == path
        }
        _ => false,
    };
    match same {
        true => Ok(when.rule("proxy", TomlValue::Texts(found.servers), &line.place)),
        false => Err(format!(
            "this directive requests {} from the upstream server instead of the path of the request, but a rule with `proxy` passes on the path that it matched",
            found.path
        )),
    }
}

/// Records the outcomes of directives that accompany `ProxyPass`.
fn record_other_directives(context: &HostContext<'_, '_>) {
    let ledger = context.ledger;
    for layer in context.layers.iter() {
        for line in layer.directives {
            match line.name.as_str() {
                "proxypassreverse" => ledger.mark_irrelevant(
                    line.id,
                    "the upstream server gets the client's Host header, so its redirects already contain that host",
                ),
                "proxypassreversecookiedomain" | "proxypassreversecookiepath" => {
                    ledger.mark_missing(
                        line.id,
                        "let the server set cookies with its public host and path",
                    );
                }
                "proxypreservehost" => match line.arg(0).eq_ignore_ascii_case("on") {
                    true => ledger.mark_carried(line.id),
                    false => ledger.mark_different(line.id, "the upstream server gets the client's Host header"),
                },
                "proxyrequests" => match line.arg(0).eq_ignore_ascii_case("off") {
                    true => ledger.mark_carried(line.id),
                    false => ledger.mark_missing(line.id, "Howdah has no forward proxy"),
                },
                "proxy" | "proxymatch" if !ledger.has_outcome(line.id) => {
                    record_proxy_section(ledger, line)
                }
                _ => {}
            }
        }
    }
}

/// Records the outcome of a `<Proxy>` section: its access restrictions have to be rules for paths in Howdah.
fn record_proxy_section(ledger: &ImportLedger, section: &Directive) {
    let mut closes = false;
    section.walk(&mut |d| {
        let grants = matches!(
            d.args.join(" ").to_ascii_lowercase().as_str(),
            "all granted" | "from all" | "deny,allow" | "allow,deny"
        ) && d.name != "deny";
        closes |= restricts_access(d) && !grants;
    });
    section.walk(&mut |d| match closes && restricts_access(d) {
        true => ledger.mark_missing_protection(
            d.id,
            "write rules with `deny` and `from` for the paths that are passed to this server",
        ),
        false => ledger.mark_irrelevant(
            d.id,
            "proxy rules contain all that Howdah needs to know about a server",
        ),
    });
}
