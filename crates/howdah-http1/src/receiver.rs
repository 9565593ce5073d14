//! Assembles one request from the bytes of a connection: the head, then the whole body in memory. This is for a server
//! that calls its script only with complete requests, as Swoole does; the front streams bodies instead and does not use
//! this module. It uses neither a socket nor a clock; the caller waits and responds.

use strum::{Display, IntoStaticStr};

use crate::chunk::ChunkDecoder;
use crate::framing::BodyKind;
use crate::head::{self, HeadLimits};
use crate::message::{ByteSpan, RequestHead};
use crate::refusal::BadRequest;

/// Maximum lengths of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// The limits of the head.
    pub head: HeadLimits,
    /// The maximum length of the body in bytes.
    pub body: u64,
    /// The maximum length in bytes of a body that is a form with files (`multipart/form-data`), if this is larger than
    /// `body`.
    pub uploads: u64,
}

/// Why the bytes are not a request that is served. The connection is closed after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, IntoStaticStr)]
pub enum ReceiveRefusal {
    /// The bytes are not a request that the parser accepts.
    #[strum(transparent)]
    Bad(BadRequest),
    /// The body is longer than the limit, either announced or received.
    BodyTooLarge,
    /// No part of the body arrived for too long. The caller detects this because it has the clock.
    BodyTimeout,
    /// The body arrives more slowly than the minimum rate. The caller detects this.
    BodyTooSlow,
    /// There is no space left for the body. The caller, which stores it, detects this.
    SpillFailed,
}

impl ReceiveRefusal {
    /// Returns the name, as it appears in `Howdah-Error`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the status of the response to such a request.
    pub fn status(self) -> u16 {
        match self {
            ReceiveRefusal::Bad(why) => why.status(),
            ReceiveRefusal::BodyTooLarge => 413,
            ReceiveRefusal::BodyTimeout | ReceiveRefusal::BodyTooSlow => 408,
            ReceiveRefusal::SpillFailed => 507,
        }
    }
}

impl From<BadRequest> for ReceiveRefusal {
    fn from(why: BadRequest) -> ReceiveRefusal {
        ReceiveRefusal::Bad(why)
    }
}

/// How far the current request has been received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveProgress {
    /// The request is not complete yet.
    More,
    /// The request is not complete yet, and the client waits for `100 Continue` (RFC 9110 §10.1.1). Returned once per
    /// request.
    AwaitsContinue,
    /// The request is complete; further bytes belong to the next one.
    Complete,
}

#[derive(Debug, Default)]
enum ReceiverState {
    #[default]
    Head,
    Length(u64),
    Chunked(ChunkDecoder),
    Complete,
}

/// Receives the requests of a connection, one after the other.
#[derive(Debug, Default)]
pub struct Receiver {
    state: ReceiverState,
    head: Option<RequestHead>,
    keep_alive: bool,
    body: Vec<u8>,
    /// The number of body bytes that the caller has taken out, and the maximum length of the body.
    released: u64,
    max_body: u64,
    /// The buffers of the previous head, for reuse.
    spare: (Vec<u8>, Vec<(ByteSpan, ByteSpan)>),
}

/// The maximum number of bytes that are allocated for a body before it has arrived.
const MAX_PREALLOCATED_BODY_BYTES: u64 = 64 << 10;

/// The maximum size in bytes of each buffer that is kept from one request to the next. An idle connection must not hold
/// as much memory as its largest request needed.
const MAX_RETAINED_BUFFER_BYTES: usize = 4096;

/// Returns whether a body is a form that may contain files.
fn has_files(head: &RequestHead) -> bool {
    const FORM: &[u8] = b"multipart/form-data";
    head.header(b"content-type").is_some_and(|kind| {
        kind.get(..FORM.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(FORM))
    })
}

