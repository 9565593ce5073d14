//! The streams of a QUIC connection, as the `h3` crate uses them. All of them share the connection's state, which only
//! one thread uses, so its lock is never contended.
//!
//! A write that flow control holds back is kept here and continued when the server allows it, so sending never waits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{
    BidiStream, Connection, ConnectionErrorIncoming, OpenStreams, RecvStream, SendStream,
    StreamErrorIncoming, StreamId as Http3StreamId, WriteBuf,
};
use quinn_proto::{
    ConnectionError, Dir, Event, ReadError, ReadableError, StreamEvent, StreamId, VarInt,
    WriteError,
};

/// The state of one QUIC connection.
pub struct QuicState {
    pub connection: quinn_proto::Connection,
    /// Whether the handshake is complete.
    pub connected: bool,
    /// Why the connection has ended, once it has.
    pub lost: Option<ConnectionError>,
    /// The number of requests whose streams are in use.
    pub active: usize,
    /// Bytes received and sent on streams, until the recorder counts them.
    pub received: usize,
    pub sent: usize,
    /// A stream that has been opened for the next request.
    reserved: Option<StreamId>,
    unwritten: HashMap<StreamId, UnwrittenData>,
}

/// The rest of a stream's data that flow control holds back.
struct UnwrittenData {
    rest: Bytes,
    /// Whether the stream ends after it.
    finish: bool,
}

/// A connection's state. Clones share it.
#[derive(Clone)]
pub struct QuicHandle(Arc<Mutex<QuicState>>);

impl QuicHandle {
    pub fn new(connection: quinn_proto::Connection) -> QuicHandle {
        QuicHandle(Arc::new(Mutex::new(QuicState {
            connection,
            connected: false,
            lost: None,
            active: 0,
            received: 0,
            sent: 0,
            reserved: None,
            unwritten: HashMap::new(),
        })))
    }

