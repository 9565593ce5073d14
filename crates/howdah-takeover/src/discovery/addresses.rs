//! Addresses in Howdah's configuration, compared with the sockets at which servers listen.

use std::net::{IpAddr, SocketAddr};

use crate::plan::{ListenAddress, RunningServer, SiteAddress};

/// Parses a value of `listen`, such as `0.0.0.0:443 tls`. Returns `None` for Unix sockets.
pub fn parse_listen(text: &str) -> Option<SiteAddress> {
    let mut words = text.split_whitespace();
    let address = words.next()?.parse().ok()?;
    let tls = words.any(|word| word == "tls");
    Some(SiteAddress { address, tls })
}

/// Returns the sockets of a server that receive connections to an address. If the address is a wildcard, these include
/// the sockets of single addresses with the same port, because the import makes one wide address of them.
pub fn serving_sockets(server: &RunningServer, wanted: SocketAddr) -> Vec<SocketAddr> {
    let sockets = server
        .listeners
        .iter()
        .filter_map(|listener| match listener.address {
            ListenAddress::Tcp(address) => Some(address),
            ListenAddress::Unix(_) => None,
        });
    let all: Vec<SocketAddr> = sockets.collect();
    match all.iter().any(|socket| receives(*socket, wanted)) {
        true => vec![wanted],
        false => {
            let is_part = |socket: &SocketAddr| receives(wanted, *socket);
            all.into_iter().filter(is_part).collect()
        }
    }
}

/// Returns whether a socket receives the connections to an address. A wildcard socket of IPv6 usually receives those of
/// IPv4, too.
pub fn receives(socket: SocketAddr, address: SocketAddr) -> bool {
    let widens = match (socket.ip(), address.ip()) {
        (IpAddr::V4(socket), IpAddr::V4(_)) => socket.is_unspecified(),
        (IpAddr::V6(socket), _) => socket.is_unspecified(),
        _ => false,
    };
    socket.port() == address.port() && (widens || socket.ip() == address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_sockets_receive_connections_to_single_addresses() {
        for (socket, address, expected) in [
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("[::]:80", "0.0.0.0:80", true),
            ("0.0.0.0:80", "[::]:80", false),
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "0.0.0.0:80", false),
            ("0.0.0.0:80", "0.0.0.0:81", false),
        ] {
            let parse = |text: &str| text.parse().unwrap();
            assert_eq!(
                receives(parse(socket), parse(address)),
                expected,
                "{socket} {address}"
            );
        }
        let site = parse_listen("[::]:443 tls http3").unwrap();
        assert!(site.tls && site.address.port() == 443);
        assert_eq!(parse_listen("unix:/run/x"), None);
    }
}
