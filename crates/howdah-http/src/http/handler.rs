//! What a connection asks of the handler that answers its requests, and what it reports about itself.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::body::RequestBody;
use super::http2::Http2Error;
use super::http3::Http3Error;
use super::message::RequestHead;
use super::responder::Responder;
use crate::tls::Agreed;
use howdah_http1::refusal::BadRequest;

/// Facts about the connection a request came by.
#[derive(Clone, Debug)]
pub struct ConnInfo {
    /// The client's address; with the PROXY protocol, the one the proxy named. None for a unix
    /// socket.
    pub peer: Option<SocketAddr>,
    /// The address the client connected to, likewise.
    pub local: Option<SocketAddr>,
    /// The listener's address as configured.
    pub listener: Arc<str>,
    /// What the TLS handshake agreed on; none: the client's connection is not encrypted.
    pub tls: Option<Arc<Agreed>>,
    /// Where else the server can be reached, as `Alt-Svc` says it (RFC 7838): by HTTP/3.
    pub alternative: Option<Arc<str>>,
    /// Unique within the server's life.
    pub id: u64,
    /// Which request of the connection this is, from 1.
    pub request: u64,
}

/// Why a TLS handshake was not completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeFailed {
    /// The client closed the connection, or another needed its place.
    ClientGone,
    /// The client did not complete it in time (`timeouts.header`).
    TimedOut,
    /// It sent a request without TLS; it got a 400.
    PlainHttp,
    /// The two have no version or cipher in common, or the client broke the protocol: what rustls says.
    Protocol(String),
}

impl HandshakeFailed {
    /// The name of the failure in log, metrics and docs.
    pub fn name(&self) -> &'static str {
        match self {
            HandshakeFailed::ClientGone => "HandshakeAborted",
            HandshakeFailed::TimedOut => "HandshakeTimeout",
            HandshakeFailed::PlainHttp => "PlainHttp",
            HandshakeFailed::Protocol(_) => "HandshakeFailed",
        }
    }
}

/// Something an administrator may want to know about connections, not tied to a handled request.
#[derive(Debug)]
pub enum Notice<'a> {
    /// A request was refused before the handler saw it; the status is the refusal's.
    Refused {
        /// The connection the request came by.
        conn: &'a ConnInfo,
        /// Why the request is malformed or too large.
        why: BadRequest,
        /// What was received of the request line, at most 256 bytes: text of the client's making.
        line: &'a [u8],
    },
    /// A PROXY header was refused; the connection was closed without an answer.
    BadProxyHeader {
        /// The connection, with the proxy's own address.
        conn: &'a ConnInfo,
        /// The name of the mistake, as the log writes it.
        why: &'static str,
    },
    /// A TLS handshake is complete.
    Handshake {
        /// What it has agreed on.
        agreed: &'a Agreed,
    },
    /// A TLS handshake was not completed; the connection was closed.
    HandshakeFailed {
        /// The connection.
        conn: &'a ConnInfo,
        /// What the client did, or failed to do.
        why: &'a HandshakeFailed,
    },
    /// The server has ended an HTTP/2 connection because of what its client sent.
    Http2Ended {
        /// The connection.
        conn: &'a ConnInfo,
        /// What the client did, or failed to do.
        why: Http2Error,
        /// What the protocol's library says.
        detail: &'a str,
    },
    /// The server has ended an HTTP/3 connection because of what its client sent.
    Http3Ended {
        /// The connection.
        conn: &'a ConnInfo,
        /// What the client did, or failed to do.
        why: Http3Error,
        /// What the protocol's library says.
        detail: &'a str,
    },
    /// The rest of a head is not waited for, because memory is short; the client got a 503.
    NoMemory {
        /// The connection the head was arriving on.
        conn: &'a ConnInfo,
    },
    /// The handler panicked; the client got a 500, or a cut response.
    HandlerPanicked {
        /// The connection whose request was being handled.
        conn: &'a ConnInfo,
    },
    /// The handler returned without an answer; the client got a 500.
    NoAnswer {
        /// The connection whose request was being handled.
        conn: &'a ConnInfo,
    },
    /// Accepting fails (`EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`); it is tried again after a pause.
    AcceptFailed {
        /// The listener's address, as configured.
        listener: &'a str,
        /// The error that `accept` returned.
        error: &'a io::Error,
    },
    /// `max_connections` are open: a new one takes the place of the one that has waited longest for its
    /// client, or waits in the backlog while all answer requests.
    TooManyConnections {
        /// The configured `max_connections`.
        limit: u32,
    },
}

/// Answers requests. One value serves all connections of all threads.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request through `out`. When it returns, the response must have been begun and
    /// ended or aborted; what is still queued is sent by the connection. A request body not read is
    /// dropped. When the connection is killed at the end of a graceful stop, the future is dropped.
    fn handle<'a>(
        &'a self,
        req: &'a RequestHead,
        conn: &'a ConnInfo,
        body: &'a mut RequestBody,
        out: &'a mut Responder,
    ) -> impl Future<Output = ()> + Send + 'a;

    /// Takes note of something. Must not block.
    fn notice(&self, _notice: &Notice<'_>) {}
}
