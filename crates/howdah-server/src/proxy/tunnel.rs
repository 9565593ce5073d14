//! WebSocket: from the agreement on, bytes go both ways until one side ends them, nothing has passed for an
//! hour, or the server stops. The frames are nobody's business here.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use howdah_http::memory::allowance;
use howdah_http::turn;
use howdah_http::{RequestBody, Responder};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::run::{LONG_SILENCE, Switched};
use crate::failure::Failure;

/// What waits for a slow client; the server's side is not read beyond that.
const MOST_QUEUED: usize = 256 << 10;
/// Read at once.
const PIECE: usize = 16 << 10;

/// The server's side.
type Backend = TokioIo<hyper::upgrade::Upgraded>;

/// Bytes on their way, in both directions.
struct Tunnel {
    backend: Backend,
    /// From the client, not yet taken by the server.
    pending: Bytes,
    /// The client has ended its side, which the server has been told.
    client_ended: bool,
    told: bool,
    idle: Pin<Box<Sleep>>,
}

/// Passes bytes on until the end. The response has begun with 101.
pub async fn pass_on(
    switched: Switched,
    body: &mut RequestBody,
    out: &mut Responder,
) -> Result<(), Failure> {
    let Switched {
        upgrade, _place, ..
    } = switched;
    let Ok(backend) = upgrade.await else {
        out.abort();
        return Ok(());
    };
    let mut tunnel = Tunnel {
        backend: TokioIo::new(backend),
        pending: Bytes::new(),
        client_ended: false,
        told: false,
        idle: Box::pin(tokio::time::sleep(LONG_SILENCE)),
    };
    let ended = poll_fn(|cx| tunnel.poll(cx, body, out)).await;
    if ended.is_ok() {
        out.end();
    }
    ended
}

impl Tunnel {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut RequestBody,
        out: &mut Responder,
    ) -> Poll<Result<(), Failure>> {
        if out.is_draining() || self.idle.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        loop {
            if turn::is_over() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let up = self.poll_up(cx, body);
            let down = self.poll_down(cx, out);
            let flushed = match out.queued() {
                0 => Poll::Pending,
                _ => out.poll_flush(cx),
            };
            if let Poll::Ready(Err(_)) = flushed {
                return Poll::Ready(Err(Failure::ClientGone));
            }
            match (up, down) {
                (Poll::Ready(Err(_)), _) => return Poll::Ready(Err(Failure::ClientGone)),
                // The server has ended it, or is gone: what it has said is sent by the connection.
                (_, Poll::Ready(Ok(0) | Err(_))) => return Poll::Ready(Ok(())),
                (Poll::Pending, Poll::Pending) if flushed.is_pending() => return Poll::Pending,
                _ => self.idle.as_mut().reset(Instant::now() + LONG_SILENCE),
            }
        }
    }

    /// From the client to the server.
    fn poll_up(&mut self, cx: &mut Context<'_>, body: &mut RequestBody) -> Poll<io::Result<()>> {
        if self.told {
            return Poll::Pending;
        }
        if self.pending.is_empty() && !self.client_ended {
            match body.poll_next(cx) {
                Poll::Ready(Some(Ok(piece))) => self.pending = piece,
                Poll::Ready(Some(Err(_))) => {
                    return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
                }
                Poll::Ready(None) => self.client_ended = true,
                Poll::Pending => return Poll::Pending,
            }
        }
        let backend = Pin::new(&mut self.backend);
        if self.pending.is_empty() {
            // An error: the server is gone, which reading shows.
            let told = backend.poll_shutdown(cx).map(|_| Ok(()));
            self.told = told.is_ready();
            return told;
        }
        match backend.poll_write(cx, &self.pending) {
            Poll::Ready(Ok(n)) => {
                self.pending.advance(n);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(_)) => {
                // As above.
                self.pending.clear();
                self.told = true;
                Poll::Ready(Ok(()))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// From the server to the client; how much, 0 at the end.
    fn poll_down(&mut self, cx: &mut Context<'_>, out: &mut Responder) -> Poll<io::Result<usize>> {
        if out.queued() >= allowance(out.share(MOST_QUEUED)) {
            return Poll::Pending;
        }
        let mut room = [std::mem::MaybeUninit::uninit(); PIECE];
        let mut buf = ReadBuf::uninit(&mut room);
        match Pin::new(&mut self.backend).poll_read(cx, &mut buf) {
            Poll::Ready(Ok(())) => {
                out.push(Bytes::copy_from_slice(buf.filled()));
                Poll::Ready(Ok(buf.filled().len()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }
}
