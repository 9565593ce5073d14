//! One HTTP/3 connection: its UDP socket, its QUIC state and its `h3` state.

use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use h3::client::{Connection, SendRequest};
use h3::error::StreamError;
use http::Request;
use quinn_proto::crypto::rustls::HandshakeData;
use quinn_proto::{
    ConnectionError, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, VarInt,
};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::super::context::{DATAGRAM_BUFFERS, ThreadContext};
use super::super::multiplex::{
    ConnectFailure, ConnectionPhase, ConnectionState, MultiplexedConnection, StreamFailure,
};
use super::super::socket::{self, ServerPeer};
use super::exchange::{Http3Exchange, is_tls_alert, lost_outcome};
use super::quic::QuicHandle;
use crate::outcome::Outcome;

/// The maximum number of datagrams that one system call sends, as in quinn.
const MAX_SENT_DATAGRAMS: usize = 10;

/// What to do if a server does not answer, for the message.
const NO_HTTP3: &str = "does the server offer HTTP/3 on the UDP port with this number, and does every firewall allow it";

/// A connection and its state.
pub struct Http3Connection {
    state: ConnectionState,
    quic: Option<OpenQuic>,
    /// What `h3` needs to receive. `None` until the handshake is complete.
    receiver: Option<Connection<QuicHandle, Bytes>>,
    sender: Option<SendRequest<QuicHandle, Bytes>>,
    /// Whether the server has announced that it accepts no more requests (GOAWAY).
    is_leaving: bool,
}

/// The socket of a connection, and its QUIC state.
struct OpenQuic {
    fd: OwnedFd,
    udp: UdpSocketState,
    endpoint: Endpoint,
    number: ConnectionHandle,
    handle: QuicHandle,
    /// Datagrams that QUIC has written. They wait here if the socket accepts none now.
    out: Vec<u8>,
    unsent: Option<quinn_proto::Transmit>,
}

impl MultiplexedConnection for Http3Connection {
    type Exchange = Http3Exchange;

    const PROTOCOL: &'static str = "HTTP/3";
    const CONNECT_ADVICE: Option<&'static str> = Some(NO_HTTP3);

