//! The sites of the plan: what `try` compares, and where to find their log.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use howdah_import::directive::Directive;
use howdah_import::target::SiteTable;

use super::addresses::{parse_listen, serving_sockets};
use super::combination::{CombinedConfiguration, CombinedSite};
use super::denied::{DeniedPaths, site_paths};
use super::findings::{Findings, finding};
use super::imports::{ServerImport, text, texts};
use super::proxied::is_local;
use super::servers::FoundServer;
use crate::plan::{PlannedSite, ServerKind, Severity, SiteAddress};

/// The directory with the sites' files, relative to the directory of the takeover.
pub const SITES: &str = "sites.d";

/// Describes the sites of the combined configuration.
pub fn planned_sites(
    all: &CombinedConfiguration,
    imports: &[ServerImport],
    servers: &[FoundServer],
    findings: &mut Findings,
) -> Vec<PlannedSite> {
    let width = all.sites.len().to_string().len().max(3);
    let mut denied = DeniedPaths::default();
    let sites = all.config.sites.iter().zip(&all.sites).enumerate();
    let plan = |(number, (table, site)): (usize, (&SiteTable, &CombinedSite))| {
        let import = &imports[site.import];
        let server = &servers[import.server];
        let block = block_of(table, &import.parts.tree);
        let root = PathBuf::from(text(&table.table, "root").unwrap_or_default());
        let paths = site_paths(&root, block, server, &import.parts.tree, &mut denied);
        report_exposed(&site.name, &paths.exposed, findings);
        PlannedSite {
            name: site.name.clone(),
            hosts: texts(&table.table, "hosts").to_vec(),
            served_by: server.server.kind,
            addresses: addresses(site, block, server),
            file: Path::new(SITES).join(file_name(number + 1, width, &site.name)),
            php: php_of_site(table, block, all),
            access_log: access_log(block, &import.parts.tree, server),
            denied_paths: paths.denied,
            root,
        }
    };
    sites.map(plan).collect()
}

/// Adds a finding about files that no directive denies.
fn report_exposed(site: &str, exposed: &[String], findings: &mut Findings) {
    let Some(first) = exposed.first() else {
        return;
    };
    let more = match exposed.len() {
        1 => String::new(),
        many => format!(" and {} more such files", many - 1),
    };
    findings.push(
        finding(
            Severity::Note,
            "SensitiveFile",
            format!("no directive denies {first}{more}"),
            "Move such files out of the root. Howdah never sends files whose names begin with a dot; for others, write a rule with `deny`.",
        )
        .of_site(site),
    );
}

/// Returns the addresses at which the old server responds for a site.
fn addresses(
    site: &CombinedSite,
    block: Option<&Directive>,
    server: &FoundServer,
) -> Vec<SiteAddress> {
    let mut found: Vec<SiteAddress> = Vec::new();
    let names = block.map(names_of_addresses).unwrap_or_default();
    for listen in site
        .listens
        .iter()
        .filter_map(|listen| parse_listen(listen))
    {
        let sockets = match server.server.listeners.is_empty() {
            // Its sockets are not visible, so the configuration has to be believed.
            true => vec![listen.address],
            false => serving_sockets(&server.server, listen.address),
        };
        let tls = listen.tls;
        let own = sockets
            .into_iter()
            .flat_map(|socket| own_addresses(socket, &names));
        found.extend(own.map(|address| SiteAddress { address, tls }));
    }
    found
}

/// Returns the addresses in the block of a site, as it has them.
fn names_of_addresses(block: &Directive) -> Vec<&str> {
    match block.name.as_str() {
        "virtualhost" => block.args.iter().map(String::as_str).collect(),
        _ => {
            let listens = block.inner().iter().filter(|line| line.name == "listen");
            listens.map(|line| line.arg(0)).collect()
        }
    }
}

/// Returns those of a site's addresses at which a socket listens: if the socket has all addresses of the machine, its
/// server may respond with another site at those that the site does not name. Returns the socket if there are none.
fn own_addresses(socket: SocketAddr, names: &[&str]) -> Vec<SocketAddr> {
    if !socket.ip().is_unspecified() {
        return vec![socket];
    }
    let mut own = Vec::new();
    for name in names {
        let (host, port) = match name.parse::<SocketAddr>() {
            Ok(address) => (Some(address.ip()), Some(address.port())),
            Err(_) => match name.rsplit_once(':').filter(|_| !name.ends_with(']')) {
                Some((host, port)) => (parse_ip(host), port.parse().ok()),
                // A number is a port.
                None => (parse_ip(name), name.parse().ok()),
            },
        };
        match host.filter(|ip| !ip.is_unspecified() && is_local(*ip)) {
            _ if port.is_some_and(|port| port != socket.port()) => {}
            Some(ip) if ip.is_ipv4() == socket.is_ipv4() => {
                own.push(SocketAddr::new(ip, socket.port()));
            }
            Some(_) => {}
            None => return vec![socket],
        }
    }
    match own.is_empty() {
        true => vec![socket],
        false => own,
    }
}