impl Receiver {
    /// Consumes bytes from the start of `input`. Returns how many bytes were consumed, and the progress. No byte of an
    /// incomplete head is consumed: pass it again with more bytes after it.
    pub fn consume(
        &mut self,
        input: &[u8],
        limits: &RequestLimits,
    ) -> Result<(usize, ReceiveProgress), ReceiveRefusal> {
        let mut used = 0;
        let mut received = ReceiveProgress::More;
        loop {
            match &mut self.state {
                ReceiverState::Complete => return Ok((used, ReceiveProgress::Complete)),
                ReceiverState::Head => {
                    let Some(parsed) = head::parse(input, &limits.head, &mut self.spare.1)? else {
                        return Ok((0, ReceiveProgress::More));
                    };
                    used = parsed.len;
                    let framing = parsed.framing;
                    let (buf, fields) = std::mem::take(&mut self.spare);
                    let head = self.head.insert(parsed.into_head(input, buf, fields));
                    self.max_body = if limits.uploads > limits.body && has_files(head) {
                        limits.uploads
                    } else {
                        limits.body
                    };
                    self.state = match framing.body {
                        BodyKind::None => ReceiverState::Complete,
                        BodyKind::Length(n) if n > self.max_body => {
                            return Err(ReceiveRefusal::BodyTooLarge);
                        }
                        BodyKind::Length(n) => {
                            self.body
                                .reserve(n.min(MAX_PREALLOCATED_BODY_BYTES) as usize);
                            ReceiverState::Length(n)
                        }
                        BodyKind::Chunked => ReceiverState::Chunked(ChunkDecoder::default()),
                    };
                    self.keep_alive = framing.keep_alive;
                    if framing.expect_continue && used == input.len() {
                        received = ReceiveProgress::AwaitsContinue;
                    }
                }
                ReceiverState::Length(left) => {
                    let rest = &input[used..];
                    let take = usize::try_from(*left).map_or(rest.len(), |l| l.min(rest.len()));
                    self.body.extend_from_slice(&rest[..take]);
                    used += take;
                    *left -= take as u64;
                    if *left > 0 {
                        return Ok((used, received));
                    }
                    self.state = ReceiverState::Complete;
                }
                ReceiverState::Chunked(decoder) => {
                    // One byte beyond the limit shows that the limit is exceeded.
                    let so_far = self.released + self.body.len() as u64;
                    let room = (self.max_body - so_far).saturating_add(1);
                    let room = usize::try_from(room).unwrap_or(usize::MAX);
                    used += decoder.decode(&input[used..], &mut self.body, room)?;
                    // A chunk whose announced size is too large is refused before its bytes have arrived.
                    let so_far = self.released + self.body.len() as u64;
                    if so_far.saturating_add(decoder.announced_bytes()) > self.max_body {
                        return Err(ReceiveRefusal::BodyTooLarge);
                    }
                    if !decoder.is_done() {
                        return Ok((used, received));
                    }
                    self.state = ReceiverState::Complete;
                }
            }
        }
    }

    /// Returns the head once it is complete.
    pub fn head(&self) -> Option<&RequestHead> {
        self.head.as_ref()
    }

    /// Returns the body so far, without the released bytes.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns how many bytes of the body have been received so far.
    pub fn received(&self) -> u64 {
        self.released + self.body.len() as u64
    }

    /// Discards the bytes of [`Receiver::body`], which the caller has stored elsewhere.
    pub fn release_body(&mut self) {
        self.released += self.body.len() as u64;
        self.body.clear();
    }

    /// Returns whether the client wants the connection to stay open.
    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Returns whether the head is complete and the body is not.
    pub fn in_body(&self) -> bool {
        matches!(
            self.state,
            ReceiverState::Length(_) | ReceiverState::Chunked(_)
        )
    }

