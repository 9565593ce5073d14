//! The two addresses at which a site is compared: that of the old server, and that of the preview in its place.

use std::net::SocketAddr;

use howdah_import::verify::client::VerifyServer;

use super::preview_configuration::PreviewListener;
use crate::plan::{PlannedSite, SiteAddress, local_address};

/// The maximum number of addresses of a site that are compared.
const MAX_ENDPOINTS: usize = 4;

/// Where both servers are asked for a site.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Whether it speaks TLS.
    pub tls: bool,
    /// The `Host` that a browser would send to the old server: with its port, unless that is the usual one.
    pub authority: String,
    /// The host without its port.
    pub host: String,
    /// The old server.
    pub old: VerifyServer,
    /// The preview.
    pub new: VerifyServer,
    /// The addresses of the preview with the ports that they replace.
    ports: Vec<(u16, u16)>,
}

/// The addresses of a site.
#[derive(Clone, Debug, Default)]
pub struct SiteEndpoints {
    /// The addresses that both servers have; first the one that visitors use.
    pub found: Vec<Endpoint>,
    /// The addresses at which Howdah does not listen.
    pub missing: Vec<SiteAddress>,
}

/// Finds the addresses of a site: one with and one without TLS, and others with a port of their own.
pub fn endpoints(site: &PlannedSite, listeners: &[PreviewListener]) -> SiteEndpoints {
    let mut addresses = by_importance(site);
    addresses.dedup_by_key(|one| (one.tls, one.address.port()));
    let mut result = SiteEndpoints::default();
    for address in addresses.into_iter().take(MAX_ENDPOINTS) {
        match listener_for(&address, listeners) {
            Some(listener) => result
                .found
                .push(endpoint(site, &address, listener, listeners)),
            None => result.missing.push(address),
        }
    }
    result
}

/// Returns the addresses of a site, first the one that most visitors use: they are redirected to TLS, and this machine
/// more often has IPv4 than IPv6.
pub fn by_importance(site: &PlannedSite) -> Vec<SiteAddress> {
    let mut addresses = site.addresses.clone();
    addresses.sort_by_key(|one| (!one.tls, one.address.port(), one.address.is_ipv6()));
    addresses
}

fn endpoint(
    site: &PlannedSite,
    address: &SiteAddress,
    listener: &PreviewListener,
    listeners: &[PreviewListener],
) -> Endpoint {
    let host = requested_host(site);
    let tls = address.tls;
    let server = |address: SocketAddr| VerifyServer {
        tls,
        authority: address.to_string(),
    };
    let ports = listeners.iter().filter_map(|one| {
        let (_, port) = one.address.rsplit_once(':')?;
        Some((one.preview.port(), port.parse().ok()?))
    });
    Endpoint {
        tls,
        authority: with_port(&host, address.address.port(), tls),
        host,
        old: server(local_address(address.address)),
        new: server(listener.preview),
        ports: ports.collect(),
    }
}

/// Returns a host name that belongs to the site.
pub fn requested_host(site: &PlannedSite) -> String {
    let exact = site.hosts.iter().find(|host| !host.contains('*'));
    let pattern = || Some(format!("www{}", site.hosts.first()?.strip_prefix('*')?));
    exact
        .cloned()
        .or_else(pattern)
        .unwrap_or_else(|| "localhost".to_owned())
}

/// Returns the `Host` that a browser sends: with the port, unless that is the usual one.
pub fn with_port(host: &str, port: u16, tls: bool) -> String {
    match (port, tls) {
        (443, true) | (80, false) => host.to_owned(),
        _ => format!("{host}:{port}"),
    }
}

/// Returns the listener of Howdah that takes the connections to an address: the same address, or one that includes it.
fn listener_for<'a>(
    address: &SiteAddress,
    listeners: &'a [PreviewListener],
) -> Option<&'a PreviewListener> {
    let wanted = address.address;
    let with_tls = || listeners.iter().filter(|one| one.tls == address.tls);
    let is_same = |one: &&PreviewListener| one.address.parse() == Ok(wanted);
    let includes = |one: &&PreviewListener| match one.address.strip_prefix(':') {
        Some(port) => port.parse() == Ok(wanted.port()),
        None => one.address.parse::<SocketAddr>().is_ok_and(|wide| {
            // An IPv6 socket for all addresses may take IPv4 connections as well (ipv6(7)).
            wide.port() == wanted.port()
                && wide.ip().is_unspecified()
                && (wide.is_ipv6() || wanted.is_ipv4())
        }),
    };
    with_tls()
        .find(is_same)
        .or_else(|| with_tls().find(includes))
}

