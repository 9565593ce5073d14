//! HTTP/3: a blocking [`Http3TestClient`] for requests, based on quinn and the h3 crate, and its QUIC connection for
//! messages that no regular client sends.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3::error::Code;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Endpoint, ZeroRttAccepted};
use tokio::runtime::Runtime;

use crate::http::{ExchangeError, Response};
use crate::http2::{self, Http2Request};
use crate::tls_tunnel;

/// A server that is silent for this long is considered hung.
const SILENCE: Duration = Duration::from_secs(60);

/// A connection to a server.
pub struct Http3TestClient {
    endpoint: Endpoint,
    quic: quinn::Connection,
    send: SendRequest<h3_quinn::OpenStreams, Bytes>,
    /// The configuration that holds the client's TLS sessions.
    config: quinn::ClientConfig,
    name: String,
}

/// Whether the server accepts the early data, which is known once the handshake has ended.
pub struct EarlyDataOutcome(ZeroRttAccepted);

/// A request that has been sent without a body, and whose response has not been read.
pub struct Http3PendingResponse(RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>);

/// Returns the runtime whose thread sends and receives while the test makes no call, and sends the closing messages of
/// the clients.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a thread")
    })
}

fn broken(error: impl std::error::Error + Send + Sync + 'static) -> ExchangeError {
    ExchangeError::Io(io::Error::other(error))
}

impl EarlyDataOutcome {
    /// Waits for the end of the handshake and returns whether the server accepted the early data.
    ///
    /// # Errors
    /// The handshake takes too long.
    pub fn is_accepted(self) -> Result<bool, ExchangeError> {
        within(async { Ok(self.0.await) })
    }
}

impl Http3PendingResponse {
    /// Cancels the request.
    pub fn cancel(mut self) {
        self.0.stop_stream(Code::H3_REQUEST_CANCELLED);
        self.0.stop_sending(Code::H3_REQUEST_CANCELLED);
    }
}

impl Http3TestClient {
    /// Connects to the server with this name, whose certificate was signed by `authority` (a PEM file). The name may
    /// also be an address; then the server receives no name (SNI).
    ///
    /// # Errors
    /// The server does not respond, or is not trusted.
    ///
    /// # Panics
    /// If the authority's file or the machine's sockets cannot be used.
    pub fn open(
        authority: &Path,
        address: SocketAddr,
        name: &str,
    ) -> Result<Http3TestClient, ExchangeError> {
        let windows = quinn::TransportConfig::default();
        Http3TestClient::open_with(authority, address, name, windows)
    }

    /// Connects as [`Http3TestClient::open`] does, with other windows and limits of QUIC.
    ///
    /// # Errors
    /// As for [`Http3TestClient::open`].
    ///
    /// # Panics
    /// As for [`Http3TestClient::open`].
    pub fn open_with(
        authority: &Path,
        address: SocketAddr,
        name: &str,
        transport: quinn::TransportConfig,
    ) -> Result<Http3TestClient, ExchangeError> {
        let mut config = tls_tunnel::client_config(authority, b"h3");
        config.enable_early_data = true;
        let config = QuicClientConfig::try_from(config).expect("TLS 1.3 is offered");
        let mut config = quinn::ClientConfig::new(Arc::new(config));
        config.transport_config(Arc::new(transport));
        let (client, _) = Http3TestClient::connect(config, address, name, false)?;
        Ok(client)
    }

    /// Connects to `address` as a client that resumes the TLS session of this connection: it can send requests before
    /// the handshake ends.
    ///
    /// # Errors
    /// As for [`Http3TestClient::open`], and if the server has not given the client a session.
    ///
    /// # Panics
    /// As for [`Http3TestClient::open`].
    pub fn open_again(
        &self,
        address: SocketAddr,
    ) -> Result<(Http3TestClient, EarlyDataOutcome), ExchangeError> {
        let (client, early) =
            Http3TestClient::connect(self.config.clone(), address, &self.name, true)?;
        Ok((client, early.expect("early data was requested")))
    }

