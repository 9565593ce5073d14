//! Assigns host names and addresses to sites. The old server selects a server by address and then by name, and so does
//! Howdah. A site has a `listen` of its own only if its addresses differ from those of most sites.

use std::collections::{BTreeMap, BTreeSet};

use crate::directive::SourceLine;
use crate::listen::{self, SiteListen, covers, widest_reach};
use crate::target::{SiteTable, TomlTable, TomlValue};

/// A set of addresses, by index.
type Addresses = BTreeSet<usize>;

/// The addresses and names that each server of a file responds to. A server is identified by its index in the file.
#[derive(Debug)]
pub struct Hosting {
    /// Each address once, with the options of all servers that listen on it.
    addresses: Vec<SiteListen>,
    /// By address: the server that responds to names which no server has there.
    defaults: Vec<Option<usize>>,
    /// By server: the addresses on which it listens.
    listens: Vec<Addresses>,
    /// By server: its names, each with the addresses where the name belongs to the server.
    names: Vec<Vec<(String, Addresses)>>,
}

/// The part of the remark about a name conflict by which other programs recognise it.
pub const NAME_CONFLICT: &str = " is served by the server at ";

/// A name that a server specifies and does not get, because another server has it at the same address.
#[derive(Debug, PartialEq, Eq)]
pub struct NameConflict {
    /// The server that specifies the name.
    pub server: usize,
    /// The name.
    pub name: String,
    /// The server that has the name.
    pub owner: usize,
}

impl NameConflict {
    /// Returns the remark for the list; `by` is the place of the server that has the name.
    pub fn message(&self, by: &SourceLine) -> String {
        format!(
            "{}{NAME_CONFLICT}{by}, which has the same address",
            self.name
        )
    }
}

/// The names and addresses that a site responds to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteHosting {
    /// The server that becomes this site.
    pub server: usize,
    /// The site's name, if it is not its first host.
    pub name: Option<String>,
    /// The hosts that the site responds to.
    pub hosts: Vec<String>,
    /// The addresses of the site.
    pub listens: Vec<SiteListen>,
    /// The index of the first site of the same server, if this is not the first.
    pub first_site: Option<usize>,
    /// The addresses of all sites of the same server.
    pub listens_of_server: Vec<SiteListen>,
    /// Whether the site's addresses differ from those of the top-level `listen`.
    pub has_own_listen: bool,
    /// Whether the site responds, at some of its addresses, to names that no site has there.
    pub is_default: bool,
    /// The server that responds instead of this site, at one of its addresses, to names that no site has there.
    pub overridden_by: Option<usize>,
}

impl SiteHosting {
    /// Returns a copy of the server's first site with the name, hosts and addresses of this one.
    pub fn copy_of_site(&self, first: &SiteTable) -> SiteTable {
        let mut site = first.clone();
        let mut table = TomlTable::default();
        table.comments.extend(site.table.comments.first().cloned());
        self.write(&mut table);
        let own = ["name", "hosts", "listen"];
        let rest = site.table.pairs.into_iter();
        let rest = rest.filter(|(key, ..)| !own.contains(&key.as_str()));
        table.pairs.extend(rest);
        site.table = table;
        site
    }

    /// Returns the remark in the list for a site that is not the default at all of its addresses; `place_of` returns
    /// the place of a server.
    pub fn default_remark<'p>(&self, place_of: impl Fn(usize) -> &'p SourceLine) -> Option<String> {
        let by = place_of(self.overridden_by?);
        Some(format!(
            "at each address, {by} handles requests for hosts that no site lists"
        ))
    }

    /// Writes the name, hosts and `listen` of the site.
    pub fn write(&self, table: &mut TomlTable) {
        let default = match self.has_own_listen {
            true => {
                "If several sites use one address, the first of them handles requests for hosts that no site lists."
            }
            false => "The first site handles requests for hosts that no site lists.",
        };
        if self.is_default {
            table.comment(default);
        }
        if let Some(name) = &self.name {
            table.set("name", name.as_str(), None);
        }
        if !self.hosts.is_empty() {
            table.set("hosts", TomlValue::Texts(self.hosts.clone()), None);
        }
        if self.has_own_listen {
            table.set("listen", listen::listen_values(&self.listens), None);
        }
    }
}

