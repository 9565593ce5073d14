//! A client's QUIC stream, shared by the h3 crate and this crate's side of the request: the h3 crate reads the
//! request's head and queues the heads of responses, and this crate does everything else.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::WriteBuf;
use quinn::{Connection, ReadError, RecvStream, SendStream, StoppedError, VarInt};

use super::frames::{DATA, HEADERS, Http3FrameError, RequestFrameParser};
use super::send_order::SendOrder;
use crate::turn;

/// The number of bytes read from a stream at once.
const READ_CHUNK_BYTES: usize = 16 << 10;

type StoppedFuture = dyn Future<Output = Result<Option<VarInt>, StoppedError>> + Send + Sync;

/// The shared stream; see the module.
pub(super) struct QuicPipe {
    connection: Connection,
    /// Whether the client floods the connection; shared by all of its streams.
    flooded: Arc<AtomicBool>,
    pub(super) id: u64,
    /// Whether the stream was opened before the handshake ended. Its data may then be a replay.
    pub(super) is_early: bool,
    out: Mutex<PipeOutput>,
    input: Mutex<PipeInput>,
}

struct PipeOutput {
    stream: SendStream,
    id: u64,
    urgency: u8,
    order: Arc<SendOrder>,
    /// Whether this stream has just woken waiting streams that are more urgent, so they can send first.
    has_yielded: bool,
    queue: VecDeque<QueuedPiece>,
    /// Whether nothing more will be queued.
    ended: bool,
    /// Whether the end or a reset has been sent.
    closed: bool,
    stopped: Option<Pin<Box<StoppedFuture>>>,
}

enum QueuedPiece {
    Head(WriteBuf<Bytes>),
    Data(Bytes),
}

