//! One HTTP/2 connection: its socket, its TLS, its `h2` state.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use h2::client::{Builder, Connection, SendRequest};
use http::Request;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::super::context::ThreadContext;
use super::super::multiplex::{
    ConnectFailure, ConnectionPhase, ConnectionState, MultiplexedConnection, StreamFailure,
};
use super::super::socket;
use super::super::stream::{BenchStream, ReceiveResult};
use super::exchange::Http2Exchange;
use super::pipe::Http2Pipe;
use crate::outcome::Outcome;

/// The flow control windows. They are large, so that the server is measured and not our window: 2^24 for a stream, 2^26
/// for the connection. h2load uses 2^30 for both, which would not limit the memory.
const STREAM_WINDOW: u32 = 1 << 24;
const CONNECTION_WINDOW: u32 = 1 << 26;

/// A connection and its state.
pub struct Http2Connection {
    state: ConnectionState,
    stream: Option<BenchStream>,
    pipe: Http2Pipe,
    connection: Option<Connection<Http2Pipe, Bytes>>,
    sender: Option<SendRequest<Bytes>>,
}

impl MultiplexedConnection for Http2Connection {
    type Exchange = Http2Exchange;

    const PROTOCOL: &'static str = "HTTP/2";

    fn new(index: u32) -> Http2Connection {
        Http2Connection {
            state: ConnectionState::new(index),
            stream: None,
            pipe: Http2Pipe::default(),
            connection: None,
            sender: None,
        }
    }

    fn state(&self) -> &ConnectionState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ConnectionState {
        &mut self.state
    }

    fn open(&mut self, context: &mut ThreadContext, now: u64) -> Result<(), ConnectFailure> {
        self.state.restart(now);
        let opened = match socket::open(&context.peer, &context.plan.connection) {
            Ok(opened) => opened,
            Err(Errno::AGAIN) if context.peer.is_unix() => {
                context.recorder.connections().backlog_full += 1;
                return Err(ConnectFailure {
                    outcome: Outcome::ConnectBacklog,
                    why: None,
                });
            }
            Err(error) => return Err(ConnectFailure::new(socket::connect_outcome(error), error)),
        };
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(self.state.token());
        epoll::add(&context.epoll, &opened.fd, data, flags)
            .map_err(|e| ConnectFailure::new(Outcome::ConnectFailed, e))?;
        let stream = BenchStream::new(opened.fd, context.tls.as_deref())
            .map_err(|e| ConnectFailure::new(Outcome::Tls, e))?;
        self.stream = Some(stream);
        self.state.phase = ConnectionPhase::Connecting;
        if opened.established {
            self.established(context)?;
        }
        Ok(())
    }

    fn event(
        &mut self,
        context: &mut ThreadContext,
        flags: EventFlags,
    ) -> Result<(), ConnectFailure> {
        match self.state.phase {
            ConnectionPhase::Connecting => {
                let Some(stream) = &self.stream else {
                    return Ok(());
                };
                match socket::connect_result(stream.fd()) {
                    Ok(()) if flags.intersects(EventFlags::OUT | EventFlags::IN) => {
                        self.established(context)
                    }
                    Ok(()) => Ok(()),
                    Err(error) => Err(ConnectFailure::new(socket::connect_outcome(error), error)),
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

    fn poll(&mut self) -> Result<bool, StreamFailure> {
        let Some(connection) = &mut self.connection else {
            return Ok(false);
        };
        let mut waker = Context::from_waker(Waker::noop());
        match Pin::new(connection).poll(&mut waker) {
            Poll::Pending => Ok(true),
            Poll::Ready(Ok(())) => Ok(false),
            Poll::Ready(Err(error)) => Err(StreamFailure {
                outcome: Outcome::ProtocolError,
                why: error.to_string(),
            }),
        }
    }

    fn has_room(&mut self) -> bool {
        let mut waker = Context::from_waker(Waker::noop());
        let sender = self.sender.as_mut();
        sender.is_some_and(|sender| matches!(sender.poll_ready(&mut waker), Poll::Ready(Ok(()))))
    }

    fn begin(
        &mut self,
        request: Request<()>,
        body: &Bytes,
    ) -> Result<Option<Http2Exchange>, StreamFailure> {
        let Some(sender) = &mut self.sender else {
            return Ok(None);
        };
        let Ok((response, mut stream)) = sender.send_request(request, body.is_empty()) else {
            return Ok(None);
        };
        if !body.is_empty() && stream.send_data(body.clone(), true).is_err() {
            return Ok(None);
        }
        Ok(Some(Http2Exchange::Head(response)))
    }

    fn send(&mut self, context: &mut ThreadContext) {
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
                    self.state.error = Some(error.to_string());
                    bytes.ended = true;
                    bytes.pending.clear();
                    return;
                }
            }
        }
        // The records that TLS holds back are sent at the next event.
        let _ = stream.flush();
    }

    fn close(&mut self, context: &mut ThreadContext) {
        self.sender = None;
        self.connection = None;
        self.stream = None;
        self.pipe = Http2Pipe::default();
        if matches!(
            self.state.phase,
            ConnectionPhase::Handshake | ConnectionPhase::Up
        ) {
            context.recorder.count_closed();
        }
        self.state.phase = ConnectionPhase::Down;
    }
}

impl Http2Connection {
    fn established(&mut self, context: &mut ThreadContext) -> Result<(), ConnectFailure> {
        context.record_reached();
        context.recorder.count_opened();
        self.state.phase = ConnectionPhase::Handshake;
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
                Err(why) => return Err(ConnectFailure::new(Outcome::Tls, why)),
            }
            if !stream.has_negotiated(b"h2") {
                let why = "the server did not negotiate HTTP/2 (ALPN)";
                return Err(ConnectFailure::new(Outcome::Tls, why));
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
        let mut waker = Context::from_waker(Waker::noop());
        // The pipe accepts the preface at once, so this does not wait.
        match greeting.as_mut().poll(&mut waker) {
            Poll::Ready(Ok((sender, connection))) => {
                self.sender = Some(sender);
                self.connection = Some(connection);
            }
            Poll::Ready(Err(error)) => {
                return Err(ConnectFailure::new(Outcome::ProtocolError, error));
            }
            Poll::Pending => {
                return Err(ConnectFailure::new(
                    Outcome::ProtocolError,
                    "the preface waits",
                ));
            }
        }
        self.state.phase = ConnectionPhase::Up;
        self.state.connect = (context.clock.now() - self.state.since).max(1);
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
                    self.state.error = Some(why.to_string());
                    break;
                }
            }
        }
        self.pipe.bytes().ended = true;
    }
}