    fn new(index: u32) -> Http3Connection {
        Http3Connection {
            state: ConnectionState::new(index),
            quic: None,
            receiver: None,
            sender: None,
            is_leaving: false,
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
        self.is_leaving = false;
        let failed = |e: &dyn std::fmt::Display| ConnectFailure::new(Outcome::ConnectFailed, e);
        let (ServerPeer::Tcp(address), Some(tls)) = (&context.peer, &context.tls) else {
            return Err(failed(&"HTTP/3 needs an https:// URL"));
        };
        let Some(config) = tls.quic() else {
            return Err(failed(&"the settings of TLS are not those of QUIC"));
        };
        let fd = socket::open_udp(address, &context.plan.connection)
            .map_err(|e| ConnectFailure::new(socket::connect_outcome(e), e))?;
        let udp = UdpSocketState::new(UdpSockRef::from(&fd)).map_err(|e| failed(&e))?;
        // A UDP socket reports after every datagram that it accepts more, so that is watched only when it is full.
        let flags = EventFlags::IN | EventFlags::ET;
        let data = EventData::new_u64(self.state.token());
        epoll::add(&context.epoll, &fd, data, flags).map_err(|e| failed(&e))?;
        let mut endpoint = Endpoint::new(EndpointConfig::default().into(), None, true, None);
        let name = tls.server_name();
        let (number, connection) = endpoint
            .connect(Instant::now(), config.clone(), *address, &name)
            .map_err(|e| failed(&e))?;
        self.quic = Some(OpenQuic {
            fd,
            udp,
            endpoint,
            number,
            handle: QuicHandle::new(connection),
            out: Vec::new(),
            unsent: None,
        });
        self.state.phase = ConnectionPhase::Handshake;
        self.transmit().map_err(|e| socket_failure(&e))
    }

    fn event(
        &mut self,
        context: &mut ThreadContext,
        flags: EventFlags,
    ) -> Result<(), ConnectFailure> {
        let arrived = EventFlags::IN | EventFlags::ERR | EventFlags::HUP;
        if flags.intersects(arrived)
            && let Err(error) = self.receive(context)
        {
            if self.state.phase == ConnectionPhase::Handshake {
                return Err(socket_failure(&error));
            }
            self.state.error = Some(error.to_string());
        }
        self.handle_changes(context)
    }

    fn poll(&mut self) -> Result<bool, StreamFailure> {
        let (Some(quic), Some(receiver)) = (&self.quic, &mut self.receiver) else {
            return Ok(false);
        };
        if self.state.error.is_some() {
            return Ok(false);
        }
        if let Some(lost) = &quic.handle.state().lost {
            return lost_outcome(lost).map_or(Ok(false), Err);
        }
        let mut waker = Context::from_waker(Waker::noop());
        match receiver.poll_close(&mut waker) {
            Poll::Pending => Ok(!self.is_leaving || quic.handle.state().active > 0),
            Poll::Ready(error) => Err(StreamFailure {
                outcome: Outcome::ProtocolError,
                why: error.to_string(),
            }),
        }
    }

    fn has_room(&mut self) -> bool {
        let quic = self.quic.as_ref();
        !self.is_leaving && quic.is_some_and(|quic| quic.handle.state().reserve_stream())
    }

    fn begin(
        &mut self,
        request: Request<()>,
        body: &Bytes,
    ) -> Result<Option<Http3Exchange>, StreamFailure> {
        let (Some(quic), Some(sender)) = (&self.quic, &mut self.sender) else {
            return Ok(None);
        };
        let failed = |e: &StreamError| StreamFailure {
            outcome: Outcome::ProtocolError,
            why: e.to_string(),
        };
        let mut waker = Context::from_waker(Waker::noop());
        // A stream is open, and writing never waits, so none of these futures does.
        let mut stream = match pin!(sender.send_request(request)).poll(&mut waker) {
            Poll::Ready(Ok(stream)) => stream,
            Poll::Ready(Err(StreamError::RemoteClosing { .. })) => {
                self.is_leaving = true;
                return Ok(None);
            }
            Poll::Ready(Err(StreamError::ConnectionError { .. })) | Poll::Pending => {
                return Ok(None);
            }
            Poll::Ready(Err(error)) => return Err(failed(&error)),
        };
        if !body.is_empty()
            && let Poll::Ready(Err(error)) = pin!(stream.send_data(body.clone())).poll(&mut waker)
        {
            return Err(failed(&error));
        }
        if let Poll::Ready(Err(error)) = pin!(stream.finish()).poll(&mut waker) {
            return Err(failed(&error));
        }
        Ok(Some(Http3Exchange {
            stream,
            handle: quic.handle.clone(),
            in_trailers: false,
        }))
    }

    fn send(&mut self, context: &mut ThreadContext) {
        if let Err(error) = self.transmit() {
            self.state.error = Some(error.to_string());
        }
        let Some(quic) = &self.quic else {
            return;
        };
        if quic.unsent.is_some() {
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
            let data = EventData::new_u64(self.state.token());
            // This fails only for a descriptor that is not watched, and this one is.
            let _ = epoll::modify(&context.epoll, &quic.fd, data, flags);
        }
        let mut state = quic.handle.state();
        let (received, sent) = (state.received, state.sent);
        (state.received, state.sent) = (0, 0);
        let measured = context.recorder.is_measured(context.clock.now());
        context.recorder.count_bytes_received(measured, received);
        context.recorder.count_bytes_sent(measured, sent);
    }

    fn close(&mut self, context: &mut ThreadContext) {
        self.shut();
        if self.state.phase == ConnectionPhase::Up {
            context.recorder.count_closed();
        }
        self.state.phase = ConnectionPhase::Down;
    }

    fn timer(&mut self, context: &ThreadContext) -> Option<u64> {
        let at = self.quic.as_ref()?.handle.state().connection.poll_timeout();
        at.map(|at| context.clock.nanoseconds_at(at))
    }

    fn handle_timer(&mut self, context: &mut ThreadContext) -> Result<(), ConnectFailure> {
        if let Some(quic) = &self.quic {
            let mut state = quic.handle.state();
            state.connection.handle_timeout(Instant::now());
        }
        self.handle_changes(context)
    }
}

impl Http3Connection {
    /// Receives datagrams until there are no more. An error is one of the socket, such as the refusal of a machine on
    /// which no program listens on this port.
    fn receive(&mut self, context: &mut ThreadContext) -> io::Result<()> {
        let Some(quic) = &mut self.quic else {
            return Ok(());
        };
        let size = context.datagrams.len() / DATAGRAM_BUFFERS;
        loop {
            let mut pieces = context.datagrams.chunks_exact_mut(size);
            let mut buffers: [IoSliceMut<'_>; DATAGRAM_BUFFERS] =
                std::array::from_fn(|_| IoSliceMut::new(pieces.next().unwrap_or_default()));
            let mut metas = [RecvMeta::default(); DATAGRAM_BUFFERS];
            let socket = UdpSockRef::from(&quic.fd);
            let count = match quic.udp.recv(socket, &mut buffers, &mut metas) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let now = Instant::now();
            for (meta, buffer) in metas.iter().zip(&buffers).take(count) {
                for datagram in buffer[..meta.len].chunks(meta.stride.max(1)) {
                    quic.handle_datagram(now, meta, datagram);
                }
            }
            // The system call stops early only when there are no more, and epoll reports later ones.
            if count < DATAGRAM_BUFFERS {
                return Ok(());
            }
        }
    }

    /// Handles what a datagram or a timer has changed.
    fn handle_changes(&mut self, context: &mut ThreadContext) -> Result<(), ConnectFailure> {
        let Some(quic) = &mut self.quic else {
            return Ok(());
        };
        quic.handle_endpoint_events();
        let mut state = quic.handle.state();
        state.handle_events();
        if self.state.phase != ConnectionPhase::Handshake {
            return Ok(());
        }
        if let Some(lost) = &state.lost {
            return Err(handshake_failure(lost));
        }
        let connected = state.connected;
        drop(state);
        if connected {
            self.greet(context)?;
        }
        self.transmit().map_err(|e| socket_failure(&e))
    }

    /// Begins HTTP/3 after the handshake of QUIC.
    fn greet(&mut self, context: &mut ThreadContext) -> Result<(), ConnectFailure> {
        let Some(quic) = &self.quic else {
            return Ok(());
        };
        let data = quic
            .handle
            .state()
            .connection
            .crypto_session()
            .handshake_data();
        let protocol = data
            .and_then(|data| data.downcast::<HandshakeData>().ok())
            .and_then(|data| data.protocol);
        if protocol.as_deref() != Some(b"h3") {
            let why = "the server did not negotiate HTTP/3 (ALPN)";
            return Err(ConnectFailure::new(Outcome::Tls, why));
        }
        if !context.record_handshake() {
            // QUIC has no other version, and quinn does not tell the cipher suite.
            context.recorder.connections().tls = Some("TLSv1.3".to_owned());
        }
        context.record_reached();
        context.recorder.count_opened();
        self.state.phase = ConnectionPhase::Up;
        self.state.connect = (context.clock.now() - self.state.since).max(1);
        let mut builder = h3::client::builder();
        builder.send_grease(false);
        let mut waker = Context::from_waker(Waker::noop());
        match pin!(builder.build(quic.handle.clone())).poll(&mut waker) {
            Poll::Ready(Ok((receiver, sender))) => {
                self.receiver = Some(receiver);
                self.sender = Some(sender);
                Ok(())
            }
            Poll::Ready(Err(error)) => Err(ConnectFailure::new(Outcome::ProtocolError, error)),
            Poll::Pending => Err(ConnectFailure::new(
                Outcome::ProtocolError,
                "the server does not allow the streams that HTTP/3 needs (RFC 9114 §6.2)",
            )),
        }
    }

    /// Sends what QUIC has written, until the socket accepts no more. An error is one of the socket.
    fn transmit(&mut self) -> io::Result<()> {
        let Some(quic) = &mut self.quic else {
            return Ok(());
        };
        let now = Instant::now();
        let most = quic.udp.max_gso_segments().min(MAX_SENT_DATAGRAMS);
        loop {
            if quic.unsent.is_none() {
                quic.out.clear();
                let mut state = quic.handle.state();
                quic.unsent = state.connection.poll_transmit(now, most, &mut quic.out);
            }
            let Some(transmit) = &quic.unsent else {
                return Ok(());
            };
            let datagrams = quinn_udp::Transmit {
                destination: transmit.destination,
                ecn: transmit
                    .ecn
                    .and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
                contents: &quic.out[..transmit.size],
                segment_size: transmit.segment_size,
                src_ip: None,
            };
            match quic.udp.try_send(UdpSockRef::from(&quic.fd), &datagrams) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    return Err(error);
                }
                // Other errors mean that a datagram is lost, such as a probe that is too long for the path. QUIC
                // notices and repeats what matters.
                Ok(()) | Err(_) => quic.unsent = None,
            }
        }
    }