struct PipeInput {
    stream: RecvStream,
    frames: RequestFrameParser,
    /// Bytes received and not passed on yet.
    chunk: Bytes,
    end: Option<InputEnd>,
    head_too_long: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum InputEnd {
    Whole,
    /// The client has reset the stream.
    Reset,
    /// The connection is gone, or this side has stopped reading.
    Gone,
}

pub(super) fn code(code: Code) -> VarInt {
    VarInt::from_u64(code.value()).unwrap_or(VarInt::MAX)
}

fn gone() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl QuicPipe {
    pub(super) fn new(
        connection: Connection,
        send: SendStream,
        recv: RecvStream,
        max_head_bytes: u64,
        flooded: Arc<AtomicBool>,
        order: Arc<SendOrder>,
    ) -> QuicPipe {
        let id = VarInt::from(send.id()).into_inner();
        QuicPipe {
            flooded,
            connection,
            id,
            is_early: recv.is_0rtt(),
            out: Mutex::new(PipeOutput {
                stream: send,
                id,
                urgency: 0,
                order,
                has_yielded: false,
                queue: VecDeque::new(),
                ended: false,
                closed: false,
                stopped: None,
            }),
            input: Mutex::new(PipeInput {
                stream: recv,
                frames: RequestFrameParser::new(max_head_bytes),
                chunk: Bytes::new(),
                end: None,
                head_too_long: false,
            }),
        }
    }

    /// Locks the output. Only one task uses it at a time, so the lock is never contended.
    fn out(&self) -> MutexGuard<'_, PipeOutput> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn input(&self) -> MutexGuard<'_, PipeInput> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the connection of a client that sent a forbidden frame.
    fn refuse(&self, why: Http3FrameError) {
        let code = code(match why {
            Http3FrameError::TooManyEmpty => {
                self.flooded.store(true, Ordering::Relaxed);
                Code::H3_EXCESSIVE_LOAD
            }
            Http3FrameError::Unexpected | Http3FrameError::HeadTooLong => Code::H3_FRAME_UNEXPECTED,
        });
        self.connection.close(code, b"");
    }

    /// Returns bytes up to the end of the head, for the h3 crate; `None` at the end of the stream. Fails on a forbidden
    /// frame and on a head that is too long.
    pub(super) fn poll_head(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ReadError>> {
        let input = &mut *self.input();
        if input.chunk.is_empty() {
            match ready!(input.poll_chunk(cx)) {
                Ok(Some(chunk)) => input.chunk = chunk,
                other => return Poll::Ready(other),
            }
        }
        let mut used = 0;
        while used < input.chunk.len() {
            match input.frames.pass(&input.chunk[used..], usize::MAX) {
                Ok(passed) => {
                    used += passed.used;
                    if passed.ends && passed.kind == Some(HEADERS) {
                        break;
                    }
                }
                Err(why) => {
                    input.head_too_long = why == Http3FrameError::HeadTooLong;
                    if why != Http3FrameError::HeadTooLong {
                        self.refuse(why);
                    }
                    input.end = Some(InputEnd::Gone);
                    return Poll::Ready(Err(ReadError::ClosedStream));
                }
            }
        }
        Poll::Ready(Ok(Some(input.chunk.split_to(used))))
    }

    /// Returns whether the announced length of the head exceeds the limit.
    pub(super) fn head_too_long(&self) -> bool {
        self.input().head_too_long
    }

    /// Resolves once it is known whether the request has a body, which may be empty: at its first DATA frame, or at the
    /// end of the stream. Also returns true if reading fails; [`QuicPipe::poll_receive`] then reports the failure.
    pub(super) fn poll_has_body(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let input = &mut *self.input();
        loop {
            while !input.chunk.is_empty() {
                // Bytes of a body stay in the chunk. Bytes of other frames are skipped, because clients also send
                // frames of unknown types.
                let limit = match input.frames.kind() {
                    None | Some(DATA) => 0,
                    Some(_) => usize::MAX,
                };
                match input.frames.pass(&input.chunk, limit) {
                    Ok(passed) => {
                        let _ = input.chunk.split_to(passed.used);
                        if passed.kind == Some(DATA) {
                            return Poll::Ready(true);
                        }
                    }
                    Err(why) => {
                        self.refuse(why);
                        input.end = Some(InputEnd::Gone);
                        return Poll::Ready(true);
                    }
                }
            }
            if let Some(end) = input.end {
                return Poll::Ready(end != InputEnd::Whole);
            }
            if let Ok(Some(chunk)) = ready!(input.poll_chunk(cx)) {
                input.chunk = chunk;
            }
        }
    }

    /// Passes at most `room` available bytes of the request's body to `put`. Returns their number, which is 0 at the
    /// end.
    pub(super) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        room: usize,
        mut put: impl FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        ready!(turn::poll_operation(cx));
        let input = &mut *self.input();
        let mut received = 0;
        while received < room {
            if turn::is_over() {
                // Frames that carry no data also take time, and a client may send many of them.
                if received == 0 {
                    ready!(turn::poll_turn(cx));
                }
                break;
            }
            if input.chunk.is_empty() {
                let more = match input.end {
                    None => input.poll_chunk(cx),
                    Some(_) => Poll::Ready(Ok(None)),
                };
                match (more, input.end) {
                    (Poll::Ready(Ok(Some(chunk))), _) => input.chunk = chunk,
                    // Data that has already been received is returned first.
                    _ if received > 0 => break,
                    (Poll::Pending, _) => return Poll::Pending,
                    (_, Some(InputEnd::Whole)) if input.frames.is_between() => break,
                    _ => return Poll::Ready(Err(gone())),
                }
            }
            match input.frames.pass(&input.chunk, room - received) {
                Ok(passed) => {
                    let bytes = input.chunk.split_to(passed.used);
                    if passed.kind == Some(DATA) {
                        put(&bytes[passed.used - passed.payload..]);
                        received += passed.payload;
                    }
                }
                Err(why) => {
                    self.refuse(why);
                    return Poll::Ready(Err(gone()));
                }
            }
        }
        Poll::Ready(Ok(received))
    }

    /// Asks the client to stop sending.
    pub(super) fn stop_receiving(&self, why: Code) {
        let input = &mut *self.input();
        if input.end.is_none() {
            input.end = Some(InputEnd::Gone);
            // This fails only when no more data would arrive.
            let _ = input.stream.stop(code(why));
        }
    }

    /// Queues the head of a response.
    pub(super) fn push_head(&self, head: WriteBuf<Bytes>) {
        self.out().queue.push_back(QueuedPiece::Head(head));
    }

    /// Queues bytes of a frame.
    pub(super) fn push_data(&self, data: Bytes) {
        self.out().queue.push_back(QueuedPiece::Data(data));
    }

    /// Sets the urgency. Data of urgent streams goes first (RFC 9218 §4.1); streams of the same urgency take turns.
    pub(super) fn set_urgency(&self, urgency: u8) {
        let mut out = self.out();
        out.urgency = urgency;
        // This fails only when the stream has ended.
        let _ = out.stream.set_priority(-i32::from(urgency));
    }

    /// Declares that nothing more will be queued.
    pub(super) fn end(&self) {
        self.out().ended = true;
    }

    /// Sends the queued data.
    pub(super) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.out().poll_send(cx)
    }

