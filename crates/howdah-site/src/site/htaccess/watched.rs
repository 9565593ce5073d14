//! Watches directories with inotify(7), so the calling thread knows whether they have an `.htaccess` file while the
//! kernel reports no change. To learn that there is no report costs no system call, because the kernel raises a signal
//! for each report ([`crate::sys::enable_event_signal`]).
//!
//! The kernel queues a report and its signal before the call that made the change returns, and it runs the signal's
//! handler before a system call of this thread ends. A request that was sent after the change is received by such a
//! call, so its evaluation sees the report. Results are cached only where inotify cannot miss a change:
//!
//! - in directories of file systems that only this kernel writes to, so not on NFS or FUSE;
//! - in directories to which no symbolic link leads and whose parents are all watched, because the parent reports that
//!   another directory has replaced this one;
//! - for files that are not symbolic links and did not change just now. They are watched themselves, so a change
//!   through another name of the file is reported.
//!
//! The same applies to other file names that rules have tested ([`Watched::trusts`]).
//!
//! inotify does not report two things. The thread checks for changed mounts at each tick of the coarse clock, which is
//! every few milliseconds. And a program may write to a file that it has mapped into memory, so cached results are
//! checked again after [`FOR`].

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::docroot::root::{FileKind, FileMeta, RootDir};
use crate::refusal::Refusal;
use crate::sys;

/// The name of the files.
pub(super) const NAME: &str = ".htaccess";
/// How long cached results are valid without being checked again.
pub(super) const FOR: Duration = Duration::from_secs(1);
/// The maximum number of directories and files that a thread watches.
const MOST: usize = 1024;
/// The maximum number of reads of reports for one request. If there are more reports, nothing is trusted until all have
/// been read.
const READS: usize = 16;

/// The inotify instance of a thread, with the directories that it watches and their state.
pub(super) struct Watched {
    inotify: OwnedFd,
    /// The number of signals at the time of the last read.
    events: u32,
    mounts: File,
    watches: HashSet<i32>,
    /// The state of the directories, by root and directory.
    roots: HashMap<u64, HashMap<Box<[u8]>, Directory>>,
    /// Names in watched directories, in lower case, whose creation and removal matter.
    names: HashSet<Vec<u8>>,
    now: Duration,
    /// When everything was forgotten last.
    since: Duration,
    /// How often everything was forgotten.
    changes: u64,
    /// Whether some reports have not been read yet.
    is_behind: bool,
}

/// A directory that was looked up.
struct Directory {
    state: State,
    /// When the directory was checked last.
    asked: Duration,
}

/// The cached state of a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The directory has no file.
    Absent,
    /// The directory has a file with this state.
    Present(FileMeta),
    /// The directory has a file that must be checked each time, or that must not be read. It is watched for its
    /// subdirectories.
    Unsure,
    /// The directory cannot be watched.
    Unwatched,
}

/// The result of checking a directory for its file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// There is no file.
    Absent,
    /// There is this file, and its parsed content is cached.
    Kept(FileMeta),
    /// There is a file that is not cached, or the name could not be checked.
    Other,
}

