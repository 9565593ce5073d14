//! A directory that is served, and the only way from a cleaned path to a file below it. This module does not depend on
//! HTTP, on sites, or on which files may be sent (`howdah_http1::hidden`).
//!
//! A [`RootDir`] holds the directory itself (an `O_PATH` descriptor) and the real path that it had when it was opened.
//! Every lookup is relative to that descriptor and uses a path without `..`, so no URL leaves the directory. Where
//! symbolic links below the root may lead is the administrator's choice. [`Symlinks::Follow`] is the default, as it is
//! nginx's (`disable_symlinks off`) and Apache's (`Options FollowSymLinks`): Debian's WordPress and MediaWiki consist
//! of links into `/etc` and `/var/lib`, and a user who can place a link in the root can usually place a `.php` file
//! too.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;

use super::path::UrlPath;
use crate::refusal::Refusal;

/// What a symbolic link below the root may point to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symlinks {
    /// Any file. Each lookup takes one system call.
    Follow,
    /// Only files that have the same owner as the link, like nginx's `disable_symlinks if_not_owner` and Apache's
    /// `SymLinksIfOwnerMatch`. Intended for hosts where users write into the root of a server that can read more than
    /// they can. Each lookup takes several system calls if there is a link.
    Owner,
    /// Only files below the root, by relative links (`openat2`, `RESOLVE_BENEATH`).
    Beneath,
}

/// The kind of file that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// The path names a regular file.
    File,
    /// The path names a directory.
    Directory,
    /// The path names anything else: a socket, a pipe, a device.
    Other,
}

/// The metadata of a file from `statx`: enough to know that two calls saw the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileMeta {
    /// Whether it is a file, a directory or something else.
    pub kind: FileKind,
    /// The size in bytes.
    pub size: u64,
    /// The last change of the content: seconds since 1970, nanoseconds.
    pub mtime: (i64, u32),
    /// The last change of content or inode. Unlike `mtime`, it cannot be set.
    pub ctime: (i64, u32),
    /// The device's major and minor number, and the inode.
    pub inode: (u32, u32, u64),
}

impl FileMeta {
    fn new(stat: &Statx) -> FileMeta {
        FileMeta {
            kind: match u32::from(stat.stx_mode) & 0o170_000 {
                0o100_000 => FileKind::File,
                0o040_000 => FileKind::Directory,
                _ => FileKind::Other,
            },
            size: stat.stx_size,
            mtime: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            ctime: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            inode: (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino),
        }
    }

    /// Returns the metadata of an open file.
    pub(crate) fn of(file: &File) -> io::Result<FileMeta> {
        Ok(FileMeta::new(&statx(file, b"", AtFlags::EMPTY_PATH)?))
    }
}

/// An open directory that is served, with the real path it had when it was opened.
#[derive(Debug)]
pub struct RootDir {
    id: u64,
    /// The real path, without a slash at the end; empty for `/`.
    path: Vec<u8>,
    dir: OwnedFd,
    inode: (u32, u32, u64),
    symlinks: Symlinks,
}

impl RootDir {
    /// Opens `path` and follows links. Scripts see the real path as `DOCUMENT_ROOT`, so a deployment which moves the
    /// link `current` gets new paths, and PHP's caches, which use paths as keys, cannot mix releases.
    pub fn open(path: &Path, symlinks: Symlinks) -> io::Result<RootDir> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let real = std::fs::canonicalize(path)?;
        let dir = rustix::fs::open(
            &real,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let meta = FileMeta::new(&statx(&dir, b"", AtFlags::EMPTY_PATH)?);
        if symlinks == Symlinks::Beneath {
            // This reports now, and not at the first request, that the kernel or a sandbox does not support openat2.
            open_beneath(&dir, b".", OFlags::PATH)?;
        }
        let path = real.as_os_str().as_bytes();
        Ok(RootDir {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            path: path.strip_suffix(b"/").unwrap_or(path).to_vec(),
            dir,
            inode: meta.inode,
            symlinks,
        })
    }

