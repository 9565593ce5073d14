//! The listeners of HTTP/3: a QUIC endpoint for each UDP socket, each on one front thread. They accept connections as
//! `accept` does for TCP, within the same limit. Connection IDs begin with the endpoint's number, for
//! [`PacketExchange`].

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{
    AsyncTimer, AsyncUdpSocket, ConnectionId, ConnectionIdGenerator, Endpoint, EndpointConfig,
    Incoming, Runtime, TokioRuntime, UdpPoller,
};
use tokio::sync::watch;

use super::accept::ConnectionAcceptor;
use super::packet_exchange::PacketExchange;
use crate::http::{
    ConnectionInfo, HttpConfig, IncomingConnection, RequestHandler, max_head_bytes, serve_http3,
    transport_config,
};
use crate::tls::CurrentSettings;
use crate::tls::quic::{HandshakeWitness, QuicSecrets};
use crate::turn;

/// The number of handshakes in progress on a thread above which clients first have to prove their address.
const MAX_UNVALIDATED_HANDSHAKES: usize = 64;
/// The length of a connection ID in bytes.
const CONNECTION_ID_BYTES: usize = 8;
/// The maximum number of connections that wait to be accepted, and the maximum number of bytes of their packets: per
/// connection, and in total.
const MAX_INCOMING: usize = 1024;
const INCOMING_BUFFER_BYTES: u64 = 64 << 10;
const TOTAL_INCOMING_BUFFER_BYTES: u64 = 4 << 20;

/// One endpoint of a listener.
pub(super) struct QuicListener {
    pub(super) address: Arc<str>,
    pub(super) socket: OwnedFd,
    pub(super) local: Option<SocketAddr>,
    pub(super) tls: CurrentSettings,
    pub(super) secrets: QuicSecrets,
    pub(super) number: usize,
    pub(super) exchange: Arc<PacketExchange>,
}

/// A socket that receives only its endpoint's packets, whichever socket they arrive at.
struct EndpointSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    number: usize,
    exchange: Arc<PacketExchange>,
}

impl fmt::Debug for EndpointSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "endpoint {} of {:?}", self.number, self.inner)
    }
}

impl AsyncUdpSocket for EndpointSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.inner.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        if let (Some(buf), Some(meta)) = (bufs.first_mut(), meta.first_mut())
            && self
                .exchange
                .poll_take(self.number, cx, buf, meta)
                .is_ready()
        {
            return Poll::Ready(Ok(1));
        }
        let received = std::task::ready!(self.inner.poll_recv(cx, bufs, meta))?;
        for (buf, meta) in bufs.iter_mut().zip(meta).take(received) {
            let packets = &mut buf[..meta.len];
            meta.len = self.exchange.forward_foreign(self.number, *meta, packets);
        }
        Poll::Ready(Ok(received))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

/// Generates connection IDs that name their endpoint.
struct EndpointConnectionIds(u8);

impl ConnectionIdGenerator for EndpointConnectionIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; CONNECTION_ID_BYTES];
        // This fails only if the kernel has no random bytes, and then handshakes fail as well.
        let _ = aws_lc_rs::rand::fill(&mut id);
        id[0] = self.0;
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        CONNECTION_ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// The tokio runtime with measured turns.
#[derive(Debug)]
struct MeasuredRuntime;

impl Runtime for MeasuredRuntime {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        TokioRuntime.new_timer(at)
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::spawn(turn::measure("QUIC", task));
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        TokioRuntime.wrap_udp_socket(socket)
    }

    fn now(&self) -> Instant {
        TokioRuntime.now()
    }
}

/// An endpoint that accepts no more connections after this is dropped. Open connections live until they are closed.
struct OpenEndpoint(Endpoint);

impl Drop for OpenEndpoint {
    fn drop(&mut self) {
        self.0.set_server_config(None);
    }
}

impl QuicListener {
    fn open(&self, config: &HttpConfig) -> io::Result<OpenEndpoint> {
        let socket = UdpSocket::from(self.socket.try_clone()?);
        let port = EndpointSocket {
            inner: TokioRuntime.wrap_udp_socket(socket)?,
            number: self.number,
            exchange: self.exchange.clone(),
        };
        let mut endpoint = EndpointConfig::new(self.secrets.resets.clone());
        // A listener has fewer sockets than fit into one descriptor message, so the number fits into a byte.
        let number = self.number as u8;
        endpoint.cid_generator(move || Box::new(EndpointConnectionIds(number)));
        let (server, _) = self.server_config(config, None)?;
        let opened = Endpoint::new_with_abstract_socket(
            endpoint,
            Some(server),
            Arc::new(port),
            Arc::new(MeasuredRuntime),
        )?;
        Ok(OpenEndpoint(opened))
    }

