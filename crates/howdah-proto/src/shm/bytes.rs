//! Payload bytes in memory that another process may write at any time: frames, bodies, responses.
//!
//! They are read and written as relaxed atomic words, never through a plain reference. If a process ignores the
//! protocol and writes during a copy, it changes the copied bytes and nothing else. Processes that follow the protocol
//! never access the same bytes at once: release and acquire on a slot's state and positions hand the bytes over.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::RING_BYTES;

const WORD_BYTES: usize = size_of::<u64>();

/// A range of shared bytes.
#[derive(Clone, Copy)]
pub(super) struct SharedBytes<'a>(pub &'a [AtomicU64]);

impl SharedBytes<'_> {
    /// Copies the bytes from offset `at` to private memory.
    pub fn read(self, at: usize, out: &mut [u8]) {
        let (mut word, skip) = (at / WORD_BYTES, at % WORD_BYTES);
        let mut rest = out;
        if skip > 0 {
            let bytes = self.word(word);
            let (head, behind) = rest.split_at_mut(rest.len().min(WORD_BYTES - skip));
            head.copy_from_slice(&bytes[skip..skip + head.len()]);
            (rest, word) = (behind, word + 1);
        }
        let (whole, tail) = rest.split_at_mut(rest.len() / WORD_BYTES * WORD_BYTES);
        let words = &self.0[word..word + whole.len() / WORD_BYTES];
        for (to, from) in whole.chunks_exact_mut(WORD_BYTES).zip(words) {
            to.copy_from_slice(&from.load(Relaxed).to_ne_bytes());
        }
        if !tail.is_empty() {
            let bytes = self.word(word + words.len());
            tail.copy_from_slice(&bytes[..tail.len()]);
        }
    }

    /// Copies private bytes to offset `at`. In a word that is only partly written, the other bytes keep their values;
    /// this is safe because only one side writes a range.
    pub fn write(self, at: usize, bytes: &[u8]) {
        let (mut word, skip) = (at / WORD_BYTES, at % WORD_BYTES);
        let mut rest = bytes;
        if skip > 0 {
            let (head, behind) = rest.split_at(rest.len().min(WORD_BYTES - skip));
            self.patch(word, skip, head);
            (rest, word) = (behind, word + 1);
        }
        let (whole, tail) = rest.as_chunks::<WORD_BYTES>();
        let words = &self.0[word..word + whole.len()];
        for (to, from) in words.iter().zip(whole) {
            to.store(u64::from_ne_bytes(*from), Relaxed);
        }
        if !tail.is_empty() {
            self.patch(word + words.len(), 0, tail);
        }
    }

    /// Zeroes the first `len` bytes, and the rest of their last word.
    pub fn wipe(self, len: usize) {
        for word in &self.0[..len.div_ceil(WORD_BYTES)] {
            word.store(0, Relaxed);
        }
    }

    fn word(self, index: usize) -> [u8; WORD_BYTES] {
        self.0[index].load(Relaxed).to_ne_bytes()
    }

    fn patch(self, index: usize, at: usize, bytes: &[u8]) {
        if !bytes.is_empty() {
            let mut word = self.word(index);
            word[at..at + bytes.len()].copy_from_slice(bytes);
            self.0[index].store(u64::from_ne_bytes(word), Relaxed);
        }
    }
}

/// The payload bytes of one ring, addressed by positions that only grow.
#[derive(Clone, Copy)]
pub(super) struct ByteRing<'a>(pub SharedBytes<'a>);

impl ByteRing<'_> {
    /// Copies `bytes` (at most [`RING_BYTES`]) to position `at`.
    pub fn put(self, at: u64, bytes: &[u8]) {
        assert!(bytes.len() <= RING_BYTES);
        let start = at as usize & (RING_BYTES - 1);
        let (first, second) = bytes.split_at(bytes.len().min(RING_BYTES - start));
        self.0.write(start, first);
        self.0.write(0, second);
    }

    /// Copies `out.len()` (at most [`RING_BYTES`]) bytes from position `at` to private memory.
    pub fn get(self, at: u64, out: &mut [u8]) {
        assert!(out.len() <= RING_BYTES);
        let start = at as usize & (RING_BYTES - 1);
        let (first, second) = out.split_at_mut(out.len().min(RING_BYTES - start));
        self.0.read(start, first);
        self.0.read(0, second);
    }

    /// Zeroes the first `len` (at most [`RING_BYTES`]) bytes of the ring, regardless of positions.
    pub fn wipe(self, len: usize) {
        self.0.wipe(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_bytes_are_read_and_written_at_every_offset() {
        let words: Vec<AtomicU64> = (0..5).map(|_| AtomicU64::new(u64::MAX)).collect();
        let shared = SharedBytes(&words);
        let bytes: Vec<u8> = (1..=40).collect();
        for at in 0..40 {
            for len in 0..=40 - at {
                shared.write(0, &[0xff; 40]);
                shared.write(at, &bytes[..len]);
                let mut all = [0; 40];
                shared.read(0, &mut all);
                let mut expected = [0xff; 40];
                expected[at..at + len].copy_from_slice(&bytes[..len]);
                assert_eq!(all, expected, "{len} bytes at {at}");
                let mut part = vec![0; len];
                shared.read(at, &mut part);
                assert_eq!(part, bytes[..len], "{len} bytes at {at}");
            }
        }
    }

    #[test]
    fn ring_bytes_wrap_around_at_the_end() {
        let words: Vec<AtomicU64> = (0..RING_BYTES / WORD_BYTES)
            .map(|_| AtomicU64::new(0))
            .collect();
        let ring = ByteRing(SharedBytes(&words));
        let bytes: Vec<u8> = (0..100).collect();
        let mut got = vec![0; 100];
        ring.put(7 * RING_BYTES as u64 - 33, &bytes);
        ring.get(7 * RING_BYTES as u64 - 33, &mut got);
        assert_eq!(got, bytes);
        ring.wipe(67);
        ring.get(7 * RING_BYTES as u64, &mut got[..67]);
        assert_eq!(got[..67], [0; 67]);
    }
}
