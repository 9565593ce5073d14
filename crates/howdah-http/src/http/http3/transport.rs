//! Adapts quinn's connection to the h3 crate. Requests' streams go through their [`QuicPipe`]. From streams that carry
//! no requests, only a limited number of bytes is read, which is as many as they can need.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use quinn::{Connection, ConnectionError, ReadError, WriteError};

use super::pipe::{QuicPipe, code};
use super::send_order::SendOrder;

/// The maximum number of bytes that a client may send on all streams that carry no requests: settings, and priorities
/// for the whole life of the connection.
const MAX_CONTROL_BYTES: usize = 1 << 20;

/// The state that the h3 crate does not expose to its caller.
pub(super) struct Http3Shared {
    connection: Connection,
    longest_head: u64,
    /// The stream that was accepted last.
    accepted: Mutex<Option<Arc<QuicPipe>>>,
    control: AtomicUsize,
    /// Whether the client floods the connection; shared with its streams.
    flooded: Arc<AtomicBool>,
    order: Arc<SendOrder>,
}

impl Http3Shared {
    pub(super) fn new(connection: Connection, longest_head: u64) -> Arc<Http3Shared> {
        Arc::new(Http3Shared {
            connection,
            longest_head,
            accepted: Mutex::default(),
            control: AtomicUsize::new(0),
            flooded: Arc::default(),
            order: Arc::default(),
        })
    }

    /// Takes the stream that the h3 crate has just accepted.
    pub(super) fn take_accepted(&self) -> Option<Arc<QuicPipe>> {
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        accepted.take()
    }

    /// Returns whether the client floods the connection ([`Http3Error::Http3ControlFlood`](super::Http3Error)).
    pub(super) fn is_flooded(&self) -> bool {
        self.flooded.load(Ordering::Relaxed)
    }

    /// Counts bytes of a stream that carries no requests.
    fn count_control_bytes(&self, bytes: usize) {
        let before = self.control.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > MAX_CONTROL_BYTES {
            self.flooded.store(true, Ordering::Relaxed);
            self.connection.close(code(Code::H3_EXCESSIVE_LOAD), b"");
        }
    }
}

/// A future that waits for a stream. It is kept between two polls, because dropping it would lose the wake-up.
type PendingStream<T> = Option<Pin<Box<dyn Future<Output = Result<T, ConnectionError>> + Send>>>;

/// A connection for the h3 crate.
pub(super) struct Transport {
    shared: Arc<Http3Shared>,
    requests: PendingStream<(quinn::SendStream, quinn::RecvStream)>,
    controls: PendingStream<quinn::RecvStream>,
    opened: PendingStream<quinn::SendStream>,
}

impl Transport {
    pub(super) fn new(shared: Arc<Http3Shared>) -> Transport {
        Transport {
            shared,
            requests: None,
            controls: None,
            opened: None,
        }
    }
}

/// Polls the waiting future, or the one that `begin` creates if there is none.
fn poll_pending_stream<T, F>(
    waiting: &mut PendingStream<T>,
    begin: impl FnOnce() -> F,
    cx: &mut Context<'_>,
) -> Poll<Result<T, ConnectionError>>
where
    F: Future<Output = Result<T, ConnectionError>> + Send + 'static,
{
    let future = waiting.get_or_insert_with(|| Box::pin(begin()));
    let done = ready!(future.as_mut().poll(cx));
    *waiting = None;
    Poll::Ready(done)
}

/// A request's stream.
pub(super) struct RequestPipe(Arc<QuicPipe>);

/// An outgoing stream that carries no requests.
pub(super) struct ControlOut {
    stream: quinn::SendStream,
    queued: Option<WriteBuf<Bytes>>,
}

/// An incoming stream that carries no requests.
pub(super) struct ControlIn {
    stream: quinn::RecvStream,
    shared: Arc<Http3Shared>,
}

fn connection_error(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed(close) => ConnectionErrorIncoming::ApplicationClose {
            error_code: close.error_code.into_inner(),
        },
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        other => ConnectionErrorIncoming::Undefined(Arc::new(other)),
    }
}

fn lost_connection_error(error: ConnectionError) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming {
        connection_error: connection_error(error),
    }
}

fn read_error(error: ReadError) -> StreamErrorIncoming {
    match error {
        ReadError::ConnectionLost(error) => lost_connection_error(error),
        ReadError::Reset(code) => StreamErrorIncoming::StreamTerminated {
            error_code: code.into_inner(),
        },
        other => StreamErrorIncoming::Unknown(Box::new(other)),
    }
}

fn write_error(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::ConnectionLost(error) => lost_connection_error(error),
        WriteError::Stopped(code) => StreamErrorIncoming::StreamTerminated {
            error_code: code.into_inner(),
        },
        other => StreamErrorIncoming::Unknown(Box::new(other)),
    }
}

