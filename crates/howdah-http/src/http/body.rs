//! A request's body as a handler reads it: transfer coding taken off, limits and time-outs applied,
//! `100 Continue` sent when the first byte is asked for. Reads the socket only when polled: what a
//! handler does not ask for waits in the client's kernel.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::buffers::{self, Input};
use super::channel::Channel;
use super::io::{BodyLeft, Io};
use super::multiplexed;
use super::pace::Pace;
use howdah_http1::chunk::ChunkDecoder;
use howdah_http1::framing::{BodyKind, Framing};
use howdah_http1::refusal::BadRequest;
use strum::{Display, IntoStaticStr};

/// How many bytes of a body are read at once, at most.
const PIECE: usize = 64 << 10;

/// Why a body cannot be read to its end. The connection closes after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, IntoStaticStr)]
pub enum BodyError {
    /// More bytes than [`RequestBody::set_limit`] allows.
    #[strum(serialize = "BodyTooLarge")]
    TooLarge,
    /// The chunked coding is broken.
    #[strum(transparent)]
    Malformed(BadRequest),
    /// Nothing came for `body_timeout`.
    #[strum(serialize = "BodyTimeout")]
    Timeout,
    /// Slower than `limits.min_rate`.
    #[strum(serialize = "BodyTooSlow")]
    TooSlow,
    /// The connection ended before the body did.
    ClientGone,
}

impl BodyError {
    /// The name, as in `Howdah-Error`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The status code of the answer; 499 (as nginx logs it) is never sent.
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
    /// HTTP/2 and HTTP/3 without a length: the stream's end ends it.
    UntilEnd,
    /// The bytes of another protocol, as they come: the client may be silent for as long as it likes.
    Switched,
    Done,
    Failed(BodyError),
}

/// The body of the request being handled.
pub struct RequestBody {
    io: Arc<Io>,
    pub(super) input: Input,
    kind: BodyKind,
    state: BodyState,
    limit: u64,
    received: u64,
    expect_continue: bool,
    /// Made when the client has to be waited for.
    pace: Option<Box<Pace>>,
    /// Bytes a second beyond those of the configuration that it must send.
    min_rate: u32,
}

impl RequestBody {
    pub(super) fn new(io: Arc<Io>) -> RequestBody {
        RequestBody {
            io,
            input: Input::default(),
            kind: BodyKind::None,
            state: BodyState::Done,
            limit: u64::MAX,
            received: 0,
            expect_continue: false,
            pace: None,
            min_rate: 0,
        }
    }

    /// The body of a request that has none, on the same connection.
    pub fn none(&self) -> RequestBody {
        RequestBody::new(self.io.clone())
    }

    /// Begins the body of the next request.
    pub(super) fn begin(&mut self, framing: &Framing) {
        self.kind = framing.body;
        self.state = match framing.body {
            BodyKind::None => BodyState::Done,
            BodyKind::Length(left) => BodyState::Length { left },
            BodyKind::Chunked => match self.io.channel {
                Channel::Http1(_) => BodyState::Chunked(ChunkDecoder::default()),
                Channel::Http2(_) | Channel::Http3(_) => BodyState::UntilEnd,
            },
        };
        self.limit = u64::MAX;
        self.received = 0;
        self.expect_continue = framing.expect_continue;
        self.pace = None;
        self.min_rate = 0;
        self.tell_left();
    }

    fn tell_left(&self) {
        self.io.set_body_left(match self.state {
            BodyState::Failed(_) => BodyLeft::NeverComes,
            _ if self.expect_continue => BodyLeft::NeverComes,
            BodyState::Length { left } => BodyLeft::Bytes(left),
            BodyState::Done => BodyLeft::Bytes(0),
            BodyState::Chunked(_) | BodyState::UntilEnd | BodyState::Switched => BodyLeft::Unknown,
        });
    }

    /// What follows is another protocol's ([`Responder::switch_protocols`](super::Responder)): its bytes
    /// as they come, until the client ends them.
    pub fn switch_protocols(&mut self) {
        self.state = BodyState::Switched;
        self.limit = u64::MAX;
        self.expect_continue = false;
        self.pace = None;
        self.tell_left();
    }

    /// How the client delimits the body.
    pub fn expected(&self) -> BodyKind {
        self.kind
    }

    /// How many bytes of the body have been handed out so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether the whole body has been handed out.
    pub fn is_done(&self) -> bool {
        matches!(self.state, BodyState::Done)
    }

    /// The client still waits for `100 Continue`, or for a final answer instead.
    pub(super) fn awaits_continue(&self) -> bool {
        self.expect_continue
    }

    /// More bytes than this → [`BodyError::TooLarge`]; for a body of known length at the next
    /// [`RequestBody::next`], before anything is read and before `100 Continue`.
    pub fn set_limit(&mut self, max: u64) {
        self.limit = max;
    }

    /// Sets how many bytes a second the client must send from now on, if that is more than
    /// `limits.min_rate`: what it makes the server keep is short.
    pub fn set_min_rate(&mut self, rate: u32) {
        self.min_rate = rate;
    }

