//! A connected stream socket, TCP or unix, on the runtime's epoll: receive, send, sendfile, and the ways to close it.
//! This module does not depend on HTTP. It reads until a short read and then treats the socket as drained
//! (edge-triggered epoll reports later arrivals), so a request costs one `recv`.

use std::fs::File;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::turn;

/// A connection's socket. At most one task may wait for reading and one for writing at a time.
pub(crate) struct StreamSocket {
    fd: AsyncFd<OwnedFd>,
    /// Whether bytes may wait in the kernel although the runtime's readiness has been cleared.
    unread: AtomicBool,
}

impl StreamSocket {
    /// Registers a non-blocking socket with the current thread's runtime.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<StreamSocket> {
        Ok(StreamSocket {
            fd: crate::sys::register_descriptor(fd, Interest::READABLE | Interest::WRITABLE)?,
            // The client has usually sent its request before its connection is accepted.
            unread: AtomicBool::new(true),
        })
    }

    /// Receives once into `buf`; 0 is the end of the stream.
    pub(crate) fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let room = buf.len();
        self.poll_recv_with(cx, room, |fd| {
            rustix::net::recv(fd, &mut *buf, RecvFlags::empty()).map(|(n, _)| n)
        })
    }

    /// Receives once into the spare capacity of `buf`; 0 is the end of the stream.
    pub(crate) fn poll_recv_spare(
        &self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let room = buf.capacity() - buf.len();
        self.poll_recv_with(cx, room, |fd| {
            rustix::net::recv(fd, rustix::buffer::spare_capacity(buf), RecvFlags::empty())
                .map(|(_, n)| n)
        })
    }

    fn poll_recv_with(
        &self,
        cx: &mut Context<'_>,
        room: usize,
        mut recv: impl FnMut(&OwnedFd) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        debug_assert!(room > 0);
        ready!(turn::poll_operation(cx));
        if self.unread.swap(false, Ordering::Relaxed) {
            match recv(self.fd.get_ref()) {
                Ok(n) => {
                    self.unread.store(n == room, Ordering::Relaxed);
                    return Poll::Ready(Ok(n));
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
        loop {
            let mut guard = ready!(self.fd.poll_read_ready(cx))?;
            match recv(self.fd.get_ref()) {
                Ok(n) => {
                    if n > 0 && n < room {
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(Errno::INTR) => {}
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }

    /// Is ready when the peer has closed its sending half, or the connection is broken. Reads nothing.
    pub(crate) fn poll_read_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let Ok(mut guard) = ready!(self.fd.poll_read_ready(cx)) else {
                return Poll::Ready(());
            };
            if guard.ready().is_read_closed() {
                return Poll::Ready(());
            }
            // Pipelined bytes have arrived. They are remembered because clearing the readiness loses their edge.
            self.unread.store(true, Ordering::Relaxed);
            guard.clear_ready();
        }
    }

    /// Sends from `parts` once and returns how many bytes were taken. `more` means that further bytes follow
    /// immediately.
    pub(crate) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
        more: bool,
    ) -> Poll<io::Result<usize>> {
        let mut flags = SendFlags::NOSIGNAL;
        if more {
            flags |= SendFlags::MORE;
        }
        self.poll_write_with(cx, |fd| match parts {
            [one] => rustix::net::send(fd, one, flags),
            _ => rustix::net::sendmsg(fd, parts, &mut SendAncillaryBuffer::default(), flags),
        })
    }

    /// Sends from a regular file once with `sendfile(2)` and advances `offset`. 0 means that the file has no more
    /// bytes.
    pub(crate) fn poll_sendfile(
        &self,
        cx: &mut Context<'_>,
        file: &File,
        offset: &mut u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |fd| rustix::fs::sendfile(fd, file, Some(offset), len))
    }

    fn poll_write_with(
        &self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&OwnedFd) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        ready!(turn::poll_operation(cx));
        // The first attempt does not check readiness, because a socket is nearly always writable.
        let mut guard = None;
        loop {
            match write(self.fd.get_ref()) {
                Ok(n) => return Poll::Ready(Ok(n)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if let Some(mut stale) = guard.take() {
                        tokio::io::unix::AsyncFdReadyGuard::clear_ready(&mut stale);
                    }
                    guard = Some(ready!(self.fd.poll_write_ready(cx))?);
                }
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }

    /// Closes the sending half: the peer sees the end of the stream after the bytes sent so far.
    pub(crate) fn shutdown_write(&self) {
        // This fails only if the connection is already gone.
        let _ = rustix::net::shutdown(self.fd.get_ref(), Shutdown::Write);
    }

    /// Makes the peer see a reset instead of an orderly end when the socket is closed.
    pub(crate) fn reset_on_close(&self) {
        let _ = rustix::net::sockopt::set_socket_linger(self.fd.get_ref(), Some(Duration::ZERO));
    }

    /// Returns whether received bytes are still unread. Closing the socket then would send a reset, and the peer might
    /// lose the response that is still in transit.
    pub(crate) fn has_unread(&self) -> bool {
        rustix::io::ioctl_fionread(self.fd.get_ref()).is_ok_and(|n| n > 0)
    }

    /// Returns the local address, or `None` for a unix socket.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        let any = rustix::net::getsockname(self.fd.get_ref()).ok()?;
        SocketAddr::try_from(any).ok()
    }
}
