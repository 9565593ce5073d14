//! Listening sockets: how an address is parsed and bound, and how many sockets are created for it. [`server`] accepts
//! the connections. A socket may also come from outside (a master process, a reload).

mod accept;
pub mod packet_exchange;
mod quic;
mod server;
mod time_slice;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
    sockopt,
};

use strum::IntoStaticStr;

use crate::http::proxy_protocol::TrustedPeers;
use crate::tls::CurrentSettings;
use crate::tls::tickets::TicketKeys;

pub use server::{
    HttpServer, ListenerId, ServerControl, ServerStartError, ServerStats, ThreadHooks,
    raise_descriptor_limit,
};

/// The number of connections that the kernel completes before they are accepted. The kernel caps it at
/// `net.core.somaxconn` (4096 since Linux 5.4).
const ACCEPT_BACKLOG: i32 = 4096;

/// An address the server listens on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// A TCP address. `[::]` means IPv6 only, as in nginx: IPv4 needs a listener of its own.
    Tcp(SocketAddr),
    /// A unix socket and the permissions of its file.
    Unix {
        /// The path of the socket's file.
        path: PathBuf,
        /// The permission bits. The default 0o660 admits the web server's group, but not all users.
        mode: u32,
    },
}

/// Why a string is not a [`ListenAddress`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadListenAddress(pub String);

impl fmt::Display for BadListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not an address to listen on: ", self.0)?;
        let port = self.0.rsplit(':').next().unwrap_or_default();
        match port.len() >= 5 && port.bytes().all(|b| b.is_ascii_digit()) {
            true => f.write_str("the port is not in the range 0 to 65535"),
            false => f.write_str("write 127.0.0.1:8080, [::1]:8080, 8080, *:80 or unix:/path"),
        }
    }
}

impl std::error::Error for BadListenAddress {}

impl FromStr for ListenAddress {
    type Err = BadListenAddress;

    /// Parses `address:port`, `[address]:port`, `*:port` (all IPv4 addresses), `localhost:port`, a port alone (on
    /// 127.0.0.1), or `unix:/path`.
    fn from_str(text: &str) -> Result<ListenAddress, BadListenAddress> {
        let bad = || BadListenAddress(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/') {
                return Err(bad());
            }
            return Ok(ListenAddress::Unix {
                path: path.into(),
                mode: 0o660,
            });
        }
        if let Ok(address) = text.parse() {
            return Ok(ListenAddress::Tcp(address));
        }
        let (ip, port) = match text.rsplit_once(':') {
            None => (Ipv4Addr::LOCALHOST, text),
            Some(("*" | "", port)) => (Ipv4Addr::UNSPECIFIED, port),
            Some(("localhost", port)) => (Ipv4Addr::LOCALHOST, port),
            Some(_) => return Err(bad()),
        };
        if !port.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        let port = port.parse().map_err(|_| bad())?;
        Ok(ListenAddress::Tcp(SocketAddr::new(ip.into(), port)))
    }
}

