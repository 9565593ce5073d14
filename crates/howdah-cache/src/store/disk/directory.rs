//! The directory: its owner, its lock, and the place of each page's file. It is opened only if it is empty or is a
//! cache already, since it is made private and unfinished files in it are removed.
//!
//! ```text
//! lock            held by the server that uses it; its process id
//! journal         the purges
//! new/            files being written
//! objects/3f7/    a page each, 4096 directories at most: a million pages are some 250 in each
//! ```

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::hash::Hasher;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use siphasher::sip128::{Hasher128, SipHasher24};

use super::format::Owner;

/// The names that may exist in a cache directory.
const ALLOWED_NAMES: [&str; 6] = [
    "lock",
    "journal",
    "journal.new",
    "new",
    "objects",
    // Belongs to a file system that is mounted there.
    "lost+found",
];

/// Why a directory is not used. The first three are mistakes of the configuration.
#[derive(Debug)]
pub enum OpenError {
    /// Another server process holds the directory's lock.
    InUse {
        /// The other server's process id, as it wrote it into the lock file.
        process: String,
    },
    /// The directory contains files that do not belong to a cache, or is not a directory.
    NotACache {
        /// The name of one such file.
        name: String,
    },
    /// Another user owns the directory.
    NotOurs {
        /// The user id of the directory's owner.
        user: u32,
    },
    /// The directory cannot be created, read or written.
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The error the system call returned.
        error: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::InUse { process } => write!(
                f,
                "DirectoryInUse: another server (process {process}) uses the directory; give each server a directory of its own"
            ),
            OpenError::NotACache { name } => write!(
                f,
                "NotACacheDirectory: the directory contains `{name}`, which does not belong to a page cache; name an empty directory"
            ),
            OpenError::NotOurs { user } => write!(
                f,
                "DirectoryNotOurs: the directory belongs to user {user}; change its owner to the user that the server runs as"
            ),
            OpenError::Io { what, error } => write!(f, "DiskUnwritable: cannot {what}: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// The directory of a cache, which this process has locked.
#[derive(Debug)]
pub struct CacheDirectory {
    path: PathBuf,
    /// The lock is held until this value is dropped; the kernel releases it however the process ends.
    _lock: File,
}

/// The name of a page's file: a hash with a key of the directory's own. So no client can choose pages whose names
/// collide, and nothing that a client sends becomes part of a path. The key in the file is still checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileName([u8; 16]);

impl FileName {
    /// Returns the name of a key's file; `key` is without the site's number.
    pub fn new(secret: [u8; 16], owner: &Owner, key: &[u8]) -> FileName {
        let mut hasher = SipHasher24::new_with_key(&secret);
        hasher.write(&owner.site);
        hasher.write(&owner.policy);
        hasher.write(key);
        FileName(hasher.finish128().as_bytes())
    }

    /// Parses the name of a page's file.
    pub fn parse(name: &str) -> Option<FileName> {
        let digits =
            name.len() == 32 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let number = u128::from_str_radix(name, 16).ok().filter(|_| digits)?;
        Some(FileName(number.to_be_bytes()))
    }

    /// Returns the name in hexadecimal, as the file system has it.
    pub fn to_hex(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }
}

impl CacheDirectory {
    /// Opens the directory and creates it if necessary. Waits up to `patience` for a server that is about to exit.
    pub fn open(path: &Path, patience: Duration) -> Result<CacheDirectory, OpenError> {
        let io = |what| move |error| OpenError::Io { what, error };
        match private_dir_builder().create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(io("create the directory")(error));
            }
            _ => {}
        }
        let meta = fs::metadata(path).map_err(io("inspect the directory"))?;
        let user = rustix::process::geteuid().as_raw();
        if meta.is_dir() && meta.uid() != user {
            return Err(OpenError::NotOurs { user: meta.uid() });
        }
        let entries = match fs::read_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                let name = path.display().to_string();
                return Err(OpenError::NotACache { name });
            }
            entries => entries.map_err(io("list the directory"))?,
        };
        for entry in entries {
            let name = entry.map_err(io("list the directory"))?.file_name();
            let name = name.to_string_lossy();
            if !ALLOWED_NAMES.contains(&&*name) {
                return Err(OpenError::NotACache {
                    name: name.into_owned(),
                });
            }
        }
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))
            .map_err(io("make the directory private"))?;
        let lock = acquire_lock(&path.join("lock"), patience)?;
        for name in ["objects", "new"] {
            match private_dir_builder().create(path.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(io("create a subdirectory")(error));
                }
                _ => {}
            }
        }
        // These files were being written when a server died.
        for entry in fs::read_dir(path.join("new")).map_err(io("list the directory"))? {
            let path = entry.map_err(io("list the directory"))?.path();
            fs::remove_file(path).map_err(io("remove an unfinished file"))?;
        }
        Ok(CacheDirectory {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Returns the path of the cache directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the directory that contains the directories of pages.
    pub fn objects(&self) -> PathBuf {
        self.path.join("objects")
    }

    /// Returns the path of the file for the page of this name.
    pub fn page_path(&self, name: FileName) -> PathBuf {
        let text = name.to_hex();
        self.path.join("objects").join(&text[..3]).join(text)
    }

    /// Writes a page's file completely or not at all. It is not flushed: see [`super::journal`].
    pub fn write_page(&self, name: FileName, parts: &[bytes::Bytes]) -> io::Result<()> {
        // A fixed name suffices because there is only one writer.
        let new = self.path.join("new/page");
        let written = self.write_and_move(&new, &self.page_path(name), parts);
        if written.is_err() {
            // The file may never have been created.
            let _ = fs::remove_file(&new);
        }
        written
    }

    fn write_and_move(&self, new: &Path, to: &Path, parts: &[bytes::Bytes]) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(new)?;
        for part in parts {
            file.write_all(part)?;
        }
        match (fs::rename(new, to), to.parent()) {
            (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
                private_dir_builder().create(parent)?;
                fs::rename(new, to)
            }
            (renamed, _) => renamed,
        }
    }
}

