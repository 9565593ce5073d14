//! The sites of the plan: what `try` compares, and where to find their log.

use std::path::{Path, PathBuf};

use howdah_import::directive::Directive;
use howdah_import::target::SiteTable;

use super::addresses::{parse_listen, serving_sockets};
use super::combination::{CombinedConfiguration, CombinedSite};
use super::denied::{DeniedPaths, site_paths};
use super::findings::{Findings, finding};
use super::imports::{ServerImport, text, texts};
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
            addresses: addresses(site, server),
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
fn addresses(site: &CombinedSite, server: &FoundServer) -> Vec<SiteAddress> {
    let mut found: Vec<SiteAddress> = Vec::new();
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
        found.extend(
            sockets
                .into_iter()
                .map(|address| SiteAddress { address, tls }),
        );
    }
    found
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
    fn file_names_are_ordered_and_plain() {
        assert_eq!(file_name(7, 3, "*.example.org"), "007-_.example.org.toml");
        assert_eq!(file_name(1234, 4, "../a b"), "1234-.._a_b.toml");
    }
}
