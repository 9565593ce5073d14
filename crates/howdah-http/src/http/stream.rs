//! The byte stream of a connection: its socket, or TLS on top of it. Both have the same methods, so the code above does
//! not need to distinguish them.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use crate::socket::StreamSocket;
use crate::tls::session::TlsSession;
use crate::tls::{ConnectionSettings, NegotiatedTls};

/// A client's stream of bytes. At most one task may wait for reading and one for writing at a time.
pub(crate) struct ByteStream {
    socket: StreamSocket,
    /// Used only by the connection's own task, so never contended. Not set on a connection without TLS.
    tls: OnceLock<Box<Mutex<TlsSession>>>,
}

impl ByteStream {
    /// Creates a stream without TLS.
    pub(crate) fn new(socket: StreamSocket) -> ByteStream {
        ByteStream {
            socket,
            tls: OnceLock::new(),
        }
    }

    /// Starts TLS. `received` holds the bytes of the handshake that have already been received. This may be called only
    /// once.
    ///
    /// # Errors
    /// Fails if rustls rejects the configuration.
    pub(crate) fn start_tls(
        &self,
        settings: &ConnectionSettings,
        received: &[u8],
    ) -> Result<(), rustls::Error> {
        let session = TlsSession::new(settings, received)?;
        let set = self.tls.set(Box::new(Mutex::new(session)));
        debug_assert!(set.is_ok());
        Ok(())
    }

    fn session(&self) -> Option<MutexGuard<'_, TlsSession>> {
        let tls = self.tls.get()?;
        Some(tls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Completes the handshake, if there is one, and returns its result.
    ///
    /// # Errors
    /// See [`TlsSession::poll_handshake`].
    pub(crate) fn poll_handshake(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<NegotiatedTls>>> {
        let Some(mut session) = self.session() else {
            return Poll::Ready(Ok(None));
        };
        ready!(session.poll_handshake(&self.socket, cx))?;
        Poll::Ready(Ok(session.negotiated()))
    }

    /// Receives once into `buf`; 0 is the end of the stream.
    pub(crate) fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self.session() {
            None => self.socket.poll_recv(cx, buf),
            Some(mut session) => session.poll_read(&self.socket, buf, cx),
        }
    }

    /// Receives once into the spare capacity of `buf`; 0 is the end of the stream.
    pub(crate) fn poll_recv_spare(
        &self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        match self.session() {
            None => self.socket.poll_recv_spare(cx, buf),
            Some(mut session) => session.poll_read_spare(&self.socket, buf, cx),
        }
    }

    /// Is ready when the peer has closed its sending half, or the connection is broken. Reads nothing.
    pub(crate) fn poll_read_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_read_closed(cx)
    }

    /// Sends from `parts` once and returns how many bytes were taken. `more` means that further bytes follow
    /// immediately. Bytes that TLS has taken and the socket has not are sent by [`ByteStream::poll_flush`].
    pub(crate) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
        more: bool,
    ) -> Poll<io::Result<usize>> {
        match self.session() {
            None => self.socket.poll_send(cx, parts, more),
            Some(mut session) => session.poll_write(&self.socket, parts, cx),
        }
    }

    /// Sends from a regular file once and advances `offset`. 0 means that the file has no more bytes.
    pub(crate) fn poll_sendfile(
        &self,
        cx: &mut Context<'_>,
        file: &File,
        offset: &mut u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        match self.session() {
            None => self.socket.poll_sendfile(cx, file, offset, len),
            Some(mut session) => {
                let read = |buf: &mut [u8]| file.read_at(buf, *offset);
                let n = ready!(session.poll_write_from(&self.socket, len, read, cx))?;
                *offset += n as u64;
                Poll::Ready(Ok(n))
            }
        }
    }

    /// Sends the encrypted bytes that the socket has not taken yet.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.session() {
            None => Poll::Ready(Ok(())),
            Some(mut session) => session.poll_flush(&self.socket, cx),
        }
    }

    /// Sends `bytes` unencrypted and closes the sending half. Bytes that the socket does not take immediately are lost.
    pub(crate) fn send_without_tls(&self, bytes: &[u8]) {
        let cx = &mut Context::from_waker(Waker::noop());
        let _ = self.socket.poll_send(cx, &[IoSlice::new(bytes)], false);
        self.socket.shutdown_write();
    }

    /// Tells the peer that everything has been sent, if there is TLS.
    pub(crate) fn close_notify(&self) {
        if let Some(mut session) = self.session() {
            // Bytes that the socket does not take immediately are lost with the connection.
            session.close_notify(&self.socket, &mut Context::from_waker(Waker::noop()));
        }
    }

    /// Closes the sending half: the peer sees the end of the stream after the bytes sent so far.
    pub(crate) fn shutdown_write(&self) {
        self.close_notify();
        self.socket.shutdown_write();
    }

    /// Makes the peer see a reset instead of an orderly end when the connection is closed.
    pub(crate) fn reset_on_close(&self) {
        self.socket.reset_on_close();
    }

    /// Returns whether received bytes are still unread. Closing the connection then would send a reset, and the peer
    /// might lose the response that is still in transit.
    pub(crate) fn has_unread(&self) -> bool {
        self.session().is_some_and(|session| session.has_unread()) || self.socket.has_unread()
    }
}