fn private_dir_builder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

fn acquire_lock(path: &Path, patience: Duration) -> Result<File, OpenError> {
    let io = |what| move |error| OpenError::Io { what, error };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(io("open the lock file"))?;
    let deadline = Instant::now() + patience;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => {
                let process = fs::read_to_string(path).unwrap_or_default();
                return Err(OpenError::InUse { process });
            }
            Err(TryLockError::Error(error)) => return Err(io("lock the directory")(error)),
        }
    }
    // The process id is only for a message.
    let _ = file
        .set_len(0)
        .and_then(|()| write!(file, "{}", std::process::id()));
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Result<CacheDirectory, String> {
        CacheDirectory::open(path, Duration::ZERO).map_err(|error| error.to_string())
    }

    #[test]
    fn directory_is_locked_until_its_server_exits() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("cache");
        let first = open(&path).unwrap();
        let refused = open(&path).unwrap_err();
        let process = std::process::id();
        assert!(refused.starts_with("DirectoryInUse"), "{refused}");
        assert!(refused.contains(&format!("process {process}")), "{refused}");
        drop(first);
        open(&path).unwrap();
    }

    #[test]
    fn directory_and_files_are_private() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("cache");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let directory = open(&path).unwrap();
        let name = FileName([0x3f; 16]);
        directory
            .write_page(name, &[bytes::Bytes::from_static(b"x")])
            .unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let file = directory.page_path(name);
        assert!(
            file.ends_with(format!("objects/3f3/{}", "3f".repeat(16))),
            "{file:?}"
        );
        assert_eq!(mode(&file), 0o600);
        assert_eq!(mode(&path.join("lock")), 0o600);
        for directory in [&path, &path.join("objects"), &path.join("objects/3f3")] {
            assert_eq!(mode(directory), 0o700, "{directory:?}");
        }
    }

    #[test]
    fn directory_with_foreign_files_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("index.php"), "x").unwrap();
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let refused = open(parent.path()).unwrap_err();
        assert!(
            refused.starts_with("NotACacheDirectory: the directory contains `index.php`"),
            "{refused}"
        );
        let mode = fs::metadata(parent.path()).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o755);
        let refused = open(&parent.path().join("index.php")).unwrap_err();
        assert!(refused.starts_with("NotACacheDirectory"), "{refused}");
        let refused = open(&parent.path().join("no/such")).unwrap_err();
        assert!(
            refused.starts_with("DiskUnwritable: cannot create the directory"),
            "{refused}"
        );
    }

    #[test]
    fn unfinished_files_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("cache");
        drop(open(&path).unwrap());
        fs::write(path.join("new/page"), "half").unwrap();
        open(&path).unwrap();
        assert!(!path.join("new/page").exists());
    }

    #[test]
    fn file_names_depend_on_the_whole_key_and_the_secret() {
        let owner = Owner {
            site: [1; 16],
            policy: [2; 16],
        };
        let other = Owner {
            policy: [3; 16],
            ..owner
        };
        let name = FileName::new([0; 16], &owner, b"k");
        assert_eq!(name, FileName::new([0; 16], &owner, b"k"));
        for another in [
            FileName::new([1; 16], &owner, b"k"),
            FileName::new([0; 16], &other, b"k"),
            FileName::new([0; 16], &owner, b"l"),
        ] {
            assert_ne!(name, another);
        }
        assert_eq!(FileName::parse(&name.to_hex()), Some(name));
        assert_eq!(FileName::parse("../../../../../../../etc/passwd"), None);
        assert_eq!(FileName::parse(&"+".repeat(32)), None);
    }
}
