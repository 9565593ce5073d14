//! Selects the site of a request: by the listener that accepted its connection, then by its host.

use std::collections::HashMap;
use std::sync::Arc;

use super::config::HostPattern;
use super::{ConfigError, Site, host_name};
use crate::client_address::split_host;

/// All sites of a configuration, indexed by listener and host name.
#[derive(Debug)]
pub struct Sites {
    sites: Vec<Arc<Site>>,
    /// The table for the listeners of the server; empty if every site has its own listeners.
    common: ListenerSites,
    /// The listeners of the server.
    common_listeners: Vec<String>,
    /// The tables for listeners that sites name as their own.
    own: HashMap<String, ListenerSites>,
}

/// The sites of one listener. Numbers are positions in [`Sites::sites`].
#[derive(Debug, Default)]
struct ListenerSites {
    /// The site for hosts that no site lists. `None` if the listener has no site.
    default_site: Option<usize>,
    exact: HashMap<String, usize>,
    /// Sites of wildcard hosts, by the suffix with its leading dot.
    wildcard: HashMap<String, usize>,
}

/// Hosts that two sites have at one listener, with the positions of both sites. Each host is listed once, although two
/// sites may share several listeners.
type Duplicates = Vec<(String, usize, usize)>;

impl ListenerSites {
    /// Returns the table of the sites for which `answers` is true.
    fn new(
        sites: &[Arc<Site>],
        answers: impl Fn(&Site) -> bool,
        duplicates: &mut Duplicates,
    ) -> ListenerSites {
        let mut table = ListenerSites::default();
        for (number, site) in sites.iter().enumerate().filter(|(_, site)| answers(site)) {
            table.default_site.get_or_insert(number);
            for host in &site.config.hosts {
                let (by_name, name) = match host {
                    HostPattern::Exact(name) => (&mut table.exact, name),
                    HostPattern::Below(name) => (&mut table.wildcard, name),
                };
                if let Some(other) = by_name.insert(name.clone(), number)
                    && other != number
                {
                    let duplicate = (name.clone(), other, number);
                    if !duplicates.contains(&duplicate) {
                        duplicates.push(duplicate);
                    }
                }
            }
        }
        table
    }

    /// Returns the site that names the host: by its exact name, else by the longest `*.name`.
    fn find_named(&self, host: &[u8]) -> Option<usize> {
        if self.exact.is_empty() && self.wildcard.is_empty() {
            return None;
        }
        let name = host_name(host).to_ascii_lowercase();
        let name = std::str::from_utf8(&name).ok()?;
        if let Some(&site) = self.exact.get(name) {
            return Some(site);
        }
        let dots = name.match_indices('.').map(|(at, _)| at);
        let mut suffixes = dots.filter(|at| *at > 0).map(|dot| &name[dot..]);
        suffixes.find_map(|suffix| self.wildcard.get(suffix).copied())
    }

    /// Returns the site for the host (nginx's order): the one that names it, else the first.
    fn find(&self, host: &[u8]) -> Option<usize> {
        self.find_named(host).or(self.default_site)
    }
}

impl Sites {
    /// Builds the tables of the sites, which are in the order of the configuration. `common` has the listeners of the
    /// server, which sites without `listen` use.
    ///
    /// # Errors
    /// There is no site, or two sites have the same host at one listener.
    pub fn new(sites: Vec<Arc<Site>>, common: Vec<String>) -> Result<Sites, Vec<ConfigError>> {
        if sites.is_empty() {
            return Err(vec![ConfigError::NoSite]);
        }
        let mut duplicates = Duplicates::new();
        let is_common = |site: &Site| site.config.listen.is_empty();
        let for_common = ListenerSites::new(&sites, is_common, &mut duplicates);
        let mut own: HashMap<String, ListenerSites> = HashMap::new();
        for listener in sites.iter().flat_map(|site| &site.config.listen) {
            if !own.contains_key(listener) {
                let with_common = common.contains(listener);
                let answers = |site: &Site| match is_common(site) {
                    true => with_common,
                    false => site.config.listen.contains(listener),
                };
                let table = ListenerSites::new(&sites, answers, &mut duplicates);
                own.insert(listener.clone(), table);
            }
        }
        if duplicates.is_empty() {
            return Ok(Sites {
                sites,
                common: for_common,
                common_listeners: common,
                own,
            });
        }
        let error = |(host, one, two)| {
            let name = |at: usize| sites[at].config.name.clone();
            ConfigError::DuplicateHost(host, name(one), name(two))
        };
        Err(duplicates.into_iter().map(error).collect())
    }

    /// Returns the site for a `Host` value, with or without a port, at a listener. If the listener no longer has a
    /// site, the result is a site that does not answer there: see [`Sites::answers_at`].
    pub fn find(&self, listener: &str, host: &[u8]) -> &Arc<Site> {
        let table = match self.own.is_empty() {
            true => &self.common,
            false => self.own.get(listener).unwrap_or(&self.common),
        };
        &self.sites[table.find(host).unwrap_or_default()]
    }

    /// Returns the site that a URL with this host means if there is no connection: a site at a listener of the URL's
    /// port, or at any listener if none has that port. Also returns the listener's name, if it belongs to a site.
    pub fn find_for_url(&self, https: bool, host: &[u8]) -> (&Arc<Site>, Option<&str>) {
        let usual = if https { 443 } else { 80 };
        let port = split_host(host).1.unwrap_or(usual);
        let own = self.sites.iter().flat_map(|site| &site.config.listen);
        let own = own.map(|name| (Some(name.as_str()), &self.own[name]));
        let common = (None, &self.common);
        let at_port = |(name, _): &(Option<&str>, _)| name.is_some_and(|n| has_port(n, port));
        let mut tables: Vec<_> = own.clone().filter(at_port).collect();
        if self
            .common_listeners
            .iter()
            .any(|name| has_port(name, port))
        {
            tables.push(common);
        }
        if tables.is_empty() {
            tables = std::iter::once(common).chain(own).collect();
        }
        let named = |(name, table): &(_, &ListenerSites)| Some((table.find_named(host)?, *name));
        let first = |(name, table): &(_, &ListenerSites)| Some((table.default_site?, *name));
        let found = tables.iter().find_map(named);
        let found = found.or_else(|| tables.iter().find_map(first));
        let (site, listener) = found.unwrap_or_default();
        (&self.sites[site], listener)
    }

    /// Returns the numbers of the sites for the host at all listeners.
    pub fn find_all(&self, host: &[u8]) -> Vec<u32> {
        let tables = std::iter::once(&self.common).chain(self.own.values());
        let found = tables.filter_map(|table| table.find(host));
        found.map(|at| self.sites[at].number()).collect()
    }

    /// Returns whether the site answers at a listener. A site that has its own listeners is not shown at any other, not
    /// even on connections of a listener that is no longer configured.
    pub fn answers_at(site: &Site, listener: &str) -> bool {
        let own = &site.config.listen;
        own.is_empty() || own.iter().any(|name| name == listener)
    }

    /// Returns all sites, in the order of the configuration.
    pub fn all(&self) -> &[Arc<Site>] {
        &self.sites
    }
}

/// Returns whether the name of a listener ends with the port: `0.0.0.0:80`, `[::]:80`.
fn has_port(listener: &str, port: u16) -> bool {
    let end = listener.rsplit_once(':').map(|(_, end)| end);
    end.and_then(|end| end.parse().ok()) == Some(port)
}
