//! The addresses at which both servers listen during a switch, and the choice of the one that gets new connections.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use howdah_os::shared_ports::{SocketChoice, choose, end_choice, listen_beside};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::sockopt;
use serde::{Deserialize, Serialize};

use super::failure::{FailureName, SwitchFailure};
use super::process::ProcessIdentity;
use crate::discovery::sockets::ListeningSockets;
use crate::plan::{ListenAddress, Plan, ServerKind, SiteAddress};

/// How long to wait until the handshakes that began before a change of the choice are complete. A client whose packets
/// are lost repeats them after 1 s and after 3 s.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(4);
/// The pause between two looks at the kernel's table of connections.
const TABLE_INTERVAL: Duration = Duration::from_millis(20);
/// The states of `/proc/net/tcp` (include/net/tcp_states.h).
const SYN_RECEIVED: &str = "03";
const LISTENING: &str = "0A";

/// The server that gets new connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Recipient {
    /// The old server.
    OldServer,
    /// Howdah.
    Howdah,
}

/// An address that is switched.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SharedPort {
    /// The address.
    pub address: SocketAddr,
    /// What the old server is.
    pub served_by: ServerKind,
    /// The old server's main process.
    pub owner: ProcessIdentity,
    /// The old server's sockets: several if it has one for each of its workers (`reuseport`).
    pub inodes: Vec<u64>,
    /// Whether the address takes no IPv4 connections although it is an address of IPv6.
    pub ipv6_only: bool,
    /// Whether the old server itself shares the port among its sockets.
    pub was_shared: bool,
    /// Howdah's sockets: one for each family if the address takes connections of both.
    pub howdah_inodes: Vec<u64>,
}

/// Returns the addresses of the plan that are switched: those at which nginx and Apache serve sites.
pub fn shared_ports(plan: &Plan) -> Vec<SharedPort> {
    let sites: Vec<&SiteAddress> = plan.sites.iter().flat_map(|site| &site.addresses).collect();
    let mut ports: BTreeMap<(SocketAddr, u32), SharedPort> = BTreeMap::new();
    let servers = plan.servers.iter();
    for server in servers.filter(|server| server.kind != ServerKind::PhpFpm) {
        for listener in &server.listeners {
            let ListenAddress::Tcp(address) = listener.address else {
                continue;
            };
            if !sites.iter().any(|site| includes(address, site.address)) {
                continue;
            }
            let port = ports.entry((address, server.pid));
            let port = port.or_insert_with(|| SharedPort {
                address,
                served_by: server.kind,
                owner: ProcessIdentity {
                    pid: server.pid,
                    started: server.started,
                },
                inodes: Vec::new(),
                ipv6_only: true,
                was_shared: false,
                howdah_inodes: Vec::new(),
            });
            port.inodes.push(listener.inode);
        }
    }
    ports.into_values().collect()
}

/// Returns whether a socket at `bound` gets connections for `wanted`.
fn includes(bound: SocketAddr, wanted: SocketAddr) -> bool {
    let family = bound.is_ipv6() || wanted.is_ipv4();
    bound == wanted || (bound.ip().is_unspecified() && bound.port() == wanted.port() && family)
}

impl SharedPort {
    fn failed(&self, what: &str, why: impl std::fmt::Display) -> SwitchFailure {
        let address = self.address;
        FailureName::PortNotShared.with(format!("cannot {what} {address}: {why}"))
    }

    /// Returns copies of the old server's sockets that are in the plan, in the order in which they began to listen. Returns
    /// none if the old server has exited. The copies must be closed soon: while one is open, the kernel believes that the
    /// old server serves.
    ///
    /// # Errors
    /// `OldServerChanged` if the server runs without one of the sockets; `PortNotShared` if a copy is refused.
    pub fn old_sockets(&self) -> Result<Vec<OwnedFd>, SwitchFailure> {
        let sockets = self.remaining_sockets()?;
        match sockets.len() < self.inodes.len() && self.owner.is_alive() {
            true => Err(self.socket_gone()),
            false => Ok(sockets),
        }
    }

