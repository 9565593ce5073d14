//! Buffers that connections borrow while they read, parse or send, with one pool per thread; an idle connection owns no
//! buffer. This is not a general allocator: buffers that do not fit are freed.
//!
//! The memory that a client can make the server hold is limited by its allocated size, not by the bytes in it: a buffer
//! that is kept is at least half full ([`into_stored`]).

use std::cell::RefCell;

use bytes::Bytes;

use super::message::ByteSpan;

/// Larger buffers are freed instead of pooled. The next user, perhaps with a short head, would otherwise occupy all of
/// it while a script runs.
const MAX_POOLED_BUFFER_BYTES: usize = 8 << 10;
/// The maximum number of pooled buffers of each kind per thread.
const MAX_POOLED_BUFFERS: usize = 256;
/// The number of bytes requested from a socket at once.
pub(super) const SCRATCH_BYTES: usize = 64 << 10;

/// The spans of field names and values.
pub(super) type FieldSpans = Vec<(ByteSpan, ByteSpan)>;

#[derive(Default)]
struct BufferPool {
    bytes: Vec<Vec<u8>>,
    fields: Vec<FieldSpans>,
}

thread_local! {
    static POOL: RefCell<BufferPool> = RefCell::default();
    static READ: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
    static PIECE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Takes an empty byte buffer from the thread's pool.
pub(super) fn take_bytes() -> Vec<u8> {
    POOL.with_borrow_mut(|pool| pool.bytes.pop())
        .unwrap_or_else(|| Vec::with_capacity(2048))
}

/// Returns a byte buffer to the pool.
pub(super) fn return_bytes(mut buf: Vec<u8>) {
    if buf.capacity() == 0 || buf.capacity() > MAX_POOLED_BUFFER_BYTES {
        return;
    }
    buf.clear();
    POOL.with_borrow_mut(|pool| {
        if pool.bytes.len() < MAX_POOLED_BUFFERS {
            pool.bytes.push(buf);
        }
    });
}

/// Takes an empty list of fields from the thread's pool.
pub(super) fn take_fields() -> FieldSpans {
    POOL.with_borrow_mut(|pool| pool.fields.pop())
        .unwrap_or_else(|| Vec::with_capacity(32))
}

/// Returns a list of fields to the pool.
pub(super) fn return_fields(mut fields: FieldSpans) {
    fields.clear();
    POOL.with_borrow_mut(|pool| {
        if pool.fields.len() < MAX_POOLED_BUFFERS {
            pool.fields.push(fields);
        }
    });
}

/// Lends the thread's read buffer.
pub(super) fn with_scratch<R>(f: impl FnOnce(&mut [u8]) -> R) -> R {
    READ.with_borrow_mut(|buf| f(buf))
}

/// Lends an empty buffer with a capacity of [`SCRATCH_BYTES`] bytes. `f` may take the buffer; if it does not, the
/// buffer is reused.
pub(super) fn with_piece<R>(f: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    PIECE.with_borrow_mut(|buf| {
        buf.clear();
        buf.reserve_exact(SCRATCH_BYTES);
        f(buf)
    })
}

/// Returns the content of `buf` for storage: the buffer itself if its content fills more than half of it, otherwise a
/// copy. The result therefore occupies at most twice its length.
pub(super) fn into_stored(buf: &mut Vec<u8>) -> Bytes {
    if buf.len() > buf.capacity() / 2 {
        return Bytes::from(std::mem::take(buf));
    }
    Bytes::copy_from_slice(buf)
}

/// Received bytes that have not been consumed yet: the rest of a head, a body, pipelined requests.
#[derive(Debug, Default)]
pub(super) struct UnreadInput {
    buf: Vec<u8>,
    at: usize,
}

impl UnreadInput {
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

    /// Removes `n` bytes from the front. The buffer returns to the pool when it becomes empty.
    pub(super) fn consume(&mut self, n: usize) {
        self.at += n;
        debug_assert!(self.at <= self.buf.len());
        if self.is_empty() {
            self.at = 0;
            return_bytes(std::mem::take(&mut self.buf));
        }
    }
}