    /// Locks the state.
    pub fn state(&self) -> MutexGuard<'_, QuicState> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl QuicState {
    /// Handles what QUIC has to report.
    pub fn handle_events(&mut self) {
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => self.connected = true,
                Event::ConnectionLost { reason } => self.lost = Some(reason),
                Event::Stream(StreamEvent::Writable { id }) => self.continue_writing(id),
                // The server does not want the rest of a request, which it may answer all the same.
                Event::Stream(StreamEvent::Stopped { id, .. }) => drop(self.unwritten.remove(&id)),
                _ => {}
            }
        }
    }

    /// Opens a stream for the next request, unless one is already open. Returns whether there is one.
    pub fn reserve_stream(&mut self) -> bool {
        if self.reserved.is_none() && self.lost.is_none() {
            self.reserved = self.connection.streams().open(Dir::Bi);
        }
        self.reserved.is_some()
    }

    fn take_stream(&mut self) -> Option<StreamId> {
        let id = self.reserve_stream().then(|| self.reserved.take())??;
        self.active += 1;
        Some(id)
    }

    fn write(&mut self, id: StreamId, mut data: Bytes) -> Result<(), StreamErrorIncoming> {
        while !data.is_empty() {
            match self.connection.send_stream(id).write(&data) {
                Ok(written) => {
                    self.sent += written;
                    data.advance(written);
                }
                Err(WriteError::Blocked) => {
                    let finish = false;
                    let unwritten = UnwrittenData { rest: data, finish };
                    self.unwritten.insert(id, unwritten);
                    return Ok(());
                }
                Err(WriteError::Stopped(_)) => return Ok(()),
                Err(error) => return Err(self.error(error)),
            }
        }
        Ok(())
    }

    fn continue_writing(&mut self, id: StreamId) {
        let Some(UnwrittenData { rest, finish }) = self.unwritten.remove(&id) else {
            return;
        };
        // A failure here shows when the response is read.
        let _ = self.write(id, rest);
        match self.unwritten.get_mut(&id) {
            Some(unwritten) => unwritten.finish = finish,
            None if finish => drop(self.connection.send_stream(id).finish()),
            None => {}
        }
    }

    fn finish(&mut self, id: StreamId) {
        match self.unwritten.get_mut(&id) {
            Some(unwritten) => unwritten.finish = true,
            // This fails if the server has stopped the stream, which it may answer all the same.
            None => drop(self.connection.send_stream(id).finish()),
        }
    }

    fn read(&mut self, id: StreamId) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let mut stream = self.connection.recv_stream(id);
        let mut chunks = match stream.read(true) {
            Ok(chunks) => chunks,
            Err(ReadableError::ClosedStream) => return Poll::Ready(Ok(None)),
            Err(error) => return Poll::Ready(Err(StreamErrorIncoming::Unknown(Box::new(error)))),
        };
        match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => {
                drop(chunks);
                self.received += chunk.bytes.len();
                Poll::Ready(Ok(Some(chunk.bytes)))
            }
            Ok(None) => Poll::Ready(Ok(None)),
            Err(ReadError::Reset(code)) => {
                Poll::Ready(Err(StreamErrorIncoming::StreamTerminated {
                    error_code: code.into_inner(),
                }))
            }
            Err(ReadError::Blocked) => {
                drop(chunks);
                match self.connection_error() {
                    Some(connection_error) => {
                        Poll::Ready(Err(StreamErrorIncoming::ConnectionErrorIncoming {
                            connection_error,
                        }))
                    }
                    None => Poll::Pending,
                }
            }
        }
    }

    /// Returns why the connection has ended, for the `h3` crate.
    fn connection_error(&self) -> Option<ConnectionErrorIncoming> {
        Some(match self.lost.as_ref()? {
            ConnectionError::ApplicationClosed(close) => {
                ConnectionErrorIncoming::ApplicationClose {
                    error_code: close.error_code.into_inner(),
                }
            }
            ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
            other => ConnectionErrorIncoming::Undefined(Arc::new(other.clone())),
        })
    }

    fn error(&self, error: impl std::error::Error + Send + Sync + 'static) -> StreamErrorIncoming {
        match self.connection_error() {
            Some(connection_error) => {
                StreamErrorIncoming::ConnectionErrorIncoming { connection_error }
            }
            None => StreamErrorIncoming::Unknown(Box::new(error)),
        }
    }
}

/// Converts the number of a stream. The `h3` crate accepts every number that QUIC can have.
fn http3_id(id: StreamId) -> Http3StreamId {
    let number = u64::from(VarInt::from(id));
    Http3StreamId::try_from(number).expect("a stream's number fits in 62 bits")
}

/// Converts a code of HTTP/3, which is below 2^62.
fn code(number: u64) -> VarInt {
    VarInt::from_u64(number).unwrap_or(VarInt::MAX)
}

/// A QUIC stream, of which this side uses one direction or both. Dropping the value resets each direction that has not
/// ended.
pub struct QuicStream {
    handle: QuicHandle,
    id: StreamId,
    /// Whether we send on it and have not ended our part.
    sends: bool,
    /// Whether we receive on it and the server has not ended its part.
    receives: bool,
    /// Whether it carries a request.
    is_request: bool,
}

impl QuicStream {
    fn one_way(handle: &QuicHandle, id: StreamId, sends: bool) -> QuicStream {
        QuicStream {
            handle: handle.clone(),
            id,
            sends,
            receives: !sends,
            is_request: false,
        }
    }
}

impl Drop for QuicStream {
    fn drop(&mut self) {
        let mut state = self.handle.state();
        state.active -= usize::from(self.is_request);
        // The streams of the connection itself are dropped with the connection, which is closed as a whole.
        if !self.is_request {
            return;
        }
        let cancelled = code(Code::H3_REQUEST_CANCELLED.value());
        let unwritten = state.unwritten.remove(&self.id).is_some();
        // Both fail for a stream that has ended meanwhile.
        if self.sends || unwritten {
            let _ = state.connection.send_stream(self.id).reset(cancelled);
        }
        if self.receives {
            let _ = state.connection.recv_stream(self.id).stop(cancelled);
        }
    }
}

