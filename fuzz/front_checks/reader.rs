//! The client's side: reads responses and compares each with the model. It shares no code with the server.

use std::io::Read;

use super::model::Expected;

/// A complete response.
pub struct Response {
    pub status: u16,
    pub head: String,
    /// The body without its transfer coding.
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the value of a header, which must not be there twice.
    pub fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut found = fields
            .filter(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v);
        let first = found.next();
        assert!(
            name == "vary" || found.next().is_none(),
            "two fields {name} in {}",
            self.head
        );
        first
    }

    /// Panics if this is not the response that the model expects.
    pub fn assert_is(&self, expected: &Expected) {
        let (status, head) = (self.status, &self.head);
        match expected {
            Expected::Status { status: wanted, .. } => assert_eq!(status, *wanted, "{head}"),
            Expected::Refusal => {
                assert!(
                    (400..=505).contains(&status),
                    "a refusal was expected: {head}"
                );
                assert_eq!(self.field("connection"), Some("close"), "{head}");
            }
            Expected::Answer {
                status: wanted,
                body: content,
                id,
                head_only,
            } => {
                assert_eq!(status, *wanted, "{head}");
                assert_eq!(
                    self.field("x-id"),
                    id.as_deref(),
                    "another request's answer"
                );
                if !*head_only {
                    assert!(
                        self.decoded_body() == *content,
                        "the body is not the one of its request: {head}"
                    );
                }
            }
        }
    }

    /// Returns the body without its content coding.
    fn decoded_body(&self) -> Vec<u8> {
        if self.field("content-encoding") != Some("gzip") {
            return self.body.clone();
        }
        let mut plain = Vec::new();
        let mut decoder = flate2::read::MultiGzDecoder::new(&self.body[..]);
        decoder.read_to_end(&mut plain).expect("gzip");
        plain
    }
}

/// Parses the received bytes into responses (RFC 9112 §6.3), and compares each with the model.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(received: &'a [u8]) -> Reader<'a> {
        Reader(received)
    }

    /// Returns the bytes that have not been parsed.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Returns the next final response, or `None` if it is incomplete. A response to HEAD has no body.
    pub fn response(&mut self, head_only: bool) -> Option<Response> {
        let head = loop {
            let head = self.head()?;
            if !head.starts_with("HTTP/1.1 1") {
                break head;
            }
        };
        let status: u16 = head.get(9..12)?.parse().expect("a status");
        let mut response = Response {
            status,
            head,
            body: Vec::new(),
        };
        let framing = (
            response.field("transfer-encoding"),
            response.field("content-length"),
        );
        response.body = match framing {
            _ if head_only || status == 204 || status == 304 => Vec::new(),
            (Some(coding), None) => {
                assert_eq!(coding, "chunked");
                self.chunked()?
            }
            (None, Some(length)) => self.take(length.parse().expect("a length"))?.to_vec(),
            other => panic!("an answer framed by {other:?}: {}", response.head),
        };
        Some(response)
    }

    fn head(&mut self) -> Option<String> {
        let end = self.0.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
        let head = self.take(end)?;
        Some(String::from_utf8(head.to_vec()).expect("an ASCII head"))
    }

    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn chunked(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = self.0.windows(2).position(|w| w == b"\r\n")?;
            let line = std::str::from_utf8(self.take(end)?).expect("a chunk size");
            self.take(2)?;
            let size = usize::from_str_radix(line, 16).expect("a chunk size");
            body.extend_from_slice(self.take(size)?);
            assert_eq!(self.take(2)?, b"\r\n");
            if size == 0 {
                return Some(body);
            }
        }
    }
}