    /// The next bytes, never empty; `None` at the end. An error repeats itself.
    pub async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`RequestBody::next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let next = match self.state {
            BodyState::Done => return Poll::Ready(None),
            BodyState::Failed(why) => return Poll::Ready(Some(Err(why))),
            _ => ready!(self.poll_piece(cx)),
        };
        match next {
            Ok(piece) => {
                self.received += piece.len() as u64;
                self.tell_left();
                Poll::Ready((!piece.is_empty()).then_some(Ok(piece)))
            }
            Err(why) => {
                self.state = BodyState::Failed(why);
                self.pace = None;
                self.tell_left();
                Poll::Ready(Some(Err(why)))
            }
        }
    }

    /// A piece; an empty one is the end.
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
                        Poll::Pending => return self.poll_patience(cx),
                    }
                }
                BodyState::UntilEnd => match self.poll_until_end(cx) {
                    Poll::Ready(received) => received.map(Some),
                    Poll::Pending => return self.poll_patience(cx),
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
                        Poll::Pending => return self.poll_patience(cx),
                    }
                }
            };
            let piece = received?;
            // A server that is slow to take them is not the client's fault: only waiting counts.
            let came = piece.as_ref().map_or(self.input.bytes().len(), Bytes::len);
            let rate = self.io.config.min_rate.max(self.min_rate);
            if let Some(pace) = &mut self.pace
                && pace.took(came, rate)
            {
                return Poll::Ready(Err(BodyError::TooSlow));
            }
            if let Some(piece) = piece {
                return Poll::Ready(Ok(piece));
            }
        }
    }

    /// Receives of a body that the stream's end ends; nothing is that end.
    fn poll_until_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, BodyError>> {
        let room = self.limit.saturating_sub(self.received);
        let read = buffers::with_piece(|buf| {
            let read = ready!(self.io.channel.poll_recv_spare(cx, buf));
            Poll::Ready(read.map(|_| buffers::keep(buf)))
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

    /// Decodes what has been received already; `None` if that gives no data yet.
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
                // One byte beyond the limit shows that it is exceeded.
                let room = self
                    .limit
                    .saturating_sub(self.received)
                    .saturating_add(1)
                    .min(PIECE as u64);
                let mut out = Vec::with_capacity(self.input.bytes().len().min(room as usize));
                let used = decoder
                    .decode(self.input.bytes(), &mut out, room as usize)
                    .map_err(BodyError::Malformed)?;
                let done = decoder.is_done();
                self.input.consume(used);
                self.expect_continue = false;
                // A chunk that is announced too large is refused before its bytes have come.
                let coming = (out.len() as u64).saturating_add(decoder.announced());
                if coming > self.limit.saturating_sub(self.received) {
                    return Err(BodyError::TooLarge);
                }
                if done {
                    self.state = BodyState::Done;
                    self.pace = None;
                }
                Ok((done || !out.is_empty()).then(|| buffers::keep(&mut out)))
            }
            BodyState::Switched => {
                let piece = Bytes::copy_from_slice(self.input.bytes());
                self.input.consume(piece.len());
                Ok(Some(piece))
            }
            BodyState::UntilEnd | BodyState::Done | BodyState::Failed(_) => Ok(None),
        }
    }

    /// Takes what was received for a body with `left` bytes to come; the rest is the next request's.
    fn take_received(&mut self, buf: &mut Vec<u8>, left: u64) -> Result<Bytes, BodyError> {
        if buf.len() as u64 > left {
            // A stream has no next request: the message is malformed (RFC 9114 §4.1.2). The h2 crate sees to
            // that by itself.
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
        Ok(buffers::keep(buf))
    }

    /// RFC 9110 §10.1.1: not after body bytes have come, and not after a final status.
    fn send_continue(&mut self, cx: &mut Context<'_>) {
        if !std::mem::take(&mut self.expect_continue) {
            return;
        }
        let mut outbox = self.io.outbox();
        match &self.io.channel {
            _ if outbox.began => {}
            Channel::Http2(stream) => stream.send_informational(multiplexed::response(100, b"")),
            Channel::Http3(stream) => stream.send_head(multiplexed::response(100, b"")),
            Channel::Http1(_) => {
                outbox.append(|out| out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"));
                outbox.mark_ahead();
                // What the socket does not take now goes out when the task waits. A failure shows as
                // the end of the stream, or at the next flush.
                let _ = outbox.poll_flush(&self.io.channel, &self.io.config, false, cx);
            }
        }
        drop(outbox);
        self.tell_left();
    }

    /// Waits for the client, but not longer than allowed.
    fn poll_patience<T>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, BodyError>> {
        let patience = self.io.config.body_timeout;
        let pace = self.pace.get_or_insert_with(|| Box::new(Pace::new()));
        ready!(pace.poll_wait(patience, cx));
        Poll::Ready(Err(BodyError::Timeout))
    }
}
