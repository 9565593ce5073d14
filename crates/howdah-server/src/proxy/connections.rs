//! Connections to servers. Each front thread keeps connections of its own, so a request and its connection belong to
//! the same runtime. To each server it keeps one HTTP/2 connection, and up to [`MAX_IDLE_CONNECTIONS`] idle HTTP/1.1
//! connections for [`MAX_IDLE_TIME`], which is shorter than servers keep them (Node: five seconds).

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use howdah_http::turn;
use howdah_proto::backend_address::BackendAddress;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpStream, UnixStream};

use super::server::UpstreamServer;
use super::tls;
use super::upload::Upload;
use howdah_site::proxy_config::address::ServerProtocol;

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an idle connection is kept for the next request.
const MAX_IDLE_TIME: Duration = Duration::from_secs(4);
/// The maximum number of idle connections that a front thread keeps to one server.
const MAX_IDLE_CONNECTIONS: usize = 32;
/// The maximum size of the headers of a response together, and of one read.
const MAX_BUFFER_BYTES: usize = 64 << 10;
/// The maximum number of headers of a response.
const MAX_HEADERS: usize = 200;
/// How often an HTTP/2 connection with a request is pinged.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// Sends requests on a connection.
pub(super) enum RequestSender {
    Http1(http1::SendRequest<Upload>),
    Http2(http2::SendRequest<Upload>),
}

/// A request that got no response.
pub(super) struct UnansweredRequest {
    pub(super) error: hyper::Error,
    /// The request, if nothing of it has been sent.
    pub(super) unsent: Option<Request<Upload>>,
}

impl RequestSender {
    /// Sends a request. Returns the status and the headers of its response.
    pub(super) async fn send(
        &mut self,
        request: Request<Upload>,
    ) -> Result<Response<Incoming>, UnansweredRequest> {
        let failed =
            |mut failed: hyper::client::conn::TrySendError<Request<Upload>>| UnansweredRequest {
                unsent: failed.take_message(),
                error: failed.into_error(),
            };
        match self {
            RequestSender::Http1(sender) => sender.try_send_request(request).await.map_err(failed),
            RequestSender::Http2(sender) => sender.try_send_request(request).await.map_err(failed),
        }
    }

    pub(super) fn is_http2(&self) -> bool {
        matches!(self, RequestSender::Http2(_))
    }
}

/// The connections that a thread keeps to one server.
struct ServerConnections {
    server: Weak<UpstreamServer>,
    idle: Vec<IdleConnection>,
    http2: Option<http2::SendRequest<Upload>>,
}

/// An HTTP/1.1 connection without a request.
struct IdleConnection {
    sender: http1::SendRequest<Upload>,
    since: Instant,
    _counted: IdleCount,
}

/// Counts one of the server's idle connections, until it is dropped.
struct IdleCount(Weak<UpstreamServer>);

impl IdleCount {
    fn new(server: &Arc<UpstreamServer>) -> IdleCount {
        server.kept.fetch_add(1, Ordering::Relaxed);
        IdleCount(Arc::downgrade(server))
    }
}

