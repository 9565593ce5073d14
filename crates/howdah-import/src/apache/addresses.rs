//! Parses `Listen`, and the addresses of a `<VirtualHost>`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::directive::Directive;
use crate::ledger::{EntryId, ImportLedger};
use crate::listen::SiteListen;

/// An IP address, or `None` for all, and a port, or `None` for all.
pub type HostAddress = (Option<IpAddr>, Option<u16>);

/// A socket that a `Listen` line opens.
#[derive(Clone, Debug)]
pub struct ListenSocket {
    pub ip: Option<IpAddr>,
    pub port: u16,
    pub tls: bool,
    /// The `Listen` line.
    pub line: Option<EntryId>,
}

pub fn parse_sockets(tree: &[Directive], ledger: &ImportLedger) -> Vec<ListenSocket> {
    let mut found = Vec::new();
    for line in tree.iter().filter(|d| d.name == "listen") {
        let (ip, port) = match line.arg(0).parse::<u16>() {
            Ok(port) => (None, Some(port)),
            Err(_) => parse_address(line.arg(0)),
        };
        match port {
            Some(port) => {
                found.push(ListenSocket {
                    ip,
                    port,
                    tls: line.arg(1).eq_ignore_ascii_case("https"),
                    line: Some(line.id),
                });
                ledger.mark_carried(line.id);
            }
            None => ledger.mark_missing(line.id, "write `listen` with an address and a port"),
        }
    }
    found
}

/// Parses `*:80`, `192.0.2.1`, `[::1]:443` or `_default_:443`.
pub fn parse_address(text: &str) -> HostAddress {
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

/// Returns whether connections to a socket may reach a host with this address.
pub fn covers((ip, port): HostAddress, socket: &ListenSocket) -> bool {
    let same_ip = ip.is_none() || socket.ip.is_none() || ip == socket.ip;
    same_ip && port.is_none_or(|port| port == socket.port)
}

/// Returns the addresses of a socket. A socket for all addresses becomes one of IPv4 and one of IPv6.
pub fn listen_addresses(socket: &ListenSocket, ip: Option<IpAddr>) -> Vec<SiteListen> {
    let of = |address: String| SiteListen {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_as_in_apache() {
        assert_eq!(parse_address("*:80"), (None, Some(80)));
        assert_eq!(parse_address("_default_:443"), (None, Some(443)));
        assert_eq!(
            parse_address("[::1]:8"),
            (Some("::1".parse().unwrap()), Some(8))
        );
        assert_eq!(
            parse_address("192.0.2.1"),
            (Some("192.0.2.1".parse().unwrap()), None)
        );
    }
}
