//! Directories whose `.htaccess` file, or the absence of one, the calling thread knows while inotify(7)
//! reports no change. Nothing is asked of the system to know that there is no report: the kernel raises
//! a signal for it ([`crate::sys::enable_event_signal`]).
//!
//! The kernel queues a report, and the signal, before the call that changed something returns. It runs
//! the signal's handler before a system call of this thread ends. A request that was sent after the
//! change is received by such a call, so it finds the report. Known is only what inotify cannot miss:
//!
//! - directories of file systems that nobody but this kernel writes to: not NFS, not FUSE;
//! - which no symbolic link leads to, and whose parents are all watched: a directory that takes the
//!   place of another is reported by the parent;
//! - files that are no symbolic links and have not changed a moment ago. They are watched themselves, so
//!   that a change by another of their names is reported.
//!
//! The same holds for names of other files that rules have asked about ([`Watched::trusts`]).
//!
//! Two things inotify does not report. Mounts are asked for at each tick of the coarse clock, some
//! milliseconds. And a program may write to a file that it has mapped to memory: what is known is asked
//! again after [`FOR`].

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

/// The file's name.
pub(super) const NAME: &str = ".htaccess";
/// How long what is known is believed without being asked again.
pub(super) const FOR: Duration = Duration::from_secs(1);
/// Most directories and files a thread watches.
const MOST: usize = 1024;
/// Reads of reports for one request; of more reports nothing is believed until all are read.
const READS: usize = 16;

/// See the module.
pub(super) struct Watched {
    inotify: OwnedFd,
    /// The signals that came before it was read last.
    events: u32,
    mounts: File,
    watches: HashSet<i32>,
    /// By root and directory.
    roots: HashMap<u64, HashMap<Box<[u8]>, Directory>>,
    /// Names in watched directories, in lower case, whose coming and going matters.
    names: HashSet<Vec<u8>>,
    now: Duration,
    /// Since when all is known that is known.
    since: Duration,
    /// How often something was forgotten.
    changes: u64,
    /// Not all reports have been read.
    is_behind: bool,
}

/// A directory that is asked for.
struct Directory {
    state: State,
    /// When it was asked last.
    asked: Duration,
}

/// What is known of a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has no file.
    Absent,
    /// It has this file.
    Present(FileMeta),
    /// It has a file that is to be asked for each time, or is not to be looked into. It is watched for the
    /// sake of those below it.
    Unsure,
    /// It cannot be watched.
    Unwatched,
}

/// What was found when a directory was asked for its file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// There is none.
    Absent,
    /// This one, and what it says is kept.
    Kept(FileMeta),
    /// One that is not kept, or something else.
    Other,
}

impl Watched {
    /// Errors: what `inotify_init1(2)` says (`EMFILE`: `fs.inotify.max_user_instances`); there is no
    /// `/proc`; `ENOTSUP` if no signal comes with a report.
    pub(super) fn new() -> std::io::Result<Watched> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        sys::enable_event_signal(inotify.as_fd())?;
        let before = sys::event_count();
        // That a watch has ended is reported, too.
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