/// A [`SiteHosting`] under construction.
#[derive(Debug)]
struct SiteDraft {
    server: usize,
    hosts: Vec<String>,
    addresses: Addresses,
    /// The addresses where the site responds to names that no site has.
    defaults: Addresses,
    overridden_by: Option<usize>,
}

impl Hosting {
    /// Assigns addresses and names to servers. The addresses in `sockets` are opened even if no server names them. If
    /// one address is part of another, Howdah opens only the wider one.
    pub fn new(
        servers: &[(&[String], &[SiteListen])],
        sockets: &[SiteListen],
    ) -> (Hosting, Vec<NameConflict>) {
        let named = servers.iter().flat_map(|(_, listens)| *listens);
        let addresses = merge_listens(sockets.iter().chain(named));
        let number = |listen: &SiteListen| {
            addresses.iter().position(|there| {
                there.address == listen.address || covers(&there.address, &listen.address)
            })
        };
        let listens = servers
            .iter()
            .map(|(_, listens)| listens.iter().filter_map(number).collect());
        let mut hosting = Hosting {
            defaults: default_servers(servers, &addresses),
            listens: listens.collect(),
            names: Vec::new(),
            addresses,
        };
        let lost = hosting.claim_names(servers);
        hosting.extend_to_wildcard_twins();
        (hosting, lost)
    }

    /// Gives each name, at each address, to the first server that specifies it.
    fn claim_names(&mut self, servers: &[(&[String], &[SiteListen])]) -> Vec<NameConflict> {
        let mut lost = Vec::new();
        for (server, (names, _)) in servers.iter().enumerate() {
            let mut own: Vec<(String, Addresses)> = Vec::new();
            for name in *names {
                if own.iter().any(|(known, _)| known == name) {
                    continue;
                }
                let mut free = self.listens[server].clone();
                for address in &self.listens[server] {
                    let Some(by) = self.owner(name, *address) else {
                        continue;
                    };
                    free.remove(address);
                    let name = name.clone();
                    let found = NameConflict {
                        server,
                        name,
                        owner: by,
                    };
                    if !lost.contains(&found) {
                        lost.push(found);
                    }
                }
                if !free.is_empty() {
                    own.push((name.clone(), free));
                }
            }
            self.names.push(own);
        }
        lost
    }

    /// Lets a server on the IPv4 wildcard address also respond on the IPv6 wildcard address of the same port if other
    /// servers listen there, and vice versa.
    fn extend_to_wildcard_twins(&mut self) {
        for server in 0..self.names.len() {
            let own = self.listens[server].iter();
            let twins = own
                .filter_map(|address| self.wildcard_twin(*address))
                .collect();
            self.claim_free_addresses(server, &twins);
        }
    }

    fn wildcard_twin(&self, address: usize) -> Option<usize> {
        let own = &self.addresses[address].address;
        let twin = match own.strip_prefix("0.0.0.0:") {
            Some(port) => format!("[::]:{port}"),
            None => format!("0.0.0.0:{}", own.strip_prefix("[::]:")?),
        };
        self.addresses.iter().position(|a| a.address == twin)
    }

    /// Adds these addresses to all names of a server, except where another server has the name.
    fn claim_free_addresses(&mut self, server: usize, addresses: &Addresses) {
        for name in 0..self.names[server].len() {
            let text = self.names[server][name].0.clone();
            let free = addresses.iter().copied();
            let free: Vec<usize> = free.filter(|a| self.owner(&text, *a).is_none()).collect();
            self.names[server][name].1.extend(free);
        }
    }

    fn owner(&self, name: &str, address: usize) -> Option<usize> {
        self.names.iter().position(|names| {
            let mut names = names.iter();
            names.any(|(known, addresses)| known == name && addresses.contains(&address))
        })
    }

    /// Returns the names that a server has at any address.
    pub fn names(&self, server: usize) -> Vec<String> {
        let names = self.names[server].iter();
        names.map(|(name, _)| name.clone()).collect()
    }