impl<B: Buf> SendStream<B> for QuicStream {
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        let mut data: WriteBuf<B> = data.into();
        let mut state = self.handle.state();
        let bytes = data.copy_to_bytes(data.remaining());
        match state.unwritten.get_mut(&self.id) {
            Some(unwritten) => {
                unwritten.rest = [unwritten.rest.as_ref(), &bytes].concat().into();
                Ok(())
            }
            None => state.write(self.id, bytes),
        }
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.sends = false;
        self.handle.state().finish(self.id);
        Poll::Ready(Ok(()))
    }

    fn reset(&mut self, reset_code: u64) {
        self.sends = false;
        let mut state = self.handle.state();
        state.unwritten.remove(&self.id);
        // This fails for a stream that has ended.
        let _ = state
            .connection
            .send_stream(self.id)
            .reset(code(reset_code));
    }

    fn send_id(&self) -> Http3StreamId {
        http3_id(self.id)
    }
}

impl RecvStream for QuicStream {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        if !self.receives {
            return Poll::Ready(Ok(None));
        }
        let read = self.handle.state().read(self.id);
        if matches!(read, Poll::Ready(Ok(None) | Err(_))) {
            self.receives = false;
        }
        read
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.receives = false;
        // This fails for a stream that has ended.
        let _ = self
            .handle
            .state()
            .connection
            .recv_stream(self.id)
            .stop(code(error_code));
    }

    fn recv_id(&self) -> Http3StreamId {
        http3_id(self.id)
    }
}

impl<B: Buf> BidiStream<B> for QuicStream {
    type SendStream = QuicStream;
    type RecvStream = QuicStream;

    fn split(mut self) -> (QuicStream, QuicStream) {
        let mut sender = QuicStream::one_way(&self.handle, self.id, true);
        sender.sends = self.sends;
        self.sends = false;
        (sender, self)
    }
}

impl<B: Buf> OpenStreams<B> for QuicHandle {
    type BidiStream = QuicStream;
    type SendStream = QuicStream;

    fn poll_open_bidi(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Result<QuicStream, StreamErrorIncoming>> {
        let mut state = self.state();
        if let Some(connection_error) = state.connection_error() {
            return Poll::Ready(Err(StreamErrorIncoming::ConnectionErrorIncoming {
                connection_error,
            }));
        }
        match state.take_stream() {
            Some(id) => Poll::Ready(Ok(QuicStream {
                handle: self.clone(),
                id,
                sends: true,
                receives: true,
                is_request: true,
            })),
            None => Poll::Pending,
        }
    }

    fn poll_open_send(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Result<QuicStream, StreamErrorIncoming>> {
        match self.state().connection.streams().open(Dir::Uni) {
            Some(id) => Poll::Ready(Ok(QuicStream::one_way(self, id, true))),
            None => Poll::Pending,
        }
    }

    fn close(&mut self, error: Code, reason: &[u8]) {
        let reason = Bytes::copy_from_slice(reason);
        let mut state = self.state();
        state
            .connection
            .close(Instant::now(), code(error.value()), reason);
    }
}

impl<B: Buf> Connection<B> for QuicHandle {
    type RecvStream = QuicStream;
    type OpenStreams = QuicHandle;

    fn poll_accept_recv(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Result<QuicStream, ConnectionErrorIncoming>> {
        let mut state = self.state();
        if let Some(error) = state.connection_error() {
            return Poll::Ready(Err(error));
        }
        match state.connection.streams().accept(Dir::Uni) {
            Some(id) => Poll::Ready(Ok(QuicStream::one_way(self, id, false))),
            None => Poll::Pending,
        }
    }

    /// Never returns a stream, because we allow the server none in this direction.
    fn poll_accept_bidi(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Result<QuicStream, ConnectionErrorIncoming>> {
        Poll::Pending
    }

    fn opener(&self) -> QuicHandle {
        self.clone()
    }
}
