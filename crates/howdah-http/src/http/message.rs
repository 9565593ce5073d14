//! The head of a request (`howdah-http1`) and of a response, independent of the HTTP version that carries them.

pub use howdah_http1::message::{ByteSpan, HttpVersion, RequestHead};

/// A response's head as a handler creates it. The connection adds framing and connection headers (`Content-Length`,
/// `Transfer-Encoding`, `Connection`, `Date`, `Server`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status code, 100 to 999.
    pub status: u16,
    /// A reason phrase that replaces the standard one.
    pub reason: Option<Vec<u8>>,
    /// Whether a script set the status itself, even to 200 in a script that generates an error document.
    pub has_own_status: bool,
    /// The serialised header lines, each in the form `Name: value\r\n`.
    lines: Vec<u8>,
}

impl ResponseHead {
    /// Creates a head with this status and no headers.
    pub fn new(status: u16) -> ResponseHead {
        ResponseHead {
            status,
            reason: None,
            has_own_status: false,
            lines: Vec::new(),
        }
    }

    /// Reserves space for this many bytes of headers, so adding them allocates only once.
    pub fn reserve(&mut self, bytes: usize) -> &mut Self {
        self.lines.reserve(bytes);
        self
    }

    /// Adds a header. The caller must ensure that the name is a token and the value is a field value
    /// ([`howdah_http1::head::is_token`], `is_field_value`).
    pub fn header(&mut self, name: &[u8], value: &[u8]) -> &mut Self {
        debug_assert!(howdah_http1::head::is_token(name));
        debug_assert!(howdah_http1::head::is_field_value(value));
        for part in [name, b": ", value, b"\r\n"] {
            self.lines.extend_from_slice(part);
        }
        self
    }

    /// Removes every header with that name, in any case.
    pub fn remove(&mut self, name: &[u8]) -> &mut Self {
        if !self.fields().any(|(own, _)| own.eq_ignore_ascii_case(name)) {
            return self;
        }
        let mut kept = Vec::with_capacity(self.lines.len());
        for line in self.lines.split_inclusive(|b| *b == b'\n') {
            let is_it = line.len() > name.len()
                && line[name.len()] == b':'
                && line[..name.len()].eq_ignore_ascii_case(name);
            if !is_it {
                kept.extend_from_slice(line);
            }
        }
        self.lines = kept;
        self
    }

    /// Returns the headers as (name, value), in order.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines.split(|b| *b == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = line.iter().position(|b| *b == b':')?;
            Some((&line[..colon], &line[colon + 2..]))
        })
    }

    /// Returns the serialised header lines.
    pub fn lines(&self) -> &[u8] {
        &self.lines
    }
}

/// Returns whether a header describes the content of a response, which a 1xx or 304 response does not have.
/// `Content-Security-Policy` belongs to the page, and browsers also accept it from a 304.
pub fn describes_content(name: &[u8]) -> bool {
    const POLICY: &[u8] = b"content-security-policy";
    let begins = |prefix: &[u8]| {
        let start = name.get(..prefix.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    begins(b"content-") && !begins(POLICY)
}
