//! A response as a handler writes it: head, body, file, end. The responder frames it for the client's version (RFC 9112
//! §6, §7; RFC 9110 §8.6, §9.3.2, §15.3.5, §15.4.5) and queues it. It sends when asked to flush, and the connection
//! flushes the rest when the handler returns. It makes no decisions about routing or errors.

use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderValue;
use http::header::ALT_SVC;

use super::channel::Channel;
use super::config::MAX_DISCARDED_BODY;
use super::date;
use super::http1_text::{chunk_size, decimal, status_line};
use super::message::{HttpVersion, ResponseHead};
use super::multiplexed;
use super::pace::TransferPace;
use super::request_io::{BodyLeft, RequestIo};
use crate::turn;
use howdah_http1::reason::reason_phrase;

/// Files up to this size are read and sent together with the head: one `pread` and one `send` cost less than a `send`
/// and a `sendfile`, and less than two packets.
const MAX_READ_FILE_BYTES: u64 = 32 << 10;
/// The maximum number of bytes of a file sent at once, so other connections of the thread get their turn (nginx's
/// sendfile_max_chunk: 2 MiB).
const MAX_SENDFILE_BYTES: u64 = 256 << 10;

/// The length of a response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseLength {
    /// The body has this many bytes.
    Known(u64),
    /// The length is known only at the end: the body is chunked or, for HTTP/1.0, delimited by the end of the
    /// connection.
    Unknown,
    /// The response has no body and no `Content-Length`: 204 and 304.
    NoBody,
}

/// The client is gone: the connection is broken or closed, or the client took no data for `send_timeout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientGone;

/// Why a file was not sent as promised. In the last two cases the response has been aborted.
#[derive(Debug)]
pub enum SendFileError {
    /// The client has closed the connection; see [`ClientGone`].
    ClientGone,
    /// The file has fewer bytes than were to be sent.
    FileTooShort,
    /// Reading the file that is the body failed.
    File(io::Error),
}

impl From<ClientGone> for SendFileError {
    fn from(_: ClientGone) -> SendFileError {
        SendFileError::ClientGone
    }
}

/// How the body is framed on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseFraming {
    /// The body has a fixed length, of which `left` bytes are missing.
    Counted {
        left: u64,
    },
    Chunked,
    /// The end of the connection (HTTP/1.0 without a length) or of the stream (HTTP/2 and HTTP/3) ends the body.
    UntilClose,
    /// HEAD, 204, 304: body bytes are accepted and dropped.
    Suppressed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseState {
    Waiting,
    Body(ResponseFraming),
    Ended,
    Aborted { until_close: bool },
}

/// The outcome of a response, for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseEnd {
    /// The handler returned without having begun a response.
    Silent,
    /// The response is complete; `keep` is true if the connection may stay open.
    Complete { keep: bool },
    /// The response was cut off. The connection must end, by a reset if an orderly end would make the response look
    /// complete.
    Cut { reset: bool },
}

/// The response to the request being handled.
pub struct Responder {
    io: Arc<RequestIo>,
    state: ResponseState,
    version: HttpVersion,
    head_only: bool,
    keep_alive: bool,
    status: u16,
    sent: u64,
    body_sent: u64,
    /// Measures how fast the client takes a file that is being sent.
    pace: Option<Box<TransferPace>>,
}

impl Responder {
    pub(super) fn new(io: Arc<RequestIo>) -> Responder {
        Responder {
            io,
            state: ResponseState::Waiting,
            version: HttpVersion::Http11,
            head_only: false,
            keep_alive: false,
            status: 0,
            sent: 0,
            body_sent: 0,
            pace: None,
        }
    }

    /// Begins the response to the next request. `keep_alive` is true if the connection may stay open.
    pub(super) fn prepare(&mut self, version: HttpVersion, head_only: bool, keep_alive: bool) {
        self.state = ResponseState::Waiting;
        self.version = version;
        self.head_only = head_only;
        self.keep_alive = keep_alive;
        self.status = 0;
        self.sent = 0;
        self.body_sent = 0;
        let mut outbox = self.io.outbox();
        outbox.began = false;
        outbox.min_rate = 0;
        outbox.mark_ahead();
    }

