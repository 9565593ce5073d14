//! Bytes that do not fit memory, kept in a file without a name: request bodies on their way to a
//! script, responses on their way to a slow client. The file is gone with its last descriptor, also
//! after a crash.
//!
//! Writes and reads are ordinary blocking calls on the front thread: they go to the page cache, as
//! nginx' do without `aio threads`. A thread pool would cost two wake-ups a piece, more than the
//! copy. The directory should be on a local disk.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// A first-in first-out queue of bytes on disk.
#[derive(Debug)]
pub struct SpillFile {
    file: File,
    written: u64,
    read: u64,
}

impl SpillFile {
    /// Makes one in `directory`.
    pub fn create(directory: &Path) -> io::Result<SpillFile> {
        Ok(SpillFile {
            file: unnamed(directory)?,
            written: 0,
            read: 0,
        })
    }

    /// One whose disk is full.
    #[cfg(test)]
    pub(crate) fn full() -> SpillFile {
        SpillFile {
            file: OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .expect("/dev/full"),
            written: 0,
            read: 0,
        }
    }

    /// Bytes written and not yet read.
    pub fn pending(&self) -> u64 {
        self.written - self.read
    }

    /// Bytes the file takes on disk.
    pub fn size(&self) -> u64 {
        self.written
    }

    /// Appends bytes: all of them, or after an error none.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        // By position: a write that failed half-way leaves nothing between two pieces.
        self.file.write_all_at(bytes, self.written)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Takes up to `most` of the oldest bytes; empty when there are none. An emptied file gives its
    /// room back.
    pub fn take(&mut self, most: usize) -> io::Result<Bytes> {
        let length = self.pending().min(most as u64) as usize;
        let mut piece = vec![0; length];
        self.file.read_exact_at(&mut piece, self.read)?;
        self.read += length as u64;
        if self.pending() == 0 && self.written > 0 {
            self.file.set_len(0)?;
            (self.written, self.read) = (0, 0);
        }
        Ok(Bytes::from(piece))
    }

    /// The file and its length, for who reads it from its start.
    pub fn into_file(self) -> (File, u64) {
        (self.file, self.written)
    }
}

/// A file without a name: `O_TMPFILE`, or where the file system has none (overlayfs before 6.3,
/// NFS) one that is unlinked at once.
fn unnamed(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => return Ok(File::from(fd)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) if directory.is_dir() => {}
        Err(error) => return Err(error.into()),
    }
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!("howdah-spill-{}-{number}", std::process::id()));
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Makes the spill directory if it is missing, for this user alone, and proves that a file can be
/// written there: said at start, not at the first large upload.
pub fn prepare(directory: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    SpillFile::create(directory)?.append(b"x")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_in_order_and_an_emptied_file_shrinks() {
        let mut spill = SpillFile::create(&std::env::temp_dir()).unwrap();
        for round in 0..3 {
            spill.append(b"hello ").unwrap();
            spill.append(b"world").unwrap();
            assert_eq!(spill.take(3).unwrap(), &b"hel"[..]);
            spill.append(b"!").unwrap();
            assert_eq!(spill.pending(), 9, "round {round}");
            assert_eq!(spill.take(99).unwrap(), &b"lo world!"[..]);
            assert_eq!(spill.size(), 0);
            assert_eq!(spill.file.metadata().unwrap().len(), 0);
            assert!(spill.take(1).unwrap().is_empty());
        }
    }

    #[test]
    fn the_file_has_no_name_and_a_bad_directory_is_an_error() {
        let directory = std::env::temp_dir().join(format!("howdah-spill-{}", std::process::id()));
        prepare(&directory).unwrap();
        let spill = SpillFile::create(&directory).unwrap();
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        drop(spill);
        std::fs::remove_dir(&directory).unwrap();
        assert!(SpillFile::create(&directory).is_err());
    }
}
