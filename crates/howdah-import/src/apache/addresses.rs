//! `Listen`, and the addresses that a `<VirtualHost>` names.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::directive::Directive;
use crate::ledger::{Id, Ledger};
use crate::listen::Listen;

/// An address, unless it is any, and a port, unless it is any.
pub type Address = (Option<IpAddr>, Option<u16>);

/// `Listen`
#[derive(Clone, Debug)]
pub struct Socket {
    pub ip: Option<IpAddr>,
    pub port: u16,
    pub tls: bool,
    /// The line that opens it.
    pub line: Option<Id>,
}

pub fn sockets(tree: &[Directive], ledger: &Ledger) -> Vec<Socket> {
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
                    line: Some(line.id),
                });
                ledger.carried(line.id);
            }
            None => ledger.list(line.id, "`listen` with an address and a port"),
        }
    }
    found
}

/// `*:80`, `192.0.2.1`, `[::1]:443`, `_default_:443`: an address, unless it is any, and a port.
pub fn address(text: &str) -> Address {
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
pub fn covers((ip, port): Address, socket: &Socket) -> bool {
    let same_ip = ip.is_none() || socket.ip.is_none() || ip == socket.ip;
    same_ip && port.is_none_or(|port| port == socket.port)
}

/// A socket for all addresses is one of IPv4 and one of IPv6.
pub fn listens(socket: &Socket, ip: Option<IpAddr>) -> Vec<Listen> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_apaches() {
        assert_eq!(address("*:80"), (None, Some(80)));
        assert_eq!(address("_default_:443"), (None, Some(443)));
        assert_eq!(address("[::1]:8"), (Some("::1".parse().unwrap()), Some(8)));
        assert_eq!(
            address("192.0.2.1"),
            (Some("192.0.2.1".parse().unwrap()), None)
        );
    }
}
