//! One stream as its request's body and responder see it: bytes are received and sent, as on a socket. QUIC manages the
//! windows; quinn decides which stream's data is sent next.

use std::fs::File;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use h3::error::Code;
use h3::server::RequestStream;
use http::Response;
use tokio::time::Instant;

use super::super::lifecycle::FrontThreadConnections;
use super::super::multiplexed::STREAMS_WITH_FULL_SHARE;
use super::connection::{CLOSE_TIMEOUT, ConnectionState};
use super::frames::write_data_frame_header;
use super::pipe::QuicPipe;
use super::transport::RequestPipe;
use crate::{memory, turn};

/// The maximum number of bytes sent at once, so streams take turns. The part that the client does not take is buffered.
const MAX_PIECE_BYTES: usize = 16 << 10;
/// The time in which a client must acknowledge a whole response, as a multiple of the send timeout.
const MAX_DELIVERY_TIMEOUTS: u32 = 10;

/// The h3 crate's side of a request.
pub(super) type H3RequestStream = RequestStream<RequestPipe, Bytes>;

/// A client's stream. At most one task waits for it.
pub(in crate::http) struct Http3Stream {
    pipe: Arc<QuicPipe>,
    /// Encodes heads; used only by the stream's own task.
    exchange: Mutex<H3RequestStream>,
    common: Arc<ConnectionState>,
}

impl Http3Stream {
    pub(super) fn new(
        pipe: Arc<QuicPipe>,
        exchange: H3RequestStream,
        common: Arc<ConnectionState>,
    ) -> Http3Stream {
        common.streams.fetch_add(1, Ordering::Relaxed);
        Http3Stream {
            pipe,
            exchange: Mutex::new(exchange),
            common,
        }
    }

    /// Receives at most `room` available bytes of the request's body; 0 is its end.
    pub(in crate::http) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        room: usize,
        put: impl FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        self.pipe.poll_receive(cx, room, put)
    }

    /// Is ready when the client has cancelled the request, or the connection is gone.
    pub(in crate::http) fn poll_reset(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.pipe.poll_stopped(cx).map(|_| ())
    }

    /// Sends an interim or the final head.
    pub(in crate::http) fn send_head(&self, head: Response<()>) {
        let mut exchange = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        let sending = pin!(exchange.send_response(head));
        // This only queues the head; see `RequestPipe`.
        match sending.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => self.pipe.try_send(),
            // The head is longer than the client accepts, or the connection is gone.
            _ => self.pipe.reset(Code::H3_INTERNAL_ERROR),
        }
    }

    /// Sends from `parts` and returns how many bytes were taken.
    pub(in crate::http) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = parts.iter().map(|part| part.len()).sum();
        self.poll_send_with(cx, length, |room, data| {
            for part in parts {
                let left = room - data.len().min(room);
                data.extend_from_slice(&part[..part.len().min(left)]);
            }
            Ok(())
        })
    }

    /// Sends from a regular file and advances `offset`. 0 means that the file has no more bytes.
    pub(in crate::http) fn poll_sendfile(
        &self,
        cx: &mut Context<'_>,
        file: &File,
        offset: &mut u64,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        let sent = self.poll_send_with(cx, length, |room, data| {
            data.resize(room, 0);
            let n = file.read_at(data, *offset)?;
            data.truncate(n);
            Ok(())
        });
        if let Poll::Ready(Ok(n)) = sent {
            *offset += n as u64;
        }
        sent
    }

    /// Sends the bytes that `take` provides, once everything before has been sent.
    fn poll_send_with(
        &self,
        cx: &mut Context<'_>,
        length: usize,
        take: impl FnOnce(usize, &mut Vec<u8>) -> io::Result<()>,
    ) -> Poll<io::Result<usize>> {
        ready!(turn::poll_operation(cx));
        ready!(self.pipe.poll_send(cx))?;
        let room = memory::allowance(MAX_PIECE_BYTES).min(length);
        let mut data = Vec::new();
        take(room, &mut data)?;
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let n = data.len();
        let mut head = Vec::with_capacity(5);
        write_data_frame_header(n as u32, &mut head);
        self.pipe.push_data(Bytes::from(head));
        self.pipe.push_data(Bytes::from(data));
        match self.pipe.poll_send(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(n)),
        }
    }

    /// Sends everything, and the end of the stream if nothing more will be queued.
    pub(in crate::http) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pipe.poll_flush(cx)
    }

    /// Declares that nothing more will be queued: the stream ends after the queued data.
    pub(in crate::http) fn end(&self) {
        self.pipe.end();
    }

    /// Returns the part of `bytes` that this stream may hold.
    pub(in crate::http) fn share(&self, bytes: usize) -> usize {
        bytes / (1 + self.streams() / STREAMS_WITH_FULL_SHARE)
    }

    /// Returns how many streams the connection has, including this one.
    pub(in crate::http) fn streams(&self) -> usize {
        self.common.streams.load(Ordering::Relaxed)
    }

    /// Ends the stream in a way that shows the client that its response is incomplete. `cancel` means that the reason
    /// is that the client does not take the response.
    pub(in crate::http) fn reset(&self, cancel: bool) {
        self.pipe.reset(match cancel {
            true => Code::H3_REQUEST_CANCELLED,
            false => Code::H3_INTERNAL_ERROR,
        });
    }

    /// Waits until the client has the whole response, because the connection may close when its last stream has ended.
    /// The client must acknowledge some of it in each `patience`, or in each second once the server stops.
    pub(in crate::http) async fn wait_until_delivered(
        &self,
        patience: Duration,
        life: &FrontThreadConnections,
    ) {
        let mut acknowledged = self.pipe.acknowledged();
        let begun = Instant::now();
        let mut since = begun;
        loop {
            let stopped = poll_fn(|cx| self.pipe.poll_stopped(cx));
            if tokio::time::timeout(CLOSE_TIMEOUT.min(patience), stopped)
                .await
                .is_ok()
            {
                return;
            }
            let now = Instant::now();
            let allowed = match life.is_draining() {
                true => CLOSE_TIMEOUT,
                false => patience,
            };
            let before = std::mem::replace(&mut acknowledged, self.pipe.acknowledged());
            if acknowledged != before {
                since = now;
            }
            if now - since >= allowed || now - begun >= patience * MAX_DELIVERY_TIMEOUTS {
                return;
            }
        }
    }
}

impl Drop for Http3Stream {
    fn drop(&mut self) {
        self.common.streams.fetch_sub(1, Ordering::Relaxed);
        if !self.pipe.is_closed() {
            self.pipe.reset(Code::H3_INTERNAL_ERROR);
        }
        self.pipe.stop_receiving(Code::H3_NO_ERROR);
        if self.pipe.is_cancelled() {
            self.common.record_cancellation();
        }
    }
}
