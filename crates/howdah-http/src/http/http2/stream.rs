//! One stream as its request's body and responder see it: bytes are received and sent, as on a socket. The h2 crate
//! manages the windows; the gate decides when data may be passed to it.

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::Response;
use rustix::buffer::spare_capacity;

use super::super::multiplexed::STREAMS_WITH_FULL_SHARE;
use super::wire::Wire;
use crate::turn;

/// The maximum number of bytes passed to the h2 crate at once, so streams take turns: two frames.
const MAX_PIECE_BYTES: usize = 32 << 10;

/// A client's stream. At most one task waits for it.
pub(in crate::http) struct Http2Stream {
    wire: Arc<Wire>,
    id: u32,
    urgency: u8,
    /// Used only by the stream's own task, so never contended.
    halves: Mutex<StreamHalves>,
}

struct StreamHalves {
    respond: SendResponse<Bytes>,
    /// Set once the final head has been sent.
    send: Option<SendStream<Bytes>>,
    recv: RecvStream,
    /// Received bytes that the reader had no room for.
    unread: Bytes,
    /// Whether no more data will be queued.
    ended: bool,
    /// Whether END_STREAM has been sent, or the server has reset the stream.
    closed: bool,
    /// Whether sending waits for a window, which the client opens, rather than for its turn.
    waits_for_client: bool,
}

impl Http2Stream {
    pub(super) fn new(
        wire: Arc<Wire>,
        urgency: u8,
        recv: RecvStream,
        respond: SendResponse<Bytes>,
    ) -> Http2Stream {
        wire.streams.fetch_add(1, Ordering::Relaxed);
        Http2Stream {
            wire,
            id: respond.stream_id().as_u32(),
            urgency,
            halves: Mutex::new(StreamHalves {
                respond,
                send: None,
                recv,
                unread: Bytes::new(),
                ended: false,
                closed: false,
                waits_for_client: false,
            }),
        }
    }