    pub(super) fn outcome(&self) -> ResponseEnd {
        match self.state {
            ResponseState::Waiting => ResponseEnd::Silent,
            ResponseState::Ended => ResponseEnd::Complete {
                keep: self.keep_alive,
            },
            ResponseState::Body(framing) => ResponseEnd::Cut {
                reset: framing == ResponseFraming::UntilClose,
            },
            ResponseState::Aborted { until_close } => ResponseEnd::Cut { reset: until_close },
        }
    }

    /// Sends an interim response (1xx, RFC 9110 §15.2) without waiting for anything else. Ignored for HTTP/1.0 clients,
    /// which do not support it, and after [`Responder::begin`].
    pub fn informational(&mut self, head: &ResponseHead) {
        debug_assert!((100..200).contains(&head.status) && head.status != 101);
        if self.version == HttpVersion::Http10 || self.state != ResponseState::Waiting {
            return;
        }
        let fields = || multiplexed::response_head(head.status, head.lines());
        match &self.io.channel {
            Channel::Http1(_) | Channel::Captured(_) => {}
            Channel::Http2(stream) => stream.send_informational(fields()),
            Channel::Http3(stream) => stream.send_head(fields()),
        }
        if !matches!(self.io.channel, Channel::Http1(_)) {
            self.sent += head.lines().len() as u64;
            return;
        }
        let mut outbox = self.io.outbox();
        let before = outbox.queued();
        outbox.append(|out| {
            status_line(out, head);
            out.extend_from_slice(head.lines());
            out.extend_from_slice(b"\r\n");
        });
        self.sent += (outbox.queued() - before) as u64;
        // The interim response is sent when the task next waits, so the final response does not delay it.
        outbox.mark_ahead();
    }

    /// Queues a complete error response of the server itself, for a request that no handler responds to.
    pub(super) fn respond_error(&mut self, status: u16, name: &str) {
        let body = format!("{status} {}: {name}\n", reason_phrase(status));
        let mut head = ResponseHead::new(status);
        head.header(b"Content-Type", b"text/plain; charset=utf-8")
            .header(b"Howdah-Error", name.as_bytes());
        self.respond(&head, body);
    }

    /// Queues a complete response.
    pub fn respond(&mut self, head: &ResponseHead, body: impl Into<Bytes>) {
        let body = body.into();
        self.begin(head, ResponseLength::Known(body.len() as u64));
        self.push(body);
        self.end();
    }

