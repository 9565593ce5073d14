//! One HTTP/2 connection: its socket, its TLS, its `h2` state. It does not depend on requests; the
//! [`super::Http2ClientFleet`] sends those on it.

use std::pin::{Pin, pin};
use std::task::{Poll, Waker};

use bytes::{Buf, Bytes};
use h2::client::{Builder, Connection, SendRequest};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::super::context::ThreadContext;
use super::super::socket;
use super::super::stream::{BenchStream, ReceiveResult};
use super::pipe::Http2Pipe;
use crate::outcome::Outcome;

/// The flow control windows. They are large, so that the server is measured and not our window: 2^24 for a stream, 2^26
/// for the connection. h2load uses 2^30 for both, which would not limit the memory.
const STREAM_WINDOW: u32 = 1 << 24;
const CONNECTION_WINDOW: u32 = 1 << 26;

/// A connection and its state.
pub struct SharedHttp2Connection {
    index: u32,
    /// Distinguishes events of this socket from those of the previous one.
    generation: u32,
    pub phase: ConnectionPhase,
    stream: Option<BenchStream>,
    pipe: Http2Pipe,
    connection: Option<Connection<Http2Pipe, Bytes>>,
    pub sender: Option<SendRequest<Bytes>>,
    /// Whether there are requests to begin or frames to write.
    pub dirty: bool,
    /// The number of complete responses on this connection.
    pub served: u64,
    /// How long connecting took, in nanoseconds. It is charged to the first request.
    pub connect: u64,
    since: u64,
    /// The error of the socket, once it has failed.
    pub error: Option<String>,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionPhase {
    /// There is no connection.
    Down,
    /// The backlog was full, and the worker will retry.
    Backlog,
    Connecting,
    Handshake,
    /// The connection can carry requests.
    Up,
}

/// Why a connection could not be made.
pub struct ConnectFailure {
    pub outcome: Outcome,
    pub why: Option<String>,
}

fn failure(outcome: Outcome, why: impl std::fmt::Display) -> ConnectFailure {
    ConnectFailure {
        outcome,
        why: Some(why.to_string()),
    }
}

impl SharedHttp2Connection {
    pub fn new(index: u32) -> SharedHttp2Connection {
        SharedHttp2Connection {
            index,
            generation: 0,
            phase: ConnectionPhase::Down,
            stream: None,
            pipe: Http2Pipe::default(),
            connection: None,
            sender: None,
            dirty: false,
            served: 0,
            connect: 0,
            since: 0,
            error: None,
        }
    }

