//! The handler that a connection calls for its requests, and the notices that a connection reports.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::body::RequestBody;
use super::http2::Http2Error;
use super::http3::Http3Error;
use super::message::RequestHead;
use super::responder::Responder;
use crate::tls::NegotiatedTls;
use howdah_http1::refusal::BadRequest;

/// Facts about the connection by which a request arrived.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// The client's address, or with the PROXY protocol the address given by the proxy. `None` for a unix socket.
    pub peer: Option<SocketAddr>,
    /// The address that the client connected to, or with the PROXY protocol the one given by the proxy. `None` for a
    /// unix socket.
    pub local: Option<SocketAddr>,
    /// The listener's address as configured.
    pub listener: Arc<str>,
    /// The result of the TLS handshake; `None` if the client's connection is not encrypted.
    pub tls: Option<Arc<NegotiatedTls>>,
    /// The value of `Alt-Svc` (RFC 7838), which announces HTTP/3.
    pub alternative: Option<Arc<str>>,
    /// A number that is unique while the server runs.
    pub id: u64,
    /// The number of the request on its connection, from 1.
    pub request: u64,
}

/// Why a TLS handshake was not completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// The client closed the connection, or it was closed to make room for another.
    ClientGone,
    /// The client did not complete the handshake in time (`timeouts.header`).
    TimedOut,
    /// The client sent a request without TLS and got a 400.
    PlainHttp,
    /// The two sides have no version or cipher in common, or the client violated the protocol, with the message of
    /// rustls.
    Protocol(String),
}

impl HandshakeFailure {
    /// Returns the name of the failure in the log, the metrics and the documentation.
    pub fn name(&self) -> &'static str {
        match self {
            HandshakeFailure::ClientGone => "HandshakeAborted",
            HandshakeFailure::TimedOut => "HandshakeTimeout",
            HandshakeFailure::PlainHttp => "PlainHttp",
            HandshakeFailure::Protocol(_) => "HandshakeFailed",
        }
    }
}

/// An event of a connection that may interest an administrator and is not tied to a handled request.
#[derive(Debug)]
pub enum ConnectionNotice<'a> {
    /// A request was refused before the handler saw it; the status is the refusal's.
    Refused {
        /// The connection by which the request arrived.
        conn: &'a ConnectionInfo,
        /// Why the request is malformed or too large.
        why: BadRequest,
        /// The received part of the request line, at most 256 bytes. The client controls this text.
        line: &'a [u8],
    },
    /// A PROXY header was refused; the connection was closed without a response.
    BadProxyHeader {
        /// The connection, with the proxy's own address.
        conn: &'a ConnectionInfo,
        /// The name of the failure, as in the log.
        why: &'static str,
    },
    /// A TLS handshake is complete.
    Handshake {
        /// The result of the handshake.
        agreed: &'a NegotiatedTls,
    },
    /// A TLS handshake was not completed; the connection was closed.
    HandshakeFailed {
        /// The connection.
        conn: &'a ConnectionInfo,
        /// The reason for the failure.
        why: &'a HandshakeFailure,
    },
    /// The server has ended an HTTP/2 connection because of the client's behaviour.
    Http2Ended {
        /// The connection.
        conn: &'a ConnectionInfo,
        /// What the client did that ended the connection.
        why: Http2Error,
        /// The message of the h2 crate.
        detail: &'a str,
    },
    /// The server has ended an HTTP/3 connection because of the client's behaviour.
    Http3Ended {
        /// The connection.
        conn: &'a ConnectionInfo,
        /// What the client did that ended the connection.
        why: Http3Error,
        /// The message of the h3 crate.
        detail: &'a str,
    },
    /// The server does not wait for the rest of a head, because memory is short; the client got a 503.
    NoMemory {
        /// The connection the head was arriving on.
        conn: &'a ConnectionInfo,
    },
    /// The handler panicked; the client got a 500, or a cut response.
    HandlerPanicked {
        /// The connection whose request was being handled.
        conn: &'a ConnectionInfo,
    },
    /// The handler returned without a response; the client got a 500.
    NoAnswer {
        /// The connection whose request was being handled.
        conn: &'a ConnectionInfo,
    },
    /// Accepting fails (`EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`); it is retried after a pause.
    AcceptFailed {
        /// The listener's address, as configured.
        listener: &'a str,
        /// The error that `accept` returned.
        error: &'a io::Error,
    },
    /// `max_connections` are open. A new connection replaces the one that has waited longest for its client, or waits
    /// in the backlog while all connections handle requests.
    TooManyConnections {
        /// The configured `max_connections`.
        limit: u32,
    },
}

/// Handles requests. One value serves all connections of all threads.
pub trait RequestHandler: Send + Sync + 'static {
    /// Handles one request and responds through `out`. When it returns, the response must have been begun and then
    /// ended or aborted; the connection sends the bytes that are still queued. An unread request body is dropped. When
    /// the connection is killed at the end of a graceful stop, the future is dropped.
    fn handle<'a>(
        &'a self,
        req: &'a RequestHead,
        conn: &'a ConnectionInfo,
        body: &'a mut RequestBody,
        out: &'a mut Responder,
    ) -> impl Future<Output = ()> + Send + 'a;

    /// Receives a notice. Must not block.
    fn notice(&self, notice: &ConnectionNotice<'_>);
}