    fn halves(&self) -> MutexGuard<'_, StreamHalves> {
        self.halves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives at most `room` available bytes of the request's body; 0 is its end.
    pub(in crate::http) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        room: usize,
        mut put: impl FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        ready!(turn::poll_operation(cx));
        let halves = &mut *self.halves();
        let mut received = 0;
        while received < room {
            if halves.unread.is_empty() {
                match halves.recv.poll_data(cx) {
                    Poll::Ready(Some(Ok(data))) => halves.unread = data,
                    // Data that has already been received is returned first.
                    _ if received > 0 => break,
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(None) => break,
                    Poll::Ready(Some(Err(_))) => {
                        return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                    }
                }
            }
            let n = halves.unread.len().min(room - received);
            put(&halves.unread[..n]);
            halves.unread.advance(n);
            received += n;
        }
        // This fails only when the stream is gone, which the next read reports.
        let _ = halves.recv.flow_control().release_capacity(received);
        Poll::Ready(Ok(received))
    }

    /// Is ready when the client has reset the stream, or the connection is gone.
    pub(in crate::http) fn poll_reset(&self, cx: &mut Context<'_>) -> Poll<()> {
        let halves = &mut *self.halves();
        let reset = match &mut halves.send {
            Some(send) => send.poll_reset(cx),
            None => halves.respond.poll_reset(cx),
        };
        reset.map(|_| ())
    }

    /// Sends an interim head.
    pub(in crate::http) fn send_informational(&self, head: Response<()>) {
        // This fails only when the stream is gone, which the next send reports.
        let _ = self.halves().respond.send_informational(head);
    }

    /// Sends the final head; `end` is true if nothing follows.
    pub(in crate::http) fn send_head(&self, head: Response<()>, end: bool) {
        let halves = &mut *self.halves();
        halves.closed = end;
        // Without a send stream, sending fails.
        halves.send = halves.respond.send_response(head, end).ok();
    }

    /// Sends from `parts` and returns how many bytes were taken. `all` means that nothing else is queued.
    pub(in crate::http) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
        all: bool,
    ) -> Poll<io::Result<usize>> {
        let length = parts.iter().map(|part| part.len()).sum();
        self.poll_send_with(cx, length, |room, ended| {
            let mut data = Vec::with_capacity(room);
            for part in parts {
                let left = room - data.len();
                data.extend_from_slice(&part[..part.len().min(left)]);
            }
            Ok((Bytes::from(data), all && ended && room == length))
        })
    }

    /// Does the same as [`Http2Stream::poll_send`] for bytes that need not be copied.
    pub(in crate::http) fn poll_send_shared(
        &self,
        cx: &mut Context<'_>,
        bytes: &Bytes,
        all: bool,
    ) -> Poll<io::Result<usize>> {
        self.poll_send_with(cx, bytes.len(), |room, ended| {
            Ok((bytes.slice(..room), all && ended && room == bytes.len()))
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
        let sent = self.poll_send_with(cx, length, |room, _| {
            let mut data = Vec::with_capacity(room);
            rustix::io::pread(file, spare_capacity(&mut data), *offset)?;
            Ok((Bytes::from(data), false))
        });
        if let Poll::Ready(Ok(n)) = sent {
            *offset += n as u64;
        }
        sent
    }

    /// Sends the data that `take` returns for the available room, which is at most `length` bytes. `take` receives the
    /// room and whether nothing more will be queued. It returns the data and whether this data is the last.
    fn poll_send_with(
        &self,
        cx: &mut Context<'_>,
        length: usize,
        take: impl FnOnce(usize, bool) -> io::Result<(Bytes, bool)>,
    ) -> Poll<io::Result<usize>> {
        ready!(turn::poll_operation(cx));
        let halves = &mut *self.halves();
        let Some(send) = halves.send.as_mut().filter(|_| !halves.closed) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        halves.waits_for_client = false;
        let room = ready!(self.wire.gate.poll_room(cx, self.id, self.urgency));
        let room = room.min(MAX_PIECE_BYTES).min(length);
        send.reserve_capacity(room);
        let mut window = send.capacity();
        if window == 0 {
            window = match send.poll_capacity(cx) {
                Poll::Ready(Some(Ok(window))) => window,
                Poll::Ready(None | Some(Err(_))) => {
                    self.wire.gate.pass();
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                Poll::Pending => {
                    halves.waits_for_client = true;
                    self.wire.gate.pass();
                    return Poll::Pending;
                }
            };
        }
        let (data, last) = match take(room.min(window), halves.ended) {
            Ok(taken) => taken,
            Err(error) => {
                self.wire.gate.pass();
                return Poll::Ready(Err(error));
            }
        };
        let n = data.len();
        if n == 0 || send.send_data(data, last).is_err() {
            self.wire.gate.pass();
            return Poll::Ready(match n {
                0 => Ok(0),
                _ => Err(io::ErrorKind::ConnectionReset.into()),
            });
        }
        halves.closed = last;
        self.wire.gate.record_passed_on(self.id, n);
        Poll::Ready(Ok(n))
    }

    /// Ends the stream if nothing more will be queued and the last data did not end it.
    pub(in crate::http) fn finish(&self) -> io::Result<()> {
        let halves = &mut *self.halves();
        if !halves.ended || halves.closed {
            return Ok(());
        }
        halves.closed = true;
        let gone = || io::Error::from(io::ErrorKind::ConnectionReset);
        let send = halves.send.as_mut().ok_or_else(gone)?;
        send.send_data(Bytes::new(), true).map_err(|_| gone())
    }

    /// Declares that nothing more will be queued: the stream ends after the queued data.
    pub(in crate::http) fn end(&self) {
        self.halves().ended = true;
    }

    /// Returns the part of `bytes` that this stream may hold.
    pub(in crate::http) fn share(&self, bytes: usize) -> usize {
        bytes / (1 + self.streams() / STREAMS_WITH_FULL_SHARE)
    }

    /// Returns how many streams the connection has, including this one.
    pub(in crate::http) fn streams(&self) -> usize {
        self.wire.streams.load(Ordering::Relaxed)
    }

    /// Returns whether sending waits for the client to take data of this stream, rather than for its turn among the
    /// connection's streams.
    pub(in crate::http) fn waits_for_client(&self) -> bool {
        self.halves().waits_for_client
    }

    /// Is ready when the socket has taken all bytes sent, or will never take them.
    pub(in crate::http) fn poll_written(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.wire.gate.poll_empty(cx, self.id)
    }

    /// Ends the stream in a way that shows the client that its response is incomplete.
    pub(in crate::http) fn reset(&self, why: Reason) {
        let halves = &mut *self.halves();
        if std::mem::replace(&mut halves.closed, true) {
            return;
        }
        match &mut halves.send {
            Some(send) => send.send_reset(why),
            None => halves.respond.send_reset(why),
        }
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        self.wire.streams.fetch_sub(1, Ordering::Relaxed);
        self.wire.gate.remove(self.id);
    }
}
