//! Connections to servers. Each front thread keeps connections of its own, so a request and its connection belong to
//! the same runtime. To each server it keeps one HTTP/2 connection, and up to [`MAX_IDLE_CONNECTIONS`] idle HTTP/1.1
//! connections for [`MAX_IDLE_TIME`], which is shorter than servers keep them (Node: five seconds).

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use howdah_http::turn;
use howdah_proto::backend_address::BackendAddress;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::coop::unconstrained;

use super::server::UpstreamServer;
use super::shared_connection::SharedConnection;
use super::tls;
use super::upload::Upload;
use howdah_site::proxy_config::address::ServerProtocol;

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an idle connection is kept for the next request.
const MAX_IDLE_TIME: Duration = Duration::from_secs(4);
/// The maximum number of idle connections that a front thread keeps to one server: enough for the streams of two
/// connections of HTTP/2. If fewer are kept, requests beyond them cost a connection each, which takes longer than the
/// request itself.
const MAX_IDLE_CONNECTIONS: usize = 256;
/// The maximum size of the headers of a response together, and of one read.
const MAX_BUFFER_BYTES: usize = 64 << 10;
/// The maximum number of headers of a response.
const MAX_HEADERS: usize = 200;
/// How often an HTTP/2 connection with a request is pinged.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// A connection that a request uses.
pub(super) enum UpstreamConnection {
    Http1(Http1Connection),
    Http2(SharedConnection),
}

/// An HTTP/1.1 connection. The task of the request polls it, so passing a response on wakes no other task.
pub(super) struct Http1Connection {
    sender: http1::SendRequest<Upload>,
    /// Reads and writes. `None` once the connection has ended.
    driver: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Http1Connection {
    /// Reads and writes what is possible now.
    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(driver) = &mut self.driver
            && driver.as_mut().poll(cx).is_ready()
        {
            self.driver = None;
        }
    }

    /// Returns whether the connection can take a request, as far as is known.
    fn is_ready(&self) -> bool {
        self.driver.is_some() && self.sender.is_ready()
    }

    /// Notices whether the server has closed the connection. No task is woken by that.
    fn note_end(&mut self) {
        // This also works if the task should yield; otherwise a request could be sent on a closed connection, and fail.
        let look = pin!(unconstrained(poll_fn(|cx| {
            self.drive(cx);
            Poll::Ready(())
        })));
        let _ = look.poll(&mut Context::from_waker(Waker::noop()));
    }
}

/// A request that got no response.
pub(super) struct UnansweredRequest {
    pub(super) error: hyper::Error,
    /// The request, if nothing of it has been sent.
    pub(super) unsent: Option<Request<Upload>>,
}

impl UpstreamConnection {
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
            UpstreamConnection::Http1(connection) => {
                let mut response = pin!(connection.sender.try_send_request(request));
                let response = poll_fn(|cx| {
                    connection.drive(cx);
                    response.as_mut().poll(cx)
                });
                response.await.map_err(failed)
            }
            UpstreamConnection::Http2(shared) => {
                let response = shared.sender.try_send_request(request);
                response.await.map_err(failed)
            }
        }
    }

    /// Reads and writes what is possible now, unless the connection has a task of its own.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if let UpstreamConnection::Http1(connection) = self {
            connection.drive(cx);
        }
    }

    pub(super) fn is_http2(&self) -> bool {
        matches!(self, UpstreamConnection::Http2(_))
    }
}

/// The connections that a thread keeps to one server.
struct ServerConnections {
    server: Weak<UpstreamServer>,
    idle: Vec<IdleConnection>,
    http2: Vec<SharedConnection>,
}

