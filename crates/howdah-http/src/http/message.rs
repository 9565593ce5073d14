//! A request's head (`howdah-http1`) and a response's head, independent of the HTTP version that
//! carries them.

pub use howdah_http1::message::{RequestHead, Span, Version};

/// A response's head as a handler makes it. Framing and connection fields (`Content-Length`,
/// `Transfer-Encoding`, `Connection`, `Date`, `Server`) are the connection's business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status code, 100 to 999.
    pub status: u16,
    /// A reason phrase other than the standard one.
    pub reason: Option<Vec<u8>>,
    /// The status is a script's own, also if it is 200 and the script is the document of an error.
    pub has_own_status: bool,
    /// Header lines, serialised: `Name: value\r\n` each.
    lines: Vec<u8>,
}

impl ResponseHead {
    /// A head with this status and no fields.
    pub fn new(status: u16) -> ResponseHead {
        ResponseHead {
            status,
            reason: None,
            has_own_status: false,
            lines: Vec::new(),
        }
    }

    /// Makes room for this many bytes of fields, so that adding them allocates once.
    pub fn reserve(&mut self, bytes: usize) -> &mut Self {
        self.lines.reserve(bytes);
        self
    }

    /// Adds a field. The caller vouches that name and value are a token and a field value
    /// ([`howdah_http1::head::is_token`], `is_field_value`).
    pub fn header(&mut self, name: &[u8], value: &[u8]) -> &mut Self {
        debug_assert!(howdah_http1::head::is_token(name));
        debug_assert!(howdah_http1::head::is_field_value(value));
        for part in [name, b": ", value, b"\r\n"] {
            self.lines.extend_from_slice(part);
        }
        self
    }

    /// Removes every field of that name, in any case.
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

    /// The fields as (name, value), in order.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines.split(|b| *b == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = line.iter().position(|b| *b == b':')?;
            Some((&line[..colon], &line[colon + 2..]))
        })
    }

    /// The header fields as they are sent.
    pub fn lines(&self) -> &[u8] {
        &self.lines
    }
}

/// Whether a header describes the content of a response, which a 1xx or 304 does not have. The
/// `Content-Security-Policy` is the page's, and browsers take it from a 304 as well.
pub fn describes_content(name: &[u8]) -> bool {
    const POLICY: &[u8] = b"content-security-policy";
    let begins = |prefix: &[u8]| {
        let start = name.get(..prefix.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    begins(b"content-") && !begins(POLICY)
}
