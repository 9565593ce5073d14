//! Translates `proxy_pass` into `proxy` of a rule.

use std::net::IpAddr;

use super::location::{Location, LocationKind};
use super::rules::PROXY_DIRECTIVES;
use super::server::ServerTranslation;
use super::variables::{has_variables, replace_constants};
use crate::directive::Directive;
use crate::rule_condition::RuleCondition;
use crate::target::{TomlValue, UPSTREAM_CERTIFICATE_REMARK};
use crate::time;

/// Translates a location whose requests are passed to another server. If rules cannot express the location, its
/// requests get a 502 response, not the output of PHP.
pub fn translate_proxy_location<'a>(
    work: &mut ServerTranslation<'_, 'a>,
    location: &Location<'a>,
    when: &RuleCondition,
) {
    let ledger = work.ledger;
    let lines = location.block.inner().iter();
    let Some(line) = lines
        .clone()
        .find(|d| PROXY_DIRECTIVES.contains(&d.name.as_str()))
    else {
        return;
    };
    let servers = parse_servers(work, line).and_then(|servers| {
        let rewrites = location
            .block
            .inner()
            .iter()
            .any(|d| d.name == "rewrite" && d.arg(2) == "break");
        match rewrites {
            true => Err(
                "the path is changed only for the upstream server, but a rule with `proxy` passes on the path that it matched"
                    .to_owned(),
            ),
            false => Ok(servers),
        }
    });
    let servers = servers.and_then(|(servers, path)| match path {
        None => Ok(servers),
        Some(path)
            if location.kind == LocationKind::Prefix
                || location.kind == LocationKind::PrefixNoRegex =>
        {
            match path == location.pattern {
                true => Ok(servers),
                false => Err(format!(
                    "{} becomes {path} for the upstream server, but a rule with `proxy` passes on the path that it matched",
                    location.pattern
                )),
            }
        }
        Some(path) if location.kind == LocationKind::Exact && path == location.pattern => {
            Ok(servers)
        }
        Some(_) => Err(
            "this directive requests another path from the upstream server, but a rule with `proxy` passes on the path that it matched"
                .to_owned(),
        ),
    });
    match servers {
        Err(need) => {
            let mut rule = when.rule("return", 502, &line.place);
            rule.set("body", "This part has not been carried over.\n", None);
            work.push(rule);
            ledger.mark_missing(
                line.id,
                format!("{need}; until then, the response is a 502"),
            );
        }
        Ok(servers) => {
            let mut rule = when.rule("proxy", TomlValue::Texts(servers), &line.place);
            if let Some(read) = work.scope_of(location).last("proxy_read_timeout") {
                match time::parse_milliseconds(read.arg(0)) {
                    Some(time) => {
                        let range = 10..=time::DAY;
                        let text = time::format_clamped(time, &range);
                        rule.set("proxy_timeout", text, Some(&read.place));
                        match time::range_remark(time, &range) {
                            Some(remark) => ledger.mark_different(read.id, remark),
                            None => ledger.mark_carried(read.id),
                        }
                    }
                    None => ledger.mark_missing(read.id, "set `proxy_timeout` in the rule"),
                }
            }
            work.push(rule);
            let scope = work.scope_of(location);
            let fields = scope.all(&["proxy_set_header"]);
            let host = fields
                .iter()
                .any(|d| d.arg(0).eq_ignore_ascii_case("host") && d.arg(1).contains("host"));
            match host {
                true => ledger.mark_carried(line.id),
                false => ledger
                    .mark_different(line.id, "the upstream server gets the client's Host header"),
            }
            for field in fields {
                record_header(work, field);
            }
        }
    }
}

/// Records the outcome of a header: Howdah sends some of them by default; others are put on the list.
fn record_header(work: &ServerTranslation<'_, '_>, field: &Directive) {
    const OWN: &[&str] = &[
        "host",
        "upgrade",
        "connection",
        "x-real-ip",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-ssl",
        "x-forwarded-server",
        "x-scheme",
        "accept-encoding",
    ];
    match OWN.contains(&field.arg(0).to_ascii_lowercase().as_str()) {
        true => work.ledger.mark_irrelevant(
            field.id,
            "Howdah sends these headers to the server by itself (docs/proxy.md)",
        ),
        false => work.ledger.mark_missing(
            field.id,
            "Howdah passes on the client's headers and sets its own; you cannot configure other headers",
        ),
    }
}