    /// Tells the server that the connection is closed, and forgets it.
    fn shut(&mut self) {
        self.sender = None;
        self.receiver = None;
        if let Some(quic) = &self.quic {
            let mut state = quic.handle.state();
            if state.lost.is_none() && self.state.error.is_none() {
                let code = h3::error::Code::H3_NO_ERROR.value();
                let code = VarInt::from_u64(code).unwrap_or_default();
                state.connection.close(Instant::now(), code, Bytes::new());
                drop(state);
                // If the message is lost, the server's idle timeout ends the connection.
                let _ = self.transmit();
            }
        }
        self.quic = None;
    }
}

/// Servers keep a QUIC connection until its idle timeout, unless they are told that it is closed.
impl Drop for Http3Connection {
    fn drop(&mut self) {
        self.shut();
    }
}

impl OpenQuic {
    fn handle_datagram(&mut self, now: Instant, meta: &RecvMeta, datagram: &[u8]) {
        let ecn = meta
            .ecn
            .and_then(|ecn| quinn_proto::EcnCodepoint::from_bits(ecn as u8));
        let data = BytesMut::from(datagram);
        let mut out = Vec::new();
        let event = self
            .endpoint
            .handle(now, meta.addr, None, ecn, data, &mut out);
        // The endpoint has no other connection. What it wants to send itself is for servers.
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            self.handle.state().connection.handle_event(event);
        }
    }

    fn handle_endpoint_events(&mut self) {
        let mut state = self.handle.state();
        while let Some(event) = state.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.number, event) {
                state.connection.handle_event(event);
            }
        }
    }
}

