//! The client's side: reads responses and compares each with the model. It shares no code with the server.

use std::io::Read;

use super::model::Expected;

/// Parses the received bytes into responses (RFC 9112 §6.3), and compares each with the model.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(received: &'a [u8]) -> Reader<'a> {
        Reader(received)
    }

    /// Returns the bytes after the complete responses, and the number of these.
    pub fn answers(mut self, expected: &[Expected]) -> (&'a [u8], usize) {
        for (n, expected) in expected.iter().enumerate() {
            let before = self.0;
            if self.answer(expected).is_none() {
                return (before, n);
            }
        }
        (self.0, expected.len())
    }

    /// Returns `None` if the response is incomplete.
    fn answer(&mut self, expected: &Expected) -> Option<()> {
        let head = loop {
            let head = self.head()?;
            if !head.starts_with("HTTP/1.1 1") {
                break head;
            }
        };
        let status: u16 = head.get(9..12)?.parse().expect("a status");
        let field = |name: &str| {
            let fields = head.lines().filter_map(|line| line.split_once(": "));
            let mut found = fields
                .filter(|(n, _)| n.eq_ignore_ascii_case(name))
                .map(|(_, v)| v);
            let first = found.next();
            assert!(
                name == "vary" || found.next().is_none(),
                "two fields {name} in {head}"
            );
            first
        };
        let head_only = match expected {
            Expected::Answer { head_only, .. } | Expected::Status { head_only, .. } => *head_only,
            Expected::Refusal => false,
        };
        let mut body = match (field("transfer-encoding"), field("content-length")) {
            _ if head_only || status == 204 || status == 304 => Vec::new(),
            (Some(coding), None) => {
                assert_eq!(coding, "chunked");
                self.chunked()?
            }
            (None, Some(length)) => self.take(length.parse().expect("a length"))?.to_vec(),
            other => panic!("an answer framed by {other:?}: {head}"),
        };
        match expected {
            Expected::Status { status: wanted, .. } => assert_eq!(status, *wanted, "{head}"),
            Expected::Refusal => {
                assert!(
                    (400..=505).contains(&status),
                    "a refusal was expected: {head}"
                );
                assert_eq!(field("connection"), Some("close"), "{head}");
            }
            Expected::Answer {
                status: wanted,
                body: content,
                id,
                head_only,
            } => {
                assert_eq!(status, *wanted, "{head}");
                assert_eq!(field("x-id"), id.as_deref(), "another request's answer");
                if field("content-encoding") == Some("gzip") && !*head_only {
                    let mut plain = Vec::new();
                    let mut decoder = flate2::read::MultiGzDecoder::new(&body[..]);
                    decoder.read_to_end(&mut plain).expect("gzip");
                    body = plain;
                }
                if !*head_only {
                    assert!(
                        body == *content,
                        "the body is not the one of its request: {head}"
                    );
                }
            }
        }
        Some(())
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
