//! Bytes that do not fit into memory, kept in a file without a name: request bodies on their way to a script, responses
//! on their way to a slow client. The file disappears with its last descriptor, even after a crash.
//!
//! Writes and reads are ordinary blocking calls on the front thread: they go to the page cache of the system, as in
//! nginx without `aio threads`. A thread pool would need two wake-ups for each piece, which cost more than the copy.
//! The directory should be on a local disk.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use howdah_os::files::random_hex;

use bytes::Bytes;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use strum::IntoStaticStr;

use crate::failure::Failure;

/// The rate in bytes per second that a client with a file must sustain while more than half of the room is used; even a
/// slow phone reaches it. Otherwise clients that have filled the room could keep it full with 240 bytes a second for
/// each file.
pub const BUSY_MIN_BYTES_PER_SECOND: u32 = 16 << 10;

/// Why bytes cannot be kept in a file.
#[derive(Debug, IntoStaticStr)]
pub enum SpillError {
    /// All files together have reached `limits.spill_total`.
    #[strum(serialize = "SpillFull")]
    Full,
    /// The file system reported this error.
    #[strum(serialize = "SpillFailed")]
    Failed(io::Error),
}

impl SpillError {
    /// Returns the name, as in `Howdah-Error`.
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

impl From<SpillError> for Failure {
    fn from(error: SpillError) -> Failure {
        match error {
            SpillError::Full => Failure::SpillFull,
            SpillError::Failed(error) => Failure::SpillFailed(error.to_string()),
        }
    }
}

impl fmt::Display for SpillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpillError::Full => f.write_str("limits.spill_total is used up"),
            SpillError::Failed(error) => error.fmt(f),
        }
    }
}

/// Limits how much space all files together may take. All configurations of a process share one value, so the files of
/// an old configuration count in the new one.
#[derive(Debug)]
pub struct SpillRoom {
    used: AtomicU64,
    limit: AtomicU64,
}

impl Default for SpillRoom {
    fn default() -> SpillRoom {
        SpillRoom {
            used: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
        }
    }
}

impl SpillRoom {
    /// Returns the current total size of all files in bytes.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns how many bytes all files together may take.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets how many bytes all files together may take from now on.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Returns the limit for `limits.spill_total = auto`: half of the space that is free in `directory` or used by
    /// these files.
    pub fn auto_limit(&self, directory: &Path) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(directory)?;
        Ok((disk.f_bavail * disk.f_frsize + self.used()) / 2)
    }

    /// Returns the rate in bytes per second that a client with a file must sustain, beyond what is configured.
    pub fn min_rate(&self) -> u32 {
        match self.used() > self.limit() / 2 {
            true => BUSY_MIN_BYTES_PER_SECOND,
            false => 0,
        }
    }

    fn reserve(&self, bytes: u64) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= limit);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }
}

/// A file's share of the room, held while the share exists.
#[derive(Debug)]
pub struct SpillShare {
    room: Arc<SpillRoom>,
    bytes: u64,
}

impl SpillShare {
    fn grow(&mut self, bytes: u64) -> bool {
        let granted = self.room.reserve(bytes);
        if granted {
            self.bytes += bytes;
        }
        granted
    }

    fn shrink(&mut self, bytes: u64) {
        self.room.used.fetch_sub(bytes, Ordering::Relaxed);
        self.bytes -= bytes;
    }
}

impl Drop for SpillShare {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

/// A first-in first-out queue of bytes on disk.
#[derive(Debug)]
pub struct SpillFile {
    file: File,
    written: u64,
    read: u64,
    share: SpillShare,
}

impl SpillFile {
    /// Creates a file in `directory`.
    pub fn create(directory: &Path, room: &Arc<SpillRoom>) -> Result<SpillFile, SpillError> {
        let file = create_unnamed(directory).map_err(SpillError::Failed)?;
        Ok(SpillFile::of(file, room))
    }

    fn of(file: File, room: &Arc<SpillRoom>) -> SpillFile {
        SpillFile {
            file,
            written: 0,
            read: 0,
            share: SpillShare {
                room: room.clone(),
                bytes: 0,
            },
        }
    }

    /// Returns a file whose writes all fail because the disk is full.
    #[cfg(test)]
    pub(crate) fn full() -> SpillFile {
        let file = OpenOptions::new().write(true).open("/dev/full");
        SpillFile::of(file.expect("/dev/full"), &Arc::default())
    }

