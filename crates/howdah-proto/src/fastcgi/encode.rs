//! Writes a request's records into a buffer, which the caller sends. One buffer holds BEGIN_REQUEST, PARAMS and a small
//! body, so a request takes one write.

use super::{FastCgiRole, HEADER_BYTES, MAX_CONTENT_BYTES, REQUEST_ID, VERSION, kind};

/// A name and its value together do not fit in one record, and PHP does not accept a pair that is split over two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariableTooLong {
    /// The length of the pair with its two length fields, in bytes.
    pub length: usize,
}

/// Returns a record header. `content` is at most 65535.
pub fn header(kind: u8, id: u16, content: usize) -> [u8; HEADER_BYTES] {
    let id = id.to_be_bytes();
    let length = u16::try_from(content).unwrap_or(u16::MAX).to_be_bytes();
    [VERSION, kind, id[0], id[1], length[0], length[1], 0, 0]
}

/// Appends BEGIN_REQUEST (§5.1). `keep` sets `FCGI_KEEP_CONN`: the web server, not the application, closes the
/// connection.
pub fn begin(out: &mut Vec<u8>, role: FastCgiRole, keep: bool) {
    out.extend_from_slice(&header(kind::BEGIN_REQUEST, REQUEST_ID, 8));
    let role = (role as u16).to_be_bytes();
    out.extend_from_slice(&[role[0], role[1], u8::from(keep), 0, 0, 0, 0, 0]);
}

/// The PARAMS stream (§5.2) in `out`. [`Params::finish`] ends it.
#[derive(Debug)]
pub struct Params<'o> {
    out: &'o mut Vec<u8>,
    /// Offset of the open record's header.
    record: usize,
}

impl<'o> Params<'o> {
    /// Begins the PARAMS stream with an open record at the end of `out`, to which variables are appended.
    pub fn new(out: &'o mut Vec<u8>) -> Params<'o> {
        let record = out.len();
        out.extend_from_slice(&header(kind::PARAMS, REQUEST_ID, 0));
        Params { out, record }
    }

    /// Appends a variable whose value is the concatenation of `parts`.
    ///
    /// # Errors
    /// The pair does not fit in one record.
    pub fn parts(&mut self, name: &[u8], parts: &[&[u8]]) -> Result<(), VariableTooLong> {
        let value: usize = parts.iter().map(|part| part.len()).sum();
        let pair = pair_len(name.len(), value);
        if pair > MAX_CONTENT_BYTES {
            return Err(VariableTooLong { length: pair });
        }
        if self.content() + pair > MAX_CONTENT_BYTES {
            self.close_record();
            self.record = self.out.len();
            let empty = header(kind::PARAMS, REQUEST_ID, 0);
            self.out.extend_from_slice(&empty);
        }
        put_length(self.out, name.len());
        put_length(self.out, value);
        self.out.extend_from_slice(name);
        for part in parts {
            self.out.extend_from_slice(part);
        }
        Ok(())
    }

    /// Appends a variable.
    ///
    /// # Errors
    /// The pair does not fit in one record.
    pub fn pair(&mut self, name: &[u8], value: &[u8]) -> Result<(), VariableTooLong> {
        self.parts(name, &[value])
    }

    fn content(&self) -> usize {
        self.out.len() - self.record - HEADER_BYTES
    }

    fn close_record(&mut self) {
        let closed = header(kind::PARAMS, REQUEST_ID, self.content());
        self.out[self.record..self.record + HEADER_BYTES].copy_from_slice(&closed);
    }

    /// Ends the stream with an empty record.
    pub fn finish(self) {
        let mut this = self;
        if this.content() > 0 {
            this.close_record();
            let end = header(kind::PARAMS, REQUEST_ID, 0);
            this.out.extend_from_slice(&end);
        }
    }
}

/// Returns the length in bytes of a pair with its two length fields (§3.4).
fn pair_len(name: usize, value: usize) -> usize {
    let of = |length| if length < 128 { 1 } else { 4 };
    of(name) + of(value) + name + value
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short @ 0..128) => out.push(short),
        // The length is at most MAX_CONTENT_BYTES, so the high bit is free to mark a length of four bytes.
        _ => out.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes()),
    }
}

/// Appends STDIN records (§5.3) with `bytes`. Appends nothing if `bytes` is empty, since an empty record would end the
/// stream.
pub fn stdin(out: &mut Vec<u8>, bytes: &[u8]) {
    for piece in bytes.chunks(MAX_CONTENT_BYTES) {
        out.extend_from_slice(&header(kind::STDIN, REQUEST_ID, piece.len()));
        out.extend_from_slice(piece);
    }
}

/// Appends the empty record that ends STDIN.
pub fn stdin_end(out: &mut Vec<u8>) {
    out.extend_from_slice(&header(kind::STDIN, REQUEST_ID, 0));
}

/// Appends GET_VALUES (§4.1) for these names, all of which must be short. An application replies to it without using up
/// a request.
pub fn get_values(out: &mut Vec<u8>, names: &[&str]) {
    let content: usize = names.iter().map(|name| pair_len(name.len(), 0)).sum();
    out.extend_from_slice(&header(kind::GET_VALUES, 0, content));
    for name in names {
        put_length(out, name.len());
        put_length(out, 0);
        out.extend_from_slice(name.as_bytes());
    }
}

/// Parses name-value pairs (§3.4), as in GET_VALUES_RESULT. Stops at the first incomplete pair.
pub fn pairs(mut bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let name = take_length(&mut bytes)?;
        let value = take_length(&mut bytes)?;
        let (name, rest) = bytes.split_at_checked(name)?;
        let (value, rest) = rest.split_at_checked(value)?;
        bytes = rest;
        Some((name, value))
    })
}

fn take_length(bytes: &mut &[u8]) -> Option<usize> {
    let first = *bytes.first()?;
    let (length, used) = if first < 128 {
        (u32::from(first), 1)
    } else {
        let four = bytes.get(..4)?.try_into().ok()?;
        (u32::from_be_bytes(four) & !(1 << 31), 4)
    };
    *bytes = &bytes[used..];
    usize::try_from(length).ok()
}