fn stream_id(id: u64) -> StreamId {
    match StreamId::try_from(id) {
        Ok(id) => id,
        Err(_) => unreachable!("ids of QUIC are below 2^62, as the h3 crate wants them"),
    }
}

impl quic::Connection<Bytes> for Transport {
    type RecvStream = ControlIn;
    type OpenStreams = Transport;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ControlIn, ConnectionErrorIncoming>> {
        let quic = self.shared.connection.clone();
        let accept = || async move { quic.accept_uni().await };
        let accepted = ready!(poll_pending_stream(&mut self.controls, accept, cx));
        Poll::Ready(match accepted {
            Ok(stream) => Ok(ControlIn {
                stream,
                shared: self.shared.clone(),
            }),
            Err(error) => Err(connection_error(error)),
        })
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RequestPipe, ConnectionErrorIncoming>> {
        let quic = self.shared.connection.clone();
        let accept = || async move { quic.accept_bi().await };
        let accepted = ready!(poll_pending_stream(&mut self.requests, accept, cx));
        let (send, recv) = match accepted {
            Ok(stream) => stream,
            Err(error) => return Poll::Ready(Err(connection_error(error))),
        };
        let shared = &self.shared;
        let connection = shared.connection.clone();
        let pipe = Arc::new(QuicPipe::new(
            connection,
            send,
            recv,
            shared.longest_head,
            shared.flooded.clone(),
            shared.order.clone(),
        ));
        let mut accepted = shared
            .accepted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *accepted = Some(pipe.clone());
        Poll::Ready(Ok(RequestPipe(pipe)))
    }

    fn opener(&self) -> Transport {
        Transport::new(self.shared.clone())
    }
}

impl quic::OpenStreams<Bytes> for Transport {
    type BidiStream = RequestPipe;
    type SendStream = ControlOut;

    fn poll_open_bidi(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Result<RequestPipe, StreamErrorIncoming>> {
        // A server opens no request streams.
        let why = ConnectionErrorIncoming::InternalError("a server's request".to_owned());
        Poll::Ready(Err(StreamErrorIncoming::ConnectionErrorIncoming {
            connection_error: why,
        }))
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ControlOut, StreamErrorIncoming>> {
        let quic = self.shared.connection.clone();
        let open = || async move { quic.open_uni().await };
        let opened = ready!(poll_pending_stream(&mut self.opened, open, cx));
        Poll::Ready(match opened {
            Ok(stream) => Ok(ControlOut {
                stream,
                queued: None,
            }),
            Err(error) => Err(lost_connection_error(error)),
        })
    }

    fn close(&mut self, why: Code, reason: &[u8]) {
        self.shared.connection.close(code(why), reason);
    }
}

impl quic::SendStream<Bytes> for ControlOut {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        if let Some(queued) = &mut self.queued {
            while queued.has_remaining() {
                let sent = Pin::new(&mut self.stream).poll_write(cx, queued.chunk());
                queued.advance(ready!(sent).map_err(write_error)?);
            }
        }
        self.queued = None;
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.queued = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        let finished = self.stream.finish();
        Poll::Ready(finished.map_err(|error| StreamErrorIncoming::Unknown(Box::new(error))))
    }

    fn reset(&mut self, why: u64) {
        // This fails only when the stream has ended.
        let _ = self.stream.reset(code(Code::from(why)));
    }

    fn send_id(&self) -> StreamId {
        stream_id(quinn::VarInt::from(self.stream.id()).into_inner())
    }
}

impl quic::SendStream<Bytes> for RequestPipe {
    /// The server's own side of the pipe sends the queued data.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.0.push_head(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.0.end();
        Poll::Ready(Ok(()))
    }

    fn reset(&mut self, why: u64) {
        self.0.reset(Code::from(why));
    }

    fn send_id(&self) -> StreamId {
        stream_id(self.0.id)
    }
}

impl quic::RecvStream for RequestPipe {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.0.poll_head(cx).map(|head| head.map_err(read_error))
    }

    fn stop_sending(&mut self, why: u64) {
        self.0.stop_receiving(Code::from(why));
    }

    fn recv_id(&self) -> StreamId {
        stream_id(self.0.id)
    }
}

impl quic::RecvStream for ControlIn {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let chunk = ready!(pin!(self.stream.read_chunk(usize::MAX, true)).poll(cx));
        let bytes = chunk.map_err(read_error)?.map(|chunk| chunk.bytes);
        self.shared
            .count_control_bytes(bytes.as_ref().map_or(0, Bytes::len));
        Poll::Ready(Ok(bytes))
    }

    fn stop_sending(&mut self, why: u64) {
        // This fails only when no more data would arrive.
        let _ = self.stream.stop(code(Code::from(why)));
    }

    fn recv_id(&self) -> StreamId {
        stream_id(quinn::VarInt::from(self.stream.id()).into_inner())
    }
}