    /// Returns a number that is different for every opening, for caches.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the real path, `DOCUMENT_ROOT`.
    pub fn path(&self) -> &[u8] {
        if self.path.is_empty() {
            b"/"
        } else {
            &self.path
        }
    }

    /// Returns the file name of a URL path: the real path followed by the URL path.
    pub fn file_name(&self, url_path: &[u8]) -> Vec<u8> {
        debug_assert_eq!(url_path.first(), Some(&b'/'));
        let mut name = Vec::with_capacity(self.path.len() + url_path.len());
        name.extend_from_slice(&self.path);
        name.extend_from_slice(url_path);
        name
    }

    /// Returns whether `path` (the configured one, perhaps a link) still names this directory.
    pub fn is_at(&self, path: &Path) -> bool {
        statx(
            rustix::fs::CWD,
            path.as_os_str().as_bytes(),
            AtFlags::empty(),
        )
        .is_ok_and(|stat| FileMeta::new(&stat).inode == self.inode)
    }

    /// Returns the metadata of the file that a URL path names below this directory. If the last segment is a symbolic
    /// link, it is not followed.
    pub(crate) fn stat_nofollow(&self, url_path: &[u8]) -> Result<FileMeta, Refusal> {
        let relative = url_path.strip_prefix(b"/").unwrap_or(url_path);
        let relative = relative.strip_suffix(b"/").unwrap_or(relative);
        let stat = match relative {
            b"" => statx(&self.dir, b"", AtFlags::EMPTY_PATH),
            _ => statx(&self.dir, relative, AtFlags::SYMLINK_NOFOLLOW),
        };
        Ok(FileMeta::new(&stat.map_err(refusal_for)?))
    }

    /// Returns the metadata of a path of the file system.
    pub(crate) fn stat_path(path: &[u8]) -> Result<FileMeta, Refusal> {
        let stat = statx(rustix::fs::CWD, path, AtFlags::empty());
        Ok(FileMeta::new(&stat.map_err(refusal_for)?))
    }

    /// Returns the metadata of the file that `path` names below this directory.
    pub fn stat(&self, path: &UrlPath<'_>) -> Result<FileMeta, Refusal> {
        self.stat_relative(path.relative())
    }

    /// Like [`RootDir::stat`], for the result of [`UrlPath::relative`], or such a name with a plain suffix.
    pub(crate) fn stat_relative(&self, relative: &[u8]) -> Result<FileMeta, Refusal> {
        let stat = match self.symlinks {
            Symlinks::Follow => {
                let relative = if relative.is_empty() { b"." } else { relative };
                statx(&self.dir, relative, AtFlags::empty()).map_err(refusal_for)?
            }
            Symlinks::Owner | Symlinks::Beneath => {
                let found = self.open_at(relative, OFlags::PATH)?;
                statx(&found, b"", AtFlags::EMPTY_PATH).map_err(refusal_for)?
            }
        };
        Ok(FileMeta::new(&stat))
    }

