//! Files that root creates, opens or gives to another user, by a path from the configuration: logs, the pid file, the
//! file of a unix socket, and the directory of the page cache. A directory on the path may be owned by the user that
//! PHP runs as. That user could put a link there, which would make root overwrite any file or change its owner.
//!
//! So a path is walked component by component, and a symbolic link is followed only if root owns it (as Linux's
//! `fs.protected_symlinks` does in /tmp). The last step never follows a link that was created in the meantime. An
//! opened file is checked by its descriptor, not by its path. Without root, the kernel's own checks suffice, and every
//! path may be walked.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use crate::files::random_hex;
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, PROC_SUPER_MAGIC, Stat, Uid, chownat, fchown,
    fcntl_setfl, fstat, fstatfs, ftruncate, mkdirat, openat, readlinkat, renameat, unlinkat,
};
use rustix::io::Errno;

/// The maximum number of links that are followed on one path, the same as in the kernel.
const MAX_LINKS: u32 = 40;

/// The location of a file: its directory, which was reached by a safe path, and its name in it.
struct SafePath {
    directory: OwnedFd,
    name: OsString,
    /// Whether the last component is a link of procfs to an open file (`/dev/stdout`), which only the kernel can
    /// follow.
    is_open_file: bool,
}

/// Returns the error for a path that leads to a file or link that another user has put there.
fn unsafe_path(path: &Path, what: &str, stat: &Stat) -> io::Error {
    io::Error::other(format!(
        "UnsafePath: {} {what} of user {}, and root does not use such a path; change the owner of its directory to root",
        path.display(),
        stat.st_uid
    ))
}

/// Returns whether root or this process's user owns the file. A process that has no more rights than other users cannot
/// be misled, so it accepts every file.
fn is_ours(stat: &Stat) -> bool {
    let own = rustix::process::geteuid().as_raw();
    [0, own].contains(&stat.st_uid) || !crate::process::may_change_user()
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Returns whether no other user can change the content of this directory.
fn is_private(directory: &OwnedFd) -> io::Result<bool> {
    let stat = fstat(directory)?;
    Ok(is_ours(&stat) && stat.st_mode & 0o022 == 0)
}

const PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl SafePath {
    /// Walks to the file. The last component does not need to exist.
    fn find(path: &Path) -> io::Result<SafePath> {
        // The remaining components in reverse order; the next one is last.
        let mut left: Vec<OsString> = Vec::new();
        let push = |left: &mut Vec<OsString>, path: &Path| {
            let names = path.components().rev().map(Component::as_os_str);
            left.extend(names.map(OsStr::to_owned));
        };
        push(&mut left, path);
        let at = |name: &str| {
            openat(
                rustix::fs::CWD,
                name,
                PATH_FLAGS | OFlags::DIRECTORY,
                Mode::empty(),
            )
        };
        let (mut directory, mut so_far) = (at(".")?, PathBuf::new());
        let mut links = 0;
        while let Some(name) = left.pop() {
            if name == "/" {
                directory = at("/")?;
                so_far = PathBuf::from("/");
                continue;
            }
            let is_last = left.is_empty();
            let step = match openat(&directory, &*name, PATH_FLAGS, Mode::empty()) {
                Err(Errno::NOENT) if is_last => None,
                Err(error) => {
                    let text = format!("{}: {error}", so_far.join(&name).display());
                    return Err(io::Error::new(io::Error::from(error).kind(), text));
                }
                Ok(step) => Some((fstat(&step)?, step)),
            };
            match step {
                Some((stat, step)) if kind(&stat) == FileType::Symlink => {
                    if !is_ours(&stat) {
                        return Err(unsafe_path(&so_far.join(&name), "is a link", &stat));
                    }
                    if is_last && fstatfs(&directory)?.f_type == PROC_SUPER_MAGIC {
                        return Ok(SafePath {
                            directory,
                            name,
                            is_open_file: true,
                        });
                    }
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    let target = readlinkat(&step, "", Vec::new())?.into_bytes();
                    push(&mut left, Path::new(&OsString::from_vec(target)));
                }
                Some((stat, step)) if !is_last || name == ".." || name == "." => {
                    if kind(&stat) != FileType::Directory {
                        return Err(Errno::NOTDIR.into());
                    }
                    so_far.push(&name);
                    directory = step;
                }
                _ => {
                    return Ok(SafePath {
                        directory,
                        name,
                        is_open_file: false,
                    });
                }
            }
        }
        Err(io::Error::other("the path does not name a file"))
    }

    fn open(&self, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
        let follow = match self.is_open_file {
            true => OFlags::empty(),
            false => OFlags::NOFOLLOW,
        };
        let flags = flags | follow | OFlags::CLOEXEC | OFlags::NOCTTY;
        let mode = Mode::from_raw_mode(mode);
        Ok(openat(&self.directory, &*self.name, flags, mode)?)
    }

    /// Opens a file for writing. In a directory where other users can create files, it must be a regular file of ours
    /// that has no other hard link.
    fn open_to_write(&self, path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
        // The open must not wait for the reader of a pipe.
        let flags = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK;
        let file = self.open(flags, mode)?;
        let stat = fstat(&file)?;
        let is_plain = kind(&stat) == FileType::RegularFile && stat.st_nlink <= 1;
        let is_well = self.is_open_file || (is_ours(&stat) && is_plain);
        if !is_well && !is_private(&self.directory)? {
            return Err(unsafe_path(
                path,
                "is in a directory that other users can write to, and is a file",
                &stat,
            ));
        }
        fcntl_setfl(&file, flags & OFlags::APPEND)?;
        Ok(File::from(file))
    }
}

/// Opens a log for appending. A missing log is created with mode 0640.
pub fn open_log(path: &Path) -> io::Result<File> {
    if crate::process::may_change_user() {
        return SafePath::find(path)?.open_to_write(path, OFlags::APPEND, 0o640);
    }
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    options.append(true).create(true).mode(0o640).open(path)
}

/// Replaces the content of a small file, or creates the file.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    if !crate::process::may_change_user() {
        return std::fs::write(path, text);
    }
    let mut file = SafePath::find(path)?.open_to_write(path, OFlags::empty(), 0o644)?;
    ftruncate(&file, 0)?;
    io::Write::write_all(&mut file, text.as_bytes())
}

