//! The queue of bytes to a client: responses to pipelined requests, interim responses and the current response, in
//! order. Small pieces are copied together; large ones are kept as they are and sent by a vectored write. This module
//! does not depend on HTTP messages.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::buffers;
use super::channel::Channel;
use super::config::HttpConfig;
use super::pace::{GiveUpReason, TransferPace};

/// Pieces up to this size are copied, which is cheaper than one more element of a vectored write.
const MAX_COPIED_BYTES: usize = 4 << 10;
/// The maximum number of pieces passed to the kernel at once.
const MAX_WRITE_PARTS: usize = 32;
/// The maximum number of bytes passed to the kernel at once. Copying them takes a tenth of a millisecond.
const MAX_WRITE_BYTES: usize = 256 << 10;

enum Segment {
    Owned(Vec<u8>),
    Shared(Bytes),
}

impl Segment {
    fn bytes(&self) -> &[u8] {
        match self {
            Segment::Owned(bytes) => bytes,
            Segment::Shared(bytes) => bytes,
        }
    }
}

/// The queue of one connection or stream.
#[derive(Default)]
pub(super) struct SendQueue {
    /// The first segment. `sent` bytes of the front segment (this one, or `rest[0]`) have been sent.
    first: Vec<u8>,
    sent: usize,
    rest: VecDeque<Segment>,
    queued: usize,
    /// The number of bytes at the front that must not wait for the current handler.
    ahead: usize,
    /// A minimum rate in bytes per second; the higher of it and the configured one applies.
    pub(super) min_rate: u32,
    /// Whether the head of the current request's final response has been queued.
    pub(super) began: bool,
    /// Whether sending has failed. Everything further is dropped.
    gone: bool,
    /// Whether sending has failed because the client took data too slowly.
    too_slow: bool,
    pace: Option<Box<TransferPace>>,
}

