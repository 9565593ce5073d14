//! Unnamed files for output that waits for a client and for the bodies of uploads. The files of one worker have a
//! common size limit. A file disappears with its last descriptor, even after a crash. Writes go to the page cache and
//! block no longer than the copy takes.

use std::cell::Cell;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;

use howdah_os::mapping::MappedFile;

use super::log;
use super::sys;

/// The directory of a worker's files, and the limit for their total size.
#[derive(Debug)]
pub struct SpillStore {
    directory: PathBuf,
    max_bytes: u64,
    used_bytes: Rc<Cell<u64>>,
    /// When a failure was last logged (ms).
    failure_logged_at: Cell<Option<u64>>,
}

/// Minimum time between two log lines about failures (ms).
const FAILURE_LOG_INTERVAL_MS: u64 = 10_000;

impl SpillStore {
    /// Creates a store for files in `directory` of `most` bytes in total. No file is created before it is needed.
    pub fn new(directory: PathBuf, most: u64) -> SpillStore {
        SpillStore {
            directory,
            max_bytes: most,
            used_bytes: Rc::default(),
            failure_logged_at: Cell::default(),
        }
    }

    /// Creates a file that contains `bytes`. On failure, logs the reason and returns `None`.
    pub fn create(&self, bytes: &[&[u8]], now: u64) -> Option<WorkerSpillFile> {
        let made = sys::unnamed_file(&self.directory).and_then(|file| {
            let mut spilled = WorkerSpillFile {
                file,
                max_bytes: self.max_bytes,
                share: SpillUsage {
                    len: 0,
                    used_bytes: Rc::clone(&self.used_bytes),
                },
            };
            for piece in bytes {
                spilled.append(piece)?;
            }
            Ok(spilled)
        });
        made.map_err(|e| self.log_failure(&e, now)).ok()
    }

    /// Logs a failure, at most once in [`FAILURE_LOG_INTERVAL_MS`].
    pub fn log_failure(&self, why: &Error, now: u64) {
        let recent = |at: u64| now - at < FAILURE_LOG_INTERVAL_MS;
        if !self.failure_logged_at.get().is_some_and(recent) {
            self.failure_logged_at.set(Some(now));
            log::warn(&format!(
                "SpillFailed: {}: {why}; large bodies stay in memory or are refused, and scripts wait for slow clients",
                self.directory.display()
            ));
        }
    }
}

/// The size of a file, which counts towards the limit of its [`SpillStore`] until this value is dropped.
#[derive(Debug)]
struct SpillUsage {
    len: u64,
    used_bytes: Rc<Cell<u64>>,
}

impl Drop for SpillUsage {
    fn drop(&mut self) {
        self.used_bytes.set(self.used_bytes.get() - self.len);
    }
}

/// An unnamed file, which counts towards the limit of its [`SpillStore`] until it is dropped.
#[derive(Debug)]
pub struct WorkerSpillFile {
    file: File,
    max_bytes: u64,
    share: SpillUsage,
}

impl WorkerSpillFile {
    /// Appends all of the bytes, or none if it fails.
    pub fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let more = bytes.len() as u64;
        let SpillUsage {
            len,
            used_bytes: held,
        } = &mut self.share;
        if more > self.max_bytes.saturating_sub(held.get()) {
            return Err(Error::new(
                ErrorKind::StorageFull,
                "the temporary files of this worker have reached their limit",
            ));
        }
        // The bytes are written by position, so a failed write leaves nothing between two pieces.
        self.file.write_all_at(bytes, *len)?;
        *len += more;
        held.set(held.get() + more);
        Ok(())
    }

    /// Returns the number of bytes written so far.
    pub fn len(&self) -> u64 {
        self.share.len
    }

    /// Maps the whole file into memory. It cannot be written to afterwards.
    pub fn map(self) -> std::io::Result<MappedSpill> {
        Ok(MappedSpill {
            bytes: MappedFile::new(self.file, self.share.len)?,
            _share: self.share,
        })
    }
}

impl AsFd for WorkerSpillFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A [`WorkerSpillFile`] file that is mapped for reading.
#[derive(Debug)]
pub struct MappedSpill {
    bytes: MappedFile,
    _share: SpillUsage,
}

impl std::ops::Deref for MappedSpill {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn spill_files_are_bounded_and_release_their_bytes() {
        let store = SpillStore::new(std::env::temp_dir(), 10);
        let mut first = store.create(&[b"abc", b"de"], 0).unwrap();
        assert!(store.create(&[b"123456"], 0).is_none());
        first.append(b"fghij").unwrap();
        assert_eq!(
            first.append(b"k").unwrap_err().kind(),
            ErrorKind::StorageFull
        );
        let mapped = first.map().unwrap();
        assert_eq!(&*mapped, b"abcdefghij");
        assert!(store.create(&[b"1"], 0).is_none());
        drop(mapped);
        assert!(store.create(&[b"1234567890"], 0).is_some());
    }

    #[test]
    fn spill_without_a_directory_creates_no_file() {
        let store = SpillStore::new("/nonexistent".into(), 10);
        assert!(store.create(&[b"a"], 0).is_none());
    }
}
