//! Determines which `<VirtualHost>` responds at which addresses and for which names. Hosts that only redirect to HTTPS
//! become `https_redirect` of the site that they lead to, and hosts with the same content are merged.

use std::collections::HashMap;

use super::addresses::{
    HostAddress, ListenSocket, covers, listen_addresses, parse_address, parse_sockets,
};
use super::host::ApacheHost;
use super::https_redirect::find_https_redirect;
use super::outcomes::list_section;
use crate::directive::{Directive, SourceLine};
use crate::hosting::{Hosting, SiteHosting};
use crate::ledger::ImportLedger;
use crate::listen::{SiteListen, remove_tls_without_certificate};

/// Returns all hosts, the sites that they become, in order, and the addresses of the sites without their own.
pub fn assign_hosts<'a>(
    tree: &'a [Directive],
    ledger: &ImportLedger,
) -> (Vec<ApacheHost<'a>>, Vec<SiteHosting>, Vec<SiteListen>) {
    let mut sockets = parse_sockets(tree, ledger);
    let blocks: Vec<&Directive> = tree.iter().filter(|d| d.name == "virtualhost").collect();
    let has_listen = !sockets.is_empty();
    for block in blocks.iter().filter(|_| !has_listen) {
        for arg in &block.args {
            let (ip, port) = parse_address(arg);
            let port = port.unwrap_or(80);
            sockets.push(ListenSocket {
                ip,
                port,
                tls: false,
                line: None,
            });
        }
    }
    if sockets.is_empty() {
        sockets.push(ListenSocket {
            ip: None,
            port: 80,
            tls: false,
            line: None,
        });
    }
    let named: Vec<_> = blocks
        .iter()
        .flat_map(|block| &block.args)
        .map(|arg| parse_address(arg))
        .collect();
    let mut hosts: Vec<ApacheHost<'a>> = blocks
        .iter()
        .map(|block| parse_host(block, &named, &mut sockets, ledger))
        .collect();
    let reached = |socket: &ListenSocket| {
        blocks.iter().any(|block| {
            block
                .args
                .iter()
                .any(|arg| covers(parse_address(arg), socket))
        })
    };
    // The main server responds at the addresses that no `<VirtualHost>` covers.
    let rest: Vec<&ListenSocket> = sockets.iter().filter(|s| !reached(s)).collect();
    if hosts.is_empty() || tree.iter().any(|d| d.name == "documentroot") {
        let rest: Vec<SiteListen> = rest
            .iter()
            .flat_map(|s| listen_addresses(s, s.ip))
            .collect();
        if !rest.is_empty() {
            hosts.push(main_server(tree, rest, ledger));
        }
    } else {
        for line in rest.iter().filter_map(|socket| socket.line) {
            let why = "no virtual host is for this address, and the main server has no files";
            ledger.mark_different(line, why);
        }
    }
    let all: Vec<SiteListen> = sockets
        .iter()
        .flat_map(|socket| listen_addresses(socket, socket.ip))
        .collect();
    let certified = |lines: &[Directive]| lines.iter().any(|d| d.name == "sslcertificatefile");
    let all_are_certified = certified(tree);
    for host in &mut hosts {
        let has_certificate = all_are_certified || certified(host.lines);
        let listens = &mut host.listens;
        if let Some(need) = remove_tls_without_certificate(listens, &host.names, has_certificate) {
            if listens.is_empty() {
                remove_host(host, need, ledger);
            } else if let Some(block) = host.block {
                ledger.mark_missing(block.id, need);
            }
        } else if listens.is_empty() {
            let need = "no connection reaches this host: no `Listen` has its address, or another host names that address";
            remove_host(host, need, ledger);
        }
    }
    let (sites, common) = assign_sites(&mut hosts, &all, ledger);
    (hosts, sites, common)
}

