//! The layer between the h2 crate and the connection's stream: the output frames are collected and sent together, and
//! both directions are watched for floods and for the written data of each stream.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::super::buffers;
use super::super::config::HttpConfig;
use super::super::pace::TransferPace;
use super::super::stream::ByteStream;
use super::floods::{FloodAllowances, Http2Error};
use super::frames::{CONTINUATION, END_HEADERS, FrameEvent, FrameMeter, HEADERS};
use super::gate::SendGate;
use crate::memory;
use crate::turn;

/// The number of bytes that are collected before the socket is asked to take them.
const MAX_COLLECTED_BYTES: usize = 64 << 10;

/// The frames of a connection in transit, shared by its tasks.
pub(super) struct Wire {
    stream: Arc<ByteStream>,
    config: Arc<HttpConfig>,
    pub(super) gate: SendGate,
    /// The number of requests being handled.
    pub(super) streams: AtomicUsize,
    /// Used only by the connection's own task, so never contended.
    ways: Mutex<WireState>,
}

struct WireState {
    /// Bytes received before HTTP/2 was recognised.
    before: Vec<u8>,
    received: FrameMeter,
    sent: FrameMeter,
    floods: FloodAllowances,
    flood: Option<Http2Error>,
    /// Whether a header block has begun and not ended.
    in_header: bool,
    /// The end of the client's input.
    end: ReceivedEnd,
    /// Bytes to be sent, starting at `at`.
    out: Vec<u8>,
    at: usize,
    /// When the connection was found to be broken. Everything written after that is dropped.
    broken: Option<Instant>,
    pace: Option<Box<TransferPace>>,
    /// The text of the server's GOAWAY frames, which the h2 crate does not expose otherwise.
    last_words: Vec<u8>,
}

/// The end of the client's input. Once the h2 crate sees the end, it drops the requests that it has received and that
/// have not been accepted yet; so the end is held back until all of them are accepted.
enum ReceivedEnd {
    /// The client may send more.
    Open,
    /// The end has come, with this error if it was not orderly.
    Held(Option<io::Error>),
    /// The h2 crate may see the end.
    Passing(Option<io::Error>),
}

impl Wire {
    /// Creates a wire. `before` holds the client's frames received so far.
    pub(super) fn new(stream: Arc<ByteStream>, config: Arc<HttpConfig>, before: Vec<u8>) -> Wire {
        Wire {
            stream,
            config,
            gate: SendGate::default(),
            streams: AtomicUsize::new(0),
            ways: Mutex::new(WireState {
                before,
                received: FrameMeter::after_preface(),
                sent: FrameMeter::default(),
                floods: FloodAllowances::new(turn::recent_time()),
                flood: None,
                in_header: false,
                end: ReceivedEnd::Open,
                out: Vec::new(),
                at: 0,
                broken: None,
                pace: None,
                last_words: Vec::new(),
            }),
        }
    }

    fn ways(&self) -> MutexGuard<'_, WireState> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the flood for which the client must be disconnected, if there is one.
    pub(super) fn flood(&self) -> Option<Http2Error> {
        self.ways().flood
    }

    /// Returns whether a header block or a frame has begun and not ended.
    pub(super) fn is_within_frame(&self) -> bool {
        let ways = self.ways();
        ways.in_header || ways.received.within_frame()
    }

    /// Lets the h2 crate see the end of the client's input. Returns true if that end has come and was held back until
    /// now.
    pub(super) fn release_end(&self) -> bool {
        let end = &mut self.ways().end;
        let ReceivedEnd::Held(error) = end else {
            return false;
        };
        *end = ReceivedEnd::Passing(error.take());
        true
    }

    /// Returns the text of the connection's GOAWAY frames.
    pub(super) fn goaway_text(&self) -> String {
        String::from_utf8_lossy(&self.ways().last_words).into_owned()
    }

    /// Returns whether everything has been sent, or nothing can be sent any more.
    pub(super) fn is_flushed(&self) -> bool {
        self.ways().out.is_empty()
    }

