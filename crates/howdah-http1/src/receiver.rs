//! Puts one request together from the bytes of a connection: head, then the whole body in memory.
//! For a server that calls its script only with complete requests (Swoole's way); the front streams
//! bodies instead and does not use this. Pure: no socket, no clock; who waits and answers is the
//! caller.

use std::fmt;

use crate::chunk::ChunkDecoder;
use crate::framing::BodyKind;
use crate::head::{self, HeadLimits};
use crate::message::{RequestHead, Span};
use crate::refusal::BadRequest;

/// How much a request may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of the head.
    pub head: HeadLimits,
    /// Bytes of the body.
    pub body: u64,
}

/// Why the bytes are no request that is served. The connection closes after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The bytes are not HTTP as this parser takes it.
    Bad(BadRequest),
    /// A body longer than the limit, announced or sent.
    BodyTooLarge,
}

impl Refused {
    /// The name, as in `Howdah-Error`.
    pub fn name(self) -> &'static str {
        match self {
            Refused::Bad(why) => why.name(),
            Refused::BodyTooLarge => "BodyTooLarge",
        }
    }

    /// The status it is answered with.
    pub fn status(self) -> u16 {
        match self {
            Refused::Bad(why) => why.status(),
            Refused::BodyTooLarge => 413,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<BadRequest> for Refused {
    fn from(why: BadRequest) -> Refused {
        Refused::Bad(why)
    }
}

/// What the bytes so far have made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Not a request yet.
    More,
    /// Not yet, and the client waits for `100 Continue` (RFC 9110 §10.1.1). Said once a request.
    AwaitsContinue,
    /// The request is complete; further bytes are the next one's.
    Complete,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Head,
    Length(u64),
    Chunked(ChunkDecoder),
    Complete,
}

/// One request of a connection, then the next.
#[derive(Debug, Default)]
pub struct Receiver {
    state: State,
    head: Option<RequestHead>,
    keep_alive: bool,
    body: Vec<u8>,
    /// Buffers of the head before, to be used again.
    spare: (Vec<u8>, Vec<(Span, Span)>),
}

/// Bytes of a body for which room is made before they have come.
const TRUSTED_LENGTH: u64 = 64 << 10;

impl Receiver {
    /// Takes bytes off the front of `input`; says how many, and what they made. Of an incomplete
    /// head nothing is taken: hand it in again with more behind it.
    pub fn take(&mut self, input: &[u8], limits: &Limits) -> Result<(usize, Received), Refused> {
        let mut used = 0;
        let mut received = Received::More;
        loop {
            match &mut self.state {
                State::Complete => return Ok((used, Received::Complete)),
                State::Head => {
                    let Some(parsed) = head::parse(input, &limits.head, &mut self.spare.1)? else {
                        return Ok((0, Received::More));
                    };
                    used = parsed.len;
                    self.state = match parsed.framing.body {
                        BodyKind::None => State::Complete,
                        BodyKind::Length(n) if n > limits.body => {
                            return Err(Refused::BodyTooLarge);
                        }
                        BodyKind::Length(n) => {
                            self.body.reserve(n.min(TRUSTED_LENGTH) as usize);
                            State::Length(n)
                        }
                        BodyKind::Chunked => State::Chunked(ChunkDecoder::default()),
                    };
                    self.keep_alive = parsed.framing.keep_alive;
                    if parsed.framing.expect_continue && used == input.len() {
                        received = Received::AwaitsContinue;
                    }
                    let (buf, fields) = std::mem::take(&mut self.spare);
                    self.head = Some(parsed.into_head(input, buf, fields));
                }
                State::Length(left) => {
                    let rest = &input[used..];
                    let take = usize::try_from(*left).map_or(rest.len(), |l| l.min(rest.len()));
                    self.body.extend_from_slice(&rest[..take]);
                    used += take;
                    *left -= take as u64;
                    if *left > 0 {
                        return Ok((used, received));
                    }
                    self.state = State::Complete;
                }
                State::Chunked(decoder) => {
                    // One byte beyond the limit tells that it is exceeded.
                    let room = (limits.body - self.body.len() as u64).saturating_add(1);
                    let room = usize::try_from(room).unwrap_or(usize::MAX);
                    used += decoder.decode(&input[used..], &mut self.body, room)?;
                    // A chunk that is announced too large is refused before its bytes have come.
                    let coming = (self.body.len() as u64).saturating_add(decoder.announced());
                    if coming > limits.body {
                        return Err(Refused::BodyTooLarge);
                    }
                    if !decoder.is_done() {
                        return Ok((used, received));
                    }
                    self.state = State::Complete;
                }
            }
        }
    }

    /// The head, once it is complete.
    pub fn head(&self) -> Option<&RequestHead> {
        self.head.as_ref()
    }

    /// The body so far.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The client wants the connection to live on.
    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// A head is there and its body is not all there.
    pub fn in_body(&self) -> bool {
        matches!(self.state, State::Length(_) | State::Chunked(_))
    }

    /// Forgets the request, to receive the next. A large body's memory is given back.
    pub fn next(&mut self) {
        self.state = State::Head;
        if let Some(head) = self.head.take() {
            self.spare = head.into_buffers();
        }
        if self.body.capacity() > TRUSTED_LENGTH as usize {
            self.body = Vec::new();
        } else {
            self.body.clear();
        }
    }

    /// Gives the memory of buffers back: the connection is idle.
    pub fn shrink(&mut self) {
        if self.head.is_none() {
            self.spare = Default::default();
            self.body = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        head: HeadLimits {
            request_line: 512,
            bytes: 2048,
            fields: 20,
        },
        body: 10,
    };

    fn take(input: &str) -> Result<(usize, Received), Refused> {
        Receiver::default().take(input.as_bytes(), &LIMITS)
    }

    #[test]
    fn a_request_without_a_body_is_complete_with_its_head() {
        let head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(take(head), Ok((head.len(), Received::Complete)));
        let two = format!("{head}{head}");
        assert_eq!(take(&two), Ok((head.len(), Received::Complete)));
        assert_eq!(take(&head[..20]), Ok((0, Received::More)));
    }

    #[test]
    fn a_body_is_gathered_in_pieces_and_the_next_request_follows() {
        let mut receiver = Receiver::default();
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab";
        assert_eq!(
            receiver.take(head, &LIMITS),
            Ok((head.len(), Received::More))
        );
        assert!(receiver.in_body());
        assert_eq!(
            receiver.take(b"cdeGET /", &LIMITS),
            Ok((3, Received::Complete))
        );
        assert_eq!(receiver.body(), b"abcde");
        assert!(receiver.keep_alive());
        receiver.next();
        assert!(receiver.head().is_none() && receiver.body().is_empty());
        let head = b"GET /2 HTTP/1.0\r\n\r\n";
        assert_eq!(
            receiver.take(head, &LIMITS),
            Ok((head.len(), Received::Complete))
        );
        assert_eq!(receiver.head().unwrap().target(), b"/2");
        assert!(!receiver.keep_alive());
    }

    #[test]
    fn a_chunked_body_is_decoded() {
        let mut receiver = Receiver::default();
        let all = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET";
        assert_eq!(
            receiver.take(all, &LIMITS),
            Ok((all.len() - 3, Received::Complete))
        );
        assert_eq!(receiver.body(), b"abc");
    }

    #[test]
    fn a_body_beyond_the_limit_is_refused_announced_or_not() {
        let long = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n";
        assert_eq!(take(long), Err(Refused::BodyTooLarge));
        let chunked =
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nabcdefghijk";
        assert_eq!(take(chunked), Err(Refused::BodyTooLarge));
        let announced = chunked.strip_suffix("abcdefghijk").unwrap();
        assert_eq!(take(announced), Err(Refused::BodyTooLarge));
    }

    #[test]
    fn a_client_that_waits_is_told_once_and_only_if_it_has_sent_nothing() {
        let head =
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
        assert_eq!(take(head), Ok((head.len(), Received::AwaitsContinue)));
        let sent = format!("{head}ab");
        assert_eq!(take(&sent), Ok((sent.len(), Received::Complete)));
    }

    #[test]
    fn what_is_no_http_is_refused_under_the_parsers_name() {
        let refused = take("GET / HTTP/1.1\nHost: a\r\n\r\n").unwrap_err();
        assert_eq!((refused.name(), refused.status()), ("BareLf", 400));
    }
}