impl Drop for IdleCount {
    fn drop(&mut self) {
        if let Some(server) = self.0.upgrade() {
            server.kept.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[derive(Default)]
struct ThreadConnections {
    servers: HashMap<u64, ServerConnections>,
    /// Whether a task of this thread that closes expired connections is running.
    tidying: bool,
}

thread_local! {
    static KEPT: RefCell<ThreadConnections> = RefCell::default();
}

/// Returns a kept connection, if there is one that can take a request now.
pub(super) fn take_idle(server: &UpstreamServer) -> Option<RequestSender> {
    KEPT.with_borrow_mut(|all| {
        let kept = all.servers.get_mut(&server.id)?;
        if let Some(sender) = &kept.http2 {
            return (!sender.is_closed()).then(|| RequestSender::Http2(sender.clone()));
        }
        while let Some(idle) = kept.idle.pop() {
            if idle.sender.is_ready() && idle.since.elapsed() < MAX_IDLE_TIME {
                return Some(RequestSender::Http1(idle.sender));
            }
        }
        None
    })
}

/// Keeps a connection whose last response is complete.
pub(super) fn keep_idle(server: &Arc<UpstreamServer>, sender: RequestSender) {
    let begin_tidying = KEPT.with_borrow_mut(|all| {
        let kept = all
            .servers
            .entry(server.id)
            .or_insert_with(|| ServerConnections {
                server: Arc::downgrade(server),
                idle: Vec::new(),
                http2: None,
            });
        match sender {
            RequestSender::Http1(sender)
                if !sender.is_closed() && kept.idle.len() < MAX_IDLE_CONNECTIONS =>
            {
                kept.idle.push(IdleConnection {
                    sender,
                    since: Instant::now(),
                    _counted: IdleCount::new(server),
                });
            }
            RequestSender::Http1(_) => {}
            RequestSender::Http2(sender) => kept.http2 = Some(sender),
        }
        !std::mem::replace(&mut all.tidying, true)
    });
    if begin_tidying {
        tokio::spawn(turn::measure("closing kept connections", close_expired()));
    }
}

/// Forgets the thread's HTTP/2 connection, because it does not work.
pub(super) fn forget_http2(server: &UpstreamServer) {
    KEPT.with_borrow_mut(|all| {
        if let Some(kept) = all.servers.get_mut(&server.id) {
            kept.http2 = None;
        }
    });
}

/// Closes connections that have been kept too long, or whose servers are not in any configuration any more.
async fn close_expired() {
    loop {
        tokio::time::sleep(MAX_IDLE_TIME).await;
        let done = KEPT.with_borrow_mut(|all| {
            all.servers.retain(|_, kept| {
                kept.idle.retain(|idle| {
                    !idle.sender.is_closed() && idle.since.elapsed() < MAX_IDLE_TIME
                });
                kept.http2.take_if(|sender| sender.is_closed());
                let used = !kept.idle.is_empty() || kept.http2.is_some();
                used && kept.server.strong_count() > 0
            });
            all.tidying = !all.servers.is_empty();
            !all.tidying
        });
        if done {
            return;
        }
    }
}

/// Opens a connection.
pub(super) async fn connect(server: &Arc<UpstreamServer>) -> io::Result<RequestSender> {
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, async {
        match &server.at.address {
            BackendAddress::Unix(path) => {
                http_handshake(server, UnixStream::connect(path).await?).await
            }
            BackendAddress::Tcp(host, port) => {
                let stream = TcpStream::connect((&**host, *port)).await?;
                stream.set_nodelay(true)?;
                match server.at.protocol {
                    ServerProtocol::Https => {
                        http_handshake(server, tls::connect(host, stream).await?).await
                    }
                    ServerProtocol::Http1 | ServerProtocol::H2c => {
                        http_handshake(server, stream).await
                    }
                }
            }
        }
    });
    let connected = connected.await.unwrap_or_else(|_| {
        let text = format!(
            "the connection was not established within {} s",
            CONNECT_TIMEOUT.as_secs()
        );
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    });
    server
        .connects
        .fetch_add(u64::from(connected.is_ok()), Ordering::Relaxed);
    connected
}

async fn http_handshake<S>(server: &UpstreamServer, stream: S) -> io::Result<RequestSender>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let stream = YieldingStream(TokioIo::new(stream));
    if server.at.protocol == ServerProtocol::H2c {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_INTERVAL)
            .max_header_list_size(MAX_BUFFER_BYTES as u32);
        let (sender, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
        // The requests on the connection get the error with which it ends.
        let task = async move { drop(connection.await) };
        tokio::spawn(turn::measure("a connection to a backend", task));
        return Ok(RequestSender::Http2(sender));
    }
    let mut builder = http1::Builder::new();
    builder
        .max_buf_size(MAX_BUFFER_BYTES)
        .max_headers(MAX_HEADERS);
    let (sender, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
    let task = async move { drop(connection.with_upgrades().await) };
    tokio::spawn(turn::measure("a connection to a backend", task));
    Ok(RequestSender::Http1(sender))
}

/// A connection whose task yields to others of its thread.
struct YieldingStream<S>(S);

impl<S: hyper::rt::Read + Unpin> hyper::rt::Read for YieldingStream<S> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(turn::poll_operation(cx));
        std::pin::Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: hyper::rt::Write + Unpin> hyper::rt::Write for YieldingStream<S> {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(turn::poll_operation(cx));
        std::pin::Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(turn::poll_operation(cx));
        std::pin::Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
