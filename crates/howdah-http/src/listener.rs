//! Listening sockets: what an address means, how it is bound, and how many sockets it becomes. Does
//! not accept; [`server`] does. A socket may also come from outside (a master process, a reload).

mod accept;
pub mod exchange;
mod quic;
mod server;
mod slice;

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
use crate::tls::tickets::Tickets;

pub use server::{
    Control, ListenerId, Server, ServerStats, StartError, ThreadHooks, raise_descriptor_limit,
};

/// Connections the kernel completes before they are accepted; it cuts this to
/// `net.core.somaxconn` (4096 since Linux 5.4).
const BACKLOG: i32 = 4096;

/// An address the server listens on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// TCP. `[::]` is IPv6 alone, as in nginx: IPv4 is a listener of its own.
    Tcp(SocketAddr),
    /// A unix socket with the permissions its file gets.
    Unix {
        /// The path of the socket's file.
        path: PathBuf,
        /// Permission bits; 0o660 unless configured: the web server's group, not everybody.
        mode: u32,
    },
}

/// Why a text is no [`ListenAddress`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadListenAddress(pub String);

impl fmt::Display for BadListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no address to listen on: write 127.0.0.1:8080, [::1]:8080, 8080, *:80 or unix:/path",
            self.0
        )
    }
}

impl std::error::Error for BadListenAddress {}

impl FromStr for ListenAddress {
    type Err = BadListenAddress;

    /// `address:port`, `[address]:port`, `*:port` (all IPv4 addresses), `localhost:port`, a port
    /// alone (on 127.0.0.1), or `unix:/path`.
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
    /// Only one of the two can be bound: the same address and port, or the same socket file,
    /// whatever its permissions.
    pub fn is_same_place(&self, other: &ListenAddress) -> bool {
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

/// Why an address cannot be listened on.
#[derive(Debug, IntoStaticStr)]
pub enum BindError {
    /// Somebody else listens there.
    AddressInUse(ListenAddress),
    /// A port below 1024 needs CAP_NET_BIND_SERVICE; a unix socket, the right to write its directory.
    PermissionDenied(ListenAddress),
    /// The machine has no such address.
    AddressNotAvailable(ListenAddress),
    /// The unix socket's path is too long (107 bytes), or something that is no socket is there.
    BadSocketPath(ListenAddress, String),
    /// Any other error of the kernel's.
    #[strum(serialize = "BindFailed")]
    Failed(ListenAddress, io::Error),
}

impl BindError {
    /// The error's name in the log.
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
                "{name}: cannot listen on {a}: permission denied; ports below 1024 need root or CAP_NET_BIND_SERVICE, a unix socket a directory that can be written"
            ),
            BindError::AddressNotAvailable(a) => write!(
                f,
                "{name}: cannot listen on {a}: this machine has no such address"
            ),
            BindError::BadSocketPath(a, why) => write!(f, "{name}: cannot listen on {a}: {why}"),
            BindError::Failed(a, e) => write!(f, "{name}: cannot listen on {a}: {e}"),
        }
    }
}

impl std::error::Error for BindError {}

/// A listener to be served: bound sockets, and how their connections begin.
#[derive(Debug)]
pub struct ListenerConfig {
    /// What it is called in logs and in [`ConnInfo`](crate::http::ConnInfo).
    pub address: Arc<str>,
    /// Bound and listening. Each is served by at least one thread; fewer than threads are shared.
    pub sockets: Vec<OwnedFd>,
    /// Peers that must begin with a PROXY header; none: no peer does.
    pub proxies: Option<Arc<TrustedPeers>>,
    /// The settings of TLS; none: connections are not encrypted.
    pub tls: Option<CurrentSettings>,
    /// Whether clients may speak HTTP/2 without TLS.
    pub h2c: bool,
    /// UDP sockets of the same port, for HTTP/3; none: it is not served.
    pub quic: Option<QuicSockets>,
}

/// UDP sockets, each served by one thread, and what QUIC needs beside them.
#[derive(Debug)]
pub struct QuicSockets {
    /// Bound to one port.
    pub sockets: Vec<OwnedFd>,
    /// Keys from which QUIC's own secrets are derived.
    pub tickets: Arc<Tickets>,
}

impl ListenerConfig {
    /// Binds `address` with one socket a thread (unix: one for all, since the kernel cannot spread
    /// connections over several).
    pub fn bind(address: &ListenAddress, threads: usize) -> Result<ListenerConfig, BindError> {
        let sockets = bind_sockets(address, threads)?;
        Ok(ListenerConfig::from_sockets(address, sockets))
    }

    /// Sockets bound elsewhere, by [`bind_sockets`] or another process.
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

