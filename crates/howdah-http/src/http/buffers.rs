//! Buffers that connections borrow while they have something to read, parse or send, one pool a
//! thread: an idle connection owns none. Not a general allocator: what does not fit is freed.
//!
//! What a client makes the server keep is bounded by the memory it occupies, not by the bytes in
//! it: a buffer that is kept is at least half full ([`keep`]).

use std::cell::RefCell;

use bytes::Bytes;

use super::message::Span;

/// Buffers grown beyond this are freed instead of kept: whoever takes one next, a short head
/// perhaps, would hold all of it for as long as a script runs.
const KEEP_CAPACITY: usize = 8 << 10;
/// How many of each kind a thread keeps.
const KEEP: usize = 256;
/// Bytes asked of a socket at once.
pub(super) const SCRATCH: usize = 64 << 10;

/// Spans of field names and values.
pub(super) type Fields = Vec<(Span, Span)>;

#[derive(Default)]
struct BufferPool {
    bytes: Vec<Vec<u8>>,
    fields: Vec<Fields>,
}

thread_local! {
    static POOL: RefCell<BufferPool> = RefCell::default();
    static READ: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into_boxed_slice());
    static PIECE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Takes an empty byte buffer from the thread's spare ones.
pub(super) fn take_bytes() -> Vec<u8> {
    POOL.with_borrow_mut(|pool| pool.bytes.pop())
        .unwrap_or_else(|| Vec::with_capacity(2048))
}

/// Gives a byte buffer back.
pub(super) fn give_bytes(mut buf: Vec<u8>) {
    if buf.capacity() == 0 || buf.capacity() > KEEP_CAPACITY {
        return;
    }
    buf.clear();
    POOL.with_borrow_mut(|pool| {
        if pool.bytes.len() < KEEP {
            pool.bytes.push(buf);
        }
    });
}

/// Takes an empty list of fields from the thread's spare ones.
pub(super) fn take_fields() -> Fields {
    POOL.with_borrow_mut(|pool| pool.fields.pop())
        .unwrap_or_else(|| Vec::with_capacity(32))
}

/// Gives a list of fields back.
pub(super) fn give_fields(mut fields: Fields) {
    fields.clear();
    POOL.with_borrow_mut(|pool| {
        if pool.fields.len() < KEEP {
            pool.fields.push(fields);
        }
    });
}

/// Lends the thread's read buffer.
pub(super) fn with_scratch<R>(f: impl FnOnce(&mut [u8]) -> R) -> R {
    READ.with_borrow_mut(|buf| f(buf))
}

/// Lends an empty buffer of [`SCRATCH`] bytes that may be kept: what `f` leaves of it serves again.
pub(super) fn with_piece<R>(f: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    PIECE.with_borrow_mut(|buf| {
        buf.clear();
        buf.reserve_exact(SCRATCH);
        f(buf)
    })
}

/// The bytes of `buf`, to be kept: the buffer itself if they fill most of it, otherwise a copy of
/// them, so that what is kept takes at most twice its length.
pub(super) fn keep(buf: &mut Vec<u8>) -> Bytes {
    if buf.len() > buf.capacity() / 2 {
        return Bytes::from(std::mem::take(buf));
    }
    Bytes::copy_from_slice(buf)
}

/// Received bytes that nobody has taken yet: the rest of a head, a body, pipelined requests.
#[derive(Debug, Default)]
pub(super) struct Input {
    buf: Vec<u8>,
    at: usize,
}

impl Input {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buf[self.at..]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.buf.len()
    }

    /// Appends bytes that the socket has delivered.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        if self.is_empty() {
            self.buf.clear();
            self.at = 0;
            if self.buf.capacity() == 0 {
                self.buf = take_bytes();
            }
        } else if self.at > 16 << 10 {
            self.buf.drain(..self.at);
            self.at = 0;
        }
        self.buf.extend_from_slice(bytes);
    }

    /// Takes `n` bytes off the front; the buffer goes back when none are left.
    pub(super) fn consume(&mut self, n: usize) {
        self.at += n;
        debug_assert!(self.at <= self.buf.len());
        if self.is_empty() {
            self.at = 0;
            give_bytes(std::mem::take(&mut self.buf));
        }
    }
}
