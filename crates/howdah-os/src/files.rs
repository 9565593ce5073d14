//! Whether a file is another than before, without reading it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What tells a file from the one that was there before: device, number, time of the last change, length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp(u64, u64, i64, i64, u64);

impl FileStamp {
    /// That of a file; none: it cannot be found.
    pub fn of(path: &Path) -> Option<FileStamp> {
        let meta = fs::metadata(path).ok()?;
        Some(FileStamp(
            meta.dev(),
            meta.ino(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.size(),
        ))
    }
}
