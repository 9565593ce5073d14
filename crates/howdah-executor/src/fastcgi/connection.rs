//! A connection to a backend. It is made without blocking, and written and read with as few system calls as possible.
//! It does not know the format of records.
//!
//! Only readability is watched. A socket that is also watched for room wakes its thread each time the backend has read
//! something, which happens at each request. Therefore room is watched only after a send has found none, through a
//! descriptor of its own.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recv, send,
    socket_with,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::common::sys;
use howdah_proto::backend_address::BackendAddress;

/// A connection attempt that has not finished yet.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<OwnedFd>> + Send>>;

/// A connected socket, registered with the runtime of the thread that polls it.
#[derive(Debug)]
pub struct BackendConnection {
    socket: AsyncFd<OwnedFd>,
    /// Registered after a send has found no room.
    room: Option<AsyncFd<OwnedFd>>,
    /// The front thread with whose runtime `socket` is registered.
    front: usize,
}

/// Connects to a unix socket, which succeeds or fails at once. A full backlog is `EAGAIN` (`WouldBlock`), where TCP
/// would stay silent.
pub fn connect_unix(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Starts to connect to a TCP port. The addresses of a name are tried in order.
pub fn connect_tcp(host: String, port: u16) -> Connecting {
    Box::pin(async move {
        let addresses: Vec<SocketAddr> = match host.parse() {
            Ok(ip) => vec![SocketAddr::new(ip, port)],
            Err(_) => tokio::net::lookup_host((host.as_str(), port))
                .await?
                .collect(),
        };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
        for address in addresses {
            match tokio::net::TcpStream::connect(address).await {
                Ok(stream) => {
                    let stream = stream.into_std()?;
                    // PHP does not set TCP_NODELAY on its side of a connection. Without it on this side, the kernel
                    // would hold parts of a request back until PHP has acknowledged the earlier ones.
                    stream.set_nodelay(true)?;
                    return Ok(OwnedFd::from(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    })
}

/// The result of [`connect`]: a finished attempt to connect, or one under way.
pub enum ConnectAttempt {
    /// The attempt has finished (unix sockets).
    Now(io::Result<OwnedFd>),
    /// The attempt takes time and must be awaited (TCP).
    Later(Connecting),
}

/// Connects to `address` without blocking: to a unix socket at once, to a TCP port by a future.
pub fn connect(address: &BackendAddress) -> ConnectAttempt {
    match address {
        BackendAddress::Unix(path) => ConnectAttempt::Now(connect_unix(path)),
        BackendAddress::Tcp(host, port) => ConnectAttempt::Later(connect_tcp(host.clone(), *port)),
    }
}

impl BackendConnection {
    /// Creates a connection from a connected, non-blocking socket. Call it within the runtime of that front thread.
    pub fn new(socket: OwnedFd, front: usize) -> io::Result<BackendConnection> {
        Ok(BackendConnection {
            socket: sys::register(socket, Interest::READABLE)?,
            room: None,
            front,
        })
    }

    /// Moves the connection to this front thread, if it has been on another.
    pub fn moved_to(self, front: usize) -> io::Result<BackendConnection> {
        if self.front == front {
            return Ok(self);
        }
        BackendConnection::new(self.socket.into_inner(), front)
    }

    /// Sends as many of the bytes as the socket accepts, and returns their number.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            if let Some(room) = &self.room {
                // Clears an earlier event. If there is still no room, a new event follows.
                ready!(room.poll_write_ready(cx))?.clear_ready();
            }
            match send(self.socket.get_ref(), bytes, flags) {
                Ok(n) => {
                    self.room = None;
                    return Poll::Ready(Ok(n));
                }
                Err(rustix::io::Errno::AGAIN) if self.room.is_none() => {
                    let twin = self.socket.get_ref().try_clone()?;
                    self.room = Some(sys::register(twin, Interest::WRITABLE)?);
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Reads the bytes that have arrived; 0 is the end of the stream.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.socket.poll_read_ready(cx))?;
            match recv(self.socket.get_ref(), &mut *into, RecvFlags::DONTWAIT) {
                Ok((n, _)) => {
                    // Fewer bytes than requested means that no more were available. Bytes that arrive later cause a new
                    // edge.
                    if n > 0 && n < into.len() {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}