impl Watched {
    /// Creates the inotify instance. Fails as `inotify_init1(2)` does (`EMFILE`: `fs.inotify.max_user_instances`), if
    /// there is no `/proc`, and with `ENOTSUP` if a report raises no signal.
    pub(super) fn new() -> std::io::Result<Watched> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        sys::enable_event_signal(inotify.as_fd())?;
        let before = sys::event_count();
        // The kernel also reports the end of a watch, which tests whether a report raises the signal.
        let watch = inotify::add_watch(&inotify, "/", WatchFlags::DELETE_SELF)?;
        inotify::remove_watch(&inotify, watch)?;
        if sys::event_count() == before {
            return Err(Errno::NOTSUP.into());
        }
        let mut watched = Watched {
            inotify,
            events: before,
            mounts: File::open("/proc/self/mountinfo")?,
            watches: HashSet::new(),
            roots: HashMap::new(),
            names: HashSet::new(),
            now: Duration::ZERO,
            since: Duration::ZERO,
            changes: 0,
            is_behind: false,
        };
        watched.check(Duration::ZERO);
        Ok(watched)
    }

    /// Forgets everything that may have changed. Must be called for each request before any cached result is used;
    /// `now` must come from a monotonic clock.
    pub(super) fn check(&mut self, now: Duration) {
        let events = sys::event_count();
        if events != self.events || self.is_behind {
            self.events = events;
            self.read();
        }
        if now == self.now {
            return;
        }
        self.now = now;
        if self.mounts_have_changed() {
            self.forget();
        }
        let is_full = self.watches.len() >= MOST || self.names.len() >= MOST;
        if !is_full || now.saturating_sub(self.since) < FOR {
            return;
        }
        self.forget();
        if self.watches.len() >= MOST {
            for watch in self.watches.drain() {
                // This fails for a directory that has been removed together with its watch.
                let _ = inotify::remove_watch(&self.inotify, watch);
            }
        }
    }

    /// Returns a number that differs whenever something may have changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the time of the last [`Watched::check`].
    pub(super) fn now(&self) -> Duration {
        self.now
    }

    /// Returns true if `directory` (`/a/b/`) of this root is known to have no file. If false, it must be checked.
    pub(super) fn knows_absent(&self, root: &RootDir, directory: &[u8]) -> bool {
        let known = self.known(root, directory);
        known.is_some_and(|known| known.state == State::Absent)
    }

    /// Returns the time since which the state of `directory` has been known.
    pub(super) fn known_since(&self, root: &RootDir, directory: &[u8]) -> Option<Duration> {
        let known = self.known(root, directory)?;
        matches!(known.state, State::Absent | State::Present(_)).then_some(known.asked)
    }

    fn known(&self, root: &RootDir, directory: &[u8]) -> Option<&Directory> {
        let known = self.roots.get(&root.id())?.get(directory)?;
        (self.now.saturating_sub(known.asked) < FOR).then_some(known)
    }

    /// Watches a directory that has just been checked, provided that its parents are watched. `name` is the path of its
    /// file below the root.
    pub(super) fn learn(&mut self, root: &RootDir, directory: &[u8], name: &[u8], found: Asked) {
        let known = self.roots.entry(root.id()).or_default();
        if let Some(before) = known.get_mut(directory) {
            let is_as_before = match (before.state, found) {
                (State::Absent, found) => found == Asked::Absent,
                (State::Present(meta), found) => found == Asked::Kept(meta),
                (State::Unwatched, _) => true,
                (State::Unsure, _) => false,
            };
            if is_as_before {
                before.asked = self.now;
                return;
            }
        }
        let has_room = known.contains_key(directory) || known.len() < MOST;
        if !has_room || self.watches.len() >= MOST {
            return;
        }
        let is_watched = |above: &[u8]| {
            let above = known.get(above);
            above.is_some_and(|above| above.state != State::Unwatched)
        };
        if !parent(directory).is_none_or(is_watched) {
            return;
        }
        let state = match watch(&self.inotify, root, directory) {
            Ok(watch) => {
                self.watches.insert(watch);
                // The file may have been created, removed or changed before the watch began; and a dangling symbolic
                // link may lead to a file later without a report here.
                match found {
                    Asked::Absent if root.stat_nofollow(name) == Err(Refusal::NotFound) => {
                        State::Absent
                    }
                    Asked::Kept(meta) => match watch_file(&self.inotify, root, name) {
                        Some(watch) => {
                            self.watches.insert(watch);
                            match root.stat_nofollow(name) == Ok(meta) {
                                true => State::Present(meta),
                                false => State::Unsure,
                            }
                        }
                        None => State::Unsure,
                    },
                    Asked::Absent | Asked::Other => State::Unsure,
                }
            }
            // A missing directory is not recorded, because clients can make up any number of names.
            Err(Unwatchable::Missing) => return,
            Err(Unwatchable::Unreliable) => State::Unwatched,
        };
        let asked = self.now;
        known.insert(directory.into(), Directory { state, asked });
    }

    /// Returns true if the state that was found for a name below the root remains valid until a report. This is not the
    /// case behind a symbolic link, where no change is reported.
    pub(super) fn trusts(
        &mut self,
        root: &RootDir,
        name: &[u8],
        found: Result<FileMeta, Refusal>,
    ) -> bool {
        let name = name.strip_suffix(b"/").unwrap_or(name);
        let slash = name.iter().rposition(|b| *b == b'/');
        let (above, last) = name.split_at(slash.map_or(0, |slash| slash + 1));
        // In a directory that ignores case, other letters may be equal.
        let is_plain = last.is_ascii() && !last.is_empty();
        let Some(known) = self.roots.get(&root.id()).filter(|_| is_plain) else {
            return false;
        };
        // All its parents are watched too.
        let directory = known.get(&[b"/", above].concat()[..]);
        let is_watched = directory.is_some_and(|above| above.state != State::Unwatched);
        if !is_watched || self.names.len() >= MOST {
            return false;
        }
        self.names.insert(last.to_ascii_lowercase());
        match (found, root.stat_nofollow(name)) {
            (Err(Refusal::NotFound), Err(Refusal::NotFound)) => true,
            (Ok(found), Ok(own)) => {
                found.inode == own.inode && matches!(own.kind, FileKind::File | FileKind::Directory)
            }
            _ => false,
        }
    }

    fn mounts_have_changed(&self) -> bool {
        let mut mounts = [PollFd::new(&self.mounts, PollFlags::PRI)];
        let none = Timespec::default();
        poll(&mut mounts, Some(&none)) != Ok(0)
    }

    fn forget(&mut self) {
        self.roots.clear();
        self.names.clear();
        self.since = self.now;
        self.changes += 1;
    }

    /// Reads the kernel's reports, and forgets everything if one may be about a file or a directory on a path.
    #[cold]
    fn read(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        self.is_behind = false;
        for _ in 0..READS {
            let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
            let mut matters = false;
            // Each round processes one buffer of reports.
            let is_last = loop {
                match reader.next() {
                    Ok(event) => {
                        let about = event.events();
                        if about.contains(ReadFlags::IGNORED) {
                            self.watches.remove(&event.wd());
                        }
                        let name = event.file_name().map(|name| name.to_bytes());
                        // Some directories ignore the case of names.
                        let is_other = name.is_some_and(|name| {
                            let name = name.to_ascii_lowercase();
                            name != NAME.as_bytes() && !self.names.contains(&name)
                        });
                        // Nothing is cached about a directory that did not exist before. But a removed directory may
                        // still be in use, and then its own watch reports the removal much later.
                        let is_directory =
                            about.contains(ReadFlags::ISDIR) && !about.contains(ReadFlags::CREATE);
                        matters |= !is_other || is_directory;
                        if reader.is_buffer_empty() {
                            break false;
                        }
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => break true,
                    Err(_) => {
                        matters = true;
                        break true;
                    }
                }
            };
            if matters {
                self.forget();
            }
            if is_last {
                return;
            }
        }
        // There may be more reports.
        self.is_behind = true;
        self.forget();
    }
}