    /// Returns copies of those of the old server's sockets that it still has. Some are gone after a reload that removes
    /// an address, or that removes workers with sockets of their own.
    ///
    /// # Errors
    /// `PortNotShared` if a copy is refused.
    pub fn remaining_sockets(&self) -> Result<Vec<OwnedFd>, SwitchFailure> {
        let refused = |error: io::Error| self.failed("take the socket at", error);
        let held = match self.owner.hold() {
            Ok(held) => held,
            Err(_) if !self.owner.is_alive() => return Ok(Vec::new()),
            Err(error) => return Err(refused(error)),
        };
        let sockets = match self.owner.sockets() {
            Err(_) if !self.owner.is_alive() => return Ok(Vec::new()),
            sockets => sockets.map_err(refused)?,
        };
        let mut copies = Vec::new();
        for inode in &self.inodes {
            let Some(number) = sockets.get(inode) else {
                continue;
            };
            match held.descriptor(*number) {
                // The server may have closed the descriptor and opened another one meanwhile.
                Ok(copy) if fstat(&copy).is_ok_and(|stat| stat.st_ino == *inode) => {
                    copies.push(copy);
                }
                Ok(_) => {}
                // It has closed the descriptor, or has exited.
                Err(error)
                    if matches!(
                        Errno::from_io_error(&error),
                        Some(Errno::BADF | Errno::SRCH)
                    ) => {}
                Err(error) => return Err(refused(error)),
            }
        }
        Ok(copies)
    }

    fn socket_gone(&self) -> SwitchFailure {
        FailureName::OldServerChanged.with(format!(
            "process {} no longer has the socket at {}, which is in the plan; make the plan again",
            self.owner.pid, self.address
        ))
    }

    /// Opens Howdah's sockets beside those of the old server, which continues to get all connections. An address of both
    /// families gets a socket for each of them, because Howdah's configuration may name both families.
    ///
    /// # Errors
    /// `OldServerChanged` if the old server does not have its sockets; `PortNotShared` if the system refuses.
    pub fn open(&mut self) -> Result<Vec<OwnedFd>, SwitchFailure> {
        let old = self.old_sockets()?;
        if old.is_empty() {
            return Err(self.socket_gone());
        }
        let remembered = self.remember_options(&old[0]);
        remembered.map_err(|error| self.failed("inspect the socket at", error))?;
        self.open_beside(&old)
    }

    /// Opens Howdah's sockets if the old server still listens at the address. Otherwise, Howdah binds the address itself.
    ///
    /// # Errors
    /// `PortNotShared` if the system refuses.
    pub fn open_if_shared(&mut self) -> Result<Vec<OwnedFd>, SwitchFailure> {
        let old = self.remaining_sockets()?;
        self.howdah_inodes.clear();
        match old.is_empty() {
            true => Ok(Vec::new()),
            false => self.open_beside(&old),
        }
    }

    fn open_beside(&mut self, old: &[OwnedFd]) -> Result<Vec<OwnedFd>, SwitchFailure> {
        let sockets = listen_beside(old, self.howdah_socket_count());
        let sockets = sockets.map_err(|error| self.failed("listen at", error))?;
        let inodes = sockets.iter().map(|socket| Ok(fstat(socket)?.st_ino));
        let inodes: io::Result<Vec<u64>> = inodes.collect();
        self.howdah_inodes = inodes.map_err(|error| self.failed("listen at", error))?;
        Ok(sockets)
    }

    fn takes_both_families(&self) -> bool {
        self.address.is_ipv6() && self.address.ip().is_unspecified() && !self.ipv6_only
    }

    fn howdah_socket_count(&self) -> usize {
        match self.takes_both_families() {
            true => 2,
            false => 1,
        }
    }

    /// Returns how the kernel chooses among Howdah's sockets, which follow `old` sockets of the old server.
    fn howdah_choice(&self, old: u32) -> SocketChoice {
        match self.takes_both_families() {
            // Howdah uses the first of two such sockets for IPv4 (`service_manager_sockets`).
            true => SocketChoice::ByFamily {
                ipv4: old,
                ipv6: old + 1,
            },
            false => SocketChoice::Range {
                first: old,
                count: 1,
            },
        }
    }

