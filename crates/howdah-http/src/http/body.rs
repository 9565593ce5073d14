//! A request's body as a handler reads it: the transfer coding is decoded, limits and timeouts are applied, and `100
//! Continue` is sent when the first byte is requested. The socket is read only when the body is polled; data that a
//! handler does not request stays in the kernel buffers.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::buffers::{self, UnreadInput};
use super::channel::Channel;
use super::multiplexed;
use super::pace::TransferPace;
use super::request_io::{BodyLeft, RequestIo};
use howdah_http1::chunk::ChunkDecoder;
use howdah_http1::framing::{BodyKind, RequestFraming};
use howdah_http1::refusal::BadRequest;
use strum::{Display, IntoStaticStr};

/// The maximum number of body bytes read at once.
const MAX_PIECE_BYTES: usize = 64 << 10;

/// Why a body cannot be read to its end. With HTTP/1.1 the connection is closed after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, IntoStaticStr)]
pub enum BodyError {
    /// The body has more bytes than [`RequestBody::set_limit`] allows.
    #[strum(serialize = "BodyTooLarge")]
    TooLarge,
    /// The chunked coding is malformed.
    #[strum(transparent)]
    Malformed(BadRequest),
    /// No byte arrived for `body_timeout`.
    #[strum(serialize = "BodyTimeout")]
    Timeout,
    /// The body arrives more slowly than `limits.min_rate`.
    #[strum(serialize = "BodyTooSlow")]
    TooSlow,
    /// The connection ended before the body did.
    ClientGone,
}

impl BodyError {
    /// Returns the name, as it appears in `Howdah-Error`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the status code of the response. 499 is only logged, as by nginx, and never sent.
    pub fn status(self) -> u16 {
        match self {
            BodyError::TooLarge => 413,
            BodyError::Malformed(why) => why.status(),
            BodyError::Timeout | BodyError::TooSlow => 408,
            BodyError::ClientGone => 499,
        }
    }
}

impl std::error::Error for BodyError {}

#[derive(Debug)]
enum BodyState {
    Length {
        left: u64,
    },
    Chunked(ChunkDecoder),
    /// A body of HTTP/2 or HTTP/3 without a length: the end of the stream ends it.
    UntilEnd,
    /// The bytes of another protocol, unmodified. The client may be silent for any time.
    Switched,
    Done,
    Failed(BodyError),
}

/// The body of the request being handled.
pub struct RequestBody {
    io: Arc<RequestIo>,
    pub(super) input: UnreadInput,
    kind: BodyKind,
    state: BodyState,
    limit: u64,
    received: u64,
    expect_continue: bool,
    /// Created when the server first waits for the client.
    pace: Option<Box<TransferPace>>,
    /// A minimum rate in bytes per second; the higher of it and the configured one applies.
    min_rate: u32,
}

impl RequestBody {
    pub(super) fn new(io: Arc<RequestIo>) -> RequestBody {
        RequestBody {
            io,
            input: UnreadInput::default(),
            kind: BodyKind::None,
            state: BodyState::Done,
            limit: u64::MAX,
            received: 0,
            expect_continue: false,
            pace: None,
            min_rate: 0,
        }
    }

    /// Returns an empty body for a request on the same connection.
    pub fn none(&self) -> RequestBody {
        RequestBody::new(self.io.clone())
    }

    /// Begins the body of the next request.
    pub(super) fn begin(&mut self, framing: &RequestFraming) {
        self.kind = framing.body;
        self.state = match framing.body {
            BodyKind::None => BodyState::Done,
            BodyKind::Length(left) => BodyState::Length { left },
            BodyKind::Chunked => match self.io.channel {
                Channel::Http1(_) => BodyState::Chunked(ChunkDecoder::default()),
                Channel::Http2(_) | Channel::Http3(_) | Channel::Captured(_) => BodyState::UntilEnd,
            },
        };
        self.limit = u64::MAX;
        self.received = 0;
        self.expect_continue = framing.expect_continue;
        self.pace = None;
        self.min_rate = 0;
        self.update_body_left();
    }

    fn update_body_left(&self) {
        self.io.set_body_left(match self.state {
            BodyState::Failed(_) => BodyLeft::NeverComes,
            _ if self.expect_continue => BodyLeft::NeverComes,
            BodyState::Length { left } => BodyLeft::Bytes(left),
            BodyState::Done => BodyLeft::Bytes(0),
            BodyState::Chunked(_) | BodyState::UntilEnd | BodyState::Switched => BodyLeft::Unknown,
        });
    }

