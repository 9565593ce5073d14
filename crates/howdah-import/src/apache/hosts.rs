//! Which `<VirtualHost>` answers where and for which names. Hosts that only redirect to HTTPS become
//! `https_redirect` of the site that they lead to; those that say the same as another one are that one.

use std::collections::HashMap;

use super::addresses::{Address, Socket, address, covers, listens, sockets};
use super::to_https::to_https;
use crate::directive::{Directive, Place};
use crate::hosting::{Answers, Hosting};
use crate::ledger::Ledger;
use crate::listen::{Listen, close_without_certificate};

/// A `<VirtualHost>`, or the main server.
#[derive(Clone, Debug)]
pub struct Host<'a> {
    /// The section; none: the main server.
    pub block: Option<&'a Directive>,
    /// File and line of the section.
    pub place: Place,
    /// The directives in the section.
    pub lines: &'a [Directive],
    /// Addresses and ports that the host is for.
    pub listens: Vec<Listen>,
    /// The names that it says, as Howdah writes them.
    pub names: Vec<String>,
    /// Its connections are encrypted.
    pub tls: bool,
    /// Its requests without TLS are redirected to HTTPS by this line.
    pub https_redirect: Option<&'a Directive>,
    /// Nothing is left of it.
    is_gone: bool,
}

/// All hosts, the sites that they become, in order, and the addresses of those without their own.
pub fn hosts<'a>(
    tree: &'a [Directive],
    ledger: &Ledger,
) -> (Vec<Host<'a>>, Vec<Answers>, Vec<Listen>) {
    let mut sockets = sockets(tree, ledger);
    let blocks: Vec<&Directive> = tree.iter().filter(|d| d.name == "virtualhost").collect();
    let has_listen = !sockets.is_empty();
    for block in blocks.iter().filter(|_| !has_listen) {
        for arg in &block.args {
            let (ip, port) = address(arg);
            let port = port.unwrap_or(80);
            sockets.push(Socket {
                ip,
                port,
                tls: false,
                line: None,
            });
        }
    }
    if sockets.is_empty() {
        sockets.push(Socket {
            ip: None,
            port: 80,
            tls: false,
            line: None,
        });
    }
    let named: Vec<_> = blocks
        .iter()
        .flat_map(|block| &block.args)
        .map(|arg| address(arg))
        .collect();
    let mut hosts: Vec<Host<'a>> = blocks
        .iter()
        .map(|block| host(block, &named, &mut sockets, ledger))
        .collect();
    let reached = |socket: &Socket| {
        blocks
            .iter()
            .any(|block| block.args.iter().any(|arg| covers(address(arg), socket)))
    };
    // What no VirtualHost is for, the main server answers.
    let rest: Vec<&Socket> = sockets.iter().filter(|s| !reached(s)).collect();
    if hosts.is_empty() || tree.iter().any(|d| d.name == "documentroot") {
        let rest: Vec<Listen> = rest.iter().flat_map(|s| listens(s, s.ip)).collect();
        if !rest.is_empty() {
            hosts.push(main(tree, rest, ledger));
        }
    } else {
        for line in rest.iter().filter_map(|socket| socket.line) {
            let why = "no host is for this address, and the main server has no files";
            ledger.remark(line, why);
        }
    }
    let all: Vec<Listen> = sockets
        .iter()
        .flat_map(|socket| listens(socket, socket.ip))
        .collect();
    let certified = |lines: &[Directive]| lines.iter().any(|d| d.name == "sslcertificatefile");
    let all_are_certified = certified(tree);
    for host in &mut hosts {
        let has_certificate = all_are_certified || certified(host.lines);
        let listens = &mut host.listens;
        if let Some(need) = close_without_certificate(listens, &host.names, has_certificate) {
            if listens.is_empty() {
                remove(host, need, ledger);
            } else if let Some(block) = host.block {
                ledger.list(block.id, need);
            }
        } else if listens.is_empty() {
            let need = "no connection reaches it: no `Listen` is for its address, or another host names that address";
            remove(host, need, ledger);
        }
    }
    let (sites, common) = sites(&mut hosts, &all, ledger);
    (hosts, sites, common)
}

