//! The head of a request, independent of the HTTP version that carries it. Nothing is parsed here. Every
//! [`RequestHead`] fulfils these guarantees: the method is a token, the target has no control character, space or NUL,
//! field names are tokens, field values contain no CR, LF or NUL and have no white space around them, and there is
//! exactly one `Host` unless the version is 1.0 (RFC 9112 §3.2).

use std::borrow::Cow;

/// The HTTP version by which a request arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// The request line says `HTTP/1.0`.
    Http10,
    /// The request line says `HTTP/1.1`.
    Http11,
    /// The request came on a stream of an HTTP/2 connection.
    Http2,
    /// The request came on a stream of an HTTP/3 connection.
    Http3,
}

impl HttpVersion {
    /// Returns the version in the form of `SERVER_PROTOCOL`.
    pub fn as_str(self) -> &'static str {
        match self {
            HttpVersion::Http10 => "HTTP/1.0",
            HttpVersion::Http11 => "HTTP/1.1",
            // The form that nginx and Apache use; RFC 9113 itself writes "HTTP/2".
            HttpVersion::Http2 => "HTTP/2.0",
            HttpVersion::Http3 => "HTTP/3.0",
        }
    }
}

/// A range of bytes in the head's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteSpan {
    /// Offset of the span's first byte in the head's buffer.
    pub start: u32,
    /// Offset of the byte after the span's last byte.
    pub end: u32,
}

/// The head of a request. It owns its bytes and is created only by a parser that has checked them.
#[derive(Debug)]
pub struct RequestHead {
    buf: Vec<u8>,
    method: ByteSpan,
    target: ByteSpan,
    version: HttpVersion,
    fields: Vec<(ByteSpan, ByteSpan)>,
}

impl RequestHead {
    /// Creates a head, for use by parsers: `buf` holds the bytes of the head, and the spans point into it. The parser
    /// must ensure the guarantees of this type.
    pub fn new(
        buf: Vec<u8>,
        method: ByteSpan,
        target: ByteSpan,
        version: HttpVersion,
        fields: Vec<(ByteSpan, ByteSpan)>,
    ) -> RequestHead {
        RequestHead {
            buf,
            method,
            target,
            version,
            fields,
        }
    }

    /// Returns this request for another target of the same host and without its body: `HEAD` stays `HEAD`, and every
    /// other method becomes `GET`. Fields that describe a body are removed. `target` is a path with an optional query;
    /// the caller must ensure that it has no control characters or white space.
    pub fn without_body_to(&self, target: &[u8]) -> RequestHead {
        const OF_A_BODY: [&[u8]; 6] = [
            b"content-length",
            b"content-type",
            b"content-encoding",
            b"transfer-encoding",
            b"trailer",
            b"expect",
        ];
        let mut buf = Vec::with_capacity(self.buf.len() + target.len());
        let mut put = |bytes: &[u8]| {
            let start = buf.len() as u32;
            buf.extend_from_slice(bytes);
            let end = buf.len() as u32;
            ByteSpan { start, end }
        };
        let method = put(match self.method() {
            b"HEAD" => b"HEAD",
            _ => b"GET",
        });
        let target = put(target);
        let mut fields = Vec::with_capacity(self.fields.len());
        // The authority of an absolute target takes precedence over the `Host` field, and the new target no longer has
        // it.
        if self.authority().is_some() {
            fields.push((put(b"Host"), put(self.host())));
        }
        let has_host = !fields.is_empty();
        for (name, value) in self.headers() {
            let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
            let replaced = has_host && is(b"host");
            if replaced || OF_A_BODY.iter().any(|known| is(known)) {
                continue;
            }
            fields.push((put(name), put(value)));
        }
        RequestHead::new(buf, method, target, self.version, fields)
    }

    /// Returns this request with the given fields replaced by their new values; a field whose new value is empty is
    /// removed. The caller must ensure that names are lower-case tokens and values are valid field values.
    pub fn with_fields(&self, replaced: &[(&[u8], &[u8])]) -> RequestHead {
        let added: usize = replaced.iter().map(|(n, v)| n.len() + v.len()).sum();
        let mut buf = Vec::with_capacity(self.buf.len() + added);
        buf.extend_from_slice(&self.buf);
        let mut fields = Vec::with_capacity(self.fields.len() + replaced.len());
        let stays = |name: &[u8]| !replaced.iter().any(|(n, _)| name.eq_ignore_ascii_case(n));
        let own = self.fields.iter();
        fields.extend(own.filter(|(name, _)| stays(self.bytes(*name))).copied());
        let mut put = |bytes: &[u8]| {
            let start = buf.len() as u32;
            buf.extend_from_slice(bytes);
            let end = buf.len() as u32;
            ByteSpan { start, end }
        };
        for (name, value) in replaced.iter().filter(|(_, value)| !value.is_empty()) {
            fields.push((put(name), put(value)));
        }
        RequestHead::new(buf, self.method, self.target, self.version, fields)
    }