    /// Discards the request in order to receive the next one, and frees large buffers.
    pub fn reset_for_next(&mut self) {
        self.state = ReceiverState::Head;
        if let Some(head) = self.head.take() {
            let (buf, fields) = head.into_buffers();
            if buf.capacity() <= MAX_RETAINED_BUFFER_BYTES
                && fields.capacity() * size_of::<(ByteSpan, ByteSpan)>()
                    <= MAX_RETAINED_BUFFER_BYTES
            {
                self.spare = (buf, fields);
            }
        }
        self.released = 0;
        if self.body.capacity() > MAX_RETAINED_BUFFER_BYTES {
            self.body = Vec::new();
        } else {
            self.body.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RequestLimits = RequestLimits {
        head: HeadLimits {
            request_line: 512,
            bytes: 2048,
            fields: 20,
        },
        body: 10,
        uploads: 0,
    };

    fn take(input: &str) -> Result<(usize, ReceiveProgress), ReceiveRefusal> {
        Receiver::default().consume(input.as_bytes(), &LIMITS)
    }

    #[test]
    fn a_request_without_a_body_is_complete_with_its_head() {
        let head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(take(head), Ok((head.len(), ReceiveProgress::Complete)));
        let two = format!("{head}{head}");
        assert_eq!(take(&two), Ok((head.len(), ReceiveProgress::Complete)));
        assert_eq!(take(&head[..20]), Ok((0, ReceiveProgress::More)));
    }

    #[test]
    fn a_body_is_gathered_in_pieces_and_the_next_request_follows() {
        let mut receiver = Receiver::default();
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab";
        assert_eq!(
            receiver.consume(head, &LIMITS),
            Ok((head.len(), ReceiveProgress::More))
        );
        assert!(receiver.in_body());
        assert_eq!(
            receiver.consume(b"cdeGET /", &LIMITS),
            Ok((3, ReceiveProgress::Complete))
        );
        assert_eq!(receiver.body(), b"abcde");
        assert!(receiver.keep_alive());
        receiver.reset_for_next();
        assert!(receiver.head().is_none() && receiver.body().is_empty());
        let head = b"GET /2 HTTP/1.0\r\n\r\n";
        assert_eq!(
            receiver.consume(head, &LIMITS),
            Ok((head.len(), ReceiveProgress::Complete))
        );
        assert_eq!(receiver.head().unwrap().target(), b"/2");
        assert!(!receiver.keep_alive());
    }

    #[test]
    fn a_chunked_body_is_decoded() {
        let mut receiver = Receiver::default();
        let all = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET";
        assert_eq!(
            receiver.consume(all, &LIMITS),
            Ok((all.len() - 3, ReceiveProgress::Complete))
        );
        assert_eq!(receiver.body(), b"abc");
    }

    #[test]
    fn a_body_beyond_the_limit_is_refused_announced_or_not() {
        let long = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n";
        assert_eq!(take(long), Err(ReceiveRefusal::BodyTooLarge));
        let chunked =
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nabcdefghijk";
        assert_eq!(take(chunked), Err(ReceiveRefusal::BodyTooLarge));
        let announced = chunked.strip_suffix("abcdefghijk").unwrap();
        assert_eq!(take(announced), Err(ReceiveRefusal::BodyTooLarge));
    }

    #[test]
    fn upload_form_may_be_longer_and_stored_elsewhere() {
        let limits = RequestLimits {
            uploads: 20,
            ..LIMITS
        };
        let head = |kind: &str, framing: &str| {
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\n{framing}\r\n\r\n")
        };
        let form = head("Multipart/Form-Data; boundary=x", "Content-Length: 20");
        let other = head("multipart/mixed; boundary=x", "Content-Length: 20");
        let refused = Receiver::default().consume(other.as_bytes(), &limits);
        assert_eq!(refused, Err(ReceiveRefusal::BodyTooLarge));
        let mut receiver = Receiver::default();
        receiver.consume(form.as_bytes(), &limits).unwrap();
        receiver.consume(b"0123456789", &limits).unwrap();
        receiver.release_body();
        assert_eq!((receiver.received(), receiver.body()), (10, &b""[..]));
        let rest = receiver.consume(b"abcdefghijGET", &limits);
        assert_eq!(rest, Ok((10, ReceiveProgress::Complete)));
        assert_eq!(
            (receiver.received(), receiver.body()),
            (20, &b"abcdefghij"[..])
        );
        // Released bytes count towards the limit.
        let chunked = head("multipart/form-data", "Transfer-Encoding: chunked");
        let mut receiver = Receiver::default();
        receiver.consume(chunked.as_bytes(), &limits).unwrap();
        receiver.consume(b"a\r\n0123456789\r\n", &limits).unwrap();
        receiver.release_body();
        let too_much = receiver.consume(b"b\r\n0123456789a\r\n", &limits);
        assert_eq!(too_much, Err(ReceiveRefusal::BodyTooLarge));
    }

    #[test]
    fn an_idle_connection_does_not_keep_the_buffers_of_a_large_request() {
        let limits = RequestLimits {
            head: HeadLimits {
                request_line: 512,
                bytes: 1 << 16,
                fields: 1000,
            },
            body: 1 << 20,
            uploads: 0,
        };
        let large = format!(
            "POST / HTTP/1.1\r\nHost: a\r\n{}Content-Length: 50000\r\n\r\n{}",
            "X: y\r\n".repeat(900),
            "b".repeat(50_000)
        );
        let mut receiver = Receiver::default();
        let taken = receiver.consume(large.as_bytes(), &limits);
        assert_eq!(taken, Ok((large.len(), ReceiveProgress::Complete)));
        receiver.reset_for_next();
        let (buf, fields) = &receiver.spare;
        assert!(
            buf.capacity() <= MAX_RETAINED_BUFFER_BYTES
                && receiver.body.capacity() <= MAX_RETAINED_BUFFER_BYTES
        );
        assert!(fields.capacity() * size_of::<(ByteSpan, ByteSpan)>() <= MAX_RETAINED_BUFFER_BYTES);
    }

    #[test]
    fn expect_continue_is_reported_once_and_only_before_body_bytes() {
        let head =
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
        assert_eq!(
            take(head),
            Ok((head.len(), ReceiveProgress::AwaitsContinue))
        );
        let sent = format!("{head}ab");
        assert_eq!(take(&sent), Ok((sent.len(), ReceiveProgress::Complete)));
    }

    #[test]
    fn malformed_request_is_refused_under_the_parsers_name() {
        let refused = take("GET / HTTP/1.1\nHost: a\r\n\r\n").unwrap_err();
        assert_eq!((refused.name(), refused.status()), ("BareLf", 400));
    }
}