    /// Returns when the connection broke, after which nothing can be sent. Returns `None` if it is not broken.
    pub(super) fn broken_since(&self) -> Option<Instant> {
        self.ways().broken
    }

    /// Sends the collected bytes. A broken connection is not an error here, since the client may have sent requests
    /// before it left: they are received first, and then the end.
    ///
    /// # Errors
    /// `TimedOut`: there was no progress for `send_timeout`, or less than `limits.min_rate`.
    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ways = &mut *self.ways();
        if ways.broken.is_some() {
            return Poll::Ready(Ok(()));
        }
        match ready!(self.poll_send_gathered(ways, cx)) {
            Err(error) if error.kind() != io::ErrorKind::TimedOut => {
                ways.broken = Some(Instant::now());
                (ways.at, ways.pace) = (0, None);
                buffers::return_bytes(std::mem::take(&mut ways.out));
                Poll::Ready(Ok(()))
            }
            sent => Poll::Ready(sent),
        }
    }

    fn poll_send_gathered(
        &self,
        ways: &mut WireState,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while ways.at < ways.out.len() {
            let parts = [IoSlice::new(&ways.out[ways.at..])];
            match self.stream.poll_send(cx, &parts, false) {
                Poll::Ready(Ok(n)) => {
                    ways.at += n;
                    if let Some(pace) = &mut ways.pace
                        && pace.record_progress(n, self.config.min_rate)
                    {
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return self.poll_timeout(ways, cx),
            }
        }
        if !ways.out.is_empty() {
            ways.at = 0;
            buffers::return_bytes(std::mem::take(&mut ways.out));
        }
        match self.stream.poll_flush(cx) {
            Poll::Ready(sent) => {
                ways.pace = None;
                Poll::Ready(sent)
            }
            Poll::Pending => self.poll_timeout(ways, cx),
        }
    }

    fn poll_timeout(&self, ways: &mut WireState, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let pace = ways
            .pace
            .get_or_insert_with(|| Box::new(TransferPace::new()));
        // Every stream may hold a part of a response that waits until the client takes data.
        let streams = self.streams.load(Ordering::Relaxed);
        let held = ways.out.len() + streams.saturating_mul(memory::PRESSURE_BUFFER_BYTES);
        ready!(pace.poll_wait_holding(held, self.config.send_timeout, cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Processes received bytes.
    fn received(&self, ways: &mut WireState, bytes: &[u8]) {
        let now = turn::recent_time();
        let WireState {
            received,
            floods,
            flood,
            in_header,
            ..
        } = ways;
        received.pass(bytes, |passed| match passed {
            FrameEvent::Frame(frame) => {
                if matches!(frame.kind, HEADERS | CONTINUATION) {
                    *in_header = frame.flags & END_HEADERS == 0;
                }
                if let Err(why) = floods.check_received(&frame, now) {
                    flood.get_or_insert(why);
                }
            }
            FrameEvent::Reset { stream, .. } => self.gate.reset(stream),
            FrameEvent::Data { .. } | FrameEvent::GoAway(_) => {}
        });
    }

    /// Processes bytes that the h2 crate has written.
    fn written(&self, ways: &mut WireState, bytes: &[u8]) {
        let now = turn::recent_time();
        let WireState {
            sent,
            floods,
            flood,
            out,
            broken,
            last_words,
            ..
        } = ways;
        sent.pass(bytes, |passed| match passed {
            FrameEvent::Data { stream, bytes } => {
                floods.add_body_bytes(bytes as u32);
                self.gate.record_written(stream, bytes);
            }
            FrameEvent::Reset { stream, code } => {
                self.gate.reset(stream);
                if let Err(why) = floods.check_reset(code, now) {
                    flood.get_or_insert(why);
                }
            }
            FrameEvent::GoAway(text) => last_words.extend_from_slice(text),
            FrameEvent::Frame(_) => {}
        });
        if broken.is_some() {
            return;
        }
        if out.capacity() == 0 {
            *out = buffers::take_bytes();
        }
        out.extend_from_slice(bytes);
    }
}

/// The h2 crate's side of a [`Wire`].
pub(super) struct WireEnd(pub(super) Arc<Wire>);

impl AsyncRead for WireEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wire = &self.0;
        let ways = &mut *wire.ways();
        if ways.flood.is_some() {
            // No more input is read. The connection's task ends the connection once the h2 crate's poll returns.
            return Poll::Pending;
        }
        if !ways.before.is_empty() {
            let n = ways.before.len().min(buf.remaining());
            let rest = ways.before.split_off(n);
            let bytes = std::mem::replace(&mut ways.before, rest);
            wire.received(ways, &bytes);
            buf.put_slice(&bytes);
            return Poll::Ready(Ok(()));
        }
        match &mut ways.end {
            ReceivedEnd::Open => {}
            ReceivedEnd::Held(_) => return Poll::Pending,
            ReceivedEnd::Passing(error) => return Poll::Ready(error.take().map_or(Ok(()), Err)),
        }
        // The bytes are copied, so only the needed pages of the h2 crate's own buffer are touched.
        buffers::with_scratch(|scratch| {
            let room = buf.remaining().min(scratch.len());
            let error = match ready!(wire.stream.poll_recv(cx, &mut scratch[..room])) {
                Ok(0) if room > 0 => None,
                Err(error) => Some(error),
                Ok(n) => {
                    wire.received(ways, &scratch[..n]);
                    buf.put_slice(&scratch[..n]);
                    return Poll::Ready(Ok(()));
                }
            };
            // The connection's task polls again when it has accepted all requests.
            ways.end = ReceivedEnd::Held(error);
            Poll::Pending
        })
    }
}

impl AsyncWrite for WireEnd {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wire = &self.0;
        let full = {
            let ways = wire.ways();
            ways.out.len() - ways.at >= MAX_COLLECTED_BYTES
        };
        if full {
            ready!(wire.poll_flush(cx))?;
        }
        let ways = &mut *wire.ways();
        for part in parts {
            wire.written(ways, part);
        }
        Poll::Ready(Ok(parts.iter().map(|part| part.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: the connection's task flushes when the h2 crate has written everything.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::socket::StreamSocket;

    fn has_nothing_to_read(end: &mut WireEnd, cx: &mut Context<'_>) -> bool {
        let mut buffer = [0; 64];
        let polled = Pin::new(end).poll_read(cx, &mut ReadBuf::new(&mut buffer));
        polled.is_pending()
    }

    #[tokio::test]
    async fn wire_receives_frames_sent_before_the_connection_broke() {
        let (client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let stream = ByteStream::new(StreamSocket::new(OwnedFd::from(server)).unwrap());
        let config = Arc::new(HttpConfig::for_tests());
        let wire = Arc::new(Wire::new(Arc::new(stream), config, Vec::new()));
        let mut end = WireEnd(wire.clone());
        let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], b"whatever"].concat();

        let mut client = Some(client);
        poll_fn(|cx| {
            assert!(has_nothing_to_read(&mut end, cx));
            // The runtime does not know yet that there is something to receive.
            let mut client = client.take().unwrap();
            client.write_all(&ping).unwrap();
            drop(client);
            let written = Pin::new(&mut end).poll_write(cx, &ping);
            assert!(matches!(written, Poll::Ready(Ok(17))));
            assert!(matches!(wire.poll_flush(cx), Poll::Ready(Ok(()))));
            assert!(wire.broken_since().is_some() && wire.is_flushed());
            Poll::Ready(())
        })
        .await;
        let mut received = vec![0; ping.len()];
        end.read_exact(&mut received).await.unwrap();
        assert_eq!(received, ping);
        let at_end = poll_fn(|cx| Poll::Ready(has_nothing_to_read(&mut end, cx))).await;
        assert!(at_end);
        assert!(wire.release_end(), "the end has come");
    }
}
