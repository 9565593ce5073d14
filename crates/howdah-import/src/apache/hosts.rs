//! Which `<VirtualHost>` answers for which name: Apache chooses by address and name, Howdah by name alone.
//! Hosts that only redirect to HTTPS become `https_redirect` of the site that they lead to; those that say
//! the same as another one are that one.

use std::collections::HashMap;

use super::addresses::{Address, Socket, address, covers, listens, sockets};
use super::to_https::to_https;
use crate::directive::{Directive, Place};
use crate::ledger::Ledger;
use crate::listen::Listen;

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
    /// The names that it keeps, as Howdah writes them.
    pub names: Vec<String>,
    /// Its connections are encrypted.
    pub tls: bool,
    /// Its requests without TLS are redirected to HTTPS by this line.
    pub https_redirect: Option<&'a Directive>,
    /// It answers for other names as well.
    pub is_default: bool,
    /// Nothing is left of it.
    is_gone: bool,
}

/// All hosts, the default one first, and the addresses to listen on.
pub fn hosts<'a>(tree: &'a [Directive], ledger: &Ledger) -> (Vec<Host<'a>>, Vec<Listen>) {
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
            });
        }
    }
    if sockets.is_empty() {
        sockets.push(Socket {
            ip: None,
            port: 80,
            tls: false,
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
    let rest: Vec<Listen> = sockets
        .iter()
        .filter(|s| !reached(s))
        .flat_map(|s| listens(s, s.ip))
        .collect();
    if !rest.is_empty() && (hosts.is_empty() || tree.iter().any(|d| d.name == "documentroot")) {
        hosts.push(main(tree, rest, ledger));
    }
    let all: Vec<Listen> = sockets
        .iter()
        .flat_map(|socket| listens(socket, socket.ip))
        .collect();
    for host in &mut hosts {
        if host.listens.is_empty() {
            let need = "no connection reaches it: no `Listen` is for its address, or another host names that address";
            remove(host, need, ledger);
        }
    }
    merge_redirects(&mut hosts, ledger);
    merge_twins(&mut hosts, ledger);
    give_names(&mut hosts, ledger);
    choose_default(&mut hosts, ledger);
    hosts.retain(|host| !host.is_gone);
    (hosts, all)
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
        is_default: false,
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
        is_default: false,
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
fn merge_redirects(hosts: &mut [Host<'_>], ledger: &Ledger) {
    let mut secure: HashMap<String, usize> = HashMap::new();
    for (at, host) in hosts
        .iter()
        .enumerate()
        .filter(|(_, host)| host.tls && !host.is_gone)
    {
        for name in &host.names {
            secure.entry(name.clone()).or_insert(at);
        }
    }
    for at in 0..hosts.len() {
        if hosts[at].tls || hosts[at].is_gone {
            continue;
        }
        let Some(found) = to_https(&hosts[at]) else {
            continue;
        };
        let names = hosts[at].names.clone();
        let (leading, kept): (Vec<String>, Vec<String>) = names
            .into_iter()
            .partition(|name| secure.contains_key(name));
        if leading.is_empty() || !kept.is_empty() && found.host.is_some() {
            continue;
        }
        for name in &leading {
            hosts[secure[name]].https_redirect = Some(found.line);
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
        hosts[at].names.clone_from(&kept);
        if kept.is_empty() {
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
fn merge_twins(hosts: &mut [Host<'_>], ledger: &Ledger) {
    let all: Vec<Vec<String>> = hosts.iter().map(|host| fingerprint(host.lines)).collect();
    let mut secure: HashMap<&[String], usize> = HashMap::new();
    for (at, host) in hosts.iter().enumerate() {
        if host.tls && !host.is_gone {
            secure.entry(&all[at]).or_insert(at);
        }
    }
    for plain in 0..hosts.len() {
        if hosts[plain].tls || hosts[plain].is_gone || hosts[plain].block.is_none() {
            continue;
        }
        let Some(&twin) = secure.get(&all[plain][..]) else {
            continue;
        };
        let listens = std::mem::take(&mut hosts[plain].listens);
        hosts[twin].listens.extend(listens);
        hosts[plain].is_gone = true;
        settle(
            &hosts[plain],
            "the host with TLS says the same: one site answers for both",
            ledger,
        );
    }
}

/// Each name belongs to the first host that has it, as under Apache; with TLS first, since Howdah does not
/// choose by port.
fn give_names(hosts: &mut [Host<'_>], ledger: &Ledger) {
    let mut taken: HashMap<String, usize> = HashMap::new();
    let mut order: Vec<usize> = (0..hosts.len()).filter(|at| !hosts[*at].is_gone).collect();
    order.sort_by_key(|at| (hosts[*at].block.is_none(), !hosts[*at].tls));
    for at in order {
        let had = !hosts[at].names.is_empty();
        let mut kept = Vec::new();
        for name in std::mem::take(&mut hosts[at].names) {
            match taken.get(&name) {
                Some(other) => {
                    let by = hosts[*other].place.clone();
                    if let Some(block) = hosts[at].block {
                        let need = format!(
                            "{name} is served as {by} says: sites are chosen by name, not by address or port; a second Howdah can serve this one"
                        );
                        ledger.list(block.id, need);
                    }
                }
                None => {
                    taken.insert(name.clone(), at);
                    kept.push(name);
                }
            }
        }
        let gone = had && kept.is_empty();
        hosts[at].names = kept;
        if gone {
            remove(&mut hosts[at], "its host is not carried over", ledger);
        }
    }
}

fn remove(host: &mut Host<'_>, need: &str, ledger: &Ledger) {
    host.is_gone = true;
    if let Some(block) = host.block {
        list_all(block, need, ledger);
    }
}

/// The first host of the file answers for names that no host has; with the main server's addresses alone,
/// that one does.
fn choose_default(hosts: &mut Vec<Host<'_>>, ledger: &Ledger) {
    let Some(first) = hosts.iter().position(|host| !host.is_gone) else {
        return;
    };
    hosts[first].is_default = true;
    let default = hosts.remove(first);
    if let Some(secure) = hosts.iter().find(|host| host.tls && !host.is_gone)
        && !default.tls
        && let Some(block) = secure.block
    {
        let remark = format!(
            "names that no host has are answered as {} says, by HTTPS as well",
            default.place
        );
        ledger.remark(block.id, remark);
    }
    hosts.insert(0, default);
    for host in hosts.iter_mut().skip(1) {
        if !host.is_gone && host.names.is_empty() {
            let need = "no request reaches it here: sites are chosen by name alone, not by address or port; a second Howdah can serve it";
            remove(host, need, ledger);
        }
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
