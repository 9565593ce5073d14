//! Servers to which another server of the machine passes requests, as nginx often does to an Apache server at another
//! port. Howdah recognises its own requests and refuses them (`ProxyLoop`), so it cannot take over both. The server
//! behind stays, and Howdah passes requests to it as the server in front does.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

use howdah_import::target::TomlTable;

use super::addresses::receives;
use super::findings::{Findings, finding};
use super::imports::{ServerImport, texts};
use super::processes::Processes;
use super::servers::FoundServer;
use super::sockets::{ListeningSockets, socket_inodes};
use crate::plan::{ListenAddress, Severity};

/// Caches and load balancers, which may pass a request back to the server that it came from.
const INTERMEDIARIES: &[&str] = &[
    "varnishd", "haproxy", "squid", "hitch", "pound", "traefik", "envoy",
];

/// An address of this machine to which a server passes requests.
#[derive(Debug)]
struct ProxyTarget {
    /// The index of the import that has the rule.
    import: usize,
    address: SocketAddr,
    /// The line of the old configuration.
    place: Option<String>,
}

/// Marks the servers that stay, and removes their imports.
pub fn keep_backends(
    imports: Vec<ServerImport>,
    servers: &mut [FoundServer],
    processes: &Processes,
    sockets: &ListeningSockets,
    findings: &mut Findings,
) -> Vec<ServerImport> {
    for target in targets(&imports) {
        let front = imports[target.import].server;
        match servers
            .iter()
            .position(|found| listens_at(found, target.address))
        {
            Some(own) if own == front => findings.push(proxy_loop(&servers[front], &target)),
            // A server behind may pass requests to a third one.
            Some(behind) if !servers[behind].stays && !servers[front].stays => {
                findings.push(backend_stays(&servers[front], &servers[behind], &target));
                servers[behind].stays = true;
            }
            Some(_) => {}
            None => report_intermediary(&target, processes, sockets, findings),
        }
    }
    let stays = |import: &ServerImport| servers[import.server].stays;
    imports
        .into_iter()
        .filter(|import| !stays(import))
        .collect()
}

fn listens_at(found: &FoundServer, address: SocketAddr) -> bool {
    let mut listeners = found.server.listeners.iter();
    listeners.any(|listener| match listener.address {
        ListenAddress::Tcp(socket) => receives(socket, address),
        ListenAddress::Unix(_) => false,
    })
}

/// Returns the addresses of this machine to which the servers pass requests.
fn targets(imports: &[ServerImport]) -> Vec<ProxyTarget> {
    let mut found = Vec::new();
    for (import, parts) in imports.iter().enumerate() {
        let rules = parts.parts.config.sites.iter().flat_map(|site| &site.rules);
        for rule in rules.filter(|rule| rule.get("proxy").is_some()) {
            let place = place_of(rule);
            let addresses = texts(rule, "proxy")
                .iter()
                .filter_map(|text| local_address(text));
            found.extend(addresses.map(|address| ProxyTarget {
                import,
                address,
                place: place.clone(),
            }));
        }
    }
    found
}

fn place_of(rule: &TomlTable) -> Option<String> {
    let own = rule.pairs.iter().find_map(|(.., place)| place.clone());
    own.or_else(|| rule.comments.first().cloned())
}

/// Returns the address of an upstream server such as `http://127.0.0.1:8080 weight=2`, if it is on this machine.
fn local_address(text: &str) -> Option<SocketAddr> {
    let url = text.split_whitespace().next()?;
    let (port, rest) = match url.split_once("://") {
        Some(("http", rest)) => (80, rest),
        Some(("https" | "https+insecure", rest)) => (443, rest),
        _ => return None,
    };
    let host = rest.split('/').next()?;
    let address = host.parse::<SocketAddr>().ok();
    let of_ip = || host.trim_matches(['[', ']']).parse().ok();
    let of_ip = || of_ip().map(|ip: IpAddr| SocketAddr::new(ip, port));
    // Other names are not looked up: their servers may be slow to answer, and are rarely on this machine.
    let of_name = || {
        let (name, named_port) = host.split_once(':').unwrap_or((host, ""));
        let port = named_port.parse().unwrap_or(port);
        let found =
            (name == "localhost").then(|| ("127.0.0.1", port).to_socket_addrs().ok()?.next());
        found.flatten()
    };
    let address = address.or_else(of_ip).or_else(of_name)?;
    is_local(address.ip()).then_some(address)
}

/// Returns whether an address is one of this machine, at which a socket can be bound.
pub fn is_local(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

fn backend_stays(
    front: &FoundServer,
    behind: &FoundServer,
    target: &ProxyTarget,
) -> crate::plan::Finding {
    let mut found = finding(
        Severity::Risk,
        "BackendStays",
        format!(
            "{} passes requests to {} at {}: the server behind stays with its sites and its PHP, and Howdah passes requests to it",
            front.display(),
            behind.display(),
            target.address
        ),
        "Leave this server running after the switch. To serve its sites without it, convert its configuration with `howdah import`, and replace the `proxy` rules with these sites.",
    );
    found.place.clone_from(&target.place);
    found
}

fn proxy_loop(server: &FoundServer, target: &ProxyTarget) -> crate::plan::Finding {
    let mut found = finding(
        Severity::Blocks,
        "ProxyLoop",
        format!(
            "{} passes requests to itself at {}, which Howdah refuses with 508",
            server.display(),
            target.address
        ),
        "Let the site in front serve the files and scripts itself.",
    );
    found.place.clone_from(&target.place);
    found
}

/// Adds a finding if a cache or load balancer listens at an address.
fn report_intermediary(
    target: &ProxyTarget,
    processes: &Processes,
    sockets: &ListeningSockets,
    findings: &mut Findings,
) {
    let inodes: Vec<u64> = sockets
        .tcp()
        .filter(|(socket, _)| receives(*socket, target.address))
        .map(|(_, inode)| inode)
        .collect();
    let has = |pid: u32| {
        let own = socket_inodes(pid).unwrap_or_default();
        own.iter().any(|inode| inodes.contains(inode))
    };
    let mut all = processes.all().into_iter();
    let owner = all.find(|process| INTERMEDIARIES.contains(&process.name()) && has(process.pid));
    if let Some(process) = owner {
        let mut found = finding(
            Severity::Risk,
            "ProxyToCache",
            format!(
                "Howdah will pass requests to {} (process {}) at {}; if it passes them back to this machine's sites, Howdah refuses them (ProxyLoop)",
                process.name(),
                process.pid,
                target.address
            ),
            "Let the sites in front serve the files and scripts themselves; Howdah has a page cache of its own (docs/cache.md).",
        );
        found.place.clone_from(&target.place);
        findings.push(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_servers_on_this_machine_are_recognised() {
        for (text, expected) in [
            ("http://127.0.0.1:8080 weight=2", Some("127.0.0.1:8080")),
            ("http://localhost:81", Some("127.0.0.1:81")),
            ("https://[::1]", Some("[::1]:443")),
            ("https+insecure://[::1]", Some("[::1]:443")),
            ("http://127.0.0.1/path", Some("127.0.0.1:80")),
            ("http://192.0.2.77:80", None),
            ("http://api.example:80", None),
            ("unix:/run/api.sock", None),
        ] {
            let found = local_address(text).map(|address| address.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }
}