/// Reads the beginning of a regular file, which another user may have put there. Does not follow that user's links, and
/// does not wait for the other end of a pipe.
pub fn read(path: &Path, most: u64) -> io::Result<String> {
    let file = SafePath::find(path)?.open(OFlags::RDONLY | OFlags::NONBLOCK, 0)?;
    let stat = fstat(&file)?;
    if kind(&stat) != FileType::RegularFile {
        return Err(unsafe_path(path, "is not a regular file, but one", &stat));
    }
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(File::from(file), most), &mut text)?;
    Ok(text)
}

/// Replaces a small file as a whole, or creates it, with mode 0644. A reader never sees a part of it, and the texts of
/// several processes that write at the same time are never mixed.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let place = SafePath::find(path)?;
    let name = place.name.to_string_lossy();
    let new = SafePath {
        directory: place.directory.try_clone()?,
        name: format!(".{name}.{}", random_hex()?).into(),
        is_open_file: false,
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let mut file = File::from(new.open(flags, 0o644)?);
    let replaced = io::Write::write_all(&mut file, text.as_bytes()).and_then(|()| {
        let (from, to) = (&new.directory, &place.directory);
        Ok(renameat(from, &*new.name, to, &*place.name)?)
    });
    if replaced.is_err() {
        let _ = unlinkat(&new.directory, &*new.name, AtFlags::empty());
    }
    replaced
}

/// Gives the file of a unix socket to a user and a group, and sets its mode. Only the owner can change the mode,
/// because the systemd unit does not grant CAP_FOWNER, so we take ownership first.
pub fn give_socket(
    path: &Path,
    user: Option<u32>,
    group: Option<u32>,
    mode: u32,
) -> io::Result<()> {
    let file = SafePath::find(path)?.open(OFlags::PATH, 0)?;
    let stat = fstat(&file)?;
    if kind(&stat) != FileType::Socket {
        return Err(unsafe_path(path, "is not a socket, but a file", &stat));
    }
    let own = rustix::process::geteuid();
    let give = |user: Option<Uid>, group: Option<Gid>| {
        chownat(&file, "", user, group, AtFlags::EMPTY_PATH)
    };
    if stat.st_uid != own.as_raw() {
        give(Some(own), None)?;
    }
    // fchmod(2) does not accept a descriptor that was opened with O_PATH.
    let by_descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::set_permissions(by_descriptor, Permissions::from_mode(mode))?;
    give(user.map(Uid::from_raw), group.map(Gid::from_raw))?;
    Ok(())
}

