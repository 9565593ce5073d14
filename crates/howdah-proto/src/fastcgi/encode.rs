//! Writes a request's records into a buffer. The caller sends it; one buffer holds BEGIN_REQUEST,
//! PARAMS and a small body, so that a request is one write.

use super::{HEADER, MAX_CONTENT, REQUEST_ID, Role, VERSION, kind};

/// A name and its value do not fit one record together, and PHP reads no pair from two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariableTooLong {
    /// Bytes the pair would take, with its two length fields.
    pub length: usize,
}

/// A record's header. `content` is at most 65535.
pub fn header(kind: u8, id: u16, content: usize) -> [u8; HEADER] {
    let id = id.to_be_bytes();
    let length = u16::try_from(content).unwrap_or(u16::MAX).to_be_bytes();
    [VERSION, kind, id[0], id[1], length[0], length[1], 0, 0]
}

/// BEGIN_REQUEST (§5.1). `keep`: the connection is ours to close.
pub fn begin(out: &mut Vec<u8>, role: Role, keep: bool) {
    out.extend_from_slice(&header(kind::BEGIN_REQUEST, REQUEST_ID, 8));
    let role = (role as u16).to_be_bytes();
    out.extend_from_slice(&[role[0], role[1], u8::from(keep), 0, 0, 0, 0, 0]);
}

/// The PARAMS stream (§5.2), begun in `out`. Ends with [`Params::finish`].
#[derive(Debug)]
pub struct Params<'o> {
    out: &'o mut Vec<u8>,
    /// Where the open record's header is.
    record: usize,
}

impl<'o> Params<'o> {
    /// Begins the PARAMS stream with an empty record at the end of `out`.
    pub fn new(out: &'o mut Vec<u8>) -> Params<'o> {
        let record = out.len();
        out.extend_from_slice(&header(kind::PARAMS, REQUEST_ID, 0));
        Params { out, record }
    }

    /// Adds a variable whose value is the concatenation of `parts`.
    pub fn parts(&mut self, name: &[u8], parts: &[&[u8]]) -> Result<(), VariableTooLong> {
        let value: usize = parts.iter().map(|part| part.len()).sum();
        let pair = pair_len(name.len(), value);
        if pair > MAX_CONTENT {
            return Err(VariableTooLong { length: pair });
        }
        if self.content() + pair > MAX_CONTENT {
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

    /// Adds a variable to the stream.
    pub fn pair(&mut self, name: &[u8], value: &[u8]) -> Result<(), VariableTooLong> {
        self.parts(name, &[value])
    }

    fn content(&self) -> usize {
        self.out.len() - self.record - HEADER
    }

    fn close_record(&mut self) {
        let closed = header(kind::PARAMS, REQUEST_ID, self.content());
        self.out[self.record..self.record + HEADER].copy_from_slice(&closed);
    }

    /// Ends the stream with its empty record.
    pub fn finish(self) {
        let mut this = self;
        if this.content() > 0 {
            this.close_record();
            let end = header(kind::PARAMS, REQUEST_ID, 0);
            this.out.extend_from_slice(&end);
        }
    }
}

/// Bytes of a pair with its two lengths (§3.4).
fn pair_len(name: usize, value: usize) -> usize {
    let of = |length| if length < 128 { 1 } else { 4 };
    of(name) + of(value) + name + value
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short @ 0..128) => out.push(short),
        // At most MAX_CONTENT: the high bit is free to say that there are four bytes.
        _ => out.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes()),
    }
}

/// STDIN records (§5.3) of `bytes`, which may be empty: then nothing is written, since an empty
/// record ends the stream.
pub fn stdin(out: &mut Vec<u8>, bytes: &[u8]) {
    for piece in bytes.chunks(MAX_CONTENT) {
        out.extend_from_slice(&header(kind::STDIN, REQUEST_ID, piece.len()));
        out.extend_from_slice(piece);
    }
}

/// The empty record that ends STDIN.
pub fn stdin_end(out: &mut Vec<u8>) {
    out.extend_from_slice(&header(kind::STDIN, REQUEST_ID, 0));
}

/// GET_VALUES (§4.1) for these names, all short: a question that costs an application no request.
pub fn get_values(out: &mut Vec<u8>, names: &[&str]) {
    let content: usize = names.iter().map(|name| pair_len(name.len(), 0)).sum();
    out.extend_from_slice(&header(kind::GET_VALUES, 0, content));
    for name in names {
        put_length(out, name.len());
        put_length(out, 0);
        out.extend_from_slice(name.as_bytes());
    }
}

/// Reads name-value pairs (§3.4), as in GET_VALUES_RESULT. Ends at the first that is not whole.
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