    /// Returns whether any request can reach a server.
    pub fn is_reached(&self, server: usize) -> bool {
        !self.names[server].is_empty() || self.defaults.contains(&Some(server))
    }

    /// Returns whether all requests that reach a server arrive over TLS.
    pub fn is_secure(&self, server: usize) -> bool {
        let entries = self.site_drafts(server);
        let mut addresses = entries.iter().flat_map(|entry| &entry.addresses);
        !entries.is_empty() && addresses.all(|address| self.addresses[*address].tls)
    }

    /// Returns the remark in the list for a server that responds at a wider address than one of its own.
    pub fn widened_remark(&self, listens: &[SiteListen]) -> Option<String> {
        let pairs = listens.iter().flat_map(|own| {
            let all = self.addresses.iter();
            all.map(move |there| (&own.address, &there.address))
        });
        let mut wider = pairs.filter(|(own, there)| covers(there, own));
        let (own, there) = wider.next()?;
        Some(format!(
            "the site responds at {there}: this address includes {own}, which cannot be opened separately"
        ))
    }

    /// Returns the remark in the list for a server that no request reaches; `place_of` returns the place of a server.
    pub fn unreached_reason<'p>(
        &self,
        server: usize,
        is_nameless: bool,
        place_of: impl Fn(usize) -> &'p SourceLine,
    ) -> String {
        let mut own = self.listens[server].iter();
        let default =
            own.find_map(|address| self.defaults[*address].filter(|other| *other != server));
        match default.filter(|_| is_nameless) {
            Some(other) => {
                let by = place_of(other);
                format!(
                    "no request reaches this server: {by} handles requests for hosts that no site lists"
                )
            }
            None => "no request reaches this server".to_owned(),
        }
    }

    /// Moves a name from one server to another, with all addresses where the first server has it.
    pub fn transfer_name(&mut self, name: &str, from: usize, to: usize) {
        let Some(at) = self.names[from].iter().position(|(known, _)| known == name) else {
            return;
        };
        let (name, addresses) = self.names[from].remove(at);
        match self.names[to].iter_mut().find(|(known, _)| *known == name) {
            Some((_, own)) => own.extend(addresses),
            None => self.names[to].push((name, addresses)),
        }
    }

    /// Lets a server also respond on the addresses of another server, for those of its names that no server has there.
    pub fn add_addresses_of(&mut self, server: usize, other: usize) {
        let addresses = self.listens[other].clone();
        self.claim_free_addresses(server, &addresses);
    }

    /// Removes a server: its remaining names, and its role as the default, go to `heir`.
    pub fn replace_by_heir(&mut self, server: usize, heir: usize) {
        for name in self.names(server) {
            self.transfer_name(&name, server, heir);
        }
        for default in &mut self.defaults {
            if *default == Some(server) {
                *default = Some(heir);
            }
        }
    }

    /// Returns the sites in their order, and the top-level `listen`.
    pub fn sites(&self) -> (Vec<SiteHosting>, Vec<SiteListen>) {
        let servers = 0..self.names.len();
        let entries = servers
            .flat_map(|server| self.site_drafts(server))
            .collect();
        let entries = order_by_default(entries, |address| self.addresses[address].tls);
        let common = self.common_addresses(&entries);
        let mut of_servers: BTreeMap<usize, Addresses> = BTreeMap::new();
        for entry in &entries {
            let all = of_servers.entry(entry.server).or_default();
            all.extend(&entry.addresses);
        }
        let mut names: Vec<String> = Vec::new();
        let servers: Vec<usize> = entries.iter().map(|entry| entry.server).collect();
        let site = |(number, entry): (usize, SiteDraft)| {
            let first = servers.iter().position(|server| *server == entry.server);
            let listens = self.listens(&entry.addresses);
            let own = site_name(&entry.hosts, &listens, &names);
            let usual = entry.hosts.first();
            names.push(own.clone());
            SiteHosting {
                server: entry.server,
                name: Some(own).filter(|own| usual != Some(own)),
                first_site: first.filter(|first| *first < number),
                listens_of_server: self.listens(&of_servers[&entry.server]),
                has_own_listen: entry.addresses != common,
                is_default: !entry.defaults.is_empty(),
                overridden_by: entry.overridden_by,
                hosts: entry.hosts,
                listens,
            }
        };
        let sites = entries.into_iter().enumerate().map(site).collect();
        (sites, self.listens(&common))
    }

    fn listens(&self, addresses: &Addresses) -> Vec<SiteListen> {
        let all = addresses.iter();
        all.map(|address| self.addresses[*address].clone())
            .collect()
    }

    /// Splits a server into sites: one, or several if its names do not all have the same addresses.
    fn site_drafts(&self, server: usize) -> Vec<SiteDraft> {
        let of_this = |address: &usize| self.defaults[*address] == Some(server);
        let mut defaults: Addresses = (0..self.addresses.len()).filter(of_this).collect();
        let mut by_place: Vec<(Addresses, Vec<String>)> = Vec::new();
        for (name, addresses) in &self.names[server] {
            match by_place.iter_mut().find(|(there, _)| there == addresses) {
                Some((_, names)) => names.push(name.clone()),
                None => by_place.push((addresses.clone(), vec![name.clone()])),
            }
        }
        let elsewhere = |a: &usize| !by_place.iter().any(|(there, _)| there.contains(a));
        let nameless: Addresses = defaults.iter().copied().filter(elsewhere).collect();
        if !nameless.is_empty() {
            by_place.push((nameless, Vec::new()));
        }
        let entry = |(addresses, hosts): (Addresses, Vec<String>)| {
            let own: Addresses = defaults.intersection(&addresses).copied().collect();
            defaults = &defaults - &own;
            SiteDraft {
                server,
                hosts,
                addresses,
                defaults: own,
                overridden_by: None,
            }
        };
        by_place.into_iter().map(entry).collect()
    }

    /// Selects the addresses of the top-level `listen`: the most widely reachable ones, and among those the ones that
    /// most sites have.
    fn common_addresses(&self, entries: &[SiteDraft]) -> Addresses {
        let mut counts: BTreeMap<&Addresses, usize> = BTreeMap::new();
        for entry in entries {
            *counts.entry(&entry.addresses).or_default() += 1;
        }
        let weight = |entry: &&SiteDraft| {
            let reach = widest_reach(&self.listens(&entry.addresses));
            (reach, counts[&entry.addresses], entry.addresses.len())
        };
        // Among equals, the first in the file is used.
        let found = entries.iter().rev().max_by_key(weight);
        found.map_or_else(Addresses::new, |entry| entry.addresses.clone())
    }
}