    /// Opens a regular file for reading. The metadata comes from the open descriptor, so it describes exactly the file
    /// that is read.
    pub(crate) fn open_file(&self, relative: &[u8]) -> Result<(File, FileMeta), Refusal> {
        // With O_NONBLOCK, opening a pipe does not wait for its writer.
        let file = self.open_at(relative, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let meta = FileMeta::new(&statx(&file, b"", AtFlags::EMPTY_PATH).map_err(refusal_for)?);
        match meta.kind {
            FileKind::File => Ok((File::from(file), meta)),
            FileKind::Directory => Err(Refusal::NoIndex),
            FileKind::Other => Err(Refusal::NotRegular),
        }
    }

    fn open_at(&self, relative: &[u8], flags: OFlags) -> Result<OwnedFd, Refusal> {
        let relative = if relative.is_empty() { b"." } else { relative };
        match self.symlinks {
            Symlinks::Follow => {
                rustix::fs::openat(&self.dir, relative, flags | OFlags::CLOEXEC, Mode::empty())
                    .map_err(refusal_for)
            }
            Symlinks::Beneath => open_beneath(&self.dir, relative, flags).map_err(|error| {
                // EXDEV: a link (or a mount race) leads out of the root. ELOOP: too many links, or a magic link.
                if error == Errno::XDEV || error == Errno::LOOP {
                    Refusal::SymlinkEscape
                } else {
                    refusal_for(error)
                }
            }),
            Symlinks::Owner => open_by_owner(&self.dir, relative, flags),
        }
    }
}

/// Reads exactly `len` bytes from the start of `file`; a shorter file is an error.
pub fn read_exact(file: &File, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn statx(dir: impl AsFd, path: &[u8], flags: AtFlags) -> Result<Statx, Errno> {
    let mask = StatxFlags::TYPE
        | StatxFlags::MODE
        | StatxFlags::SIZE
        | StatxFlags::MTIME
        | StatxFlags::CTIME
        | StatxFlags::INO;
    rustix::fs::statx(dir, path, flags, mask)
}

fn open_beneath(dir: impl AsFd, relative: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(
            &dir,
            relative,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        ) {
            // Something was renamed elsewhere in the tree; openat2(2) says to try again.
            Err(Errno::AGAIN) => continue,
            other => return other,
        }
    }
}

/// Opens the path segment by segment. The target of a link must belong to the link's owner. This follows nginx's
/// `ngx_open_file_wrapper` with `if_not_owner`; as there, only the first link of a chain and the chain's final target
/// are compared.
fn open_by_owner(root: &OwnedFd, relative: &[u8], flags: OFlags) -> Result<OwnedFd, Refusal> {
    let open = |dir: &OwnedFd, segment: &[u8], flags: OFlags| {
        rustix::fs::openat(dir, segment, flags | OFlags::CLOEXEC, Mode::empty())
    };
    let mut here: Option<OwnedFd> = None;
    let mut segments = relative.split(|b| *b == b'/').peekable();
    while let Some(segment) = segments.next() {
        let dir = here.as_ref().unwrap_or(root);
        let wanted = match segments.peek() {
            Some(_) => OFlags::PATH | OFlags::DIRECTORY,
            None => flags,
        };
        let next = match open(dir, segment, wanted | OFlags::NOFOLLOW) {
            // With O_PATH the link itself is opened; with other flags opening it fails.
            Ok(fd) if !is_link(&rustix::fs::fstat(&fd).map_err(refusal_for)?) => fd,
            Ok(_) | Err(Errno::LOOP | Errno::NOTDIR) => {
                let link = rustix::fs::statat(dir, segment, AtFlags::SYMLINK_NOFOLLOW);
                let link = link.map_err(refusal_for)?;
                if !is_link(&link) {
                    return Err(Refusal::NotFound);
                }
                let target = open(dir, segment, wanted).map_err(refusal_for)?;
                let owner = rustix::fs::fstat(&target).map_err(refusal_for)?.st_uid;
                if owner != link.st_uid {
                    return Err(Refusal::SymlinkOwner);
                }
                target
            }
            Err(error) => return Err(refusal_for(error)),
        };
        here = Some(next);
    }
    here.ok_or(Refusal::NotFound)
}

fn is_link(stat: &rustix::fs::Stat) -> bool {
    stat.st_mode & 0o170_000 == 0o120_000
}

/// Returns the refusal for an error of a lookup.
fn refusal_for(error: Errno) -> Refusal {
    match error {
        // No file can have a name that is too long for the file system.
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL => Refusal::NotFound,
        Errno::ACCESS | Errno::PERM => Refusal::Unreadable,
        // The path names a socket (ENXIO), or its links form a circle.
        Errno::NXIO | Errno::LOOP | Errno::NODEV => Refusal::NotRegular,
        _ => Refusal::ReadFailed,
    }
}

#[cfg(test)]
#[path = "root_tests.rs"]
mod tests;