    /// Passes through the bytes of another protocol ([`Responder::switch_protocols`](super::Responder)) until the
    /// client ends them.
    pub fn switch_protocols(&mut self) {
        self.state = BodyState::Switched;
        self.limit = u64::MAX;
        self.expect_continue = false;
        self.pace = None;
        self.update_body_left();
    }

    /// Returns how the client delimits the body.
    pub fn delimiter(&self) -> BodyKind {
        self.kind
    }

    /// Returns how many bytes of the body have been returned so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns whether the whole body has been returned.
    pub fn is_done(&self) -> bool {
        matches!(self.state, BodyState::Done)
    }

    /// Returns whether the client still waits for `100 Continue` or for a final response.
    pub(super) fn awaits_continue(&self) -> bool {
        self.expect_continue
    }

    /// Sets the maximum length of the body. A longer body gives [`BodyError::TooLarge`]; if its length is known, the
    /// next call of [`RequestBody::next`] returns this error before it reads anything and before `100 Continue`.
    pub fn set_limit(&mut self, max: u64) {
        self.limit = max;
    }

    /// Sets how many bytes per second the client must send from now on, if that is more than `limits.min_rate`. For use
    /// while the client occupies a resource that is scarce.
    pub fn set_min_rate(&mut self, rate: u32) {
        self.min_rate = rate;
    }