fn assign_sites(
    hosts: &mut [ApacheHost<'_>],
    sockets: &[SiteListen],
    ledger: &ImportLedger,
) -> (Vec<SiteHosting>, Vec<SiteListen>) {
    let claims: Vec<_> = hosts
        .iter()
        .map(|host| (&host.names[..], &host.listens[..]))
        .collect();
    let (mut hosting, lost) = Hosting::new(&claims, sockets);
    for lost in lost {
        if let Some(block) = hosts[lost.server].block {
            ledger.mark_missing(block.id, lost.message(&hosts[lost.owner].place));
        }
    }
    merge_redirects(hosts, &mut hosting, ledger);
    merge_equal_hosts(hosts, &mut hosting, ledger);
    for at in 0..hosts.len() {
        if !hosts[at].is_removed && !hosting.is_reached(at) {
            let is_nameless = hosts[at].names.is_empty();
            let need = hosting.unreached_reason(at, is_nameless, |at| &hosts[at].place);
            remove_host(&mut hosts[at], &need, ledger);
        } else if let Some(block) = hosts[at].block
            && !hosts[at].is_removed
            && let Some(remark) = hosting.widened_remark(&hosts[at].listens)
        {
            ledger.mark_different(block.id, remark);
        }
    }
    let (sites, common) = hosting.sites();
    for site in &sites {
        if let (Some(block), Some(remark)) = (
            hosts[site.server].block,
            site.default_remark(|at| &hosts[at].place),
        ) {
            ledger.mark_different(block.id, remark);
        }
    }
    (sites, common)
}

fn parse_host<'a>(
    block: &'a Directive,
    named: &[HostAddress],
    sockets: &mut [ListenSocket],
    ledger: &ImportLedger,
) -> ApacheHost<'a> {
    let lines = block.inner();
    let says = |name: &str, value: &str| {
        lines
            .iter()
            .any(|d| d.name == name && d.arg(0).eq_ignore_ascii_case(value))
    };
    let tls = says("sslengine", "on") || says("sslengine", "optional");
    let mut own = Vec::new();
    for arg in &block.args {
        let wanted = parse_address(arg);
        // A host that names the address itself gets all connections to it.
        let is_taken = |socket: &ListenSocket| {
            let mut named = named.iter();
            let same = |(ip, port): &HostAddress| {
                *ip == socket.ip && port.is_none_or(|port| port == socket.port)
            };
            wanted.0.is_none() && socket.ip.is_some() && named.any(same)
        };
        for socket in sockets.iter_mut() {
            if !covers(wanted, socket) || is_taken(socket) {
                continue;
            }
            socket.tls |= tls;
            own.extend(listen_addresses(socket, wanted.0.or(socket.ip)));
        }
    }
    ApacheHost {
        block: Some(block),
        place: block.place.clone(),
        lines,
        listens: own,
        names: parse_names(lines, ledger),
        tls,
        https_redirect: None,
        is_removed: false,
    }
}

fn main_server<'a>(
    tree: &'a [Directive],
    listens: Vec<SiteListen>,
    ledger: &ImportLedger,
) -> ApacheHost<'a> {
    let own = tree
        .iter()
        .find(|d| matches!(d.name.as_str(), "documentroot" | "servername"));
    let place = own.or(tree.first()).map(|d| d.place.clone());
    ApacheHost {
        block: None,
        place: place.unwrap_or(SourceLine {
            file: "configuration".into(),
            line: 1,
        }),
        lines: tree,
        listens,
        names: parse_names(tree, ledger),
        tls: tree
            .iter()
            .any(|d| d.name == "sslengine" && d.arg(0).eq_ignore_ascii_case("on")),
        https_redirect: None,
        is_removed: false,
    }
}

/// Returns the names of `ServerName` and `ServerAlias`.
fn parse_names(lines: &[Directive], ledger: &ImportLedger) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let last = lines.iter().rev().find(|d| d.name == "servername");
    let aliases = lines.iter().filter(|d| d.name == "serveralias");
    for line in last.into_iter().chain(aliases) {
        ledger.mark_carried(line.id);
        for word in &line.args {
            match parse_name(word) {
                Some(name) if !names.contains(&name) => names.push(name),
                Some(_) => {}
                None => ledger.mark_missing(
                    line.id,
                    format!("{word}: `hosts` can contain only names, which may begin with `*.`"),
                ),
            }
        }
    }
    names
}

/// Translates a name into Howdah's notation.
fn parse_name(text: &str) -> Option<String> {
    let text = text.rsplit("://").next().unwrap_or(text);
    let text = match text.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() && !name.contains(':') => name,
        _ => text,
    };
    let name = text.trim_end_matches('.').to_ascii_lowercase();
    let rest = name.strip_prefix("*.").unwrap_or(&name);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = !rest.is_empty()
        && rest.chars().all(plain)
        && !rest.starts_with('.')
        && !rest.contains("..");
    match is_name {
        true => Some(name),
        false => name
            .trim_matches(['[', ']'])
            .parse::<std::net::Ipv6Addr>()
            .ok()
            .map(|ip| format!("[{ip}]")),
    }
}