impl SendQueue {
    /// Returns the number of bytes that the socket has not taken yet.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    pub(super) fn has_failed(&self) -> bool {
        self.gone
    }

    /// Returns whether sending has failed because the client took data too slowly.
    pub(super) fn too_slow(&self) -> bool {
        self.too_slow
    }

    /// Marks everything queued so far as urgent: it belongs to earlier responses, or must not wait for the handler.
    pub(super) fn mark_ahead(&mut self) {
        self.ahead = self.queued;
    }

    /// Returns whether there are bytes that must not wait for the current handler.
    pub(super) fn has_ahead(&self) -> bool {
        self.ahead > 0
    }

    /// Appends the bytes that `write` writes.
    pub(super) fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.gone {
            return;
        }
        let into = if self.rest.is_empty() {
            if self.first.capacity() == 0 {
                self.first = buffers::take_bytes();
            }
            &mut self.first
        } else {
            if !matches!(self.rest.back(), Some(Segment::Owned(_))) {
                self.rest.push_back(Segment::Owned(Vec::new()));
            }
            match self.rest.back_mut() {
                Some(Segment::Owned(bytes)) => bytes,
                _ => return,
            }
        };
        let before = into.len();
        write(into);
        self.queued += into.len() - before;
    }

    /// Appends bytes to the queue; short ones are copied.
    pub(super) fn push(&mut self, bytes: &Bytes) {
        if bytes.len() <= MAX_COPIED_BYTES {
            self.append(|out| out.extend_from_slice(bytes));
        } else if !self.gone {
            self.queued += bytes.len();
            self.rest.push_back(Segment::Shared(bytes.clone()));
        }
    }

    /// Sends until the queue is empty. Without progress for `send_timeout`, or with less than `limits.min_rate`, it
    /// fails with `TimedOut`. After an error the queue is empty and stays so. `more` means that further bytes follow
    /// immediately.
    pub(super) fn poll_flush(
        &mut self,
        channel: &Channel,
        config: &HttpConfig,
        more: bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.gone {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        while self.queued > 0 {
            let sent = if let Channel::Http2(stream) = channel
                && let (true, Some(Segment::Shared(bytes))) =
                    (self.first.is_empty(), self.rest.front())
            {
                let bytes = bytes.slice(self.sent..);
                stream.poll_send_shared(cx, &bytes, bytes.len() == self.queued)
            } else if self.rest.is_empty() {
                channel.poll_send(cx, &[IoSlice::new(&self.first[self.sent..])], true, more)
            } else {
                let mut parts = [IoSlice::new(&[]); MAX_WRITE_PARTS];
                let (mut count, mut room) = (0, MAX_WRITE_BYTES);
                let first = Some(self.first.as_slice()).filter(|f| !f.is_empty());
                let rest = self.rest.iter().map(Segment::bytes);
                for (part, bytes) in parts.iter_mut().zip(first.into_iter().chain(rest)) {
                    let bytes = &bytes[if count == 0 { self.sent } else { 0 }..];
                    let bytes = &bytes[..bytes.len().min(room)];
                    *part = IoSlice::new(bytes);
                    count += 1;
                    room -= bytes.len();
                    if room == 0 {
                        break;
                    }
                }
                let all = MAX_WRITE_BYTES - room == self.queued;
                channel.poll_send(cx, &parts[..count], all, more)
            };
            match sent {
                Poll::Ready(Ok(n)) => {
                    self.remove_sent(n);
                    if let Some(pace) = &mut self.pace
                        && pace.record_progress(n, config.min_rate.max(self.min_rate))
                    {
                        return Poll::Ready(Err(self.fail_slow()));
                    }
                }
                Poll::Ready(Err(e)) => return Poll::Ready(Err(self.fail(e))),
                Poll::Pending if !channel.waits_for_client() => return Poll::Pending,
                Poll::Pending => return self.poll_wait(channel, config, cx),
            }
        }
        match channel.poll_flush(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(e)) => return Poll::Ready(Err(self.fail(e))),
            Poll::Pending => return self.poll_wait(channel, config, cx),
        }
        self.pace = None;
        Poll::Ready(Ok(()))
    }

    /// Waits while the client takes no data.
    fn poll_wait(
        &mut self,
        channel: &Channel,
        config: &HttpConfig,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let pace = self
            .pace
            .get_or_insert_with(|| Box::new(TransferPace::new()));
        // The memory held by the other streams of the connection is also charged to this client.
        let held = self.queued.saturating_mul(channel.streams());
        Poll::Ready(Err(
            match ready!(pace.poll_wait_holding(held, config.send_timeout, cx)) {
                GiveUpReason::TakesNothing => self.fail(io::ErrorKind::TimedOut.into()),
                GiveUpReason::HoldsMemory => self.fail_slow(),
            },
        ))
    }

    fn remove_sent(&mut self, mut n: usize) {
        self.queued -= n;
        self.ahead = self.ahead.saturating_sub(n);
        if !self.first.is_empty() {
            let here = n.min(self.first.len() - self.sent);
            self.sent += here;
            n -= here;
            if self.sent < self.first.len() {
                return;
            }
            self.sent = 0;
            buffers::return_bytes(std::mem::take(&mut self.first));
        }
        while let Some(front) = self.rest.front() {
            let left = front.bytes().len() - self.sent;
            if n < left {
                self.sent += n;
                return;
            }
            n -= left;
            self.sent = 0;
            self.rest.pop_front();
        }
    }

    /// Fails because the client takes data too slowly; see [`SendQueue::fail`].
    pub(super) fn fail_slow(&mut self) -> io::Error {
        let why = self.fail(io::ErrorKind::TimedOut.into());
        self.too_slow = true;
        why
    }

    /// Drops everything queued; nothing further is accepted.
    pub(super) fn fail(&mut self, why: io::Error) -> io::Error {
        let began = self.began;
        *self = SendQueue {
            gone: true,
            began,
            ..SendQueue::default()
        };
        why
    }
}
