//! WebSocket: after the handshake, bytes are passed in both directions until one side ends the connection, nothing has
//! passed for an hour, or Howdah stops. The frames are not interpreted.

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

use super::run::{AcceptedWebSocket, MAX_STREAM_SILENCE};
use crate::failure::Failure;
use crate::script::body::IncomingBody;

/// How many bytes may wait for a slow client. Beyond that nothing is read from the server.
const MAX_QUEUED_BYTES: usize = 256 << 10;
/// How many bytes are read at once.
const READ_CHUNK_BYTES: usize = 16 << 10;

/// The state of a tunnel, in both directions.
struct WebSocketTunnel<S> {
    /// The connection to the server.
    backend: S,
    /// Bytes from the client that have not been written to the server yet.
    pending: Bytes,
    /// Whether TLS may hold bytes that the socket has not taken yet.
    unflushed: bool,
    /// Whether the client has ended its side.
    client_ended: bool,
    /// Whether the server has been notified that the client has ended its side.
    end_forwarded: bool,
    idle: Pin<Box<Sleep>>,
}

/// Passes bytes on until the tunnel ends. The response to the client has already begun with 101.
pub async fn run_tunnel(
    switched: AcceptedWebSocket,
    body: &mut RequestBody,
    out: &mut Responder,
) -> Result<(), Failure> {
    let AcceptedWebSocket {
        mut upgrade,
        mut connection,
        _place,
        ..
    } = switched;
    let upgraded = poll_fn(|cx| {
        connection.drive(cx);
        Pin::new(&mut upgrade).poll(cx)
    });
    let Ok(backend) = upgraded.await else {
        out.abort();
        return Ok(());
    };
    let mut tunnel = WebSocketTunnel::new(TokioIo::new(backend));
    let ended = poll_fn(|cx| tunnel.poll(cx, body, out)).await;
    if ended.is_ok() {
        out.end();
    }
    ended
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocketTunnel<S> {
    fn new(backend: S) -> WebSocketTunnel<S> {
        WebSocketTunnel {
            backend,
            pending: Bytes::new(),
            unflushed: false,
            client_ended: false,
            end_forwarded: false,
            idle: Box::pin(tokio::time::sleep(MAX_STREAM_SILENCE)),
        }
    }

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
            let up = self.poll_client_to_server(cx, body);
            let down = self.poll_server_to_client(cx, out);
            let flushed = match out.queued() {
                0 => Poll::Pending,
                _ => out.poll_flush(cx),
            };
            if let Poll::Ready(Err(_)) = flushed {
                return Poll::Ready(Err(Failure::ClientGone));
            }
            match (up, down) {
                (Poll::Ready(Err(_)), _) => return Poll::Ready(Err(Failure::ClientGone)),
                // The server has ended the connection, or is gone. The connection to the client sends what is still
                // queued.
                (_, Poll::Ready(Ok(0) | Err(_))) => return Poll::Ready(Ok(())),
                (Poll::Pending, Poll::Pending) if flushed.is_pending() => return Poll::Pending,
                _ => self
                    .idle
                    .as_mut()
                    .reset(Instant::now() + MAX_STREAM_SILENCE),
            }
        }
    }

    /// Passes bytes from the client to the server.
    fn poll_client_to_server(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut impl IncomingBody,
    ) -> Poll<io::Result<()>> {
        if self.end_forwarded {
            return Poll::Pending;
        }
        if self.pending.is_empty() && !self.client_ended {
            match body.poll_next(cx) {
                Poll::Ready(Some(Ok(piece))) => self.pending = piece,
                Poll::Ready(Some(Err(_))) => {
                    return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
                }
                Poll::Ready(None) => self.client_ended = true,
                Poll::Pending => {
                    self.flush_backend(cx);
                    return Poll::Pending;
                }
            }
        }
        let backend = Pin::new(&mut self.backend);
        if self.pending.is_empty() {
            // An error means that the server is gone, which reading shows as well.
            let told = backend.poll_shutdown(cx).map(|_| Ok(()));
            self.end_forwarded = told.is_ready();
            return told;
        }
        match backend.poll_write(cx, &self.pending) {
            Poll::Ready(Ok(n)) => {
                self.pending.advance(n);
                self.unflushed = true;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(_)) => {
                // The server is gone, which reading shows as well.
                self.pending.clear();
                self.end_forwarded = true;
                Poll::Ready(Ok(()))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Sends the bytes that TLS holds for the server, as far as the socket takes them.
    fn flush_backend(&mut self, cx: &mut Context<'_>) {
        if self.unflushed {
            // An error means that the server is gone, which reading shows as well.
            self.unflushed = Pin::new(&mut self.backend).poll_flush(cx).is_pending();
        }
    }

    /// Passes bytes from the server to the client. Returns how many, or 0 at the end.
    fn poll_server_to_client(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Responder,
    ) -> Poll<io::Result<usize>> {
        if out.queued() >= allowance(out.memory_share(MAX_QUEUED_BYTES)) {
            return Poll::Pending;
        }
        let mut room = [std::mem::MaybeUninit::uninit(); READ_CHUNK_BYTES];
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

#[cfg(test)]
mod tests {
    use super::*;

    use std::future::Future;
    use std::pin::pin;

    use howdah_http::{BodyError, BodyKind};
    use tokio::io::{AsyncReadExt, BufWriter};

    /// A client that sends these bytes, and then waits for the server's response.
    struct WaitingClient(Bytes);

    impl IncomingBody for WaitingClient {
        fn expected(&self) -> BodyKind {
            BodyKind::None
        }

        fn set_limit(&mut self, _: u64) {}

        fn set_min_rate(&mut self, _: u32) {}

        fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
            match self.0.is_empty() {
                true => Poll::Pending,
                false => Poll::Ready(Some(Ok(std::mem::take(&mut self.0)))),
            }
        }
    }

    /// TLS keeps what the socket does not take, as a `BufWriter` does.
    #[tokio::test]
    async fn last_bytes_of_a_message_reach_a_server_that_buffers_them() {
        let (ours, mut theirs) = tokio::io::duplex(4);
        let mut tunnel = WebSocketTunnel::new(BufWriter::new(ours));
        let mut client = WaitingClient(Bytes::from_static(b"a whole message"));
        let mut message = [0; 15];
        let mut reading = pin!(theirs.read_exact(&mut message));
        let received = poll_fn(|cx| {
            while tunnel.poll_client_to_server(cx, &mut client).is_ready() {}
            reading.as_mut().poll(cx)
        });
        let received = tokio::time::timeout(std::time::Duration::from_secs(10), received).await;
        received.expect("the message arrives").unwrap();
        assert_eq!(&message, b"a whole message");
    }
}