    /// Returns the settings for the next connection.
    fn server_config(
        &self,
        config: &HttpConfig,
        client: Option<IpAddr>,
    ) -> io::Result<(quinn::ServerConfig, HandshakeWitness)> {
        let tls = self.tls.load();
        let (crypto, witness) = tls
            .for_quic(max_head_bytes(config), client)
            .map_err(io::Error::other)?;
        let tokens = self.secrets.tokens.clone();
        let mut server = quinn::ServerConfig::new(Arc::new(crypto), tokens);
        server
            .transport_config(Arc::new(transport_config(config)))
            .max_incoming(MAX_INCOMING)
            .incoming_buffer_size(INCOMING_BUFFER_BYTES)
            .incoming_buffer_size_total(TOTAL_INCOMING_BUFFER_BYTES);
        Ok((server, witness))
    }
}

impl<H: RequestHandler> ConnectionAcceptor<H> {
    /// Accepts QUIC connections until the task is aborted.
    pub(super) async fn run_quic(self: Arc<Self>, listener: QuicListener) {
        let mut pause = super::accept::FIRST_PAUSE;
        let open = loop {
            match listener.open(&self.config.load()) {
                Ok(open) => break open,
                Err(e) => {
                    self.pause_after_failure(&listener.address, &e, &mut pause)
                        .await
                }
            }
        };
        // Dropped with the task, which tells connections that the listener is gone.
        let (_listening, gone) = watch::channel(());
        let handshakes = Arc::new(());
        let port = open.0.local_addr().ok().map(|address| address.port());
        while let Some(incoming) = open.0.accept().await {
            let proven = incoming.remote_address_validated();
            let slot = self.slots.try_take();
            let busy =
                Arc::strong_count(&handshakes) > MAX_UNVALIDATED_HANDSHAKES || slot.is_none();
            if busy && !proven && incoming.may_retry() {
                // This fails only if a retry is not allowed at this point.
                let _ = incoming.retry();
                continue;
            }
            let slot = match slot {
                Some(slot) => slot,
                None => self.make_slot().await,
            };
            let handshake = handshakes.clone();
            self.start_quic_connection(&listener, incoming, slot, gone.clone(), handshake, port);
        }
    }

    fn start_quic_connection(
        &self,
        listener: &QuicListener,
        incoming: Incoming,
        slot: crate::http::slots::ConnectionSlot,
        gone: watch::Receiver<()>,
        handshake: Arc<()>,
        port: Option<u16>,
    ) {
        let config = self.config.load_full();
        let peer = incoming.remote_address();
        let on_any = || Some(SocketAddr::new(incoming.local_ip()?, port?));
        let local = listener.local.or_else(on_any);
        // The source address of a first packet may be forged.
        let client = incoming.remote_address_validated().then(|| peer.ip());
        let Ok((server, witness)) = listener.server_config(&config, client) else {
            return incoming.refuse();
        };
        // This fails if the first packet was not a QUIC packet.
        let Ok(connecting) = incoming.accept_with(Arc::new(server)) else {
            return;
        };
        let info = ConnectionInfo {
            peer: Some(peer),
            local,
            listener: listener.address.clone(),
            tls: None,
            alternative: None,
            id: self.next_id.fetch_add(self.id_step, Ordering::Relaxed),
            request: 0,
        };
        let arrival = IncomingConnection {
            connecting,
            witness,
            config,
            info,
            place: self.life.enrol(Some(slot)),
            listener: gone,
            handshake,
        };
        let serving = serve_http3(self.handler.clone(), arrival);
        tokio::spawn(turn::measure("an HTTP/3 connection", serving));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_id_begins_with_its_endpoint_number() {
        let id = EndpointConnectionIds(2).generate_cid();
        assert_eq!((id.len(), id[0]), (CONNECTION_ID_BYTES, 2));
    }
}
