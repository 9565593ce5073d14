//! Free ports on loopback, for programs that are started to be measured or tested.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::fs;
use std::hash::BuildHasher;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixListener};
use std::sync::{Mutex, PoisonError};

/// The ports that this process has claimed; a claim lasts until the process exits.
static CLAIMED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// No free ports were found.
#[derive(Debug)]
pub struct NoFreePorts {
    /// How many consecutive ports were needed.
    pub count: u16,
    /// Why the last port that was tried could not be used.
    pub error: io::Error,
}

impl fmt::Display for NoFreePorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoFreePorts { count, error } = self;
        write!(
            f,
            "{count} consecutive free ports on 127.0.0.1 were not found: {error}"
        )
    }
}

impl std::error::Error for NoFreePorts {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Returns a port of 127.0.0.1 that no program currently uses, neither for TCP nor for UDP.
pub fn free_address() -> Result<SocketAddr, NoFreePorts> {
    free_addresses_in_a_row(1)
}

/// Returns the first of `count` consecutive ports that no program currently uses, for programs that are given the first
/// one.
///
/// The ports are below the range that the kernel uses for outgoing connections. Thousands of those come and go during a
/// measurement, and one of them could take the port before the program binds it, which would cost the stack its row. If
/// that range begins too low, any port is used.
///
/// Until this process exits, neither this process nor another one that calls this function gets the same ports.
pub fn free_addresses_in_a_row(count: u16) -> Result<SocketAddr, NoFreePorts> {
    let lowest_outgoing = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok());
    let end = lowest_outgoing.filter(|port| *port >= 2 * LOWEST_PORT);
    let end = end.unwrap_or(u16::MAX) - count;
    let mut last = None;
    for _ in 0..200 {
        let random = RandomState::new().hash_one(count);
        let first = LOWEST_PORT + (random % u64::from(end - LOWEST_PORT)) as u16;
        let row: io::Result<Vec<_>> = (first..first + count).map(claim_port).collect();
        match row {
            Ok(row) => {
                let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
                claimed.extend(row);
                return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, first)));
            }
            Err(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| std::io::Error::other("no such row of ports"));
    Err(NoFreePorts { count, error })
}

/// Claims a port for this process, if no program uses it. The claim is a socket in the kernel's abstract namespace,
/// which ends with the process, however the process exits.
fn claim_port(port: u16) -> io::Result<UnixListener> {
    let name = net::SocketAddr::from_abstract_name(format!("howdah-port-{port}"))?;
    let claim = UnixListener::bind_addr(&name)?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    UdpSocket::bind((Ipv4Addr::LOCALHOST, port))?;
    Ok(claim)
}

/// The ports of well-known services are below this one.
const LOWEST_PORT: u16 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_are_outside_the_outgoing_range() {
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let lowest: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
        for count in [1, 8, 100] {
            let first = free_addresses_in_a_row(count).unwrap().port();
            let all = first..first + count;
            assert!(all.start >= LOWEST_PORT);
            assert!(all.end <= lowest || lowest < 2 * LOWEST_PORT, "{all:?}");
            for port in all {
                assert!(claim_port(port).is_err(), "{port} could be had twice");
            }
        }
    }
}