    /// Forgets what may have changed. To be called for each request, before anything that is known is used; `now` is
    /// of a clock that only goes forward.
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
                // It fails for a directory that is gone, and its watch with it.
                let _ = inotify::remove_watch(&self.inotify, watch);
            }
        }
    }

    /// Different whenever something may have changed since.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// When [`Watched::check`] was called.
    pub(super) fn now(&self) -> Duration {
        self.now
    }

    /// Whether `directory` (`/a/b/`) of this root has no file. False: it has to be asked for.
    pub(super) fn knows_absent(&self, root: &RootDir, directory: &[u8]) -> bool {
        let known = self.known(root, directory);
        known.is_some_and(|known| known.state == State::Absent)
    }

    /// Since when it is known what `directory` says.
    pub(super) fn known_since(&self, root: &RootDir, directory: &[u8]) -> Option<Duration> {
        let known = self.known(root, directory)?;
        matches!(known.state, State::Absent | State::Present(_)).then_some(known.asked)
    }

    fn known(&self, root: &RootDir, directory: &[u8]) -> Option<&Directory> {
        let known = self.roots.get(&root.id())?.get(directory)?;
        (self.now.saturating_sub(known.asked) < FOR).then_some(known)
    }

    /// Watches a directory that was just asked for, after those above it. `name` is that of its file,
    /// below the root.
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
                // The file may have come, gone or changed before the watch; and a symbolic link to
                // nothing may lead to a file later, of which nothing is reported here.
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
            // A name of nothing is not kept: clients make up as many as they like.
            Err(Unwatchable::Missing) => return,
            Err(Unwatchable::Unreliable) => State::Unwatched,
        };
        let asked = self.now;
        known.insert(directory.into(), Directory { state, asked });
    }

    /// Whether what was found at a name below the root stays there, or stays away, until a report. Not so
    /// where a symbolic link leads: of what is behind it nothing is reported.
    pub(super) fn trusts(
        &mut self,
        root: &RootDir,
        name: &[u8],
        found: Result<FileMeta, Refusal>,
    ) -> bool {
        let name = name.strip_suffix(b"/").unwrap_or(name);
        let slash = name.iter().rposition(|b| *b == b'/');
        let (above, last) = name.split_at(slash.map_or(0, |slash| slash + 1));
        // In a directory that folds case other letters may be the same.
        let is_plain = last.is_ascii() && !last.is_empty();
        let Some(known) = self.roots.get(&root.id()).filter(|_| is_plain) else {
            return false;
        };
        // All above it are watched, too.
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

    /// Reads the kernel's reports; forgets all when one may be about a file or a directory on a path.
    #[cold]
    fn read(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        self.is_behind = false;
        for _ in 0..READS {
            let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
            let mut matters = false;
            // One read for each buffer of reports.
            let is_last = loop {
                match reader.next() {
                    Ok(event) => {
                        let about = event.events();
                        if about.contains(ReadFlags::IGNORED) {
                            self.watches.remove(&event.wd());
                        }
                        let name = event.file_name().map(|name| name.to_bytes());
                        // Some directories take a name in any case for the same.
                        let is_other = name.is_some_and(|name| {
                            let name = name.to_ascii_lowercase();
                            name != NAME.as_bytes() && !self.names.contains(&name)
                        });
                        // What is made new was nothing before, of which nothing is known. But one that is
                        // removed may be in use, and says so itself much later.
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
        // There may be more.
        self.is_behind = true;
        self.forget();
    }
}

/// `/a/` of `/a/b/`; none of `/`.
fn parent(directory: &[u8]) -> Option<&[u8]> {
    let named = directory.strip_suffix(b"/")?;
    let slash = named.iter().rposition(|b| *b == b'/')?;
    Some(&directory[..=slash])
}

/// Why a directory is not watched.
enum Unwatchable {
    /// There is none of this name.
    Missing,
    /// Not all of its changes would be reported, or the kernel watches no more for this user
    /// (`fs.inotify.max_user_watches`).
    Unreliable,
}

/// Watches a directory of a root, if inotify can be relied upon there.
fn watch(inotify: &OwnedFd, root: &RootDir, directory: &[u8]) -> Result<i32, Unwatchable> {
    let path = root.file_name(directory);
    // With a slash at its end a symbolic link would be followed.
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
    // The root is an open directory, whose path may lead to another one by now.
    match (root.stat_nofollow(directory), RootDir::stat_path(path)) {
        (Ok(reached), Ok(named))
            if reached.kind == FileKind::Directory && reached.inode == named.inode =>
        {
            Ok(watch)
        }
        _ => Err(Unwatchable::Unreliable),
    }
}

/// Watches the file of a directory that is watched.
fn watch_file(inotify: &OwnedFd, root: &RootDir, name: &[u8]) -> Option<i32> {
    let flags = WatchFlags::MODIFY
        | WatchFlags::ATTRIB
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::DONT_FOLLOW;
    let path = root.file_name(&[b"/", name].concat());
    inotify::add_watch(inotify, path, flags).ok()
}

/// File systems all of whose changes go through this kernel, by `statfs(2)`'s numbers.
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