fn parse_ip(text: &str) -> Option<IpAddr> {
    text.trim_matches(['[', ']']).parse().ok()
}

/// Returns the name of a site's file. The number preserves the order of the sites: the first one at an address handles
/// the requests for hosts that no site names.
fn file_name(number: usize, width: usize, name: &str) -> String {
    let plain = |c: char| match c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_') {
        true => c,
        false => '_',
    };
    let name: String = name.chars().map(plain).take(100).collect();
    format!("{number:0width$}-{name}.toml")
}

/// Returns the block of a site in the old configuration. The first comment of the site is its place.
pub fn block_of<'d>(site: &SiteTable, tree: &'d [Directive]) -> Option<&'d Directive> {
    let mut places = site.table.comments.iter();
    places.find_map(|place| find_block(tree, place))
}

fn find_block<'d>(tree: &'d [Directive], place: &str) -> Option<&'d Directive> {
    tree.iter().find_map(|directive| {
        let is_site = matches!(directive.name.as_str(), "server" | "virtualhost");
        match is_site && directive.place.to_string() == place {
            true => Some(directive),
            false if directive.name == "http" => find_block(directive.inner(), place),
            false => None,
        }
    })
}

/// Describes how PHP runs for a site.
fn php_of_site(site: &SiteTable, block: Option<&Directive>, all: &CombinedConfiguration) -> String {
    let runs_php = match block {
        Some(block) if block.name == "server" => {
            let mut runs = false;
            block.walk(&mut |line| runs |= line.name == "fastcgi_pass");
            runs
        }
        // Apache's sites without PHP have an empty list of extensions.
        _ => {
            site.table.get("php_extensions").is_none()
                || !texts(&site.table, "php_extensions").is_empty()
        }
    };
    let mut pools = site.rules.iter().filter_map(|rule| text(rule, "pool"));
    let pool = text(&site.table, "pool")
        .filter(|_| runs_php)
        .or_else(|| pools.next());
    let origin = pool.and_then(|pool| all.pool_origins.get(pool));
    origin.cloned().unwrap_or_else(|| "none".to_owned())
}

/// Returns the access log of a site, if it is a file.
fn access_log(
    block: Option<&Directive>,
    tree: &[Directive],
    server: &FoundServer,
) -> Option<PathBuf> {
    let is_nginx = server.server.kind == ServerKind::Nginx;
    let is_log = |line: &&Directive| match is_nginx {
        true => line.name == "access_log",
        false => matches!(line.name.as_str(), "customlog" | "transferlog"),
    };
    let in_block = block.and_then(|block| block.inner().iter().find(is_log));
    let http = tree.iter().find(|line| line.name == "http");
    let around = http.map_or(tree, Directive::inner);
    let line = in_block.or_else(|| around.iter().find(is_log))?;
    let path = line.arg(0);
    if path == "off"
        || path.starts_with(['|', '$'])
        || path.starts_with("syslog:")
        || path.contains('$')
    {
        return None;
    }
    let base = server
        .paths
        .prefix
        .as_ref()
        .or(server.paths.root_prefix.as_ref());
    Some(base.map_or_else(|| path.into(), |base| base.join(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn site_of_one_address_is_requested_there() {
        for (socket, names, expected) in [
            ("0.0.0.0:80", "127.0.0.2:80", "127.0.0.2:80"),
            ("0.0.0.0:80", "127.0.0.2 [::1]:80", "127.0.0.2:80"),
            ("[::]:80", "127.0.0.2:80 [::1]:80", "[::1]:80"),
            ("0.0.0.0:80", "127.0.0.2:* 127.0.0.3:443", "127.0.0.2:80"),
            ("0.0.0.0:80", "127.0.0.2:80 *:80", "0.0.0.0:80"),
            ("0.0.0.0:80", "127.0.0.2:80 *:443", "127.0.0.2:80"),
            // An address that this machine does not have.
            ("0.0.0.0:80", "192.0.2.77:80", "0.0.0.0:80"),
            ("127.0.0.1:80", "127.0.0.2:80", "127.0.0.1:80"),
        ] {
            let names: Vec<&str> = names.split(' ').collect();
            let found = own_addresses(socket.parse().unwrap(), &names);
            assert_eq!(found, [expected.parse().unwrap()], "{socket} {names:?}");
        }
    }

    #[test]
    fn file_names_are_ordered_and_plain() {
        assert_eq!(file_name(7, 3, "*.example.org"), "007-_.example.org.toml");
        assert_eq!(file_name(1234, 4, "../a b"), "1234-.._a_b.toml");
    }
}
