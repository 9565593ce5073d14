//! The listening sockets of this machine, and the processes that have them open.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::addresses::receives;
use crate::plan::{ListenAddress, Listener};
use crate::proc::socket_descriptors;

/// The state `TCP_LISTEN` in `/proc/net/tcp`.
const TCP_LISTEN: &str = "0A";
/// The state of a UDP socket that is bound and not connected in `/proc/net/udp` (`TCP_CLOSE`).
const UDP_BOUND: &str = "07";
/// The flag `__SO_ACCEPTCON` in `/proc/net/unix`: the socket listens.
const UNIX_LISTENS: u32 = 1 << 16;

/// The listening sockets of the network namespace of this process.
#[derive(Debug, Default)]
pub struct ListeningSockets {
    by_inode: HashMap<u64, ListenAddress>,
    udp: Vec<SocketAddr>,
}

impl ListeningSockets {
    /// Reads the tables of the kernel. A table that is missing, such as that of IPv6, has no sockets.
    pub fn read() -> ListeningSockets {
        let table = |name: &str| {
            let bytes = fs::read(format!("/proc/self/net/{name}")).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let tcp = table("tcp") + &table("tcp6");
        let mut by_inode: HashMap<u64, ListenAddress> = tcp
            .lines()
            .filter_map(|line| parse_internet(line, TCP_LISTEN))
            .map(|(address, inode)| (inode, ListenAddress::Tcp(address)))
            .collect();
        let unix = table("unix");
        let unix = unix.lines().filter_map(parse_unix);
        by_inode.extend(unix.map(|(path, inode)| (inode, ListenAddress::Unix(path))));
        let udp = table("udp") + &table("udp6");
        let udp = udp
            .lines()
            .filter_map(|line| parse_internet(line, UDP_BOUND));
        let udp = udp.map(|(address, _)| address).collect();
        ListeningSockets { by_inode, udp }
    }

    /// Returns whether a program listens at the Unix socket of this path.
    pub fn has_unix(&self, path: &Path) -> bool {
        let mut addresses = self.by_inode.values();
        addresses.any(|address| matches!(address, ListenAddress::Unix(own) if own == path))
    }

    /// Returns whether a program has a UDP socket because of which no other one can be bound to this address.
    pub fn has_udp(&self, address: SocketAddr) -> bool {
        let mut udp = self.udp.iter();
        udp.any(|socket| receives(*socket, address) || receives(address, *socket))
    }

    /// Returns the listening sockets of a process in the order of their addresses, or `None` if its descriptors are not
    /// visible.
    pub fn of_process(&self, pid: u32) -> Option<Vec<Listener>> {
        let mut found: Vec<Listener> = socket_inodes(pid)?
            .into_iter()
            .filter_map(|inode| {
                let address = self.by_inode.get(&inode)?.clone();
                Some(Listener { address, inode })
            })
            .collect();
        found.sort_by_key(|listener| (format!("{:?}", listener.address), listener.inode));
        found.dedup();
        Some(found)
    }

    /// Returns the TCP sockets with their inodes.
    pub fn tcp(&self) -> impl Iterator<Item = (SocketAddr, u64)> {
        self.by_inode
            .iter()
            .filter_map(|(inode, address)| match address {
                ListenAddress::Tcp(address) => Some((*address, *inode)),
                ListenAddress::Unix(_) => None,
            })
    }
}

/// Returns the inodes of the sockets that a process has open, or `None` if its descriptors are not visible.
pub fn socket_inodes(pid: u32) -> Option<Vec<u64>> {
    Some(socket_descriptors(pid).ok()?.into_keys().collect())
}

/// Parses a line of the tables of TCP and UDP. Returns `None` for a socket in another state.
fn parse_internet(line: &str, wanted: &str) -> Option<(SocketAddr, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (address, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    if *state != wanted {
        return None;
    }
    let (ip, port) = address.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    Some((SocketAddr::new(parse_ip(ip)?, port), inode.parse().ok()?))
}

/// Parses an address as the kernel prints it: words of 32 bits in the byte order of the machine.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let digits = text.get(at..at + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    match text.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}

/// Parses a line of `/proc/net/unix`: `Num RefCount Protocol Flags Type St Inode Path`. The path may contain spaces.
fn parse_unix(line: &str) -> Option<(PathBuf, u64)> {
    let mut fields = line.splitn(8, ' ').filter(|field| !field.is_empty());
    let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
    // The inode is padded with spaces, so the path is found behind the inode's digits.
    let rest = line.splitn(7, ' ').nth(6)?.trim_start();
    let (inode, path) = rest.split_once(' ')?;
    let listens = flags & UNIX_LISTENS != 0 && path.starts_with('/');
    listens.then_some((path.into(), inode.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_kernel_are_parsed() {
        let line = |address: &str| {
            format!(
                "   0: {address} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1"
            )
        };
        let parsed = |address: &str| {
            let (address, inode) = parse_internet(&line(address), TCP_LISTEN).unwrap();
            assert_eq!(inode, 4711);
            address.to_string()
        };
        assert_eq!(parsed("0100007F:1F90"), "127.0.0.1:8080");
        assert_eq!(parsed("00000000:0050"), "0.0.0.0:80");
        assert_eq!(parsed("00000000000000000000000001000000:01BB"), "[::1]:443");
        assert_eq!(
            parse_internet(&line("0100007F:1F90").replace("0A", "01"), TCP_LISTEN),
            None
        );
        let header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt";
        assert_eq!(parse_internet(header, TCP_LISTEN), None);
    }

    #[test]
    fn listening_unix_sockets_are_parsed() {
        let path =
            |line: &str| parse_unix(line).map(|(path, inode)| (path.display().to_string(), inode));
        let socket = "0000000000000000: 00000002 00000000 00010000 0001 01 23456 /run/php/a b.sock";
        assert_eq!(path(socket), Some(("/run/php/a b.sock".to_owned(), 23456)));
        let padded = "0000000000000000: 00000002 00000000 00010000 0001 01  1057 /run/x";
        assert_eq!(path(padded), Some(("/run/x".to_owned(), 1057)));
        let connected = "0000000000000000: 00000003 00000000 00000000 0001 03 23457 /run/x";
        assert_eq!(path(connected), None);
        let nameless = "0000000000000000: 00000003 00000000 00010000 0001 03 137683";
        assert_eq!(path(nameless), None);
    }

    #[test]
    fn own_listener_is_found() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = ListenAddress::Tcp(socket.local_addr().unwrap());
        let own = ListeningSockets::read().of_process(std::process::id());
        assert!(
            own.unwrap()
                .iter()
                .any(|listener| listener.address == address)
        );
    }
}