    /// Sends as much of the queued data as possible without waiting. The next send continues with the rest.
    pub(super) fn try_send(&self) {
        let _ = self
            .out()
            .poll_queue(&mut Context::from_waker(Waker::noop()));
    }

    /// Sends the queued data, then the end if nothing more will be queued.
    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let out = &mut *self.out();
        if out.closed && out.ended {
            return Poll::Ready(Ok(()));
        }
        ready!(out.poll_send(cx))?;
        if out.ended {
            out.closed = true;
            out.stream.finish().map_err(|_| gone())?;
        }
        Poll::Ready(Ok(()))
    }

    /// Resolves when the client has stopped receiving, has received everything, or is gone. Returns true if it has
    /// received everything.
    pub(super) fn poll_stopped(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let out = &mut *self.out();
        let stopped = out
            .stopped
            .get_or_insert_with(|| Box::pin(out.stream.stopped()));
        let why = ready!(stopped.as_mut().poll(cx));
        out.stopped = None;
        Poll::Ready(matches!(why, Ok(None)))
    }

    /// Returns a number that grows while the client acknowledges data of this connection.
    pub(super) fn acknowledged(&self) -> u64 {
        self.connection.stats().frame_rx.acks
    }

    /// Resets the stream, so the client does not mistake its response for a complete one.
    pub(super) fn reset(&self, why: Code) {
        let out = &mut *self.out();
        if !std::mem::replace(&mut out.closed, true) {
            out.ended = false;
            let _ = out.stream.reset(code(why));
        }
    }

    /// Returns whether the end or a reset has been sent.
    pub(super) fn is_closed(&self) -> bool {
        self.out().closed
    }

    /// Returns whether the client is known to have cancelled the request.
    pub(super) fn is_cancelled(&self) -> bool {
        if self.input().end == Some(InputEnd::Reset) {
            return true;
        }
        let out = &mut *self.out();
        let stopped = pin!(out.stream.stopped());
        let stopped = stopped.poll(&mut Context::from_waker(Waker::noop()));
        matches!(stopped, Poll::Ready(Ok(Some(_))))
    }
}

impl PipeOutput {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.queue.is_empty() {
            return self.poll_queue(cx);
        }
        if !std::mem::take(&mut self.has_yielded) && self.order.wake_more_urgent(self.urgency) {
            self.has_yielded = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let sent = self.poll_queue(cx);
        match &sent {
            Poll::Pending => self.order.add(cx, self.id, self.urgency),
            Poll::Ready(_) => self.order.remove(self.id),
        }
        sent
    }

    fn poll_queue(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.closed {
            return Poll::Ready(Err(gone()));
        }
        while let Some(queued) = self.queue.front_mut() {
            let sent = match queued {
                QueuedPiece::Head(head) => send(&mut self.stream, head, cx),
                QueuedPiece::Data(data) => send(&mut self.stream, data, cx),
            };
            ready!(sent)?;
            self.queue.pop_front();
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for PipeOutput {
    fn drop(&mut self) {
        self.order.remove(self.id);
    }
}

/// Sends the rest of a piece.
fn send(
    stream: &mut SendStream,
    piece: &mut impl Buf,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while piece.has_remaining() {
        let sent = Pin::new(&mut *stream).poll_write(cx, piece.chunk());
        let sent = ready!(sent).map_err(|_| gone())?;
        piece.advance(sent);
    }
    Poll::Ready(Ok(()))
}

impl PipeInput {
    /// Reads one chunk of the stream; `None` at its end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ReadError>> {
        let chunk = pin!(self.stream.read_chunk(READ_CHUNK_BYTES, true));
        let chunk = ready!(chunk.poll(cx));
        match &chunk {
            Ok(Some(_)) => {}
            Ok(None) => self.end = Some(InputEnd::Whole),
            Err(ReadError::Reset(_)) => self.end = Some(InputEnd::Reset),
            Err(_) => self.end = Some(InputEnd::Gone),
        }
        Poll::Ready(chunk.map(|chunk| chunk.map(|chunk| chunk.bytes)))
    }
}