/// Returns `/a/` for `/a/b/`, and `None` for `/`.
fn parent(directory: &[u8]) -> Option<&[u8]> {
    let named = directory.strip_suffix(b"/")?;
    let slash = named.iter().rposition(|b| *b == b'/')?;
    Some(&directory[..=slash])
}

/// Why a directory is not watched.
enum Unwatchable {
    /// The directory does not exist.
    Missing,
    /// Not all of its changes would be reported, or the user's limit of watches is reached
    /// (`fs.inotify.max_user_watches`).
    Unreliable,
}

/// Watches a directory of a root if inotify is reliable there.
fn watch(inotify: &OwnedFd, root: &RootDir, directory: &[u8]) -> Result<i32, Unwatchable> {
    let path = root.file_name(directory);
    // With a trailing slash, a symbolic link would be followed.
    let path = path.strip_suffix(b"/").filter(|path| !path.is_empty());
    let path = path.unwrap_or(b"/");
    let file_system = rustix::fs::statfs(path).map_err(|_| Unwatchable::Missing)?;
    if !reports_everything(file_system.f_type as u64) {
        return Err(Unwatchable::Unreliable);
    }
    let flags = WatchFlags::CREATE
        | WatchFlags::MOVED_TO
        | WatchFlags::MOVED_FROM
        | WatchFlags::DELETE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ATTRIB
        | WatchFlags::ONLYDIR
        | WatchFlags::DONT_FOLLOW;
    let watch = inotify::add_watch(inotify, path, flags).map_err(|_| Unwatchable::Unreliable)?;
    // The root is an open directory; its path may lead to another directory by now.
    match (root.stat_nofollow(directory), RootDir::stat_path(path)) {
        (Ok(reached), Ok(named))
            if reached.kind == FileKind::Directory && reached.inode == named.inode =>
        {
            Ok(watch)
        }
        _ => Err(Unwatchable::Unreliable),
    }
}

/// Watches the file of a watched directory.
fn watch_file(inotify: &OwnedFd, root: &RootDir, name: &[u8]) -> Option<i32> {
    let flags = WatchFlags::MODIFY
        | WatchFlags::ATTRIB
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::DONT_FOLLOW;
    let path = root.file_name(&[b"/", name].concat());
    inotify::add_watch(inotify, path, flags).ok()
}

/// Returns true for file systems that are changed only through this kernel, by their numbers in `statfs(2)`.
fn reports_everything(file_system: u64) -> bool {
    matches!(
        file_system,
        0xEF53            // ext2, ext3, ext4
        | 0x5846_5342     // XFS
        | 0x9123_683E     // Btrfs
        | 0x0102_1994     // tmpfs
        | 0xF2F5_2010     // F2FS
        | 0x2FC1_2FC1     // ZFS
        | 0xCA45_1A4E     // bcachefs
        | 0x794C_7630 // overlayfs: a container's root
    )
}

#[cfg(test)]
#[path = "watched_tests.rs"]
mod tests;