/// Merges equal addresses, and removes those that are part of another one.
fn merge_listens<'l>(listens: impl Iterator<Item = &'l SiteListen>) -> Vec<SiteListen> {
    let mut all: Vec<SiteListen> = Vec::new();
    for listen in listens {
        match all.iter_mut().find(|a| a.address == listen.address) {
            Some(there) => {
                there.tls |= listen.tls;
                there.quic |= listen.quic;
                there.h2c |= listen.h2c;
                there.proxy_protocol |= listen.proxy_protocol;
            }
            None => all.push(listen.clone()),
        }
    }
    let is_part = |narrow: &SiteListen| all.iter().any(|a| covers(&a.address, &narrow.address));
    let whole = all.iter().filter(|listen| !is_part(listen));
    whole.cloned().collect()
}

/// Determines the default server of each address: the one that is marked as the default, or else the first one there. A
/// server that names the address itself precedes those that name a part of it.
fn default_servers(
    servers: &[(&[String], &[SiteListen])],
    addresses: &[SiteListen],
) -> Vec<Option<usize>> {
    let rank = |address: &SiteListen, (_, listens): &(&[String], &[SiteListen])| {
        let of = |listen: &SiteListen| match &listen.address {
            own if *own == address.address => Some((false, !listen.default)),
            own if covers(&address.address, own) => Some((true, !listen.default)),
            _ => None,
        };
        listens.iter().filter_map(of).min()
    };
    let default = |address: &SiteListen| {
        let ranks = servers.iter().enumerate();
        let ranks = ranks.filter_map(|(at, server)| Some((rank(address, server)?, at)));
        ranks.min().map(|(_, at)| at)
    };
    addresses.iter().map(default).collect()
}