    /// Queues the final response's head. `length` is the length for a GET: HEAD, 204 and 304 are handled here. A second
    /// call is a bug of the handler and is ignored.
    pub fn begin(&mut self, head: &ResponseHead, length: ResponseLength) {
        debug_assert!(
            head.status >= 200,
            "an interim status is not a final response"
        );
        if self.state != ResponseState::Waiting {
            debug_assert!(false, "the response has begun already");
            return;
        }
        let bodyless = matches!(head.status, 204 | 304) || length == ResponseLength::NoBody;
        let chunked = self.version == HttpVersion::Http11;
        let framing = match length {
            _ if bodyless || self.head_only => ResponseFraming::Suppressed,
            ResponseLength::Known(left) => ResponseFraming::Counted { left },
            ResponseLength::Unknown if chunked => ResponseFraming::Chunked,
            _ => ResponseFraming::UntilClose,
        };
        self.status = head.status;
        if let Channel::Captured(stream) = &self.io.channel {
            stream.set_head(head.status, head.lines().to_vec());
            self.io.outbox().began = true;
            self.state = ResponseState::Body(framing);
            return;
        }
        if !matches!(self.io.channel, Channel::Http1(_)) {
            let has_length = !self.head_only && head.status != 304;
            let length = match length {
                _ if head.status == 204 => None,
                ResponseLength::Known(n) => Some(n),
                ResponseLength::NoBody if has_length => Some(0),
                ResponseLength::NoBody | ResponseLength::Unknown => None,
            };
            let mut response = multiplexed::response_head(head.status, head.lines());
            multiplexed::add_server_fields(&mut response, length);
            if let Some(value) = &self.io.alternative
                && let Ok(value) = HeaderValue::from_str(value)
            {
                response.headers_mut().insert(ALT_SVC, value);
            }
            self.sent += head.lines().len() as u64;
            self.begin_stream(response, framing);
            self.state = ResponseState::Body(framing);
            return;
        }
        self.decide_keep_alive(framing);
        let mut outbox = self.io.outbox();
        outbox.began = true;
        let before = outbox.queued();
        outbox.append(|out| {
            status_line(out, head);
            out.extend_from_slice(head.lines());
            self.io.write_alternative(out);
            out.extend_from_slice(b"Server: Howdah\r\n");
            out.extend_from_slice(b"Date: ");
            out.extend_from_slice(&date::now());
            match length {
                // RFC 9110 §8.6: never with 204; with 304 only the value that a 200 would have had.
                _ if head.status == 204 => {}
                ResponseLength::Known(n) => {
                    out.extend_from_slice(b"\r\nContent-Length: ");
                    decimal(out, n);
                }
                ResponseLength::Unknown if chunked && head.status != 304 => {
                    out.extend_from_slice(b"\r\nTransfer-Encoding: chunked");
                }
                // Without a length the end of a 200 would be unknown (RFC 9112 §6.3).
                ResponseLength::NoBody if head.status != 304 && !self.head_only => {
                    out.extend_from_slice(b"\r\nContent-Length: 0");
                }
                _ => {}
            }
            match (self.keep_alive, self.version) {
                (false, _) => out.extend_from_slice(b"\r\nConnection: close"),
                (true, HttpVersion::Http10) => out.extend_from_slice(b"\r\nConnection: keep-alive"),
                (true, _) => {}
            }
            out.extend_from_slice(b"\r\n\r\n");
        });
        self.sent += (outbox.queued() - before) as u64;
        self.state = ResponseState::Body(framing);
    }

    /// Accepts the protocol that the client has asked to change to (101, RFC 9110 §7.8): from here on both directions
    /// are bytes without framing until either side ends them. For HTTP/1.1 only; the caller must ensure this, and must
    /// switch the body with [`RequestBody::switch_protocols`](super::RequestBody::switch_protocols).
    pub fn switch_protocols(&mut self, head: &ResponseHead, protocol: &[u8]) {
        debug_assert!(head.status == 101 && matches!(self.io.channel, Channel::Http1(_)));
        if self.state != ResponseState::Waiting {
            debug_assert!(false, "the response has begun already");
            return;
        }
        self.keep_alive = false;
        self.status = head.status;
        self.io.outbox().began = true;
        self.append(|out| {
            status_line(out, head);
            out.extend_from_slice(head.lines());
            for part in [
                &b"Connection: Upgrade\r\nUpgrade: "[..],
                protocol,
                b"\r\n\r\n",
            ] {
                out.extend_from_slice(part);
            }
        });
        self.state = ResponseState::Body(ResponseFraming::UntilClose);
    }

    /// Returns whether the server is stopping, so a response without an end of its own must end now. The task is woken
    /// when this begins.
    pub fn is_draining(&self) -> bool {
        self.io.life.is_draining()
    }