/// Creates a directory with mode 0700, and the missing directories on its path with mode 0755.
pub fn make_directory(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let mut missing: Vec<&Path> = path.ancestors().take_while(|path| !path.exists()).collect();
    while let Some(next) = missing.pop() {
        let mode = if missing.is_empty() { 0o700 } else { 0o755 };
        let place = SafePath::find(next)?;
        match mkdirat(&place.directory, &*place.name, Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Gives a directory, the directories in it that `parts` names, and their files to a user and a group, as far as root
/// owns them. The directory itself is last. A file with a second hard link stays root's, because another user may have
/// linked any of root's files there.
pub fn give_away_root_files(path: &Path, parts: &[&str], user: u32, group: u32) -> io::Result<()> {
    change_owner(path, parts, 0, (user, group))
}

/// Undoes [`give_away_root_files`].
pub fn take_back_files(path: &Path, parts: &[&str], user: u32) -> io::Result<()> {
    change_owner(path, parts, user, (0, 0))
}

fn change_owner(path: &Path, parts: &[&str], from: u32, to: (u32, u32)) -> io::Result<()> {
    let (user, group) = (Some(Uid::from_raw(to.0)), Some(Gid::from_raw(to.1)));
    let top = SafePath::find(path)?.open(OFlags::DIRECTORY | OFlags::RDONLY, 0)?;
    let inside = PATH_FLAGS.difference(OFlags::PATH) | OFlags::DIRECTORY;
    for part in parts.iter().filter(|part| !part.is_empty()) {
        let directory = match openat(&top, *part, inside, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            Err(error) => return Err(error.into()),
        };
        for entry in Dir::read_from(&directory)? {
            let file = match openat(&directory, entry?.file_name(), PATH_FLAGS, Mode::empty()) {
                Ok(file) => file,
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            };
            let stat = fstat(&file)?;
            let is_plain = kind(&stat) == FileType::RegularFile && stat.st_nlink == 1;
            if is_plain && stat.st_uid == from {
                chownat(&file, "", user, group, AtFlags::EMPTY_PATH)?;
            }
        }
        if fstat(&directory)?.st_uid == from {
            fchown(&directory, user, group)?;
        }
    }
    if fstat(&top)?.st_uid == from {
        fchown(&top, user, group)?;
    }
    Ok(())
}

/// Creates a directory with mode 0700 if it does not exist. Changes the owner of the directory if this process's user
/// owns it and it is empty.
pub fn give_directory(path: &Path, user: u32, group: u32) -> io::Result<()> {
    let place = SafePath::find(path)?;
    match mkdirat(&place.directory, &*place.name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let directory = place.open(OFlags::DIRECTORY | OFlags::RDONLY, 0)?;
    let is_empty = || -> io::Result<bool> {
        for entry in Dir::read_from(&directory)? {
            if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    };
    if fstat(&directory)?.st_uid == rustix::process::geteuid().as_raw() && is_empty()? {
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        fchown(&directory, Some(user), Some(group))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, chown, lchown, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// The user id of Debian's www-data.
    const OTHER: u32 = 33;

    /// Returns a directory of another user, beside a file of root's; `None` without root.
    fn theirs() -> Option<(tempfile::TempDir, PathBuf, PathBuf)> {
        if !crate::process::is_root() {
            return None;
        }
        let all = tempfile::tempdir().unwrap();
        let (own, victim) = (all.path().join("own"), all.path().join("victim"));
        fs::create_dir(&own).unwrap();
        chown(&own, Some(OTHER), Some(OTHER)).unwrap();
        fs::write(&victim, "secret").unwrap();
        Some((all, own, victim))
    }

    fn link(target: &Path, at: &Path) {
        symlink(target, at).unwrap();
        lchown(at, Some(OTHER), Some(OTHER)).unwrap();
    }

    #[track_caller]
    fn refused<T>(result: io::Result<T>) {
        let why = result.err().expect("it is refused").to_string();
        assert!(why.starts_with("UnsafePath: "), "{why}");
    }

    #[test]
    fn read_and_replace_refuse_another_users_link_or_pipe() {
        let Some((_all, own, victim)) = theirs() else {
            return;
        };
        let path = own.join("state");
        link(&victim, &path);
        refused(read(&path, 100));
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        refused(read(&path, 100));
        replace(&path, "new").unwrap();
        assert_eq!(read(&path, 2).unwrap(), "ne");
        link(&victim, &own.join("other"));
        refused(replace(&own.join("other"), "new"));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "secret");
    }

    #[test]
    fn safe_path_follows_no_link_of_another_user() {
        let Some((all, own, victim)) = theirs() else {
            return;
        };
        link(&victim, &own.join("last"));
        link(all.path(), &own.join("middle"));
        symlink(own.join("last"), all.path().join("ours")).unwrap();
        let before = fs::metadata(&victim).unwrap();
        for path in [
            own.join("last"),
            own.join("middle/victim"),
            own.join("middle/../victim"),
            all.path().join("ours"),
        ] {
            refused(open_log(&path));
            refused(write(&path, "1\n"));
            refused(give_socket(&path, Some(OTHER), None, 0o666));
            refused(give_directory(&path, OTHER, OTHER));
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "secret");
        let after = fs::metadata(&victim).unwrap();
        assert_eq!((after.uid(), after.mode()), (before.uid(), before.mode()));
    }

    #[test]
    fn open_log_and_write_refuse_another_users_file_and_hard_link() {
        let Some((_all, own, victim)) = theirs() else {
            return;
        };
        // This is possible where links to other users' files are allowed (fs.protected_hardlinks = 0).
        fs::hard_link(&victim, own.join("hard")).unwrap();
        fs::write(own.join("foreign"), "").unwrap();
        chown(own.join("foreign"), Some(OTHER), None).unwrap();
        for name in ["hard", "foreign"] {
            refused(open_log(&own.join(name)));
            refused(write(&own.join(name), "1\n"));
        }
        refused(give_socket(&own.join("hard"), Some(OTHER), None, 0o666));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "secret");
    }

    #[test]
    fn own_file_is_created_and_written_in_any_directory() {
        let Some((all, own, _)) = theirs() else {
            return;
        };
        for directory in [all.path(), &own] {
            let (log, pid) = (directory.join("a.log"), directory.join("a.pid"));
            for line in ["one\n", "two\n"] {
                io::Write::write_all(&mut open_log(&log).unwrap(), line.as_bytes()).unwrap();
                write(&pid, line).unwrap();
            }
            assert_eq!(fs::read_to_string(&log).unwrap(), "one\ntwo\n");
            assert_eq!(fs::metadata(&log).unwrap().mode() & 0o777, 0o640);
            assert_eq!(fs::read_to_string(&pid).unwrap(), "two\n");
        }
        // An administrator's links, and files of other users in a directory that root owns, are accepted.
        symlink(all.path(), all.path().join("link")).unwrap();
        let log = all.path().join("link/link/a.log");
        drop(open_log(&log).unwrap());
        chown(all.path().join("a.log"), Some(OTHER), None).unwrap();
        drop(open_log(&log).unwrap());
        drop(open_log(Path::new("/dev/null")).unwrap());
        assert!(open_log(&all.path().join("nowhere/a.log")).is_err());
        assert!(open_log(Path::new("/")).is_err());
    }

    #[test]
    fn open_log_follows_a_procfs_link_to_an_open_file() {
        if !crate::process::is_root() {
            return;
        }
        let all = tempfile::tempdir().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let log = all.path().join("access.log");
        symlink(format!("/proc/self/fd/{}", writer.as_raw_fd()), &log).unwrap();
        io::Write::write_all(&mut open_log(&log).unwrap(), b"line\n").unwrap();
        drop(writer);
        assert_eq!(io::read_to_string(reader).unwrap(), "line\n");
    }

    #[test]
    fn sockets_and_directories_are_given_away() {
        let Some((all, own, _)) = theirs() else {
            return;
        };
        let path = own.join("http.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        for (user, mode) in [(OTHER, 0o660), (1, 0o666)] {
            give_socket(&path, Some(user), Some(OTHER), mode).unwrap();
            let stat = fs::metadata(&path).unwrap();
            assert_eq!((stat.uid(), stat.gid()), (user, OTHER));
            assert_eq!(stat.mode() & 0o777, mode);
        }
        let cache = all.path().join("cache");
        give_directory(&cache, OTHER, OTHER).unwrap();
        give_directory(&cache, 1, 1).unwrap();
        let stat = fs::metadata(&cache).unwrap();
        assert_eq!((stat.uid(), stat.mode() & 0o777), (OTHER, 0o700));
        let full = all.path().join("full");
        fs::create_dir_all(full.join("x")).unwrap();
        give_directory(&full, OTHER, OTHER).unwrap();
        assert_eq!(fs::metadata(&full).unwrap().uid(), 0);
    }
    #[test]
    fn files_that_were_given_away_are_taken_back() {
        let Some((all, own, _)) = theirs() else {
            return;
        };
        let path = all.path().join("state");
        let at = |name: &str| path.join(name);
        fs::create_dir_all(at("part")).unwrap();
        fs::create_dir(at("other")).unwrap();
        for name in ["part/a", "part/foreign", "other/b"] {
            fs::write(at(name), "x").unwrap();
        }
        chown(at("part/foreign"), Some(1), Some(1)).unwrap();
        symlink(&own, at("part/link")).unwrap();
        let owners = || {
            let names = ["", "part", "part/a", "part/foreign", "other/b"];
            names.map(|name| fs::metadata(at(name)).unwrap().uid())
        };
        let before = owners();
        give_away_root_files(&path, &["part", "missing"], OTHER, OTHER).unwrap();
        assert_eq!(owners(), [OTHER, OTHER, OTHER, 1, 0]);
        take_back_files(&path, &["part", "missing"], OTHER).unwrap();
        assert_eq!(owners(), before);
        assert_eq!(fs::metadata(&own).unwrap().uid(), OTHER);
    }
}