fn sites(
    hosts: &mut [Host<'_>],
    sockets: &[Listen],
    ledger: &Ledger,
) -> (Vec<Answers>, Vec<Listen>) {
    let claims: Vec<_> = hosts
        .iter()
        .map(|host| (&host.names[..], &host.listens[..]))
        .collect();
    let (mut hosting, lost) = Hosting::new(&claims, sockets);
    for lost in lost {
        if let Some(block) = hosts[lost.server].block {
            ledger.list(block.id, lost.need(&hosts[lost.by].place));
        }
    }
    merge_redirects(hosts, &mut hosting, ledger);
    merge_twins(hosts, &mut hosting, ledger);
    for at in 0..hosts.len() {
        if !hosts[at].is_gone && !hosting.is_reached(at) {
            let is_nameless = hosts[at].names.is_empty();
            let need = hosting.why_unreached(at, is_nameless, |at| &hosts[at].place);
            remove(&mut hosts[at], &need, ledger);
        } else if let Some(block) = hosts[at].block
            && !hosts[at].is_gone
            && let Some(remark) = hosting.widened(&hosts[at].listens)
        {
            ledger.remark(block.id, remark);
        }
    }
    let (sites, common) = hosting.sites();
    for site in &sites {
        if let (Some(block), Some(remark)) =
            (hosts[site.server].block, site.remark(|at| &hosts[at].place))
        {
            ledger.remark(block.id, remark);
        }
    }
    (sites, common)
}

fn host<'a>(
    block: &'a Directive,
    named: &[Address],
    sockets: &mut [Socket],
    ledger: &Ledger,
) -> Host<'a> {
    let lines = block.inner();
    let says = |name: &str, value: &str| {
        lines
            .iter()
            .any(|d| d.name == name && d.arg(0).eq_ignore_ascii_case(value))
    };
    let tls = says("sslengine", "on") || says("sslengine", "optional");
    let mut own = Vec::new();
    for arg in &block.args {
        let wanted = address(arg);
        // A host that names the address gets all connections to it.
        let is_taken = |socket: &Socket| {
            let mut named = named.iter();
            let same = |(ip, port): &Address| {
                *ip == socket.ip && port.is_none_or(|port| port == socket.port)
            };
            wanted.0.is_none() && socket.ip.is_some() && named.any(same)
        };
        for socket in sockets.iter_mut() {
            if !covers(wanted, socket) || is_taken(socket) {
                continue;
            }
            socket.tls |= tls;
            own.extend(listens(socket, wanted.0.or(socket.ip)));
        }
    }
    Host {
        block: Some(block),
        place: block.place.clone(),
        lines,
        listens: own,
        names: names(lines, ledger),
        tls,
        https_redirect: None,
        is_gone: false,
    }
}

fn main<'a>(tree: &'a [Directive], listens: Vec<Listen>, ledger: &Ledger) -> Host<'a> {
    let own = tree
        .iter()
        .find(|d| matches!(d.name.as_str(), "documentroot" | "servername"));
    let place = own.or(tree.first()).map(|d| d.place.clone());
    Host {
        block: None,
        place: place.unwrap_or(Place {
            file: "configuration".into(),
            line: 1,
        }),
        lines: tree,
        listens,
        names: names(tree, ledger),
        tls: tree
            .iter()
            .any(|d| d.name == "sslengine" && d.arg(0).eq_ignore_ascii_case("on")),
        https_redirect: None,
        is_gone: false,
    }
}

/// `ServerName` and `ServerAlias`
fn names(lines: &[Directive], ledger: &Ledger) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let last = lines.iter().rev().find(|d| d.name == "servername");
    let aliases = lines.iter().filter(|d| d.name == "serveralias");
    for line in last.into_iter().chain(aliases) {
        ledger.carried(line.id);
        for word in &line.args {
            match name(word) {
                Some(name) if !names.contains(&name) => names.push(name),
                Some(_) => {}
                None => ledger.list(
                    line.id,
                    format!("{word}: `hosts` has names, and `*.` before some"),
                ),
            }
        }
    }
    names
}