    /// The address really bound: with the port the kernel chose, if 0 was asked for. None for a
    /// unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        let any = rustix::net::getsockname(self.sockets.first()?).ok()?;
        SocketAddr::try_from(any).ok()
    }
}

/// Binds and listens. TCP: `count` sockets sharing the port by SO_REUSEPORT, the kernel spreads
/// connections over them; that nobody else listens there is made sure first, because SO_REUSEPORT
/// would let a second server of the same user in silently.
pub fn bind_sockets(address: &ListenAddress, count: usize) -> Result<Vec<OwnedFd>, BindError> {
    let failed = |e: rustix::io::Errno| BindError::of(address, e.into());
    match address {
        ListenAddress::Tcp(wanted) => {
            let first = tcp_socket(wanted).map_err(failed)?;
            bind(&first, wanted).map_err(failed)?;
            // The port is ours alone; from here on it is shared.
            sockopt::set_socket_reuseport(&first, true).map_err(failed)?;
            let exact = rustix::net::getsockname(&first)
                .and_then(SocketAddr::try_from)
                .map_err(failed)?;
            listen(&first, BACKLOG).map_err(failed)?;
            let mut sockets = vec![first];
            while sockets.len() < count {
                let socket = tcp_socket(&exact).map_err(failed)?;
                sockopt::set_socket_reuseport(&socket, true).map_err(failed)?;
                bind(&socket, &exact).map_err(failed)?;
                listen(&socket, BACKLOG).map_err(failed)?;
                sockets.push(socket);
            }
            Ok(sockets)
        }
        ListenAddress::Unix { path, mode } => Ok(vec![bind_unix(address, path, *mode)?]),
    }
}

/// Binds UDP sockets for HTTP/3 on the port of TCP sockets: `count` of them, as [`bind_sockets`] does.
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
    // The port is ours alone; from here on it is shared.
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

/// Parts sockets of a listener that came together: those of TCP or a unix socket, and those of UDP.
pub fn part_sockets(sockets: Vec<OwnedFd>) -> (Vec<OwnedFd>, Vec<OwnedFd>) {
    sockets.into_iter().partition(|socket| {
        let kind = sockopt::socket_type(socket);
        !matches!(kind, Ok(SocketType::DGRAM))
    })
}

/// Gives a socket that another process has bound what [`bind_sockets`] gives its own; listens, if it is one
/// that can.
///
/// # Errors
/// What the kernel says, of a connected socket for one.
pub fn adopt_socket(socket: &OwnedFd) -> io::Result<()> {
    rustix::io::ioctl_fionbio(socket, true)?;
    if sockopt::socket_type(socket)? != SocketType::STREAM {
        return Ok(());
    }
    if sockopt::socket_domain(socket)? != AddressFamily::UNIX {
        sockopt::set_tcp_nodelay(socket, true)?;
    }
    Ok(listen(socket, BACKLOG)?)
}

fn tcp_socket(address: &SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = stream_socket(family)?;
    // Connections of an earlier server in TIME_WAIT must not keep this one from starting.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    // Accepted sockets inherit it: one call less for each.
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

fn stream_socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(family, SocketType::STREAM, flags, None)
}

/// Sets the mode of a socket's file; if others can write to its directory and have put a link there,
/// of nothing.
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    use rustix::fs::{FileType, Mode, OFlags, fstat, open};
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::Socket {
        return Err(io::Error::other("another file has been put in its place"));
    }
    // A descriptor of a path takes no fchmod(2).
    let by_descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::set_permissions(by_descriptor, std::fs::Permissions::from_mode(mode))
}

/// A socket file is left behind by a server that was killed: if no server answers there, it is removed.
fn bind_unix(address: &ListenAddress, path: &Path, mode: u32) -> Result<OwnedFd, BindError> {
    let failed = |e: rustix::io::Errno| BindError::of(address, e.into());
    let bad_path = |why: &str| BindError::BadSocketPath(address.clone(), why.to_owned());
    let name = SocketAddrUnix::new(path)
        .map_err(|_| bad_path("the path of a unix socket has at most 107 bytes and no NUL"))?;
    if let Ok(there) = path.symlink_metadata() {
        if !there.file_type().is_socket() {
            return Err(bad_path("a file that is no socket is there; remove it"));
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
            // Answered, or its backlog is full.
            _ => return Err(BindError::AddressInUse(address.clone())),
        }
    }
    let socket = stream_socket(AddressFamily::UNIX).map_err(failed)?;
    bind(&socket, &name).map_err(failed)?;
    // Before listen(): nobody can connect with the permissions of the umask.
    set_mode(path, mode).map_err(|e| BindError::of(address, e))?;
    listen(&socket, BACKLOG).map_err(failed)?;
    Ok(socket)
}