/// Returns the failure of a connection whose socket has an error.
fn socket_failure(error: &io::Error) -> ConnectFailure {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    let outcome = number.map_or(Outcome::ConnectFailed, socket::connect_outcome);
    ConnectFailure::new(outcome, format!("{error} (UDP); {NO_HTTP3}"))
}

/// Returns the failure of a connection that ended before its handshake was complete.
fn handshake_failure(error: &ConnectionError) -> ConnectFailure {
    /// CONNECTION_REFUSED (RFC 9000 §20.1).
    const CONNECTION_REFUSED: u64 = 2;
    /// The alert no_application_protocol (RFC 7301) as a code of QUIC.
    const NO_APPLICATION_PROTOCOL: u64 = 0x100 + 120;
    match error {
        ConnectionError::ConnectionClosed(close) => match u64::from(close.error_code) {
            NO_APPLICATION_PROTOCOL => {
                let why = "the server did not negotiate HTTP/3 (ALPN)";
                ConnectFailure::new(Outcome::Tls, why)
            }
            code if is_tls_alert(code) => ConnectFailure::new(Outcome::Tls, close),
            CONNECTION_REFUSED => ConnectFailure::new(Outcome::ConnectRefused, close),
            _ => ConnectFailure::new(Outcome::ConnectFailed, close),
        },
        ConnectionError::TransportError(error) if is_tls_alert(u64::from(error.code)) => {
            ConnectFailure::new(Outcome::Tls, &error.reason)
        }
        ConnectionError::TimedOut => {
            ConnectFailure::new(Outcome::ConnectTimeout, format!("{error}; {NO_HTTP3}"))
        }
        other => ConnectFailure::new(Outcome::ConnectFailed, other),
    }
}