    /// Returns the next bytes, never an empty piece; `None` at the end. An error is returned again by further calls.
    pub async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Polls for the next bytes; see [`RequestBody::next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let next = match self.state {
            BodyState::Done => return Poll::Ready(None),
            BodyState::Failed(why) => return Poll::Ready(Some(Err(why))),
            _ => ready!(self.poll_piece(cx)),
        };
        match next {
            Ok(piece) => {
                self.received += piece.len() as u64;
                self.update_body_left();
                Poll::Ready((!piece.is_empty()).then_some(Ok(piece)))
            }
            Err(why) => {
                self.state = BodyState::Failed(why);
                self.pace = None;
                self.update_body_left();
                Poll::Ready(Some(Err(why)))
            }
        }
    }

    /// Returns the next piece; an empty one is the end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, BodyError>> {
        loop {
            let over = match &mut self.state {
                BodyState::Length { left } => *left > self.limit.saturating_sub(self.received),
                _ => false,
            };
            if over {
                return Poll::Ready(Err(BodyError::TooLarge));
            }
            if !self.input.is_empty()
                && let Some(piece) = self.take_from_input()?
            {
                return Poll::Ready(Ok(piece));
            }
            self.send_continue(cx);
            let received = match self.state {
                BodyState::Length { left } => {
                    let read = buffers::with_piece(|buf| {
                        let read = ready!(self.io.channel.poll_recv_spare(cx, buf));
                        Poll::Ready(read.map(|n| (n > 0).then(|| self.take_received(buf, left))))
                    });
                    match read {
                        Poll::Ready(Ok(Some(piece))) => piece.map(Some),
                        Poll::Ready(Ok(None) | Err(_)) => Err(BodyError::ClientGone),
                        Poll::Pending => return self.poll_timeout(cx),
                    }
                }
                BodyState::UntilEnd => match self.poll_until_end(cx) {
                    Poll::Ready(received) => received.map(Some),
                    Poll::Pending => return self.poll_timeout(cx),
                },
                BodyState::Switched => return self.poll_until_end(cx),
                _ => {
                    let read = buffers::with_scratch(|buf| {
                        let read = self.io.channel.poll_recv(cx, buf);
                        if let Poll::Ready(Ok(n)) = read {
                            self.input.extend(&buf[..n]);
                        }
                        read
                    });
                    match read {
                        Poll::Ready(Ok(0) | Err(_)) => Err(BodyError::ClientGone),
                        Poll::Ready(Ok(_)) => Ok(None),
                        Poll::Pending => return self.poll_timeout(cx),
                    }
                }
            };
            let piece = received?;
            // Only the time spent waiting for the client counts, because the client is not to blame for a server that
            // reads slowly.
            let came = piece.as_ref().map_or(self.input.bytes().len(), Bytes::len);
            let rate = self.io.config.min_rate.max(self.min_rate);
            if let Some(pace) = &mut self.pace
                && pace.record_progress(came, rate)
            {
                return Poll::Ready(Err(BodyError::TooSlow));
            }
            if let Some(piece) = piece {
                return Poll::Ready(Ok(piece));
            }
        }
    }

    /// Receives a body that the end of the stream ends; an empty piece is that end.
    fn poll_until_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, BodyError>> {
        let room = self.limit.saturating_sub(self.received);
        let read = buffers::with_piece(|buf| {
            let read = ready!(self.io.channel.poll_recv_spare(cx, buf));
            Poll::Ready(read.map(|_| buffers::into_stored(buf)))
        });
        Poll::Ready(match ready!(read) {
            Ok(piece) if piece.len() as u64 > room => Err(BodyError::TooLarge),
            Ok(piece) => {
                if piece.is_empty() {
                    self.state = BodyState::Done;
                    self.pace = None;
                }
                Ok(piece)
            }
            Err(_) => Err(BodyError::ClientGone),
        })
    }

    /// Decodes the bytes received already. Returns `None` if they yield no data yet.
    fn take_from_input(&mut self) -> Result<Option<Bytes>, BodyError> {
        match &mut self.state {
            BodyState::Length { left } => {
                let bytes = self.input.bytes();
                let take = usize::try_from(*left).map_or(bytes.len(), |l| l.min(bytes.len()));
                let piece = Bytes::copy_from_slice(&bytes[..take]);
                self.input.consume(take);
                *left -= take as u64;
                if *left == 0 {
                    self.state = BodyState::Done;
                    self.pace = None;
                }
                self.expect_continue = false;
                Ok(Some(piece))
            }
            BodyState::Chunked(decoder) => {
                // One byte beyond the limit shows that the limit is exceeded.
                let room = self
                    .limit
                    .saturating_sub(self.received)
                    .saturating_add(1)
                    .min(MAX_PIECE_BYTES as u64);
                let mut out = Vec::with_capacity(self.input.bytes().len().min(room as usize));
                let used = decoder
                    .decode(self.input.bytes(), &mut out, room as usize)
                    .map_err(BodyError::Malformed)?;
                let done = decoder.is_done();
                self.input.consume(used);
                self.expect_continue = false;
                // A chunk whose announced size is too large is refused before its bytes have arrived.
                let coming = (out.len() as u64).saturating_add(decoder.announced_bytes());
                if coming > self.limit.saturating_sub(self.received) {
                    return Err(BodyError::TooLarge);
                }
                if done {
                    self.state = BodyState::Done;
                    self.pace = None;
                }
                Ok((done || !out.is_empty()).then(|| buffers::into_stored(&mut out)))
            }
            BodyState::Switched => {
                let piece = Bytes::copy_from_slice(self.input.bytes());
                self.input.consume(piece.len());
                Ok(Some(piece))
            }
            BodyState::UntilEnd | BodyState::Done | BodyState::Failed(_) => Ok(None),
        }
    }

    /// Takes the bytes received for a body of which `left` bytes are missing. The rest belongs to the next request.
    fn take_received(&mut self, buf: &mut Vec<u8>, left: u64) -> Result<Bytes, BodyError> {
        if buf.len() as u64 > left {
            // A stream has no next request: the message is malformed (RFC 9114 §4.1.2). For HTTP/2 the h2 crate checks
            // this itself.
            if matches!(self.io.channel, Channel::Http3(_)) {
                return Err(BodyError::Malformed(BadRequest::BadContentLength));
            }
            self.input.extend(&buf[left as usize..]);
            buf.truncate(left as usize);
        }
        self.state = match left - buf.len() as u64 {
            0 => {
                self.pace = None;
                BodyState::Done
            }
            left => BodyState::Length { left },
        };
        Ok(buffers::into_stored(buf))
    }

    /// Sends `100 Continue`, but not after body bytes have arrived or after a final status (RFC 9110 §10.1.1).
    fn send_continue(&mut self, cx: &mut Context<'_>) {
        if !std::mem::take(&mut self.expect_continue) {
            return;
        }
        let mut outbox = self.io.outbox();
        match &self.io.channel {
            _ if outbox.began => {}
            Channel::Http2(stream) => {
                stream.send_informational(multiplexed::response_head(100, b""))
            }
            Channel::Http3(stream) => stream.send_head(multiplexed::response_head(100, b"")),
            Channel::Captured(_) => {}
            Channel::Http1(_) => {
                outbox.append(|out| out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"));
                outbox.mark_ahead();
                // The part that the socket does not take now is sent when the task waits. A failure appears as the end
                // of the stream, or at the next flush.
                let _ = outbox.poll_flush(&self.io.channel, &self.io.config, false, cx);
            }
        }
        drop(outbox);
        self.update_body_left();
    }

    /// Waits for the client, but only for the permitted time.
    fn poll_timeout<T>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, BodyError>> {
        let patience = self.io.config.body_timeout;
        let pace = self
            .pace
            .get_or_insert_with(|| Box::new(TransferPace::new()));
        ready!(pace.poll_wait(patience, cx));
        Poll::Ready(Err(BodyError::Timeout))
    }
}