/// Sorts the sites so that the default of each address comes first. If no such order exists because sites precede each
/// other at different addresses, the default of an address with TLS comes first.
fn order_by_default(mut entries: Vec<SiteDraft>, is_tls: impl Fn(usize) -> bool) -> Vec<SiteDraft> {
    let mut ordered = Vec::new();
    while !entries.is_empty() {
        let waits_for = |entry: &SiteDraft| {
            let others = &entry.addresses - &entry.defaults;
            let mut rest = entries.iter();
            rest.position(|other| !other.defaults.is_disjoint(&others))
        };
        let secure = |entry: &SiteDraft| entry.defaults.iter().any(|address| is_tls(*address));
        let next = entries.iter().position(|entry| waits_for(entry).is_none());
        let next = next.or_else(|| entries.iter().position(secure));
        let next = entries.remove(next.unwrap_or_default());
        for entry in &mut entries {
            let lost = &entry.defaults & &next.addresses;
            if !lost.is_empty() {
                entry.overridden_by = Some(next.server);
                entry.defaults = &entry.defaults - &lost;
            }
        }
        ordered.push(next);
    }
    ordered
}

/// Returns the first host, or `default`; with the port or a number appended if another site has that name.
fn site_name(hosts: &[String], listens: &[SiteListen], known: &[String]) -> String {
    let usual = hosts.first().map_or("default", String::as_str);
    let port = listens.first().and_then(|l| l.address.rsplit_once(':'));
    let port = port.filter(|(_, port)| port.parse::<u16>().is_ok());
    let with_port = port.map(|(_, port)| format!("{usual}-{port}"));
    let numbered = (2..).map(|number| format!("{usual}-{number}"));
    let mut all = [usual.to_owned()]
        .into_iter()
        .chain(with_port)
        .chain(numbered);
    let free = all.find(|name| !known.contains(name));
    free.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `80`, `443 tls`, `127.0.0.1:81 default`.
    fn listen(text: &str) -> SiteListen {
        let (address, words) = text.split_once(' ').unwrap_or((text, ""));
        SiteListen {
            address: match address.contains(':') {
                true => address.to_owned(),
                false => format!("0.0.0.0:{address}"),
            },
            tls: words.contains("tls"),
            quic: false,
            h2c: false,
            proxy_protocol: false,
            default: words.contains("default"),
        }
    }

    fn hosting(servers: &[(&[&str], &[&str])]) -> (Hosting, Vec<NameConflict>) {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let listens = |texts: &[&str]| texts.iter().map(|text| listen(text)).collect();
        let servers: Vec<(Vec<String>, Vec<SiteListen>)> = servers
            .iter()
            .map(|(hosts, texts)| (names(hosts), listens(texts)))
            .collect();
        let servers: Vec<(&[String], &[SiteListen])> =
            servers.iter().map(|(n, l)| (&n[..], &l[..])).collect();
        Hosting::new(&servers, &[])
    }

    /// Formats the top-level `listen`, and each site's server, hosts and `listen`.
    fn shown(hosting: &Hosting) -> String {
        let addresses = |listens: &[SiteListen]| {
            let all: Vec<&str> = listens.iter().map(|l| l.address.as_str()).collect();
            all.join(",").replace("0.0.0.0:", "")
        };
        let (sites, common) = hosting.sites();
        let mut text = addresses(&common);
        for site in &sites {
            let hosts = site.hosts.join(",");
            text += &format!(" | {} {hosts}", site.server);
            if site.has_own_listen {
                text += &format!(" @{}", addresses(&site.listens));
            }
        }
        text
    }

    #[test]
    fn sites_have_a_listen_if_their_addresses_differ() {
        const BOTH: &[&str] = &["80", "443 tls"];
        for (servers, expected) in [
            (
                &[(&["a"][..], BOTH), (&["b"][..], BOTH)][..],
                "80,443 | 0 a | 1 b",
            ),
            // Two servers with one name.
            (
                &[(&["a"], &["80"]), (&["a"], &["8080"])],
                "80 | 0 a | 1 a @8080",
            ),
            // An administration site for this machine only.
            (
                &[(&["admin"], &["127.0.0.1:81"]), (&["a"], BOTH)],
                "80,443 | 0 admin @127.0.0.1:81 | 1 a",
            ),
            // The first server at an address responds to names that no server has.
            (
                &[(&[], &["80"]), (&["a"], &["443 tls"])],
                "80 | 0  | 1 a @443",
            ),
            (
                &[(&["a"], BOTH), (&["b"], &["80 default"])],
                "80,443 | 1 b @80 | 0 a",
            ),
            // A server that has lost a name at one of its addresses.
            (
                &[(&["a"], &["80"]), (&["a", "b"], BOTH)],
                "80,443 | 0 a @80 | 1 a @443 | 1 b",
            ),
            // IPv6 addresses correspond to those of IPv4.
            (
                &[(&["a"], &["80", "[::]:80"]), (&["b"], &["80"])],
                "80,[::]:80 | 0 a | 1 b",
            ),
            // An address that is part of another one cannot be opened beside it.
            (
                &[(&["a"], &["80"]), (&["b"], &["127.0.0.1:80"])],
                "80 | 0 a | 1 b",
            ),
        ] {
            let (hosting, _) = hosting(servers);
            assert_eq!(shown(&hosting), expected, "{servers:?}");
        }
    }

    #[test]
    fn names_conflict_only_at_the_same_address() {
        let (hosting, lost) = hosting(&[
            (&["a"], &["80"]),
            (&["a"], &["80"]),
            (&["a"], &["443 tls"]),
            (&["a"], &["192.0.2.1:80"]),
        ]);
        let lost: Vec<(usize, usize)> = lost.iter().map(|lost| (lost.server, lost.owner)).collect();
        assert_eq!(lost, [(1, 0), (3, 0)]);
        let widened = hosting.widened_remark(&[listen("192.0.2.1:80")]).unwrap();
        assert!(
            widened
                .starts_with("the site responds at 0.0.0.0:80: this address includes 192.0.2.1:80")
        );
        assert_eq!(hosting.widened_remark(&[listen("80")]), None);
        assert!(!hosting.is_reached(1) && hosting.is_reached(2));
        assert_eq!(shown(&hosting), "80 | 0 a | 2 a @443");
    }

    #[test]
    fn redirecting_server_transfers_its_names_and_addresses() {
        let (mut hosting, _) = hosting(&[
            (&["a"], &["80"]),
            (&["www.a"], &["80"]),
            (&["a", "www.a", "b.a"], &["443 tls"]),
        ]);
        hosting.transfer_name("a", 0, 2);
        hosting.add_addresses_of(2, 0);
        hosting.replace_by_heir(0, 2);
        assert_eq!(
            shown(&hosting),
            "80,443 | 2 a,b.a | 1 www.a @80 | 2 www.a @443"
        );
    }

    #[test]
    fn mutual_default_servers_report_which_is_overridden() {
        let (hosting, _) = hosting(&[
            (&["a"], &["80 default", "443 tls"]),
            (&["b"], &["80", "443 tls default"]),
        ]);
        let (sites, _) = hosting.sites();
        let order: Vec<_> = sites.iter().map(|s| (s.server, s.overridden_by)).collect();
        assert_eq!(order, [(1, None), (0, Some(1))]);
    }

    #[test]
    fn site_names_are_made_unique_by_port() {
        let listens = [listen("127.0.0.1:81")];
        let hosts = ["a".to_owned()];
        let name = |known: &[&str]| {
            let known: Vec<String> = known.iter().map(ToString::to_string).collect();
            site_name(&hosts, &listens, &known)
        };
        assert_eq!(name(&[]), "a");
        assert_eq!(name(&["a"]), "a-81");
        assert_eq!(name(&["a", "a-81"]), "a-2");
        assert_eq!(site_name(&[], &listens, &[]), "default");
    }
}
