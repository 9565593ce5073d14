//! Reads a response from its first byte to its last, in pieces of any size. In the common case, a head within one
//! piece, nothing is copied.

use super::ResponseFault;
use super::chunked::ChunkedDecoder;
use super::head::{self, BodyFraming, Http1Head};

/// Receives the parts of a response.
pub trait ResponsePartSink {
    /// Takes a whole head, its empty line included. Also called for interim ones (1xx).
    fn head(&mut self, _: &Http1Head, _: &[u8]) {}
    /// Takes a field of a head. If the head came in pieces, its fields may be passed more than once.
    fn field(&mut self, name: &[u8], value: &[u8]);
    /// Takes a piece of the body, without chunk framing.
    fn body(&mut self, bytes: &[u8]);
}

impl ResponsePartSink for () {
    fn field(&mut self, _: &[u8], _: &[u8]) {}
    fn body(&mut self, _: &[u8]) {}
}

/// Reads one response. [`ResponseReader::begin`] prepares it for the next.
#[derive(Debug)]
pub struct ResponseReader {
    state: ReaderState,
    /// Whether the request was HEAD, whose response has no body whatever the head says.
    head_only: bool,
    head: Option<Http1Head>,
    body_length: u64,
    /// The beginning of a head that came in pieces.
    partial: Vec<u8>,
}

#[derive(Debug)]
enum ReaderState {
    Head,
    Length(u64),
    Chunked(ChunkedDecoder),
    UntilClose,
    Done,
}

/// What the end of the connection means for the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEndEffect {
    /// The response is complete: its body ends with the connection.
    Complete,
    /// The response had not begun.
    Nothing,
    /// The response had begun and is not complete.
    Truncated,
}

impl Default for ResponseReader {
    fn default() -> Self {
        ResponseReader {
            state: ReaderState::Done,
            head_only: false,
            head: None,
            body_length: 0,
            partial: Vec::new(),
        }
    }
}

impl ResponseReader {
    /// Prepares for a response; `head_only` if the request is HEAD.
    pub fn begin(&mut self, head_only: bool) {
        self.state = ReaderState::Head;
        self.head_only = head_only;
        self.head = None;
        self.body_length = 0;
        self.partial.clear();
    }

    /// Returns whether the response is complete.
    pub fn is_done(&self) -> bool {
        matches!(self.state, ReaderState::Done)
    }

    /// Returns the head of the response; `None` until it is complete. Interim responses (1xx) are skipped.
    pub fn head(&self) -> Option<&Http1Head> {
        self.head.as_ref()
    }

    /// Returns the number of bytes of the body received so far, without chunk framing.
    pub fn body_length(&self) -> u64 {
        self.body_length
    }

    /// Returns whether the connection can carry another response after this one.
    pub fn keeps_connection(&self) -> bool {
        self.head.is_some_and(|head| {
            head.keep && (self.bodyless(head.status) || head.framing != BodyFraming::Close)
        })
    }

    /// Reads a piece. Returns how many bytes it consumed: all of them, unless the response is complete.
    pub fn feed(
        &mut self,
        input: &[u8],
        sink: &mut impl ResponsePartSink,
    ) -> Result<usize, ResponseFault> {
        let mut at = 0;
        while at < input.len() {
            let rest = &input[at..];
            at += match &mut self.state {
                ReaderState::Head => self.feed_head(rest, sink)?,
                ReaderState::Length(left) => {
                    let take = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= take as u64;
                    self.body_length += take as u64;
                    if *left == 0 {
                        self.state = ReaderState::Done;
                    }
                    sink.body(&rest[..take]);
                    take
                }
                ReaderState::Chunked(chunked) => {
                    let length = &mut self.body_length;
                    let used = chunked.feed(rest, |data| {
                        *length += data.len() as u64;
                        sink.body(data);
                    })?;
                    if chunked.is_done() {
                        self.state = ReaderState::Done;
                    }
                    used
                }
                ReaderState::UntilClose => {
                    self.body_length += rest.len() as u64;
                    sink.body(rest);
                    rest.len()
                }
                ReaderState::Done => break,
            };
        }
        Ok(at)
    }

    /// Returns what the end of the connection means for the response.
    pub fn end(&mut self) -> ConnectionEndEffect {
        match self.state {
            ReaderState::UntilClose | ReaderState::Done => {
                self.state = ReaderState::Done;
                ConnectionEndEffect::Complete
            }
            ReaderState::Head if self.partial.is_empty() => ConnectionEndEffect::Nothing,
            _ => ConnectionEndEffect::Truncated,
        }
    }