    fn connect(
        config: quinn::ClientConfig,
        address: SocketAddr,
        name: &str,
        early: bool,
    ) -> Result<(Http3TestClient, Option<EarlyDataOutcome>), ExchangeError> {
        let connecting = async {
            let any_port = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
            let endpoint = Endpoint::client(any_port)?;
            let connecting = endpoint.connect_with(config.clone(), address, name);
            let connecting = connecting.map_err(broken)?;
            let (quic, early) = if early {
                let begun = connecting.into_0rtt();
                let refused = |_| {
                    ExchangeError::Io(io::Error::other(
                        "there is no session with which to send early data",
                    ))
                };
                let (quic, accepted) = begun.map_err(refused)?;
                (quic, Some(EarlyDataOutcome(accepted)))
            } else {
                (connecting.await.map_err(broken)?, None)
            };
            let transport = h3_quinn::Connection::new(quic.clone());
            let (driver, send) = h3::client::new(transport).await.map_err(broken)?;
            Ok((endpoint, quic, driver, send, early))
        };
        let (endpoint, quic, mut driver, send, early) = within(connecting)?;
        // The next call on the client reports how the connection ended.
        runtime().spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
        let client = Http3TestClient {
            endpoint,
            quic,
            send,
            config,
            name: name.to_owned(),
        };
        Ok((client, early))
    }

    /// Sends a request without a body.
    ///
    /// # Errors
    /// The request cannot be expressed in HTTP/3, or the connection has ended.
    pub fn send(&mut self, request: &Http2Request) -> Result<Http3PendingResponse, ExchangeError> {
        let head = request.head("https")?;
        let send = &mut self.send;
        within(async {
            let mut stream = send.send_request(head).await.map_err(broken)?;
            stream.finish().await.map_err(broken)?;
            Ok(Http3PendingResponse(stream))
        })
    }

    /// Reads the response.
    ///
    /// # Errors
    /// The stream was reset, or the connection has ended.
    pub fn read(&mut self, asked: Http3PendingResponse) -> Result<Response, ExchangeError> {
        let mut stream = asked.0;
        within(async { read(&mut stream).await.map_err(broken) })
    }

    /// Sends a request, with its body, and reads the response.
    ///
    /// # Errors
    /// The errors of [`Http3TestClient::send`] and [`Http3TestClient::read`].
    pub fn ask(&mut self, request: &Http2Request) -> Result<Response, ExchangeError> {
        let head = request.head("https")?;
        let body = request.content();
        let send = &mut self.send;
        within(async {
            let stream = send.send_request(head).await.map_err(broken)?;
            let (mut out, mut answer) = stream.split();
            let sending = async {
                // The server may respond, and refuse the rest of the body, before everything has been sent.
                if let Some(body) = body
                    && out.send_data(body).await.is_err()
                {
                    return std::future::pending().await;
                }
                let _ = out.finish().await;
                std::future::pending().await
            };
            let answer = async { read(&mut answer).await.map_err(broken) };
            tokio::select! {
                answer = answer => answer,
                () = sending => unreachable!("sending never resolves"),
            }
        })
    }

    /// Returns the QUIC connection, for messages that no regular client sends; use it inside
    /// [`Http3TestClient::within`].
    pub fn connection(&self) -> &quinn::Connection {
        &self.quic
    }

    /// Runs a future that uses the connection.
    ///
    /// # Errors
    /// The future takes too long.
    pub fn within<T>(&self, what: impl Future<Output = T>) -> Result<T, ExchangeError> {
        within(async { Ok(what.await) })
    }

    /// Moves the client to another local address, as when a phone changes networks.
    ///
    /// # Panics
    /// If no socket is available.
    pub fn move_elsewhere(&self) {
        let other = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let _in_runtime = runtime().enter();
        self.endpoint.rebind(other).expect("a socket");
    }
}

impl Drop for Http3TestClient {
    fn drop(&mut self) {
        let no_error = quinn::VarInt::from_u32(0x100);
        self.quic.close(no_error, b"");
    }
}

fn within<T>(what: impl Future<Output = Result<T, ExchangeError>>) -> Result<T, ExchangeError> {
    runtime().block_on(async {
        let late = |_| ExchangeError::Io(io::ErrorKind::TimedOut.into());
        tokio::time::timeout(SILENCE, what).await.map_err(late)?
    })
}

async fn read<S>(stream: &mut RequestStream<S, Bytes>) -> Result<Response, h3::error::StreamError>
where
    S: h3::quic::RecvStream,
{
    let mut answer = Response::default();
    let parts = loop {
        let parts = stream.recv_response().await?.into_parts().0;
        if !parts.status.is_informational() {
            break parts;
        }
        answer.interim.push(http2::head(&parts));
    };
    answer.head = http2::head(&parts);
    while let Some(mut data) = stream.recv_data().await? {
        answer
            .body
            .extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    answer.keeps_alive = true;
    Ok(answer)
}