/// An HTTP/1.1 connection without a request.
struct IdleConnection {
    connection: Http1Connection,
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
pub(super) fn take_idle(server: &UpstreamServer) -> Option<UpstreamConnection> {
    KEPT.with_borrow_mut(|all| {
        let kept = all.servers.get_mut(&server.id)?;
        if let Some(shared) = kept.http2.iter().find(|shared| shared.has_room()) {
            return Some(UpstreamConnection::Http2(shared.clone()));
        }
        while let Some(mut idle) = kept.idle.pop() {
            idle.connection.note_end();
            if idle.connection.is_ready() && idle.since.elapsed() < MAX_IDLE_TIME {
                return Some(UpstreamConnection::Http1(idle.connection));
            }
        }
        None
    })
}

/// Keeps a connection whose last response is complete, or an HTTP/2 connection if the thread needs one more.
pub(super) fn keep_idle(server: &Arc<UpstreamServer>, connection: UpstreamConnection) {
    let begin_tidying = KEPT.with_borrow_mut(|all| {
        let kept = all
            .servers
            .entry(server.id)
            .or_insert_with(|| ServerConnections {
                server: Arc::downgrade(server),
                idle: Vec::new(),
                http2: Vec::new(),
            });
        match connection {
            UpstreamConnection::Http1(connection)
                if connection.is_ready() && kept.idle.len() < MAX_IDLE_CONNECTIONS =>
            {
                kept.idle.push(IdleConnection {
                    connection,
                    since: Instant::now(),
                    _counted: IdleCount::new(server),
                });
            }
            UpstreamConnection::Http1(_) => {}
            UpstreamConnection::Http2(shared) => {
                if !kept.http2.iter().any(SharedConnection::has_room) {
                    kept.http2.push(shared);
                }
            }
        }
        !std::mem::replace(&mut all.tidying, true)
    });
    if begin_tidying {
        tokio::spawn(turn::measure("closing kept connections", close_expired()));
    }
}

/// Stops keeping an HTTP/2 connection, because it does not work.
pub(super) fn forget_http2(server: &UpstreamServer, broken: &SharedConnection) {
    KEPT.with_borrow_mut(|all| {
        if let Some(kept) = all.servers.get_mut(&server.id) {
            kept.http2.retain(|shared| !shared.is_same(broken));
        }
    });
}

/// Closes connections that have been kept too long, or whose servers are not in any configuration any more.
async fn close_expired() {
    loop {
        tokio::time::sleep(MAX_IDLE_TIME).await;
        let done = KEPT.with_borrow_mut(|all| {
            all.servers.retain(|_, kept| {
                kept.idle.retain_mut(|idle| {
                    idle.connection.note_end();
                    idle.connection.is_ready() && idle.since.elapsed() < MAX_IDLE_TIME
                });
                // One connection without a request is enough.
                let mut spare = false;
                kept.http2.retain(|shared| {
                    !shared.is_closed()
                        && (shared.is_used() || !std::mem::replace(&mut spare, true))
                });
                let used = !kept.idle.is_empty() || !kept.http2.is_empty();
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
pub(super) async fn connect(server: &Arc<UpstreamServer>) -> io::Result<UpstreamConnection> {
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, async {
        match &server.at.address {
            BackendAddress::Unix(path) => {
                http_handshake(server, UnixStream::connect(path).await?).await
            }
            BackendAddress::Tcp(host, port) => {
                let stream = TcpStream::connect((&**host, *port)).await?;
                stream.set_nodelay(true)?;
                let name = server.at.tls_name.as_deref().unwrap_or(host);
                match server.at.protocol {
                    ServerProtocol::Https => {
                        http_handshake(server, tls::connect(name, stream).await?).await
                    }
                    ServerProtocol::HttpsAnyCertificate => {
                        let stream = tls::connect_to_any(name, stream).await?;
                        http_handshake(server, stream).await
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

async fn http_handshake<S>(server: &UpstreamServer, stream: S) -> io::Result<UpstreamConnection>
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
        return Ok(UpstreamConnection::Http2(SharedConnection::new(sender)));
    }
    let mut builder = http1::Builder::new();
    builder
        .max_buf_size(MAX_BUFFER_BYTES)
        .max_headers(MAX_HEADERS);
    let (sender, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
    let driver = async move { drop(connection.with_upgrades().await) };
    Ok(UpstreamConnection::Http1(Http1Connection {
        sender,
        driver: Some(Box::pin(driver)),
    }))
}

/// A connection whose task yields to others of its thread.
struct YieldingStream<S>(S);

/// Is ready unless the task should yield. Without a task, [`Http1Connection::note_end`] only looks at the connection.
fn poll_turn(cx: &mut Context<'_>) -> Poll<()> {
    match cx.waker().will_wake(Waker::noop()) {
        true => Poll::Ready(()),
        false => turn::poll_operation(cx),
    }
}

impl<S: hyper::rt::Read + Unpin> hyper::rt::Read for YieldingStream<S> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(poll_turn(cx));
        std::pin::Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: hyper::rt::Write + Unpin> hyper::rt::Write for YieldingStream<S> {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(poll_turn(cx));
        std::pin::Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(poll_turn(cx));
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

#[cfg(test)]
mod tests {
    use super::super::shared_connection::MAX_SHARING_REQUESTS;
    use super::*;
    use howdah_site::proxy_config::address;

    #[tokio::test]
    async fn connections_of_a_burst_are_kept_until_their_server_closes_them() {
        let at = address::parse("http://kept:1").unwrap().remove(0).at;
        let server = Arc::new(UpstreamServer::new(at, None));
        let mut ends_of_server = Vec::new();
        for _ in 0..100 {
            let (ours, theirs) = tokio::io::duplex(1024);
            let connection = http_handshake(&server, ours).await.unwrap();
            let UpstreamConnection::Http1(mut connection) = connection else {
                panic!("http:// means HTTP/1.1");
            };
            connection.note_end();
            keep_idle(&server, UpstreamConnection::Http1(connection));
            ends_of_server.push(theirs);
        }
        assert_eq!(server.kept.load(Ordering::Relaxed), 100);
        assert!(take_idle(&server).is_some());
        drop(ends_of_server);
        assert!(take_idle(&server).is_none());
        assert_eq!(server.kept.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn requests_that_do_not_end_leave_no_request_without_a_connection() {
        let at = address::parse("h2c://shared:1").unwrap().remove(0).at;
        let server = Arc::new(UpstreamServer::new(at, None));
        let (ours, _theirs) = tokio::io::duplex(1024);
        keep_idle(&server, http_handshake(&server, ours).await.unwrap());
        let streams: Vec<_> = (0..MAX_SHARING_REQUESTS)
            .map(|_| take_idle(&server).expect("the connection has room"))
            .collect();
        assert!(take_idle(&server).is_none(), "another connection is opened");
        let (ours, _theirs_too) = tokio::io::duplex(1024);
        keep_idle(&server, http_handshake(&server, ours).await.unwrap());
        assert!(take_idle(&server).is_some());
        drop(streams);
        assert!(take_idle(&server).is_some());
    }
}