    /// Queues the head of a stored response. `head` is already serialised, from the status line to its last header,
    /// with `Date` and, unless the status forbids it, a `Content-Length` of `length`; `extra` writes the headers that
    /// differ each time. A second call is ignored.
    pub fn begin_stored(
        &mut self,
        status: u16,
        head: &[u8],
        extra: impl FnOnce(&mut Vec<u8>),
        length: u64,
    ) {
        if self.state != ResponseState::Waiting {
            debug_assert!(false, "the response has begun already");
            return;
        }
        let framing = if self.head_only || matches!(status, 204 | 304) {
            ResponseFraming::Suppressed
        } else {
            ResponseFraming::Counted { left: length }
        };
        self.status = status;
        if !matches!(self.io.channel, Channel::Http1(_)) {
            let mut lines = Vec::with_capacity(head.len() + 128);
            let line_end = head.iter().position(|b| *b == b'\n');
            lines.extend_from_slice(&head[line_end.map_or(0, |end| end + 1)..]);
            extra(&mut lines);
            if let Channel::Captured(stream) = &self.io.channel {
                stream.set_head(status, lines);
                self.io.outbox().began = true;
                self.state = ResponseState::Body(framing);
                return;
            }
            self.io.write_alternative(&mut lines);
            lines.extend_from_slice(b"Server: Howdah\r\n");
            self.sent += lines.len() as u64;
            self.begin_stream(multiplexed::response_head(status, &lines), framing);
            self.state = ResponseState::Body(framing);
            return;
        }
        self.decide_keep_alive(framing);
        let mut outbox = self.io.outbox();
        outbox.began = true;
        let before = outbox.queued();
        outbox.append(|out| {
            out.extend_from_slice(head);
            extra(out);
            self.io.write_alternative(out);
            out.extend_from_slice(b"Server: Howdah\r\n");
            match (self.keep_alive, self.version) {
                (false, _) => out.extend_from_slice(b"Connection: close\r\n"),
                (true, HttpVersion::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
                (true, _) => {}
            }
            out.extend_from_slice(b"\r\n");
        });
        self.sent += (outbox.queued() - before) as u64;
        self.state = ResponseState::Body(framing);
    }

    /// Sends the final head on a stream, and the end of the stream if no body follows.
    fn begin_stream(&self, head: http::Response<()>, framing: ResponseFraming) {
        self.io.outbox().began = true;
        let bodyless = matches!(
            framing,
            ResponseFraming::Suppressed | ResponseFraming::Counted { left: 0 }
        );
        match &self.io.channel {
            Channel::Http1(_) | Channel::Captured(_) => {}
            Channel::Http2(stream) => stream.send_head(head, bodyless),
            Channel::Http3(stream) => stream.send_head(head),
        }
    }

    /// Decides whether the connection stays open after a response with this framing.
    fn decide_keep_alive(&mut self, framing: ResponseFraming) {
        // RFC 9112 §9.3: a connection whose request body is not read to its end must be closed.
        let body_ends_it = match self.io.body_left() {
            BodyLeft::Bytes(n) => n > MAX_DISCARDED_BODY,
            BodyLeft::Unknown => false,
            BodyLeft::NeverComes => true,
        };
        // The server may have begun to stop since the request arrived.
        if framing == ResponseFraming::UntilClose || body_ends_it || self.io.life.is_draining() {
            self.keep_alive = false;
        }
    }

    /// Queues body bytes. Bytes beyond the promised length are cut off; bytes after the end, or after the client is
    /// gone, are dropped. Check [`Responder::queued`], because the queue has no limit.
    pub fn push(&mut self, bytes: Bytes) {
        self.push_shared(&bytes);
    }

    /// Queues body bytes like [`Responder::push`], for bytes that other responses send as well. A few bytes are copied,
    /// which is cheaper than one more reference to them.
    pub fn push_shared(&mut self, bytes: &Bytes) {
        let cut;
        let mut bytes = bytes;
        let ResponseState::Body(framing) = &mut self.state else {
            return;
        };
        match framing {
            ResponseFraming::Suppressed => return,
            ResponseFraming::Counted { left } => {
                if bytes.len() as u64 > *left {
                    cut = bytes.slice(..*left as usize);
                    bytes = &cut;
                }
                *left -= bytes.len() as u64;
            }
            ResponseFraming::Chunked | ResponseFraming::UntilClose => {}
        }
        if bytes.is_empty() {
            return;
        }
        self.body_sent += bytes.len() as u64;
        let chunked = *framing == ResponseFraming::Chunked;
        let mut outbox = self.io.outbox();
        let before = outbox.queued();
        if chunked {
            outbox.append(|out| chunk_size(out, bytes.len() as u64));
        }
        outbox.push(bytes);
        if chunked {
            outbox.append(|out| out.extend_from_slice(b"\r\n"));
        }
        self.sent += (outbox.queued() - before) as u64;
    }

    /// Returns the number of bytes that the socket has not taken yet, including those of earlier pipelined responses.
    pub fn queued(&self) -> usize {
        self.io.outbox().queued()
    }

    /// Returns the part of `bytes` of memory that this response may use. Many streams of one connection share the
    /// amount, since they cost the client only one socket.
    pub fn memory_share(&self, bytes: usize) -> usize {
        match &self.io.channel {
            Channel::Http1(_) | Channel::Captured(_) => bytes,
            Channel::Http2(stream) => stream.share(bytes),
            Channel::Http3(stream) => stream.share(bytes),
        }
    }

    /// Returns the number of bytes of this response that the socket has taken.
    pub fn bytes_taken(&self) -> u64 {
        self.sent.saturating_sub(self.queued() as u64)
    }

    /// Sets how many bytes per second the client must take from now on, if that is more than `limits.min_rate`. For use
    /// while the client occupies a resource that is scarce.
    pub fn set_min_rate(&mut self, rate: u32) {
        self.io.outbox().min_rate = rate;
    }

    /// Returns whether sending has failed because the client took less than `limits.min_rate`.
    pub fn client_too_slow(&self) -> bool {
        self.io.outbox().too_slow()
    }

    /// Sends until the queue is empty.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientGone>> {
        self.io.poll_flush(cx, false).map_err(|_| ClientGone)
    }