/// A name as Howdah writes it.
fn name(text: &str) -> Option<String> {
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

/// Hosts that only redirect to HTTPS.
fn merge_redirects(hosts: &mut [Host<'_>], hosting: &mut Hosting, ledger: &Ledger) {
    let mut secure: HashMap<String, usize> = HashMap::new();
    for (at, host) in hosts.iter().enumerate() {
        if host.tls && hosting.is_secure(at) {
            for name in hosting.names(at) {
                secure.entry(name).or_insert(at);
            }
        }
    }
    for at in 0..hosts.len() {
        if hosts[at].tls || hosts[at].is_gone {
            continue;
        }
        let Some(found) = to_https(&hosts[at]) else {
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
            hosting.hand_over(name, at, to);
            hosting.join(to, at);
        }
        let others = leading
            .iter()
            .any(|name| found.host.as_ref().is_some_and(|host| host != name));
        for line in &found.lines {
            match others {
                true => ledger.remark(
                    line.id,
                    "each name leads to its own by HTTPS, and from there on",
                ),
                false => ledger.carried(line.id),
            }
        }
        if kept.is_empty() {
            hosting.leave(at, secure[&leading[0]]);
            hosts[at].is_gone = true;
            settle(
                &hosts[at],
                "its host only redirects to HTTPS: https_redirect",
                ledger,
            );
        }
    }
}

/// Nothing else of a host counts.
fn settle(host: &Host<'_>, why: &'static str, ledger: &Ledger) {
    let Some(block) = host.block else { return };
    ledger.carried(block.id);
    block.walk(&mut |d| {
        if !ledger.is_settled(d.id) {
            ledger.moot(d.id, why);
        }
    });
}

/// Lines in which a host with TLS may differ from one without that serves the same.
fn is_of_tls(line: &Directive) -> bool {
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
    let lines = lines.iter().filter(|line| !is_of_tls(line));
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

/// A host without TLS that says the same as one with it is that one.
fn merge_twins(hosts: &mut [Host<'_>], hosting: &mut Hosting, ledger: &Ledger) {
    let all: Vec<Vec<String>> = hosts.iter().map(|host| fingerprint(host.lines)).collect();
    let mut secure: HashMap<&[String], usize> = HashMap::new();
    for (at, host) in hosts.iter().enumerate() {
        if host.tls && hosting.is_reached(at) {
            secure.entry(&all[at]).or_insert(at);
        }
    }
    for plain in 0..hosts.len() {
        let is_there = !hosts[plain].is_gone && hosting.is_reached(plain);
        if hosts[plain].tls || !is_there || hosts[plain].block.is_none() {
            continue;
        }
        let Some(&twin) = secure.get(&all[plain][..]) else {
            continue;
        };
        let listens = hosts[plain].listens.clone();
        hosts[twin].listens.extend(listens);
        hosting.leave(plain, twin);
        hosts[plain].is_gone = true;
        settle(
            &hosts[plain],
            "the host with TLS says the same: one site answers for both",
            ledger,
        );
    }
}

fn remove(host: &mut Host<'_>, need: &str, ledger: &Ledger) {
    host.is_gone = true;
    if let Some(block) = host.block {
        list_all(block, need, ledger);
    }
}

/// Everything in a section is on the list.
pub fn list_all(block: &Directive, need: &str, ledger: &Ledger) {
    let protects = |d: &Directive| super::access::restricts(d);
    ledger.list(block.id, need);
    for inner in block.inner() {
        inner.walk(&mut |d| match super::known::moot(d) {
            _ if ledger.is_settled(d.id) => {}
            Some(why) => ledger.moot(d.id, why),
            None if protects(d) => ledger.list_protection(d.id, "its section is not carried over"),
            None => ledger.list(d.id, "its section is not carried over"),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_apaches() {
        assert_eq!(name("https://WWW.a.org:443").as_deref(), Some("www.a.org"));
        assert_eq!(name("*.a.org").as_deref(), Some("*.a.org"));
        assert_eq!(name("www.*"), None);
    }
}
