//! The sites of several servers, with names that are unique and without addresses that belong to another server.

use std::collections::HashMap;

use howdah_import::target::{SiteTable, TomlTable, TomlValue};

use super::super::addresses::{parse_listen, serving_sockets};
use super::super::findings::{Findings, finding};
use super::super::imports::{ServerImport, texts};
use super::super::servers::FoundServer;
use super::{CombinedConfiguration, CombinedSite};
use crate::plan::{Finding, Severity};

/// Adds a site. The sites of all servers but the first get a `listen` of their own, because the top-level `listen` is
/// that of the first.
pub fn add(
    all: &mut CombinedConfiguration,
    mut site: SiteTable,
    import: usize,
    top: &TomlTable,
    is_first: bool,
) {
    let own = texts(&site.table, "listen").to_vec();
    let listens = match own.is_empty() {
        true => texts(top, "listen").to_vec(),
        false => own,
    };
    if !is_first {
        set_in_front(&mut site.table, "listen", TomlValue::Texts(listens.clone()));
    }
    let usual = texts(&site.table, "hosts").first().cloned();
    let given = match site.table.get("name") {
        Some(TomlValue::Text(name)) => Some(name.clone()),
        _ => usual.clone(),
    };
    let given = given.unwrap_or_else(|| "default".to_owned());
    let is_free = |name: &String| !all.sites.iter().any(|known| known.name == *name);
    let numbered = (2..).map(|number| format!("{given}-{number}"));
    let name = std::iter::once(given.clone()).chain(numbered).find(is_free);
    let name = name.unwrap_or_default();
    if usual.as_ref() != Some(&name) {
        set_in_front(&mut site.table, "name", TomlValue::Text(name.clone()));
    }
    all.config.sites.push(site);
    all.sites.push(CombinedSite {
        import,
        name,
        listens,
    });
}

/// Sets a value, at the beginning of the table if it is new.
fn set_in_front(table: &mut TomlTable, key: &str, value: TomlValue) {
    match table.get(key) {
        Some(_) => table.set(key, value, None),
        None => table.pairs.insert(0, (key.to_owned(), value, None)),
    }
}

/// Removes from each site the addresses at which another server listens and its own server does not. A site without an
/// address is removed. Each removal is a finding, and so is a name that two servers still have at the same address.
pub fn resolve_contradictions(
    all: &mut CombinedConfiguration,
    imports: &[ServerImport],
    servers: &[FoundServer],
    findings: &mut Findings,
) {
    let sites = all.config.sites.drain(..).zip(all.sites.drain(..));
    let sites: Vec<(SiteTable, CombinedSite)> = sites.collect();
    let mut owners: HashMap<(String, String), (usize, String)> = HashMap::new();
    for (mut table, mut site) in sites {
        let own = imports[site.import].server;
        let lost: Vec<(String, usize)> = site
            .listens
            .iter()
            .filter_map(|listen| Some((listen.clone(), listener_instead(listen, own, servers)?)))
            .collect();
        for (listen, other) in &lost {
            site.listens.retain(|known| known != listen);
            let place = table.table.comments.first().cloned().unwrap_or_default();
            let found = contradiction(listen, &servers[own], &servers[*other]);
            findings.push(found.of_site(&site.name).at(place));
        }
        if !lost.is_empty() {
            set_in_front(
                &mut table.table,
                "listen",
                TomlValue::Texts(site.listens.clone()),
            );
        }
        if site.listens.is_empty() && !lost.is_empty() {
            continue;
        }
        report_names_of_two_servers(&table, &site, &mut owners, findings);
        all.config.sites.push(table);
        all.sites.push(site);
    }
}

fn contradiction(listen: &str, own: &FoundServer, other: &FoundServer) -> Finding {
    let message = format!(
        "the configuration of {} has this site at {listen}, where {} listens",
        own.display(),
        other.display()
    );
    let remedy = "Remove the address from one of the configurations, and reload the server.";
    finding(Severity::Risk, "SitesContradict", message, remedy)
}

/// Returns the server that listens at an address at which the site's own server does not.
fn listener_instead(listen: &str, own: usize, servers: &[FoundServer]) -> Option<usize> {
    let address = parse_listen(listen)?.address;
    let listens = |server: &FoundServer| !serving_sockets(&server.server, address).is_empty();
    // If the sockets of the server are not visible, it may listen there.
    if servers[own].server.listeners.is_empty() || listens(&servers[own]) {
        return None;
    }
    servers.iter().position(listens)
}

/// Adds a finding for each name that a site of another server has at the same address.
fn report_names_of_two_servers(
    table: &SiteTable,
    site: &CombinedSite,
    owners: &mut HashMap<(String, String), (usize, String)>,
    findings: &mut Findings,
) {
    let hosts = texts(&table.table, "hosts");
    for listen in &site.listens {
        let address = listen.split(' ').next().unwrap_or_default();
        for host in hosts {
            let key = (address.to_owned(), host.clone());
            let (import, owner) = owners
                .entry(key)
                .or_insert_with(|| (site.import, site.name.clone()));
            if *import != site.import {
                let message = format!(
                    "{host} at {address} is in the configurations of two servers; Howdah serves it from the site {owner}"
                );
                let remedy = "Remove the host from the site that should not have it.";
                findings.push(
                    finding(Severity::Blocks, "SitesContradict", message, remedy)
                        .of_site(&site.name),
                );
            }
        }
    }
}
