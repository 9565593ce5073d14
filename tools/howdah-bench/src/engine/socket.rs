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
pub enum ServerPeer {
    /// An IP address and a TCP port.
    Tcp(SocketAddr),
    /// The address of a unix socket.
    Unix(SocketAddrUnix),
}

impl ServerPeer {
    /// Returns the address for a unix socket's path. A path that begins with `@` is an abstract name.
    pub fn unix(path: &Path) -> Result<ServerPeer, Errno> {
        use std::os::unix::ffi::OsStrExt;
        let bytes = path.as_os_str().as_bytes();
        Ok(ServerPeer::Unix(match bytes.strip_prefix(b"@") {
            Some(name) => SocketAddrUnix::new_abstract_name(name)?,
            None => SocketAddrUnix::new(path)?,
        }))
    }

    /// Returns whether the peer is a unix socket, for which connecting succeeds or fails at once.
    pub fn is_unix(&self) -> bool {
        matches!(self, ServerPeer::Unix(_))
    }

    /// Returns whether the peer is on this machine. If it is, the server shares its cores with the generator.
    pub fn is_local(&self) -> bool {
        match self {
            ServerPeer::Tcp(address) => address.ip().to_canonical().is_loopback(),
            ServerPeer::Unix(_) => true,
        }
    }
}

impl std::fmt::Display for ServerPeer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ServerPeer::Tcp(address) => write!(f, "{address}"),
            ServerPeer::Unix(address) => match (address.path(), address.abstract_name()) {
                (Some(path), _) => write!(f, "unix:{}", path.to_string_lossy()),
                (None, Some(name)) => write!(f, "unix:@{}", name.escape_ascii()),
                (None, None) => f.write_str("unix:"),
            },
        }
    }
}

/// A socket that is connected or connecting.
#[derive(Debug)]
pub struct OpenedSocket {
    pub fd: OwnedFd,
    /// Whether it is already connected.
    pub established: bool,
}

/// Begins to connect, from the local address and with the buffer sizes of the policy. The buffers are set before
/// connecting, because the SYN carries the window scale.
pub fn open(peer: &ServerPeer, policy: &ConnectionPolicy) -> Result<OpenedSocket, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let family = match peer {
        ServerPeer::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
        ServerPeer::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
        ServerPeer::Unix(_) => AddressFamily::UNIX,
    };
    let fd = match peer {
        ServerPeer::Tcp(_) => socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?,
        ServerPeer::Unix(_) => socket_with(family, SocketType::STREAM, flags, None)?,
    };
    if let Some(size) = policy.buffers {
        sockopt::set_socket_send_buffer_size(&fd, size)?;
        sockopt::set_socket_recv_buffer_size(&fd, size)?;
    }
    let result = match peer {
        ServerPeer::Tcp(address) => {
            if let Some(local) = policy.bind {
                bind(&fd, &SocketAddr::new(local, 0))?;
            }
            sockopt::set_tcp_nodelay(&fd, true)?;
            connect(&fd, address)
        }
        ServerPeer::Unix(address) => connect(&fd, address),
    };
    match result {
        Ok(()) => Ok(OpenedSocket {
            fd,
            established: true,
        }),
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(OpenedSocket {
            fd,
            established: false,
        }),
        Err(error) => Err(error),
    }
}

/// Opens a UDP socket that exchanges datagrams with this address only, from the local address and with the buffer sizes
/// of the policy. Because the socket is connected, it reports the refusal of a machine on which no program listens.
pub fn open_udp(address: &SocketAddr, policy: &ConnectionPolicy) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let fd = socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
    if let Some(size) = policy.buffers {
        sockopt::set_socket_send_buffer_size(&fd, size)?;
        sockopt::set_socket_recv_buffer_size(&fd, size)?;
    }
    if let Some(local) = policy.bind {
        bind(&fd, &SocketAddr::new(local, 0))?;
    }
    connect(&fd, address)?;
    Ok(fd)
}

/// Returns whether a connecting socket is now connected, or its error.
pub fn connect_result(fd: &OwnedFd) -> Result<(), Errno> {
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
    fn connect_failures_map_to_outcomes() {
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
    fn peer_is_displayed_as_written() {
        let path = ServerPeer::unix(Path::new("/run/a.sock")).unwrap();
        let name = ServerPeer::unix(Path::new("@a")).unwrap();
        assert_eq!(path.to_string(), "unix:/run/a.sock");
        assert_eq!(name.to_string(), "unix:@a");
        assert!(path.is_local() && path.is_unix());
        let far = ServerPeer::Tcp("192.0.2.1:80".parse().unwrap());
        assert!(!far.is_local() && !far.is_unix());
        let mapped = ServerPeer::Tcp("[::ffff:127.0.0.1]:80".parse().unwrap());
        assert!(mapped.is_local());
    }
}
