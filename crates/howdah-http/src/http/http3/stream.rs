//! One stream as its request's body and responder see it: bytes come, bytes go, as on a socket. QUIC counts
//! windows; quinn says which stream's data goes next.

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

use super::super::lifecycle::Lifecycle;
use super::super::multiplexed::FULL_SHARES;
use super::connection::{Common, FAREWELL};
use super::frames::data_frame;
use super::pipe::Pipe;
use super::transport::RequestPipe;
use crate::{memory, turn};

/// Sent at once, so that streams take turns; what of it the client does not take is kept.
const PIECE: usize = 16 << 10;
/// How often a client may let the time for sending pass before it has acknowledged an answer.
const PATIENCE: u32 = 10;

/// The h3 crate's side of a request.
pub(super) type Exchange = RequestStream<RequestPipe, Bytes>;

/// A client's stream. At most one task waits for it.
pub(in crate::http) struct Http3Stream {
    pipe: Arc<Pipe>,
    /// Encodes heads; used by the stream's own task alone.
    exchange: Mutex<Exchange>,
    common: Arc<Common>,
}

impl Http3Stream {
    pub(super) fn new(pipe: Arc<Pipe>, exchange: Exchange, common: Arc<Common>) -> Http3Stream {
        common.streams.fetch_add(1, Ordering::Relaxed);
        Http3Stream {
            pipe,
            exchange: Mutex::new(exchange),
            common,
        }
    }

    /// Receives what has come of the request's body, `room` bytes at the most; 0 is its end.
    pub(in crate::http) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        room: usize,
        put: impl FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        self.pipe.poll_receive(cx, room, put)
    }

    /// Ready when the client has cancelled the request, or the connection is gone.
    pub(in crate::http) fn poll_reset(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.pipe.poll_stopped(cx).map(|_| ())
    }

    /// Sends an interim or the final head.
    pub(in crate::http) fn send_head(&self, head: Response<()>) {
        let mut exchange = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        let sending = pin!(exchange.send_response(head));
        // It only queues: see `RequestPipe`.
        match sending.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => self.pipe.try_send(),
            // Longer than the client takes it; or the connection is gone.
            _ => self.pipe.reset(Code::H3_INTERNAL_ERROR),
        }
    }

    /// Sends from `parts`; how much was taken.
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

    /// Sends from a regular file; advances `offset`. 0: the file has no more.
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

    /// Sends what `take` takes, once all before has been sent.
    fn poll_send_with(
        &self,
        cx: &mut Context<'_>,
        length: usize,
        take: impl FnOnce(usize, &mut Vec<u8>) -> io::Result<()>,
    ) -> Poll<io::Result<usize>> {
        ready!(turn::poll_operation(cx));
        ready!(self.pipe.poll_send(cx))?;
        let room = memory::allowance(PIECE).min(length);
        let mut data = Vec::new();
        take(room, &mut data)?;
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let n = data.len();
        let mut head = Vec::with_capacity(5);
        data_frame(n as u32, &mut head);
        self.pipe.push_data(Bytes::from(head));
        self.pipe.push_data(Bytes::from(data));
        match self.pipe.poll_send(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(n)),
        }
    }

    /// Sends all there is, and the end if nothing more will be queued.
    pub(in crate::http) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pipe.poll_flush(cx)
    }

    /// Nothing more will be queued: the stream ends with what is.
    pub(in crate::http) fn end(&self) {
        self.pipe.end();
    }

    /// What of `bytes` this stream may keep.
    pub(in crate::http) fn share(&self, bytes: usize) -> usize {
        bytes / (1 + self.streams() / FULL_SHARES)
    }

    /// How many streams the connection has, this one included.
    pub(in crate::http) fn streams(&self) -> usize {
        self.common.streams.load(Ordering::Relaxed)
    }

    /// Ends the stream so that the client cannot take its answer for whole; `cancel`: because it does not
    /// take it.
    pub(in crate::http) fn reset(&self, cancel: bool) {
        self.pipe.reset(match cancel {
            true => Code::H3_REQUEST_CANCELLED,
            false => Code::H3_INTERNAL_ERROR,
        });
    }

    /// Waits until the client has the whole answer, while it takes some of it in each `patience`, or each
    /// second once the server stops: when the connection's last stream has ended, the connection may.
    pub(in crate::http) async fn delivered(&self, patience: Duration, life: &Lifecycle) {
        let mut acknowledged = self.pipe.acknowledged();
        let begun = Instant::now();
        let mut since = begun;
        loop {
            let stopped = poll_fn(|cx| self.pipe.poll_stopped(cx));
            if tokio::time::timeout(FAREWELL.min(patience), stopped)
                .await
                .is_ok()
            {
                return;
            }
            let now = Instant::now();
            let allowed = match life.is_draining() {
                true => FAREWELL,
                false => patience,
            };
            let before = std::mem::replace(&mut acknowledged, self.pipe.acknowledged());
            if acknowledged != before {
                since = now;
            }
            if now - since >= allowed || now - begun >= patience * PATIENCE {
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
            self.common.cancelled();
        }
    }
}
