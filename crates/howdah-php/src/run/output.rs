//! The output that waits for one client, in order: bytes in memory, bytes in a file once there are many, and parts of
//! files. A script therefore never waits for a slow reader, and a slow reader uses no more memory than
//! [`MAX_OUTPUT_IN_MEMORY`] while there is room for its file.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::spill::{SpillStore, WorkerSpillFile};
use super::sys;

/// Maximum bytes of one client's output that wait in memory while a file is available.
const MAX_OUTPUT_IN_MEMORY: usize = 256 << 10;
/// The minimum average rate, in bytes per second, at which a client must read or send, and how long (ms) it may be
/// slower at first. Kestrel uses the same values, and so does the front for bodies. Every real link is faster.
pub const MIN_BYTES_PER_SECOND: u64 = 240;
const SLOW_CLIENT_GRACE_MS: u64 = 5_000;

/// Returns whether a client that has transferred `bytes` since a time (ms) is slower than [`MIN_BYTES_PER_SECOND`].
pub fn is_below_minimum_rate(bytes: u64, since: u64, now: u64) -> bool {
    let over = now
        .saturating_sub(since)
        .saturating_sub(SLOW_CLIENT_GRACE_MS);
    bytes < over * MIN_BYTES_PER_SECOND / 1000
}

#[derive(Debug)]
enum OutputPiece {
    /// Bytes in memory, and how many of them the socket has accepted.
    Memory(Vec<u8>, usize),
    /// Bytes in a file, and how many of them the socket has accepted.
    Spilled(WorkerSpillFile, u64),
    /// Part of a file that the script sends.
    File {
        file: OwnedFd,
        offset: u64,
        left: u64,
    },
}

/// The output that one client has still to receive.
#[derive(Debug, Default)]
pub struct ClientOutput {
    pieces: VecDeque<OutputPiece>,
    /// Number of the bytes that are in memory rather than in files.
    bytes_in_memory: usize,
    /// When output began to wait (ms), and how many bytes the client has read since.
    waiting_since: u64,
    bytes_taken: u64,
}

impl ClientOutput {
    /// Returns whether the client has received everything.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns how many bytes wait in memory.
    pub fn bytes_in_memory(&self) -> usize {
        self.bytes_in_memory
    }

    /// Returns whether the client reads less than [`MIN_BYTES_PER_SECOND`] on average, measured since output began to
    /// wait for it.
    pub fn is_too_slow(&self, now: u64) -> bool {
        !self.is_empty() && is_below_minimum_rate(self.bytes_taken, self.waiting_since, now)
    }

    fn start_waiting(&mut self, now: u64) {
        if self.pieces.is_empty() {
            (self.waiting_since, self.bytes_taken) = (now, 0);
        }
    }

    /// Appends bytes to the queue.
    pub fn push(&mut self, bytes: [&[u8]; 2], store: &SpillStore, now: u64) {
        self.start_waiting(now);
        if let Some(OutputPiece::Spilled(file, _)) = self.pieces.back_mut() {
            // Both parts are appended, or neither: `append` does not count bytes of a failed write.
            match file.append(&bytes.concat()) {
                Ok(()) => return,
                Err(e) => store.log_failure(&e, now),
            }
        }
        let more = bytes[0].len() + bytes[1].len();
        if self.bytes_in_memory + more > MAX_OUTPUT_IN_MEMORY
            && let Some(file) = store.create(&bytes, now)
        {
            self.pieces.push_back(OutputPiece::Spilled(file, 0));
            return;
        }
        self.bytes_in_memory += more;
        match self.pieces.back_mut() {
            Some(OutputPiece::Memory(kept, sent)) => {
                kept.drain(..*sent);
                *sent = 0;
                kept.extend_from_slice(bytes[0]);
                kept.extend_from_slice(bytes[1]);
            }
            _ => self
                .pieces
                .push_back(OutputPiece::Memory(bytes.concat(), 0)),
        }
    }