/// Merges hosts that only redirect to HTTPS into the hosts that they lead to.
fn merge_redirects(hosts: &mut [ApacheHost<'_>], hosting: &mut Hosting, ledger: &ImportLedger) {
    let mut secure: HashMap<String, usize> = HashMap::new();
    for (at, host) in hosts.iter().enumerate() {
        if host.tls && hosting.is_secure(at) {
            for name in hosting.names(at) {
                secure.entry(name).or_insert(at);
            }
        }
    }
    for at in 0..hosts.len() {
        if hosts[at].tls || hosts[at].is_removed {
            continue;
        }
        let Some(found) = find_https_redirect(&hosts[at]) else {
            continue;
        };
        let names = hosting.names(at);
        let (leading, kept): (Vec<String>, Vec<String>) = names
            .into_iter()
            .partition(|name| secure.contains_key(name));
        if leading.is_empty() || !kept.is_empty() && found.host.is_some() {
            continue;
        }
        for name in &leading {
            let to = secure[name];
            hosts[to].https_redirect = Some(found.line);
            hosting.transfer_name(name, at, to);
            hosting.add_addresses_of(to, at);
        }
        let others = leading
            .iter()
            .any(|name| found.host.as_ref().is_some_and(|host| host != name));
        for line in &found.lines {
            match others {
                true => ledger.mark_different(
                    line.id,
                    "each name redirects to its own HTTPS address first, and from there to the target",
                ),
                false => ledger.mark_carried(line.id),
            }
        }
        if kept.is_empty() {
            hosting.replace_by_heir(at, secure[&leading[0]]);
            hosts[at].is_removed = true;
            record_merged_host(
                &hosts[at],
                "the host only redirects to HTTPS, as `https_redirect` does",
                ledger,
            );
        }
    }
}

/// Records that the other lines of a host have no effect.
fn record_merged_host(host: &ApacheHost<'_>, why: &'static str, ledger: &ImportLedger) {
    let Some(block) = host.block else { return };
    ledger.mark_carried(block.id);
    block.walk(&mut |d| {
        if !ledger.has_outcome(d.id) {
            ledger.mark_irrelevant(d.id, why);
        }
    });
}

/// Recognises lines that may differ between a host with TLS and a host without TLS although both serve the same
/// content.
fn is_tls_specific(line: &Directive) -> bool {
    let name = line.name.as_str();
    let is_hsts = name == "header"
        && line
            .args
            .iter()
            .any(|arg| arg.eq_ignore_ascii_case("strict-transport-security"));
    let is_log = matches!(
        name,
        "errorlog" | "customlog" | "transferlog" | "loglevel" | "protocols"
    );
    name.starts_with("ssl") || is_log || is_hsts
}

fn fingerprint(lines: &[Directive]) -> Vec<String> {
    let lines = lines.iter().filter(|line| !is_tls_specific(line));
    lines
        .map(|line| {
            format!(
                "{} {:?} {:?}",
                line.name,
                line.args,
                fingerprint(line.inner())
            )
        })
        .collect()
}

/// Merges a host without TLS into a host with TLS that has the same content.
fn merge_equal_hosts(hosts: &mut [ApacheHost<'_>], hosting: &mut Hosting, ledger: &ImportLedger) {
    let all: Vec<Vec<String>> = hosts.iter().map(|host| fingerprint(host.lines)).collect();
    let mut secure: HashMap<&[String], usize> = HashMap::new();
    for (at, host) in hosts.iter().enumerate() {
        if host.tls && hosting.is_reached(at) {
            secure.entry(&all[at]).or_insert(at);
        }
    }
    for plain in 0..hosts.len() {
        let is_there = !hosts[plain].is_removed && hosting.is_reached(plain);
        if hosts[plain].tls || !is_there || hosts[plain].block.is_none() {
            continue;
        }
        let Some(&twin) = secure.get(&all[plain][..]) else {
            continue;
        };
        let listens = hosts[plain].listens.clone();
        hosts[twin].listens.extend(listens);
        hosting.replace_by_heir(plain, twin);
        hosts[plain].is_removed = true;
        record_merged_host(
            &hosts[plain],
            "the host with TLS has the same settings, so one site serves both",
            ledger,
        );
    }
}

fn remove_host(host: &mut ApacheHost<'_>, need: &str, ledger: &ImportLedger) {
    host.is_removed = true;
    if let Some(block) = host.block {
        list_section(block, need, ledger);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_parsed_as_in_apache() {
        assert_eq!(
            parse_name("https://WWW.a.org:443").as_deref(),
            Some("www.a.org")
        );
        assert_eq!(parse_name("*.a.org").as_deref(), Some("*.a.org"));
        assert_eq!(parse_name("www.*"), None);
    }
}