impl Endpoint {
    /// Returns the URL of a target, for messages.
    pub fn url(&self, target: &str) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{target}", self.authority)
    }

    /// Replaces the preview's ports in a message or URL of Howdah with the ports of the real server.
    pub fn without_preview_ports(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (preview, real) in &self.ports {
            let port = preview.to_string();
            if !text.contains(&port) {
                continue;
            }
            let usual = |tls: bool| with_port(&self.host, *real, tls);
            for (scheme, tls) in [("http", false), ("https", true)] {
                let from = format!("{scheme}://{}:{port}", self.host);
                text = text.replace(&from, &format!("{scheme}://{}", usual(tls)));
            }
            let from = format!("{}:{port}", self.host);
            text = replace_numbers(&text.replace(&from, &usual(self.tls)), &port, *real);
        }
        text
    }

    /// Resolves a redirect as a browser does (RFC 9110 §10.2.2); usual ports are omitted.
    pub fn absolute_location(&self, location: &str) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let location = match location.strip_prefix("//") {
            Some(rest) => format!("{scheme}://{rest}"),
            None if location.starts_with('/') => self.url(location),
            None => location.to_owned(),
        };
        let Some((scheme, rest)) = location.split_once("://") else {
            return location;
        };
        let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let usual = if scheme == "https" { ":443" } else { ":80" };
        let authority = authority.strip_suffix(usual).unwrap_or(authority);
        let target = if target.is_empty() { "/" } else { target };
        format!("{scheme}://{}{target}", authority.to_ascii_lowercase())
    }
}

/// Replaces a number where it is not a part of a longer word.
fn replace_numbers(text: &str, number: &str, by: u16) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(number) {
        let (before, found) = rest.split_at(at);
        let after = &found[number.len()..];
        let begins = !before.ends_with(char::is_alphanumeric);
        let ends = !after.starts_with(char::is_alphanumeric);
        out.push_str(before);
        match begins && ends {
            true => out.push_str(&by.to_string()),
            false => out.push_str(number),
        }
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::plan::ServerKind;

    fn site(hosts: &[&str], addresses: &[(&str, bool)]) -> PlannedSite {
        let address = |(address, tls): &(&str, bool)| SiteAddress {
            address: address.parse().unwrap(),
            tls: *tls,
        };
        PlannedSite {
            name: "a".to_owned(),
            hosts: hosts.iter().map(ToString::to_string).collect(),
            served_by: ServerKind::Nginx,
            addresses: addresses.iter().map(address).collect(),
            file: "sites.d/a.toml".into(),
            root: "/srv/a".into(),
            php: "none".to_owned(),
            access_log: None,
            denied_paths: Vec::new(),
        }
    }

    fn listener(address: &str, tls: bool, port: u16) -> PreviewListener {
        PreviewListener {
            address: address.to_owned(),
            tls,
            preview: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        }
    }

    #[test]
    fn endpoints_are_the_old_addresses_and_those_of_the_preview() {
        let site = site(
            &["*.a.test", "a.test"],
            &[
                ("0.0.0.0:80", false),
                ("[::]:80", false),
                ("192.0.2.1:443", true),
                ("0.0.0.0:81", false),
            ],
        );
        let listeners = [
            listener("0.0.0.0:80", false, 5080),
            listener(":443", true, 5443),
        ];
        let found = endpoints(&site, &listeners);
        let shown: Vec<(String, String, String)> = found
            .found
            .iter()
            .map(|one| (one.url("/"), one.old.to_string(), one.new.to_string()))
            .collect();
        let expected = [
            (
                "https://a.test/",
                "https://192.0.2.1:443",
                "https://127.0.0.1:5443",
            ),
            (
                "http://a.test/",
                "http://127.0.0.1:80",
                "http://127.0.0.1:5080",
            ),
        ];
        let expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
        assert_eq!(shown, expected);
        assert_eq!(found.missing.len(), 1);
        assert_eq!(found.missing[0].address.port(), 81);
    }

    #[test]
    fn preview_ports_are_replaced() {
        let site = site(
            &["a.test"],
            &[("0.0.0.0:8000", false), ("0.0.0.0:443", true)],
        );
        let listeners = [
            listener("0.0.0.0:8000", false, 50801),
            listener("0.0.0.0:443", true, 50443),
        ];
        let found = endpoints(&site, &listeners).found;
        let plain = &found[1];
        for (text, expected) in [
            ("see http://a.test:50801/x", "see http://a.test:8000/x"),
            ("see https://a.test:50443/x", "see https://a.test/x"),
            ("a.test:50801", "a.test:8000"),
            (
                "port 50801, not 508012 or x50801",
                "port 8000, not 508012 or x50801",
            ),
        ] {
            assert_eq!(plain.without_preview_ports(text), expected);
        }
        for (location, expected) in [
            ("/a/", "http://a.test:8000/a/"),
            ("//b.test", "http://b.test/"),
            ("https://A.test:443/a?b", "https://a.test/a?b"),
            ("http://a.test:80/", "http://a.test/"),
        ] {
            assert_eq!(plain.absolute_location(location), expected);
        }
    }
}