    /// Returns how many bytes are written and not yet read.
    pub fn pending(&self) -> u64 {
        self.written - self.read
    }

    /// Returns how many bytes the file takes on disk.
    pub fn size(&self) -> u64 {
        self.written
    }

    /// Appends all of the bytes, or none of them if there is an error.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), SpillError> {
        let length = bytes.len() as u64;
        if !self.share.grow(length) {
            return Err(SpillError::Full);
        }
        // The position is explicit, so a write that failed half-way leaves no bytes between two pieces.
        if let Err(error) = self.file.write_all_at(bytes, self.written) {
            self.share.shrink(length);
            return Err(SpillError::Failed(error));
        }
        self.written += length;
        Ok(())
    }

    /// Takes up to `most` of the oldest bytes; the result is empty when there are none. An emptied file releases its
    /// room.
    pub fn take(&mut self, most: usize) -> io::Result<Bytes> {
        let length = self.pending().min(most as u64) as usize;
        let mut piece = vec![0; length];
        self.file.read_exact_at(&mut piece, self.read)?;
        self.read += length as u64;
        if self.pending() == 0 && self.written > 0 {
            self.file.set_len(0)?;
            self.share.shrink(self.written);
            (self.written, self.read) = (0, 0);
        }
        Ok(Bytes::from(piece))
    }

    /// Returns the file, its length and its share of the room, for a caller that reads the file from its start and
    /// holds the share while it does so.
    pub fn into_file(self) -> (File, u64, SpillShare) {
        (self.file, self.written, self.share)
    }
}

/// Creates a file without a name: with `O_TMPFILE`, or where the file system does not support that (overlayfs before
/// 6.3, NFS), a file that is unlinked immediately.
fn create_unnamed(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => return Ok(File::from(fd)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) if directory.is_dir() => {}
        Err(error) => return Err(error.into()),
    }
    create_unlinked(directory)
}

/// Creates a file with a random name and unlinks it. With a predictable name, a file that a killed process left behind,
/// or another user of `/tmp`, could prevent a process with the same id from creating any.
fn create_unlinked(directory: &Path) -> io::Result<File> {
    let path = directory.join(format!("howdah-spill-{}", random_hex()?));
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

/// Creates the spill directory with access for this user alone, if it is missing, and checks that a file can be written
/// there. A problem is therefore reported at start, not at the first large upload.
pub fn prepare_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    create_unnamed(directory)?.write_all_at(b"x", 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spill_file_returns_bytes_in_order_and_shrinks_when_emptied() {
        let mut spill = SpillFile::create(&std::env::temp_dir(), &Arc::default()).unwrap();
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
    fn spill_file_has_no_name_and_a_bad_directory_is_an_error() {
        let directory = std::env::temp_dir().join(format!("howdah-spill-{}", std::process::id()));
        prepare_directory(&directory).unwrap();
        let spill = SpillFile::create(&directory, &Arc::default()).unwrap();
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        drop(spill);
        std::fs::remove_dir(&directory).unwrap();
        assert!(SpillFile::create(&directory, &Arc::default()).is_err());
    }

    #[test]
    fn spill_file_is_created_beside_files_of_a_killed_process() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..100 {
            let name = format!("howdah-spill-{}-{number}", std::process::id());
            std::fs::write(directory.path().join(name), "left").unwrap();
        }
        create_unlinked(directory.path()).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 100);
    }

    #[test]
    fn spill_room_limits_all_files_together() {
        let room = Arc::new(SpillRoom::default());
        room.set_limit(10);
        let file = || SpillFile::create(&std::env::temp_dir(), &room).unwrap();
        let (mut one, mut other) = (file(), file());
        one.append(b"12345").unwrap();
        other.append(b"1234").unwrap();
        let refused = other.append(b"56").unwrap_err();
        assert_eq!((refused.name(), room.used()), ("SpillFull", 9));
        one.take(5).unwrap();
        assert_eq!(room.used(), 4, "an emptied file gives its room back");
        other.append(b"56").unwrap();
        let (_file, length, share) = other.into_file();
        assert_eq!((length, room.used()), (6, 6), "who reads it still has it");
        drop(share);
        assert_eq!(room.used(), 0);
        let mut full = SpillFile::full();
        assert_eq!(full.append(b"x").unwrap_err().name(), "SpillFailed");
        assert_eq!(full.share.bytes, 0);
    }
}
