//! Buffers between the `h2` crate and the event loop, neither of which waits for the other. The event loop stores
//! received bytes, polls `h2`, and sends the bytes that `h2` has written.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The number of unsent bytes at which `h2` has to wait. Flow control keeps the number far below.
const MAX_PENDING_BYTES: usize = 1 << 20;

/// The bytes of one connection. Clones share them. Only one thread uses them, so the lock is never contended.
#[derive(Clone, Debug, Default)]
pub struct Http2Pipe(Arc<Mutex<PipeBuffers>>);

/// The bytes that a [`Http2Pipe`] holds.
#[derive(Debug, Default)]
pub struct PipeBuffers {
    /// Bytes received and not yet read by `h2`.
    pub received: BytesMut,
    /// Bytes written by `h2` and not yet sent.
    pub pending: BytesMut,
    /// Whether the connection has ended. If so, nothing more will be received.
    pub ended: bool,
}

impl Http2Pipe {
    /// Locks the bytes for reading and writing.
    pub fn bytes(&self) -> MutexGuard<'_, PipeBuffers> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl AsyncRead for Http2Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = self.bytes();
        if bytes.received.is_empty() {
            return if bytes.ended {
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            };
        }
        let length = bytes.received.len().min(buffer.remaining());
        buffer.put_slice(&bytes.received[..length]);
        bytes.received.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Http2Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut bytes = self.bytes();
        if bytes.pending.len() >= MAX_PENDING_BYTES {
            return Poll::Pending;
        }
        bytes.pending.extend_from_slice(data);
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
