//! Findings about FastCGI servers that Howdah will connect to.

use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::super::combination::CombinedConfiguration;
use super::super::imports::{text, texts};
use super::{Findings, finding};
use crate::plan::Severity;

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of addresses that are tried.
const MAX_CONNECTIONS: usize = 200;

/// Adds a finding for each pool whose server does not accept a connection.
pub fn report(all: &CombinedConfiguration, findings: &mut Findings) {
    let fastcgi = all
        .config
        .pools
        .iter()
        .filter(|(_, table, _)| text(table, "mode") == Some("fastcgi"));
    let addresses = fastcgi.flat_map(|(name, table, _)| {
        let place = table.comments.first();
        texts(table, "fastcgi")
            .iter()
            .map(move |address| (name, place, address))
    });
    for (name, place, address) in addresses.take(MAX_CONNECTIONS) {
        let Some(why) = refusal(address) else {
            continue;
        };
        let sites = all.config.sites.iter().zip(&all.sites);
        let mut sites = sites.filter(|(site, _)| text(&site.table, "pool") == Some(name));
        let mut found = finding(
            Severity::Risk,
            "PoolSocketDead",
            format!("no FastCGI server accepts connections at {address} (pool {name}): {why}"),
            "Start the server, or remove the site that uses it: the pages of the site fail now, and will also fail with Howdah.",
        );
        found.place = place.cloned();
        findings.push(match sites.next() {
            Some((_, site)) => found.of_site(&site.name),
            None => found,
        });
    }
}

/// Returns why a FastCGI server does not accept a connection, or `None` if it does.
fn refusal(address: &str) -> Option<String> {
    let address = address.split_whitespace().next().unwrap_or_default();
    let path = address.strip_prefix("unix:").unwrap_or(address);
    let connected = match path.starts_with('/') {
        true => UnixStream::connect(path).map(drop),
        false => address.to_socket_addrs().and_then(|mut found| {
            let first = found.next().ok_or(std::io::ErrorKind::NotFound)?;
            TcpStream::connect_timeout(&first, CONNECT_TIMEOUT).map(drop)
        }),
    };
    connected.err().map(|error| error.to_string())
}