    /// Returns the token that epoll reports with events of the current socket.
    pub fn token(&self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Begins to connect.
    pub fn open(&mut self, context: &mut ThreadContext, now: u64) -> Result<(), ConnectFailure> {
        self.generation = self.generation.wrapping_add(1);
        self.since = now;
        self.error = None;
        self.served = 0;
        let opened = match socket::open(&context.peer, &context.plan.connection) {
            Ok(opened) => opened,
            Err(Errno::AGAIN) if context.peer.is_unix() => {
                context.recorder.connections().backlog_full += 1;
                return Err(ConnectFailure {
                    outcome: Outcome::ConnectBacklog,
                    why: None,
                });
            }
            Err(error) => return Err(failure(socket::connect_outcome(error), error)),
        };
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(self.token());
        epoll::add(&context.epoll, &opened.fd, data, flags)
            .map_err(|e| failure(Outcome::ConnectFailed, e))?;
        let stream = BenchStream::new(opened.fd, context.tls.as_deref())
            .map_err(|e| failure(Outcome::Tls, e))?;
        self.stream = Some(stream);
        self.phase = ConnectionPhase::Connecting;
        if opened.established {
            self.established(context)?;
        }
        Ok(())
    }

    /// Handles an event of the socket: receives the frames without parsing them.
    pub fn event(
        &mut self,
        context: &mut ThreadContext,
        flags: EventFlags,
    ) -> Result<(), ConnectFailure> {
        match self.phase {
            ConnectionPhase::Connecting => {
                let Some(stream) = &self.stream else {
                    return Ok(());
                };
                match socket::connect_result(stream.fd()) {
                    Ok(()) if flags.intersects(EventFlags::OUT | EventFlags::IN) => {
                        self.established(context)
                    }
                    Ok(()) => Ok(()),
                    Err(error) => Err(failure(socket::connect_outcome(error), error)),
                }
            }
            ConnectionPhase::Handshake => self.handshake(context),
            ConnectionPhase::Up => {
                self.receive(context);
                Ok(())
            }
            ConnectionPhase::Down | ConnectionPhase::Backlog => Ok(()),
        }
    }

    fn established(&mut self, context: &mut ThreadContext) -> Result<(), ConnectFailure> {
        context.record_reached();
        context.recorder.count_opened();
        self.phase = ConnectionPhase::Handshake;
        self.handshake(context)
    }

    fn handshake(&mut self, context: &mut ThreadContext) -> Result<(), ConnectFailure> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        if stream.is_handshaking() || context.tls.is_some() {
            match stream.handshake(&mut context.scratch) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(why) => return Err(failure(Outcome::Tls, why)),
            }
            if !stream.has_negotiated(b"h2") {
                let why = "the server did not negotiate HTTP/2 (ALPN)";
                return Err(failure(Outcome::Tls, why));
            }
            if !context.record_handshake() {
                context.recorder.connections().tls = stream.description();
            }
        }
        self.pipe = Http2Pipe::default();
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            // The client opens one stream until the server has announced how many it allows, because more may be
            // refused.
            .initial_max_send_streams(1)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let mut greeting = pin!(builder.handshake::<_, Bytes>(self.pipe.clone()));
        let mut waker = std::task::Context::from_waker(Waker::noop());
        // The pipe accepts the preface at once, so this does not wait.
        match greeting.as_mut().poll(&mut waker) {
            Poll::Ready(Ok((sender, connection))) => {
                self.sender = Some(sender);
                self.connection = Some(connection);
            }
            Poll::Ready(Err(error)) => return Err(failure(Outcome::ProtocolError, error)),
            Poll::Pending => return Err(failure(Outcome::ProtocolError, "the preface waits")),
        }
        self.phase = ConnectionPhase::Up;
        self.connect = (context.clock.now() - self.since).max(1);
        self.receive(context);
        Ok(())
    }

    fn receive(&mut self, context: &mut ThreadContext) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        loop {
            match stream.receive(&mut context.buffer, &mut context.scratch) {
                Ok(ReceiveResult::Bytes { length, .. }) => {
                    let measured = context.recorder.is_measured(context.clock.now());
                    context.recorder.count_bytes_received(measured, length);
                    let bytes = &context.buffer[..length];
                    self.pipe.bytes().received.extend_from_slice(bytes);
                }
                Ok(ReceiveResult::WouldBlock) => return,
                Ok(ReceiveResult::End | ReceiveResult::CutOff) => break,
                Err(why) => {
                    self.error = Some(why.to_string());
                    break;
                }
            }
        }
        self.pipe.bytes().ended = true;
    }

    /// Lets `h2` read and write. Returns whether the connection is still open, or the error of
    /// `h2`.
    pub fn poll(&mut self) -> Result<bool, h2::Error> {
        let Some(connection) = &mut self.connection else {
            return Ok(false);
        };
        let mut waker = std::task::Context::from_waker(Waker::noop());
        match Pin::new(connection).poll(&mut waker) {
            Poll::Pending => Ok(true),
            Poll::Ready(Ok(())) => Ok(false),
            Poll::Ready(Err(error)) => Err(error),
        }
    }

    /// Sends what `h2` has written.
    pub fn send(&mut self, context: &mut ThreadContext) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        let mut bytes = self.pipe.bytes();
        while !bytes.pending.is_empty() {
            match stream.send(&bytes.pending) {
                Ok(sent) => {
                    let measured = context.recorder.is_measured(context.clock.now());
                    context.recorder.count_bytes_sent(measured, sent);
                    bytes.pending.advance(sent);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(error) => {
                    self.error = Some(error.to_string());
                    bytes.ended = true;
                    bytes.pending.clear();
                    return;
                }
            }
        }
        // The records that TLS holds back are sent at the next event.
        let _ = stream.flush();
    }

    /// Closes the connection at once.
    pub fn close(&mut self, context: &mut ThreadContext) {
        self.sender = None;
        self.connection = None;
        self.stream = None;
        self.pipe = Http2Pipe::default();
        if matches!(self.phase, ConnectionPhase::Handshake | ConnectionPhase::Up) {
            context.recorder.count_closed();
        }
        self.phase = ConnectionPhase::Down;
    }
}