/// Returns the servers, and the path that replaces the location's.
fn parse_servers(
    work: &mut ServerTranslation<'_, '_>,
    line: &Directive,
) -> Result<(Vec<String>, Option<String>), String> {
    let target = replace_constants(line.arg(0), &work.constants);
    if line.name != "proxy_pass" {
        return Err("Howdah can forward requests only over HTTP and FastCGI".to_owned());
    }
    if has_variables(&target) {
        return Err(format!(
            "name a server that does not depend on the request, instead of {target}"
        ));
    }
    let (scheme, usual, rest) = match target.split_once("://") {
        Some(("http", rest)) => ("http", ":80", rest),
        Some(("https", rest)) if !rest.starts_with("unix:") => ("https", ":443", rest),
        _ => {
            return Err(
                "write the server in a form that rules support: http://, https:// or unix:"
                    .to_owned(),
            );
        }
    };
    if let Some(socket) = rest.strip_prefix("unix:") {
        let (socket, path) = match socket.split_once(':') {
            Some((socket, path)) => (socket, Some(path.to_owned()).filter(|p| !p.is_empty())),
            None => (socket, None),
        };
        return Ok((vec![format!("unix:{socket}")], path));
    }
    let (host, path) = match rest.find('/') {
        Some(at) => (&rest[..at], Some(rest[at..].to_owned())),
        None => (rest, None),
    };
    let port = host.rsplit_once(':').filter(|_| !host.ends_with(']'));
    if port.is_some_and(|(_, port)| port.parse::<u16>().is_err()) {
        return Err(format!("{host} has no port"));
    }
    let addresses = match work.context.pools.upstreams.get(host).copied() {
        Some(upstream) => super::php::upstream_addresses(upstream, work.ledger),
        None => vec![host.to_owned()],
    };
    let verifies = verifies_certificates(work);
    let name = tls_name(work).filter(|_| scheme == "https");
    let name = name.map_or(String::new(), |name| format!(" name={name}"));
    let server = |address: String| match address.starts_with("unix:") {
        true => address,
        false => {
            let (host, rest) = address.split_once(' ').unwrap_or((&address, ""));
            let port = if host
                .trim_end_matches(']')
                .rsplit_once(':')
                .is_some_and(|(_, p)| p.parse::<u16>().is_ok())
            {
                ""
            } else {
                usual
            };
            // nginx verifies no certificate by default, and few are valid for an address.
            let scheme = match scheme == "https" && !verifies && has_no_name(host) {
                true => "https+insecure",
                false => scheme,
            };
            let server = format!("{scheme}://{host}{port} {rest}");
            format!("{}{name}", server.trim_end())
        }
    };
    let servers: Vec<String> = addresses.into_iter().map(server).collect();
    if servers.iter().any(|server| server.starts_with("https:")) {
        work.ledger
            .mark_different(line.id, UPSTREAM_CERTIFICATE_REMARK);
    }
    Ok((servers, path))
}

/// Returns the name that nginx asks other servers for in TLS handshakes. If this is the host of the request, the result is
/// the first name of the site: a server is likely to have one site for all of them.
fn tls_name(work: &ServerTranslation<'_, '_>) -> Option<String> {
    let lines = |name: &str| {
        let mut found = work.scope.all(&[name]);
        work.block.walk(&mut |line| {
            if line.name == name {
                found.push(line);
            }
        });
        found
    };
    let asks = lines("proxy_ssl_server_name");
    let name = lines("proxy_ssl_name").pop()?;
    if asks.last()?.arg(0) != "on" {
        return None;
    }
    let host = match name.arg(0) {
        "$host" | "$http_host" | "$server_name" => work.block.last("server_name")?.arg(0),
        host => host,
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    if host.is_empty() || host.starts_with('.') || !host.chars().all(is_plain) {
        return None;
    }
    for line in asks.into_iter().chain(lines("proxy_ssl_name")) {
        work.ledger.mark_carried(line.id);
    }
    Some(host.to_owned())
}

/// Returns whether nginx verifies the certificates of the servers that some location passes requests to.
fn verifies_certificates(work: &ServerTranslation<'_, '_>) -> bool {
    let is_on = |line: &Directive| line.name == "proxy_ssl_verify" && line.arg(0) == "on";
    let mut found = work.scope.last("proxy_ssl_verify").is_some_and(is_on);
    work.block.walk(&mut |line| found |= is_on(line));
    found
}

/// Returns whether the host of an upstream server is an address or `localhost`.
fn has_no_name(host: &str) -> bool {
    let host = match host.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => host,
    };
    let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    is_address || host == "localhost"
}

/// Returns the URL of a location that only passes requests on, which `auth_request` uses.
pub fn auth_request_url(
    work: &mut ServerTranslation<'_, '_>,
    path: &str,
) -> Result<String, String> {
    let asked = work
        .locations
        .iter()
        .find(|l| l.kind != LocationKind::Named && l.matches_path(path))
        .cloned();
    let asked = asked.ok_or_else(|| format!("no location matches {path}"))?;
    let line = asked
        .block
        .last("proxy_pass")
        .ok_or_else(|| format!("{path} is not passed to another server"))?;
    let (servers, own) = parse_servers(work, line)?;
    let [server] = &servers[..] else {
        return Err("name exactly one server".to_owned());
    };
    if server.starts_with("unix:") {
        return Err("name a server by its address; a unix socket is not possible here".to_owned());
    }
    let own = match (own, asked.kind) {
        (None, _) => path.to_owned(),
        (Some(own), LocationKind::Exact) => own,
        (Some(own), _) => format!(
            "{own}{}",
            path.strip_prefix(&asked.pattern).unwrap_or_default()
        ),
    };
    work.ledger.mark_carried(line.id);
    Ok(format!("{server}{own}"))
}