impl ListenAddress {
    /// Returns whether only one of the two addresses can be bound: the same address and port, or the same socket file,
    /// regardless of its permissions.
    pub fn conflicts_with(&self, other: &ListenAddress) -> bool {
        match (self, other) {
            (ListenAddress::Unix { path, .. }, ListenAddress::Unix { path: other, .. }) => {
                path == other
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Tcp(address) => write!(f, "{address}"),
            ListenAddress::Unix { path, .. } => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Why an address cannot be bound.
#[derive(Debug, IntoStaticStr)]
pub enum BindError {
    /// Another process listens there.
    AddressInUse(ListenAddress),
    /// A port below 1024 needs CAP_NET_BIND_SERVICE; a unix socket needs write permission for its directory.
    PermissionDenied(ListenAddress),
    /// The machine has no such address.
    AddressNotAvailable(ListenAddress),
    /// The path of the unix socket is longer than 107 bytes, or a file that is not a socket exists there.
    BadSocketPath(ListenAddress, String),
    /// Any other error of the kernel.
    #[strum(serialize = "BindFailed")]
    Failed(ListenAddress, io::Error),
}

impl BindError {
    /// Returns the name of the error in the log.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    fn of(address: &ListenAddress, e: io::Error) -> BindError {
        let address = address.clone();
        match e.kind() {
            io::ErrorKind::AddrInUse => BindError::AddressInUse(address),
            io::ErrorKind::PermissionDenied => BindError::PermissionDenied(address),
            io::ErrorKind::AddrNotAvailable => BindError::AddressNotAvailable(address),
            _ => BindError::Failed(address, e),
        }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            BindError::AddressInUse(a) => write!(
                f,
                "{name}: cannot listen on {a}: another program listens there; stop it or choose another address"
            ),
            BindError::PermissionDenied(a) => write!(
                f,
                "{name}: cannot listen on {a}: permission denied; ports below 1024 need root or CAP_NET_BIND_SERVICE; a unix socket needs a directory that the server can write to"
            ),
            BindError::AddressNotAvailable(a) => write!(
                f,
                "{name}: cannot listen on {a}: this machine does not have this address"
            ),
            BindError::BadSocketPath(a, why) => write!(f, "{name}: cannot listen on {a}: {why}"),
            BindError::Failed(a, e) => write!(f, "{name}: cannot listen on {a}: {e}"),
        }
    }
}

impl std::error::Error for BindError {}

/// A listener to be served: its bound sockets, and how its connections begin.
#[derive(Debug)]
pub struct ListenerConfig {
    /// Its name in logs and in [`ConnectionInfo`](crate::http::ConnectionInfo).
    pub address: Arc<str>,
    /// The sockets, bound and listening. Each socket is served by at least one thread; if there are fewer sockets than
    /// threads, threads share them.
    pub sockets: Vec<OwnedFd>,
    /// The peers that must begin with a PROXY header; `None` means that no peer does.
    pub proxies: Option<Arc<TrustedPeers>>,
    /// The TLS settings; `None` means that connections are not encrypted.
    pub tls: Option<CurrentSettings>,
    /// Whether clients may use HTTP/2 without TLS.
    pub h2c: bool,
    /// UDP sockets of the same port for HTTP/3; `None` means that HTTP/3 is not served.
    pub quic: Option<QuicSockets>,
}

/// UDP sockets, each served by one thread, and the keys that QUIC needs.
#[derive(Debug)]
pub struct QuicSockets {
    /// The sockets, all bound to the same port.
    pub sockets: Vec<OwnedFd>,
    /// The ticket keys from which QUIC's own secrets are derived.
    pub tickets: Arc<TicketKeys>,
}

impl ListenerConfig {
    /// Binds `address` with one socket per thread. A unix address gets one socket for all threads, since the kernel
    /// cannot distribute connections over several.
    pub fn bind(address: &ListenAddress, threads: usize) -> Result<ListenerConfig, BindError> {
        let sockets = bind_sockets(address, threads)?;
        Ok(ListenerConfig::from_sockets(address, sockets))
    }

    /// Creates a listener from sockets that were bound by [`bind_sockets`] or by another process.
    pub fn from_sockets(address: &ListenAddress, sockets: Vec<OwnedFd>) -> ListenerConfig {
        ListenerConfig {
            address: address.to_string().into(),
            sockets,
            proxies: None,
            tls: None,
            h2c: false,
            quic: None,
        }
    }

    /// Returns the address that was actually bound, with the port that the kernel chose if port 0 was requested.
    /// Returns `None` for a unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        let any = rustix::net::getsockname(self.sockets.first()?).ok()?;
        SocketAddr::try_from(any).ok()
    }
}

/// Binds an address and listens. A TCP address gets `count` sockets that share the port by SO_REUSEPORT, and the kernel
/// distributes connections over them. This function first makes sure that no other process listens there, because
/// SO_REUSEPORT would silently admit a second server of the same user.
pub fn bind_sockets(address: &ListenAddress, count: usize) -> Result<Vec<OwnedFd>, BindError> {
    let failed = |e: rustix::io::Errno| BindError::of(address, e.into());
    match address {
        ListenAddress::Tcp(wanted) => {
            let first = tcp_socket(wanted).map_err(failed)?;
            bind(&first, wanted).map_err(failed)?;
            // No other process has the port; from here on our sockets share it.
            sockopt::set_socket_reuseport(&first, true).map_err(failed)?;
            let exact = rustix::net::getsockname(&first)
                .and_then(SocketAddr::try_from)
                .map_err(failed)?;
            listen(&first, ACCEPT_BACKLOG).map_err(failed)?;
            let mut sockets = vec![first];
            while sockets.len() < count {
                let socket = tcp_socket(&exact).map_err(failed)?;
                sockopt::set_socket_reuseport(&socket, true).map_err(failed)?;
                bind(&socket, &exact).map_err(failed)?;
                listen(&socket, ACCEPT_BACKLOG).map_err(failed)?;
                sockets.push(socket);
            }
            Ok(sockets)
        }
        ListenAddress::Unix { path, mode } => Ok(vec![bind_unix(address, path, *mode)?]),
    }
}

/// Binds `count` UDP sockets for HTTP/3 on the port of TCP sockets, in the same way as [`bind_sockets`].
pub fn bind_udp_sockets(address: &SocketAddr, count: usize) -> Result<Vec<OwnedFd>, BindError> {
    let failed = |e: rustix::io::Errno| BindError::of(&ListenAddress::Tcp(*address), e.into());
    let socket = || {
        let family = match address.is_ipv4() {
            true => AddressFamily::INET,
            false => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, true)?;
        }
        Ok(socket)
    };
    let first = socket().map_err(failed)?;
    bind(&first, address).map_err(failed)?;
    // No other process has the port; from here on our sockets share it.
    sockopt::set_socket_reuseport(&first, true).map_err(failed)?;
    let mut sockets = vec![first];
    while sockets.len() < count {
        let socket = socket().map_err(failed)?;
        sockopt::set_socket_reuseport(&socket, true).map_err(failed)?;
        bind(&socket, address).map_err(failed)?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Splits the sockets of a listener into stream sockets (TCP or unix) and UDP sockets.
pub fn split_by_transport(sockets: Vec<OwnedFd>) -> (Vec<OwnedFd>, Vec<OwnedFd>) {
    sockets.into_iter().partition(|socket| {
        let kind = sockopt::socket_type(socket);
        !matches!(kind, Ok(SocketType::DGRAM))
    })
}

/// Prepares a socket that another process has bound in the same way as [`bind_sockets`] prepares its own, and listens
/// on it if it is a stream socket.
///
/// # Errors
/// The error of the kernel, for example for a connected socket.
pub fn adopt_socket(socket: &OwnedFd) -> io::Result<()> {
    rustix::io::ioctl_fionbio(socket, true)?;
    if sockopt::socket_type(socket)? != SocketType::STREAM {
        return Ok(());
    }
    if sockopt::socket_domain(socket)? != AddressFamily::UNIX {
        sockopt::set_tcp_nodelay(socket, true)?;
    }
    Ok(listen(socket, ACCEPT_BACKLOG)?)
}

fn tcp_socket(address: &SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = stream_socket(family)?;
    // Connections of an earlier server in TIME_WAIT must not prevent this one from starting.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    // Accepted sockets inherit this option, which saves a system call for each connection.
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

fn stream_socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(family, SocketType::STREAM, flags, None)
}

/// Sets the mode of a socket's file. If another user who can write to its directory has replaced the file by a link,
/// this fails.
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    use rustix::fs::{FileType, Mode, OFlags, fstat, open};
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::Socket {
        return Err(io::Error::other(
            "the socket file has been replaced by another file",
        ));
    }
    // fchmod(2) does not accept a descriptor of a path.
    let by_descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::set_permissions(by_descriptor, std::fs::Permissions::from_mode(mode))
}

/// Binds a unix socket. A server that was killed leaves its socket file behind: the file is removed if no server
/// accepts connections there.
fn bind_unix(address: &ListenAddress, path: &Path, mode: u32) -> Result<OwnedFd, BindError> {
    let failed = |e: rustix::io::Errno| BindError::of(address, e.into());
    let bad_path = |why: &str| BindError::BadSocketPath(address.clone(), why.to_owned());
    let name = SocketAddrUnix::new(path).map_err(|_| {
        bad_path("the path of a unix socket must be at most 107 bytes long and contain no NUL")
    })?;
    if let Ok(there) = path.symlink_metadata() {
        if !there.file_type().is_socket() {
            return Err(bad_path(
                "the path exists and is not a socket; remove the file",
            ));
        }
        let probe = stream_socket(AddressFamily::UNIX).map_err(failed)?;
        match connect(&probe, &name) {
            Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOENT) => {
                let removed = std::fs::remove_file(path);
                if let Err(e) = removed
                    && e.kind() != io::ErrorKind::NotFound
                {
                    return Err(BindError::of(address, e));
                }
            }
            // A server accepted the connection, or its backlog is full.
            _ => return Err(BindError::AddressInUse(address.clone())),
        }
    }
    let socket = stream_socket(AddressFamily::UNIX).map_err(failed)?;
    bind(&socket, &name).map_err(failed)?;
    // The mode is set before listen(), so no client can connect under the permissions of the umask.
    set_mode(path, mode).map_err(|e| BindError::of(address, e))?;
    listen(&socket, ACCEPT_BACKLOG).map_err(failed)?;
    Ok(socket)
}