    fn feed_head(
        &mut self,
        input: &[u8],
        sink: &mut impl ResponsePartSink,
    ) -> Result<usize, ResponseFault> {
        if self.partial.is_empty() {
            return match head::parse(input, |name, value| sink.field(name, value))? {
                Some((head, used)) => {
                    sink.head(&head, &input[..used]);
                    self.take_head(head).map(|()| used)
                }
                None => {
                    self.partial.extend_from_slice(input);
                    Ok(input.len())
                }
            };
        }
        let before = self.partial.len();
        self.partial.extend_from_slice(input);
        // A head that arrives slowly is parsed once per line, not once per byte. Its first bytes are checked at once,
        // because garbage may never have a line end.
        let begun = "HTTP/".len()..head::MAX_HEAD_BYTES;
        if memchr::memchr(b'\n', input).is_none() && begun.contains(&before) {
            return Ok(input.len());
        }
        let parsed = head::parse(&self.partial, |name, value| sink.field(name, value))?;
        let Some((head, length)) = parsed else {
            return Ok(input.len());
        };
        sink.head(&head, &self.partial[..length]);
        // The buffer is freed, not cleared. Otherwise each of thousands of connections would keep the memory of its
        // longest head.
        self.partial = Vec::new();
        self.take_head(head).map(|()| length - before)
    }

    fn take_head(&mut self, head: Http1Head) -> Result<(), ResponseFault> {
        match head.status {
            101 => return Err(ResponseFault::Switching),
            100..=199 => return Ok(()),
            _ => {}
        }
        self.state = match head.framing {
            _ if self.bodyless(head.status) => ReaderState::Done,
            BodyFraming::Length(0) => ReaderState::Done,
            BodyFraming::Length(length) => ReaderState::Length(length),
            BodyFraming::Chunked => ReaderState::Chunked(ChunkedDecoder::default()),
            BodyFraming::Close => ReaderState::UntilClose,
        };
        self.head = Some(head);
        Ok(())
    }

    /// Returns whether the response has no body whatever its head says (RFC 9112 §6.3).
    fn bodyless(&self, status: u16) -> bool {
        self.head_only || matches!(status, 204 | 304)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct SeenParts {
        fields: usize,
        body: Vec<u8>,
    }

    impl ResponsePartSink for SeenParts {
        fn field(&mut self, _: &[u8], _: &[u8]) {
            self.fields += 1;
        }
        fn body(&mut self, bytes: &[u8]) {
            self.body.extend_from_slice(bytes);
        }
    }

    /// Checks the response's body and the remaining bytes, for every way to cut the bytes in two.
    #[track_caller]
    fn check(text: &str, head_only: bool, body: &str, rest: &str) {
        for cut in 0..=text.len() {
            let (mut reader, mut seen) = (ResponseReader::default(), SeenParts::default());
            reader.begin(head_only);
            let (first, second) = text.as_bytes().split_at(cut);
            let mut used = reader.feed(first, &mut seen).unwrap();
            if used == first.len() {
                used += reader.feed(second, &mut seen).unwrap();
            }
            assert_eq!(seen.body, body.as_bytes(), "{text:?} cut at {cut}");
            assert_eq!(&text[used..], rest, "{text:?} cut at {cut}");
            assert_eq!(reader.body_length(), body.len() as u64);
            assert_eq!(reader.end(), ConnectionEndEffect::Complete);
        }
    }

    #[test]
    fn reader_finds_the_end_however_bytes_are_cut() {
        let ok = "HTTP/1.1 200 OK\r\n";
        check(
            &format!("{ok}Content-Length: 5\r\n\r\nhelloHTTP"),
            false,
            "hello",
            "HTTP",
        );
        check(&format!("{ok}Content-Length: 0\r\n\r\n"), false, "", "");
        check(
            &format!("{ok}Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n!"),
            false,
            "ab",
            "!",
        );
        check(
            &format!("{ok}Connection: close\r\n\r\nto the end"),
            false,
            "to the end",
            "",
        );
        check(&format!("{ok}Content-Length: 5\r\n\r\n"), true, "", "");
        check(
            "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nx",
            false,
            "",
            "x",
        );
        check(
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
            false,
            "",
            "",
        );
        check(
            &format!("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n{ok}Content-Length: 1\r\n\r\ny"),
            false,
            "y",
            "",
        );
    }

    #[test]
    fn reader_reports_truncation() {
        for (text, end) in [
            ("", ConnectionEndEffect::Nothing),
            ("HTTP", ConnectionEndEffect::Truncated),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na",
                ConnectionEndEffect::Truncated,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
                ConnectionEndEffect::Truncated,
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\n",
                ConnectionEndEffect::Nothing,
            ),
            ("HTTP/1.1 200 OK\r\n\r\nabc", ConnectionEndEffect::Complete),
        ] {
            let mut reader = ResponseReader::default();
            reader.begin(false);
            reader.feed(text.as_bytes(), &mut ()).unwrap();
            assert_eq!(reader.end(), end, "{text:?}");
        }
    }

    #[test]
    fn reader_refuses_an_unrequested_upgrade() {
        let mut reader = ResponseReader::default();
        reader.begin(false);
        let text = b"HTTP/1.1 101 Switching Protocols\r\n\r\n";
        assert_eq!(reader.feed(text, &mut ()), Err(ResponseFault::Switching));
    }

    #[test]
    fn reader_does_not_keep_connection_that_ends_the_body() {
        let mut reader = ResponseReader::default();
        reader.begin(false);
        reader.feed(b"HTTP/1.1 200 OK\r\n\r\n", &mut ()).unwrap();
        assert!(!reader.keeps_connection());
    }
}