    fn remember_options(&mut self, socket: &OwnedFd) -> io::Result<()> {
        self.was_shared = self.inodes.len() > 1 || sockopt::socket_reuseport(socket)?;
        self.ipv6_only = self.address.is_ipv6() && sockopt::ipv6_v6only(socket)?;
        Ok(())
    }

    /// Lets a server get all new connections. Does nothing if the old server has exited or no longer listens at the
    /// address, because then no other server can get them.
    ///
    /// # Errors
    /// `PortNotShared` if the system refuses.
    pub fn direct_to(&self, recipient: Recipient) -> Result<(), SwitchFailure> {
        let old = self.remaining_sockets()?;
        let Some(first) = old.first() else {
            return Ok(());
        };
        let count = old.len() as u32;
        let choice = match recipient {
            Recipient::OldServer => SocketChoice::Range { first: 0, count },
            Recipient::Howdah => self.howdah_choice(count),
        };
        match choose(first, choice) {
            // The kernel has never seen a second socket at this address, so there is nothing to choose.
            Err(error)
                if error.kind() == io::ErrorKind::InvalidInput
                    && recipient == Recipient::OldServer =>
            {
                Ok(())
            }
            result => result.map_err(|error| self.failed("direct the connections of", error)),
        }
    }

    /// Gives the old server's sockets back the options that they had before the switch.
    ///
    /// # Errors
    /// `PortNotShared` if the system refuses.
    pub fn release(&self) -> Result<(), SwitchFailure> {
        for socket in self.remaining_sockets()? {
            end_choice(socket.as_fd(), !self.was_shared)
                .map_err(|error| self.failed("release", error))?;
        }
        Ok(())
    }
}

/// Checks that Howdah, which is ready, serves every socket that it got. It closes those that no `listen` names.
///
/// # Errors
/// `HowdahDoesNotStart` with the addresses.
pub fn every_port_is_served(ports: &[SharedPort]) -> Result<(), SwitchFailure> {
    let listening = ListeningInodes::read();
    let unused = ports
        .iter()
        .filter(|port| !listening.has_all(&port.howdah_inodes));
    let addresses: Vec<String> = unused.map(|port| port.address.to_string()).collect();
    match addresses.is_empty() {
        true => Ok(()),
        false => Err(FailureName::HowdahDoesNotStart.with(format!(
            "no `listen` in Howdah's configuration names {}, where an old server serves sites; add the address and run `try` again",
            addresses.join(", ")
        ))),
    }
}

/// The inodes of the TCP sockets of this machine that listen.
#[derive(Debug)]
pub struct ListeningInodes(HashSet<u64>);

impl ListeningInodes {
    /// Reads the sockets of this process's network namespace.
    pub fn read() -> ListeningInodes {
        let sockets = ListeningSockets::read();
        ListeningInodes(sockets.tcp().map(|(_, inode)| inode).collect())
    }

    /// Returns whether all of these sockets listen.
    pub fn has_all(&self, inodes: &[u64]) -> bool {
        inodes.iter().all(|inode| self.0.contains(inode))
    }

    /// Returns whether one of these sockets listens.
    pub fn has_any(&self, inodes: &[u64]) -> bool {
        inodes.iter().any(|inode| self.0.contains(inode))
    }
}

/// Returns the kernel's tables of TCP connections (proc(5)).
fn connection_tables() -> impl Iterator<Item = String> {
    let paths = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter();
    // A kernel without IPv6 has no second file.
    paths.map(|path| fs::read_to_string(path).unwrap_or_default())
}

/// Waits until Howdah has accepted every connection that reached it before the choice was changed. Ends after a few
/// seconds in any case, because a client need not complete its handshake.
pub fn wait_for_handshakes(ports: &[SharedPort]) {
    let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
    let begun = ConnectionTable::read(ports).handshakes;
    loop {
        let table = ConnectionTable::read(ports);
        let open = table.handshakes.intersection(&begun).next().is_some();
        if (!open && !table.has_waiting) || Instant::now() > deadline {
            return;
        }
        std::thread::sleep(TABLE_INTERVAL);
    }
}

