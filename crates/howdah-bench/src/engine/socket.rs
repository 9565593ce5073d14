//! Opens non-blocking sockets, and maps each failure to its outcome.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect, ipproto,
    send, socket_with, sockopt,
};

use crate::outcome::Outcome;
use crate::plan::ConnectionPolicy;

/// The resolved address that connections go to.
#[derive(Clone, Debug)]
pub enum Peer {
    /// An IP address and a TCP port.
    Tcp(SocketAddr),
    /// The address of a unix socket.
    Unix(SocketAddrUnix),
}

impl Peer {
    /// Returns the address for a unix socket's path. A path that begins with `@` is an abstract name.
    pub fn unix(path: &Path) -> Result<Peer, Errno> {
        use std::os::unix::ffi::OsStrExt;
        let bytes = path.as_os_str().as_bytes();
        Ok(Peer::Unix(match bytes.strip_prefix(b"@") {
            Some(name) => SocketAddrUnix::new_abstract_name(name)?,
            None => SocketAddrUnix::new(path)?,
        }))
    }

    /// Returns whether it is a unix socket, for which connecting succeeds or fails at once.
    pub fn is_unix(&self) -> bool {
        matches!(self, Peer::Unix(_))
    }

    /// Returns whether it is on this machine, so that the server shares its cores with the generator.
    pub fn is_here(&self) -> bool {
        match self {
            Peer::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Peer::Unix(_) => true,
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Peer::Tcp(address) => write!(f, "{address}"),
            Peer::Unix(address) => match (address.path(), address.abstract_name()) {
                (Some(path), _) => write!(f, "unix:{}", path.to_string_lossy()),
                (None, Some(name)) => write!(f, "unix:@{}", name.escape_ascii()),
                (None, None) => f.write_str("unix:"),
            },
        }
    }
}

/// A socket that is connected or connecting.
#[derive(Debug)]
pub struct Opened {
    pub fd: OwnedFd,
    /// Whether it is already connected.
    pub established: bool,
}

/// Begins to connect, from the local address and with the buffer sizes of the policy. The buffers are set before
/// connecting, because the SYN carries the window scale.
pub fn open(peer: &Peer, policy: &ConnectionPolicy) -> Result<Opened, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let family = match peer {
        Peer::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
        Peer::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
        Peer::Unix(_) => AddressFamily::UNIX,
    };
    let fd = match peer {
        Peer::Tcp(_) => socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?,
        Peer::Unix(_) => socket_with(family, SocketType::STREAM, flags, None)?,
    };
    if let Some(size) = policy.buffers {
        sockopt::set_socket_send_buffer_size(&fd, size)?;
        sockopt::set_socket_recv_buffer_size(&fd, size)?;
    }
    let result = match peer {
        Peer::Tcp(address) => {
            if let Some(local) = policy.bind {
                bind(&fd, &SocketAddr::new(local, 0))?;
            }
            sockopt::set_tcp_nodelay(&fd, true)?;
            connect(&fd, address)
        }
        Peer::Unix(address) => connect(&fd, address),
    };
    match result {
        Ok(()) => Ok(Opened {
            fd,
            established: true,
        }),
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(Opened {
            fd,
            established: false,
        }),
        Err(error) => Err(error),
    }
}

/// Returns whether a connecting socket is now connected, or its error.
pub fn arrived(fd: &OwnedFd) -> Result<(), Errno> {
    sockopt::socket_error(fd)?
}

/// Returns the outcome of a failed connection. Two errors mean that no port is left: EADDRNOTAVAIL from connect(2), and
/// EADDRINUSE from bind(2) to an address. EAGAIN means a full backlog only from connect(2) on a unix socket; callers
/// check for it first.
pub fn connect_outcome(error: Errno) -> Outcome {
    match error {
        Errno::CONNREFUSED => Outcome::ConnectRefused,
        Errno::TIMEDOUT => Outcome::ConnectTimeout,
        Errno::ADDRNOTAVAIL | Errno::ADDRINUSE => Outcome::PortsExhausted,
        _ => Outcome::ConnectFailed,
    }
}

/// Sends without blocking and without SIGPIPE.
#[inline]
pub fn send_now(fd: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    send(fd, bytes, SendFlags::NOSIGNAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_to_connect_have_their_names() {
        for (error, outcome) in [
            (Errno::CONNREFUSED, Outcome::ConnectRefused),
            (Errno::TIMEDOUT, Outcome::ConnectTimeout),
            (Errno::ADDRNOTAVAIL, Outcome::PortsExhausted),
            (Errno::ADDRINUSE, Outcome::PortsExhausted),
            (Errno::NOENT, Outcome::ConnectFailed),
            (Errno::HOSTUNREACH, Outcome::ConnectFailed),
            (Errno::AGAIN, Outcome::ConnectFailed),
        ] {
            assert_eq!(connect_outcome(error), outcome, "{error}");
        }
    }

    #[test]
    fn peers_are_shown_as_they_are_written() {
        let path = Peer::unix(Path::new("/run/a.sock")).unwrap();
        let name = Peer::unix(Path::new("@a")).unwrap();
        assert_eq!(path.to_string(), "unix:/run/a.sock");
        assert_eq!(name.to_string(), "unix:@a");
        assert!(path.is_here() && path.is_unix());
        let far = Peer::Tcp("192.0.2.1:80".parse().unwrap());
        assert!(!far.is_here() && !far.is_unix());
        let mapped = Peer::Tcp("[::ffff:127.0.0.1]:80".parse().unwrap());
        assert!(mapped.is_here());
    }
}
