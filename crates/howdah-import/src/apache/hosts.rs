//! Which `<VirtualHost>` answers for which name: Apache chooses by address and name, Howdah by name alone.
//! Hosts that only redirect to HTTPS become `https_redirect` of the site that they lead to; those that say
//! the same as another one are that one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::condition::{Asked, Test, test};
use crate::directive::{Directive, Place};
use crate::ledger::Ledger;
use crate::listen::Listen;
use crate::when::When;

/// A `<VirtualHost>`, or the main server.
#[derive(Clone, Debug)]
pub struct Host<'a> {
    /// The section; none: the main server.
    pub block: Option<&'a Directive>,
    /// Where it stands.
    pub place: Place,
    /// What it says.
    pub lines: &'a [Directive],
    /// Where it listens.
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

/// `Listen`
#[derive(Clone, Debug)]
struct Socket {
    ip: Option<IpAddr>,
    port: u16,
    tls: bool,
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

fn sockets(tree: &[Directive], ledger: &Ledger) -> Vec<Socket> {
    let mut found = Vec::new();
    for line in tree.iter().filter(|d| d.name == "listen") {
        let (ip, port) = match line.arg(0).parse::<u16>() {
            Ok(port) => (None, Some(port)),
            Err(_) => address(line.arg(0)),
        };
        match port {
            Some(port) => {
                found.push(Socket {
                    ip,
                    port,
                    tls: line.arg(1).eq_ignore_ascii_case("https"),
                });
                ledger.carried(line.id);
            }
            None => ledger.list(line.id, "`listen` with an address and a port"),
        }
    }
    found
}

/// `*:80`, `192.0.2.1`, `[::1]:443`, `_default_:443`: an address, unless it is any, and a port.
fn address(text: &str) -> (Option<IpAddr>, Option<u16>) {
    if let Ok(address) = text.parse::<SocketAddr>() {
        let ip = Some(address.ip()).filter(|ip| !ip.is_unspecified());
        return (ip, Some(address.port()));
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return (Some(ip).filter(|ip| !ip.is_unspecified()), None);
    }
    let port = text
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok());
    let name = text.rsplit_once(':').map_or(text, |(name, _)| name);
    let ip = (name == "localhost").then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    (ip, port)
}

/// Whether connections to a socket may reach a host with this address.
fn covers((ip, port): (Option<IpAddr>, Option<u16>), socket: &Socket) -> bool {
    let same_ip = ip.is_none() || socket.ip.is_none() || ip == socket.ip;
    same_ip && port.is_none_or(|port| port == socket.port)
}

/// A socket for all addresses is one of IPv4 and one of IPv6.
fn listens(socket: &Socket, ip: Option<IpAddr>) -> Vec<Listen> {
    let of = |address: String| Listen {
        address,
        tls: socket.tls,
        quic: false,
        h2c: false,
        proxy_protocol: false,
        default: false,
    };
    match ip {
        Some(ip) => vec![of(SocketAddr::new(ip, socket.port).to_string())],
        None => vec![
            of(format!("0.0.0.0:{}", socket.port)),
            of(format!("[::]:{}", socket.port)),
        ],
    }
}

fn host<'a>(
    block: &'a Directive,
    named: &[(Option<IpAddr>, Option<u16>)],
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
            let same = |(ip, port): &(Option<IpAddr>, Option<u16>)| {
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

/// Whether a rule is for all requests without TLS, and for no others.
pub fn is_plain(when: &When) -> bool {
    let plain = test("HTTPS", &Test::Equals("off".to_owned(), false));
    let Ok(Asked::IsNot(secure)) = plain else {
        return false;
    };
    *when == When::default().but(secure)
}

/// A redirect of everything to HTTPS: the line, all that belongs to it, and the host, if it names one.
struct ToHttps<'a> {
    line: &'a Directive,
    lines: Vec<&'a Directive>,
    host: Option<String>,
}

/// How a host without TLS leads to HTTPS, if it does so for all requests but those that prove who owns a
/// name.
fn to_https<'a>(host: &Host<'a>) -> Option<ToHttps<'a>> {
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
                    && let Some(host) = secure_host(target, &["", "/"])
                {
                    let lines = vec![line];
                    return Some(ToHttps { line, lines, host });
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
                    && let Some(host) = secure_host(target, &["$1", "/$1"])
                {
                    let lines = vec![line];
                    return Some(ToHttps { line, lines, host });
                }
            }
            "rewritecond" => conditions.push(line),
            "rewriterule" => {
                let own = std::mem::take(&mut conditions);
                let is_harmless = own.iter().all(|c| asks_nothing(c, host));
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
                let found = secure_host(line.arg(1), &ends);
                let is_redirect = line.arg(2).contains('R') || line.arg(2).contains("redirect");
                if is_harmless
                    && everything
                    && is_redirect
                    && let Some(host) = found
                {
                    before.extend(own);
                    before.push(line);
                    return Some(ToHttps {
                        line,
                        lines: before,
                        host,
                    });
                }
                // `RewriteRule ^/.well-known - [L]`
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

/// A condition that holds for all requests of a host without TLS, proofs of who owns a name aside.
fn asks_nothing(condition: &Directive, host: &Host<'_>) -> bool {
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
        Some(text) => Test::Equals(text.to_owned(), true),
        None => Test::Matches(pattern.to_owned()),
    };
    let is_of_tls = matches!(variable, "HTTPS" | "SERVER_PORT" | "REQUEST_SCHEME");
    match test(variable, &comparison) {
        Ok(Asked::IsNot(_)) => is_of_tls && !negated,
        Ok(Asked::Is(_)) => is_of_tls && negated,
        _ => false,
    }
}

/// The host that a URL names by `https://`: none in it, if it is the request's own.
fn secure_host(target: &str, ends: &[&str]) -> Option<Option<String>> {
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
    fn names_and_addresses_are_apaches() {
        assert_eq!(name("https://WWW.a.org:443").as_deref(), Some("www.a.org"));
        assert_eq!(name("*.a.org").as_deref(), Some("*.a.org"));
        assert_eq!(name("www.*"), None);
        assert_eq!(address("*:80"), (None, Some(80)));
        assert_eq!(address("_default_:443"), (None, Some(443)));
        assert_eq!(address("[::1]:8"), (Some("::1".parse().unwrap()), Some(8)));
        assert_eq!(
            address("192.0.2.1"),
            (Some("192.0.2.1".parse().unwrap()), None)
        );
        assert_eq!(
            secure_host("https://a.org/", &["", "/"]),
            Some(Some("a.org".into()))
        );
        assert_eq!(
            secure_host("https://%{HTTP_HOST}%{REQUEST_URI}", &["%{REQUEST_URI}"]),
            Some(None)
        );
        assert_eq!(secure_host("http://a.org/", &["/"]), None);
    }
}