    /// Returns the buffers for reuse by the next request on the connection.
    pub fn into_buffers(self) -> (Vec<u8>, Vec<(ByteSpan, ByteSpan)>) {
        (self.buf, self.fields)
    }

    fn bytes(&self, span: ByteSpan) -> &[u8] {
        &self.buf[span.start as usize..span.end as usize]
    }

    /// Returns the buffer that the spans point into. After parsing this is the whole head as it was received, blank
    /// line included.
    pub fn bytes_received(&self) -> &[u8] {
        &self.buf
    }

    /// Returns the field at `index`, counted from 0, as (name, value).
    pub fn field(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let (name, value) = self.fields.get(index)?;
        Some((self.bytes(*name), self.bytes(*value)))
    }

    /// Returns the method, which is case-sensitive (RFC 9110 §9.1).
    pub fn method(&self) -> &[u8] {
        self.bytes(self.method)
    }

    /// Returns the request target exactly as in the request line: `REQUEST_URI`.
    pub fn target(&self) -> &[u8] {
        self.bytes(self.target)
    }

    /// Returns the target's path, still percent-encoded; for the absolute form, without scheme and authority. It always
    /// begins with `/`, except for `OPTIONS *`.
    pub fn path(&self) -> &[u8] {
        let target = self.after_authority();
        let path = match target.iter().position(|b| *b == b'?') {
            Some(at) => &target[..at],
            None => target,
        };
        // RFC 9112 §3.2.1: an empty path is sent as "/".
        if path.is_empty() { b"/" } else { path }
    }

    /// Returns the part after the first `?` of the target, if there is one.
    pub fn query(&self) -> Option<&[u8]> {
        let target = self.after_authority();
        let at = target.iter().position(|b| *b == b'?')?;
        Some(&target[at + 1..])
    }

    /// Returns path and query as in the request line, without scheme and authority. They begin with `/`, except for
    /// `OPTIONS *`.
    pub fn path_and_query(&self) -> Cow<'_, [u8]> {
        match self.after_authority() {
            rest @ ([] | [b'?', ..]) => Cow::Owned([b"/", rest].concat()),
            rest => Cow::Borrowed(rest),
        }
    }

    /// Returns path and query. For the absolute form (RFC 9112 §3.2.2) this is the part after the authority, which may
    /// be empty.
    fn after_authority(&self) -> &[u8] {
        let target = self.target();
        match self.authority() {
            Some(authority) => &target[authority.end as usize..],
            None => target,
        }
    }

    /// Returns the position of the absolute form's authority within the target.
    fn authority(&self) -> Option<ByteSpan> {
        let target = self.target();
        if matches!(target, [b'/', ..] | b"*") {
            return None;
        }
        let start = target.windows(3).position(|w| w == b"://")? + 3;
        let len = target[start..]
            .iter()
            .position(|b| matches!(b, b'/' | b'?'))
            .unwrap_or(target.len() - start);
        Some(ByteSpan {
            start: start as u32,
            end: (start + len) as u32,
        })
    }

    /// Returns the host as the client wrote it, with the port if there is one. The authority of an absolute target
    /// takes precedence over `Host` (RFC 9112 §3.2.2).
    pub fn host(&self) -> &[u8] {
        if let Some(authority) = self.authority() {
            return &self.target()[authority.start as usize..authority.end as usize];
        }
        self.header(b"host").unwrap_or(b"")
    }

    /// Returns the HTTP version of the request.
    pub fn version(&self) -> HttpVersion {
        self.version
    }

    /// Returns all header fields in the order in which they arrived.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields
            .iter()
            .map(|(name, value)| (self.bytes(*name), self.bytes(*value)))
    }

    /// Returns the value of the first field with that name, in any case.
    pub fn header(&self, name: &[u8]) -> Option<&[u8]> {
        self.headers()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v)
    }

    /// Returns the values of all fields with that name, in any case.
    pub fn header_all<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.headers()
            .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v)
    }
}