/// The part of `/proc/net/tcp` and `/proc/net/tcp6` that concerns the ports of a switch.
#[derive(Debug, Default)]
struct ConnectionTable {
    /// The two addresses of each handshake that has begun, as the kernel writes them.
    handshakes: HashSet<String>,
    /// Whether a connection waits for Howdah to accept it.
    has_waiting: bool,
}

impl ConnectionTable {
    fn read(ports: &[SharedPort]) -> ConnectionTable {
        let mut table = ConnectionTable::default();
        for text in connection_tables() {
            text.lines().skip(1).for_each(|line| table.add(line, ports));
        }
        table
    }

    /// Adds a line (proc(5)): number, local address, remote address, state, queues, …, inode as the tenth field.
    fn add(&mut self, line: &str, ports: &[SharedPort]) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, state, queues, _, _, _, _, inode, ..] = fields[..] else {
            return;
        };
        let port = local.rsplit(':').next();
        let port = port.and_then(|port| u16::from_str_radix(port, 16).ok());
        if !ports
            .iter()
            .any(|shared| Some(shared.address.port()) == port)
        {
            return;
        }
        let is_howdah = |shared: &SharedPort| {
            let mut inodes = shared.howdah_inodes.iter();
            inodes.any(|ours| inode == ours.to_string())
        };
        match state {
            SYN_RECEIVED => {
                self.handshakes.insert(format!("{local} {remote}"));
            }
            // The receive queue of a listening socket is the number of connections that wait to be accepted.
            LISTENING if ports.iter().any(is_howdah) && !queues.ends_with(":00000000") => {
                self.has_waiting = true;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(inode: u64) -> SharedPort {
        SharedPort {
            address: "0.0.0.0:80".parse().unwrap(),
            served_by: ServerKind::Nginx,
            owner: ProcessIdentity { pid: 1, started: 1 },
            inodes: vec![1],
            ipv6_only: false,
            was_shared: false,
            howdah_inodes: vec![inode],
        }
    }

    #[test]
    fn connection_table_finds_handshakes_and_waiting_connections_of_howdah() {
        let check = |line: &str, handshakes: usize, has_waiting: bool| {
            let mut table = ConnectionTable::default();
            table.add(line, &[port(4711)]);
            assert_eq!(
                (table.handshakes.len(), table.has_waiting),
                (handshakes, has_waiting),
                "{line}"
            );
        };
        let rest = "00:00000000 00000000     0        0";
        check(
            &format!("0: 00000000:0050 00000000:0000 0A 00000000:00000002 {rest} 4711 1"),
            0,
            true,
        );
        check(
            &format!("0: 00000000:0050 00000000:0000 0A 00000000:00000000 {rest} 4711 1"),
            0,
            false,
        );
        check(
            &format!("0: 00000000:0050 00000000:0000 0A 00000000:00000002 {rest} 4712 1"),
            0,
            false,
        );
        check(
            &format!("1: 0100007F:0050 0100007F:C001 03 00000000:00000000 {rest} 0 1"),
            1,
            false,
        );
        check(
            &format!("1: 0100007F:0051 0100007F:C001 03 00000000:00000000 {rest} 0 1"),
            0,
            false,
        );
        check("", 0, false);
    }

    #[test]
    fn socket_of_all_addresses_includes_each_of_them() {
        let check = |bound: &str, wanted: &str, expected: bool| {
            let result = includes(bound.parse().unwrap(), wanted.parse().unwrap());
            assert_eq!(result, expected, "{bound} {wanted}");
        };
        check("0.0.0.0:80", "0.0.0.0:80", true);
        check("0.0.0.0:80", "192.0.2.1:80", true);
        check("[::]:80", "0.0.0.0:80", true);
        check("0.0.0.0:80", "[::]:80", false);
        check("0.0.0.0:80", "0.0.0.0:81", false);
        check("127.0.0.1:80", "192.0.2.1:80", false);
    }
}
