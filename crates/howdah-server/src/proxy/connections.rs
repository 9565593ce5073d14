//! Connections to servers. Each front thread keeps its own, so a request and its connection belong to the same runtime:
//! up to [`MOST_KEPT`] connections of HTTP/1.1 for [`KEEP`], which is shorter than servers keep them (Node: five
//! seconds), and one of HTTP/2.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use howdah_executor::fastcgi::address::Address;
use howdah_http::turn;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpStream, UnixStream};

use super::address::Speaks;
use super::server::Server;
use super::tls;
use super::upload::Upload;

/// How long opening a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an idle connection is kept for the next request.
const KEEP: Duration = Duration::from_secs(4);
/// The maximum number of idle connections that a front thread keeps to one server.
const MOST_KEPT: usize = 32;
/// The maximum size of a response header, and of one read.
const BUFFER: usize = 64 << 10;
/// The maximum number of headers of a response.
const MOST_FIELDS: usize = 200;
/// How often an HTTP/2 connection with a request is pinged.
const PING: Duration = Duration::from_secs(20);

/// Sends requests on a connection.
pub(super) enum Sender {
    Http1(http1::SendRequest<Upload>),
    Http2(http2::SendRequest<Upload>),
}

/// A request that got no response.
pub(super) struct Unanswered {
    pub(super) error: hyper::Error,
    /// The request, if nothing of it has been sent.
    pub(super) unsent: Option<Request<Upload>>,
}

impl Sender {
    /// Sends a request. Returns the header of its response.
    pub(super) async fn send(
        &mut self,
        request: Request<Upload>,
    ) -> Result<Response<Incoming>, Unanswered> {
        let failed = |mut failed: hyper::client::conn::TrySendError<Request<Upload>>| Unanswered {
            unsent: failed.take_message(),
            error: failed.into_error(),
        };
        match self {
            Sender::Http1(sender) => sender.try_send_request(request).await.map_err(failed),
            Sender::Http2(sender) => sender.try_send_request(request).await.map_err(failed),
        }
    }

    pub(super) fn is_http2(&self) -> bool {
        matches!(self, Sender::Http2(_))
    }
}

/// The connections that a thread keeps to one server.
struct Kept {
    server: Weak<Server>,
    idle: Vec<Idle>,
    http2: Option<http2::SendRequest<Upload>>,
}

/// An HTTP/1.1 connection without a request.
struct Idle {
    sender: http1::SendRequest<Upload>,
    since: Instant,
    _counted: Counted,
}

/// Counts one of the server's idle connections, until it is dropped.
struct Counted(Weak<Server>);

impl Counted {
    fn new(server: &Arc<Server>) -> Counted {
        server.kept.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::downgrade(server))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(server) = self.0.upgrade() {
            server.kept.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[derive(Default)]
struct AllKept {
    servers: HashMap<u64, Kept>,
    /// A task of this thread that closes expired connections is running.
    tidying: bool,
}

thread_local! {
    static KEPT: RefCell<AllKept> = RefCell::default();
}

/// Returns a kept connection, if there is one that can take a request now.
pub(super) fn take_kept(server: &Server) -> Option<Sender> {
    KEPT.with_borrow_mut(|all| {
        let kept = all.servers.get_mut(&server.id)?;
        if let Some(sender) = &kept.http2 {
            return (!sender.is_closed()).then(|| Sender::Http2(sender.clone()));
        }
        while let Some(idle) = kept.idle.pop() {
            if idle.sender.is_ready() && idle.since.elapsed() < KEEP {
                return Some(Sender::Http1(idle.sender));
            }
        }
        None
    })
}

/// Keeps a connection whose last response is complete.
pub(super) fn keep(server: &Arc<Server>, sender: Sender) {
    let begin_tidying = KEPT.with_borrow_mut(|all| {
        let kept = all.servers.entry(server.id).or_insert_with(|| Kept {
            server: Arc::downgrade(server),
            idle: Vec::new(),
            http2: None,
        });
        match sender {
            Sender::Http1(sender) if !sender.is_closed() && kept.idle.len() < MOST_KEPT => {
                kept.idle.push(Idle {
                    sender,
                    since: Instant::now(),
                    _counted: Counted::new(server),
                });
            }
            Sender::Http1(_) => {}
            Sender::Http2(sender) => kept.http2 = Some(sender),
        }
        !std::mem::replace(&mut all.tidying, true)
    });
    if begin_tidying {
        tokio::spawn(turn::measured("closing kept connections", tidy()));
    }
}

/// Forgets the thread's HTTP/2 connection, because it does not work.
pub(super) fn forget(server: &Server) {
    KEPT.with_borrow_mut(|all| {
        if let Some(kept) = all.servers.get_mut(&server.id) {
            kept.http2 = None;
        }
    });
}

/// Closes connections that have been kept too long, or whose servers are not in any configuration any more.
async fn tidy() {
    loop {
        tokio::time::sleep(KEEP).await;
        let done = KEPT.with_borrow_mut(|all| {
            all.servers.retain(|_, kept| {
                kept.idle
                    .retain(|idle| !idle.sender.is_closed() && idle.since.elapsed() < KEEP);
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
pub(super) async fn connect(server: &Arc<Server>) -> io::Result<Sender> {
    let connected = tokio::time::timeout(CONNECT, async {
        match &server.at.address {
            Address::Unix(path) => shake_hands(server, UnixStream::connect(path).await?).await,
            Address::Tcp(host, port) => {
                let stream = TcpStream::connect((&**host, *port)).await?;
                stream.set_nodelay(true)?;
                match server.at.speaks {
                    Speaks::Https => shake_hands(server, tls::connect(host, stream).await?).await,
                    Speaks::Http1 | Speaks::H2c => shake_hands(server, stream).await,
                }
            }
        }
    });
    let connected = connected.await.unwrap_or_else(|_| {
        let text = format!("no connection within {} s", CONNECT.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    });
    server
        .connects
        .fetch_add(u64::from(connected.is_ok()), Ordering::Relaxed);
    connected
}

async fn shake_hands<S>(server: &Server, stream: S) -> io::Result<Sender>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let stream = Watched(TokioIo::new(stream));
    if server.at.speaks == Speaks::H2c {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .max_header_list_size(BUFFER as u32);
        let (sender, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
        // The requests on the connection see how it ends.
        let task = async move { drop(connection.await) };
        tokio::spawn(turn::measured("a connection to a backend", task));
        return Ok(Sender::Http2(sender));
    }
    let mut builder = http1::Builder::new();
    builder.max_buf_size(BUFFER).max_headers(MOST_FIELDS);
    let (sender, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
    let task = async move { drop(connection.with_upgrades().await) };
    tokio::spawn(turn::measured("a connection to a backend", task));
    Ok(Sender::Http1(sender))
}

/// A connection whose task yields to others of its thread.
struct Watched<S>(S);

impl<S: hyper::rt::Read + Unpin> hyper::rt::Read for Watched<S> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(turn::poll_operation(cx));
        std::pin::Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: hyper::rt::Write + Unpin> hyper::rt::Write for Watched<S> {
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
