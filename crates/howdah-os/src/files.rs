//! Detects that a file has been replaced or changed without reading it, and creates files and directories under names
//! that no other process has chosen.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};

/// Identifies one state of a file: device, inode number, modification time and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp(u64, u64, i64, i64, u64);

impl FileStamp {
    /// Returns the stamp of the file at `path`, or `None` if the file is not found.
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

/// Returns 16 hexadecimal digits that cannot be guessed.
///
/// A process id does not serve this purpose: containers that share a directory have equal process ids, the first
/// process of a container has the same id after every restart, and other users of `/tmp` can take the names of all ids.
///
/// # Errors
/// The error of `getrandom(2)`.
pub fn random_hex() -> io::Result<String> {
    let mut bytes = [0; 8];
    // The kernel never returns fewer bytes than requested for requests of up to 256 bytes.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

/// Creates an empty file for writing in the directory of `path`, under a unique name that begins with a dot. The file
/// can later replace `path` atomically.
///
/// # Errors
/// The error of the system. An existing file is never opened or overwritten.
pub fn create_beside(path: &Path, mode: u32) -> io::Result<(File, PathBuf)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.{}", random_hex()?));
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(mode).open(&new)?;
    Ok((file, new))
}

/// Creates a directory with mode 0700, whose name begins with `prefix`.
///
/// # Errors
/// The error of the system, with the path. An existing directory is never used.
pub fn create_private_directory(parent: &Path, prefix: &str) -> io::Result<PathBuf> {
    let path = parent.join(format!("{prefix}{}", random_hex()?));
    match fs::DirBuilder::new().mode(0o700).create(&path) {
        Ok(()) => Ok(path),
        Err(error) => {
            let text = format!("cannot create the directory {}: {error}", path.display());
            Err(io::Error::new(error.kind(), text))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn create_beside_chooses_unique_names_without_process_id() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        let (_, one) = create_beside(&path, 0o600).unwrap();
        let (_, other) = create_beside(&path, 0o600).unwrap();
        assert_ne!(one, other);
        let pid = std::process::id().to_string();
        for new in [one, other] {
            let name = new.file_name().unwrap().to_str().unwrap();
            let word = name.strip_prefix(".a.json.").unwrap();
            assert!(word.len() == 16 && word != pid, "{name}");
            assert_eq!(new.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