    /// Appends part of a file to the queue.
    pub fn push_file(&mut self, file: OwnedFd, offset: u64, length: u64, now: u64) {
        self.start_waiting(now);
        if length > 0 {
            self.pieces.push_back(OutputPiece::File {
                file,
                offset,
                left: length,
            });
        }
    }

    /// Sends as much as the socket accepts and returns how many bytes that was, or `None` when the connection is
    /// broken.
    pub fn flush(&mut self, socket: BorrowedFd<'_>) -> Option<u64> {
        let mut all = 0;
        loop {
            let more = self.pieces.len() > 1;
            let Some(piece) = self.pieces.front_mut() else {
                return Some(all);
            };
            let (sent, done) = match piece {
                OutputPiece::Memory(bytes, sent) => {
                    let result = sys::send(socket, &bytes[*sent..], b"", more);
                    if let Ok(n) = result {
                        *sent += n;
                        self.bytes_in_memory -= n;
                    }
                    (result, *sent == bytes.len())
                }
                OutputPiece::Spilled(file, sent) => {
                    let left = file.len() - *sent;
                    let result = sys::send_file(socket, file.as_fd(), sent, left);
                    (result, *sent == file.len())
                }
                OutputPiece::File { file, offset, left } => {
                    let result = sys::send_file(socket, file.as_fd(), offset, *left);
                    if let Ok(n) = result {
                        *left -= n as u64;
                    }
                    (result, *left == 0)
                }
            };
            match sent {
                // A file became shorter than was announced. The connection is broken off, which shows the client that
                // data is missing.
                Ok(0) if !done => return None,
                Ok(n) => {
                    all += n as u64;
                    self.bytes_taken += n as u64;
                    if done {
                        self.pieces.pop_front();
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Some(all),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Reads what `output` sends over a socket that accepts little at once.
    fn drained(output: &mut ClientOutput) -> Vec<u8> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let (mut all, mut buf) = (Vec::new(), vec![0; 1 << 16]);
        while !output.is_empty() {
            assert!(output.flush(ours.as_fd()).is_some());
            while let Ok(n) = theirs.read(&mut buf) {
                all.extend_from_slice(&buf[..n]);
            }
        }
        all
    }

    #[test]
    fn output_keeps_its_order_across_memory_and_files() {
        let store = SpillStore::new(std::env::temp_dir(), 2 << 20);
        let mut output = ClientOutput::default();
        let mut expected = Vec::new();
        // The output goes to memory, then to a file, and to memory again once the files are full.
        for i in 0..30u8 {
            let piece = vec![i; 100_000];
            output.push([&piece, b"|"], &store, 0);
            expected.extend_from_slice(&piece);
            expected.push(b'|');
        }
        assert!(
            output.bytes_in_memory() > MAX_OUTPUT_IN_MEMORY,
            "{}",
            output.bytes_in_memory()
        );
        assert_eq!(drained(&mut output), expected);
        assert_eq!(output.bytes_in_memory(), 0);
    }

    #[test]
    fn large_response_waits_in_a_file() {
        let store = SpillStore::new(std::env::temp_dir(), 1 << 30);
        let mut output = ClientOutput::default();
        let large = vec![b'x'; 4 << 20];
        output.push([b"head", &large], &store, 0);
        assert_eq!(output.bytes_in_memory(), 0);
        assert_eq!(drained(&mut output).len(), large.len() + 4);
    }

    #[test]
    fn slow_reader_is_detected_after_its_grace() {
        let store = SpillStore::new(std::env::temp_dir(), 1 << 30);
        let mut output = ClientOutput::default();
        assert!(!output.is_too_slow(1 << 40));
        output.push([&vec![b'x'; 100_000], b""], &store, 1_000);
        assert!(!output.is_too_slow(1_000 + SLOW_CLIENT_GRACE_MS));
        assert!(output.is_too_slow(1_000 + SLOW_CLIENT_GRACE_MS + 100));
        output.bytes_taken = 2400;
        assert!(!output.is_too_slow(1_000 + SLOW_CLIENT_GRACE_MS + 10_000));
        assert!(output.is_too_slow(1_000 + SLOW_CLIENT_GRACE_MS + 10_100));
    }
}