    /// Sends until the queue is empty.
    pub async fn flush(&mut self) -> Result<(), ClientGone> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Sends `len` bytes of a regular file from `offset` as body bytes: a small part is queued with the head, a large
    /// one goes from the page cache to the socket by `sendfile(2)`.
    ///
    /// Reading may wait for the disk, as in nginx without thread pools. If the file is shorter than promised, the
    /// response is aborted, because the head has promised more.
    pub async fn send_file(
        &mut self,
        file: &File,
        mut offset: u64,
        len: u64,
    ) -> Result<(), SendFileError> {
        let ResponseState::Body(framing) = self.state else {
            return Ok(());
        };
        let len = match framing {
            ResponseFraming::Suppressed => return Ok(()),
            ResponseFraming::Counted { left } => len.min(left),
            ResponseFraming::Chunked | ResponseFraming::UntilClose => len,
        };
        if len <= MAX_READ_FILE_BYTES {
            let mut buf = vec![0; len as usize];
            return match file.read_exact_at(&mut buf, offset) {
                Ok(()) => {
                    self.push(Bytes::from(buf));
                    Ok(())
                }
                Err(e) => Err(self.broken_file(e)),
            };
        }
        if framing == ResponseFraming::Chunked {
            self.append(|out| chunk_size(out, len));
        }
        poll_fn(|cx| self.io.poll_flush(cx, true))
            .await
            .map_err(|_| ClientGone)?;
        let mut left = len;
        while left > 0 {
            let piece = left.min(MAX_SENDFILE_BYTES) as usize;
            let sent = poll_fn(|cx| self.poll_sendfile(cx, file, &mut offset, piece)).await?;
            left -= sent;
            self.sent += sent;
            self.body_sent += sent;
            if let ResponseState::Body(ResponseFraming::Counted { left }) = &mut self.state {
                *left -= sent;
            }
            turn::yield_if_over().await;
        }
        self.pace = None;
        if framing == ResponseFraming::Chunked {
            self.append(|out| out.extend_from_slice(b"\r\n"));
        }
        Ok(())
    }

    fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut outbox = self.io.outbox();
        let before = outbox.queued();
        outbox.append(write);
        self.sent += (outbox.queued() - before) as u64;
    }

    fn poll_sendfile(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        offset: &mut u64,
        len: usize,
    ) -> Poll<Result<u64, SendFileError>> {
        let config = &self.io.config;
        match self.io.channel.poll_sendfile(cx, file, offset, len) {
            Poll::Ready(Ok(0)) => {
                Poll::Ready(Err(self.broken_file(io::ErrorKind::UnexpectedEof.into())))
            }
            Poll::Ready(Ok(n)) => {
                if let Some(pace) = &mut self.pace
                    && pace.record_progress(n, config.min_rate)
                {
                    self.io.outbox().fail_slow();
                    return Poll::Ready(Err(SendFileError::ClientGone));
                }
                Poll::Ready(Ok(n as u64))
            }
            Poll::Ready(Err(e))
                if matches!(
                    e.kind(),
                    io::ErrorKind::BrokenPipe
                        | io::ErrorKind::ConnectionReset
                        | io::ErrorKind::ConnectionAborted
                        | io::ErrorKind::NotConnected
                        | io::ErrorKind::TimedOut
                ) =>
            {
                Poll::Ready(Err(self.client_gone(e)))
            }
            Poll::Ready(Err(e)) => Poll::Ready(Err(self.broken_file(e))),
            Poll::Pending if !self.io.channel.waits_for_client() => Poll::Pending,
            Poll::Pending => {
                let pace = self
                    .pace
                    .get_or_insert_with(|| Box::new(TransferPace::new()));
                ready!(pace.poll_wait(config.send_timeout, cx));
                Poll::Ready(Err(self.client_gone(io::ErrorKind::TimedOut.into())))
            }
        }
    }

    fn client_gone(&mut self, why: io::Error) -> SendFileError {
        self.io.outbox().fail(why);
        SendFileError::ClientGone
    }

    fn broken_file(&mut self, e: io::Error) -> SendFileError {
        self.abort();
        match e.kind() {
            io::ErrorKind::UnexpectedEof => SendFileError::FileTooShort,
            _ => SendFileError::File(e),
        }
    }

    /// Completes the response. With fewer bytes than promised this is an [`abort`](Responder::abort), so the client
    /// cannot treat the response as complete.
    pub fn end(&mut self) {
        match self.state {
            ResponseState::Body(ResponseFraming::Counted { left: 1.. })
            | ResponseState::Waiting => self.abort(),
            ResponseState::Body(framing) => {
                if framing == ResponseFraming::Chunked {
                    self.append(|out| out.extend_from_slice(b"0\r\n\r\n"));
                }
                match &self.io.channel {
                    Channel::Http1(_) | Channel::Captured(_) => {}
                    Channel::Http2(stream) => stream.end(),
                    Channel::Http3(stream) => stream.end(),
                }
                self.state = ResponseState::Ended;
            }
            ResponseState::Ended | ResponseState::Aborted { .. } => {}
        }
    }

    /// Gives up a response that cannot be completed. The queued bytes are sent; then an HTTP/1.1 connection is closed
    /// without the last chunk, short of the promised length, or by a reset, and an HTTP/2 or HTTP/3 stream is reset, so
    /// the client notices it. Before [`Responder::begin`], the client gets no response at all.
    pub fn abort(&mut self) {
        if self.state != ResponseState::Ended {
            self.state = ResponseState::Aborted {
                until_close: self.state == ResponseState::Body(ResponseFraming::UntilClose),
            };
        }
    }

    /// Returns whether the final response's head has been queued.
    pub fn has_begun(&self) -> bool {
        self.status != 0
    }

    /// Returns whether the response has been completed or aborted.
    pub fn has_ended(&self) -> bool {
        matches!(
            self.state,
            ResponseState::Ended | ResponseState::Aborted { .. }
        )
    }

    /// Returns the final status; 0 before [`Responder::begin`].
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the number of bytes of the response's body so far, including queued ones.
    pub fn body_bytes_sent(&self) -> u64 {
        self.body_sent
    }

    /// Is ready when the client is gone: sending has failed, or the client has closed the connection or its sending
    /// half (which nginx also treats as gone, with 499: browsers never half-close, and a script should not continue for
    /// a client that went away). With HTTP/1.1 it stays pending while the request body has not been read to the end;
    /// there the end of the stream appears as [`BodyError::ClientGone`](super::BodyError). With HTTP/2 and HTTP/3 it is
    /// ready when the client has reset the stream.
    pub fn poll_client_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.io.outbox().has_failed() {
            return Poll::Ready(());
        }
        match &self.io.channel {
            Channel::Http1(_) if self.io.body_left() != BodyLeft::Bytes(0) => Poll::Pending,
            Channel::Http1(stream) => stream.poll_read_closed(cx),
            Channel::Http2(stream) => stream.poll_reset(cx),
            Channel::Http3(stream) => stream.poll_reset(cx),
            Channel::Captured(stream) => stream.poll_reader_gone(cx),
        }
    }
}
