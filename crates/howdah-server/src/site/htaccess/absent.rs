//! Directories without an `.htaccess` file, as the calling thread remembers them while inotify(7)
//! reports no change. To ask whether there is a report takes one system call a path, however deep the
//! path is; without this every directory of the path takes a `statx`.
//!
//! The kernel queues a report before the call that made the file returns, so a file counts for the
//! next request. Remembered is only what inotify cannot miss:
//!
//! - directories of file systems that nobody but this kernel writes to: not NFS, not FUSE;
//! - which no symbolic link leads to, and whose parents are all watched: a directory that takes the
//!   place of another is reported by the parent;
//! - for [`FOR`] at most: a file system that is mounted over a directory is reported by nobody.
//!
//! Everything else is asked for at each request, as are all files that exist.

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::docroot::root::{FileKind, RootDir};
use crate::refusal::Refusal;

/// The file's name.
pub(super) const NAME: &str = ".htaccess";
/// How long a directory is believed to have no file without being asked again.
const FOR: Duration = Duration::from_secs(1);
/// Most directories a thread watches.
const MOST: usize = 1024;
/// Reads of reports for one request; of more reports nothing is believed until all are read.
const READS: usize = 16;

/// See the module.
pub(super) struct Absent {
    inotify: OwnedFd,
    watches: HashSet<i32>,
    /// By root and directory.
    roots: HashMap<u64, HashMap<Box<[u8]>, DirectoryState>>,
    since: Duration,
}

/// What is known of a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DirectoryState {
    /// It has no file.
    Absent,
    /// It has a file, or is not to be looked into. It is watched for the sake of those below it.
    Present,
    /// It cannot be watched.
    Unwatched,
}

impl Absent {
    /// Errors: what `inotify_init1(2)` says (`EMFILE`: `fs.inotify.max_user_instances`).
    pub(super) fn new() -> Result<Absent, Errno> {
        Ok(Absent {
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            watches: HashSet::new(),
            roots: HashMap::new(),
            since: Duration::ZERO,
        })
    }

    /// Forgets what may have changed. To be called before [`Absent::knows`], for each request; `now` is
    /// of a clock that only goes forward.
    pub(super) fn check(&mut self, now: Duration) {
        if rustix::io::ioctl_fionread(&self.inotify) != Ok(0) {
            self.read();
        }
        if now.saturating_sub(self.since) >= FOR {
            self.since = now;
            self.roots.clear();
            if self.watches.len() >= MOST {
                for watch in self.watches.drain() {
                    // It fails for a directory that is gone, and its watch with it.
                    let _ = inotify::remove_watch(&self.inotify, watch);
                }
            }
        }
    }

    /// Whether `directory` (`/a/b/`) of this root has no file. False: it has to be asked for.
    pub(super) fn knows(&self, root: &RootDir, directory: &[u8]) -> bool {
        let known = self.roots.get(&root.id());
        known.is_some_and(|known| known.get(directory) == Some(&DirectoryState::Absent))
    }

    /// Watches a directory that was just asked for, after those above it. `name` is that of its file,
    /// below the root.
    pub(super) fn learn(&mut self, root: &RootDir, directory: &[u8], name: &[u8], has_file: bool) {
        let known = self.roots.entry(root.id()).or_default();
        if known.contains_key(directory) || known.len() >= MOST || self.watches.len() >= MOST {
            return;
        }
        let is_watched = |directory| {
            known
                .get(directory)
                .is_some_and(|k| *k != DirectoryState::Unwatched)
        };
        if !parent(directory).is_none_or(is_watched) {
            return;
        }
        let state = match watch(&self.inotify, root, directory) {
            Ok(watch) => {
                self.watches.insert(watch);
                // The file may have come before the watch; and a symbolic link to nothing may lead to
                // a file later, of which nothing is reported here.
                match !has_file && root.stat_itself(name) == Err(Refusal::NotFound) {
                    true => DirectoryState::Absent,
                    false => DirectoryState::Present,
                }
            }
            // A name of nothing is not kept: clients make up as many as they like.
            Err(Unwatchable::Missing) => return,
            Err(Unwatchable::Unreliable) => DirectoryState::Unwatched,
        };
        known.insert(directory.into(), state);
    }

    /// Reads the kernel's reports; forgets all when one may be about a file or a directory on a path.
    #[cold]
    fn read(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        for _ in 0..READS {
            let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
            // One read for each buffer of reports.
            loop {
                match reader.next() {
                    Ok(event) => {
                        let about = event.events();
                        if about.contains(ReadFlags::IGNORED) {
                            self.watches.remove(&event.wd());
                        }
                        let name = event.file_name().map(|name| name.to_bytes());
                        // Some directories take a name in any case for the same.
                        let is_other =
                            name.is_some_and(|name| !name.eq_ignore_ascii_case(NAME.as_bytes()));
                        if !is_other || about.contains(ReadFlags::ISDIR) {
                            self.roots.clear();
                        }
                        if reader.is_buffer_empty() {
                            break;
                        }
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => return,
                    Err(_) => {
                        self.roots.clear();
                        return;
                    }
                }
            }
        }
        // There may be more.
        self.roots.clear();
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
    match (root.stat_itself(directory), RootDir::stat_path(path)) {
        (Ok(reached), Ok(named))
            if reached.kind == FileKind::Directory && reached.inode == named.inode =>
        {
            Ok(watch)
        }
        _ => Err(Unwatchable::Unreliable),
    }
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
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::docroot::root::Symlinks;
    use crate::site::htaccess::access_query::Lies;
    use crate::site::htaccess::files::{Files, remember_absence};

    const CLOSING: &str = "Require all denied\n";

    struct Tree {
        dir: tempfile::TempDir,
        root: RootDir,
        files: Files,
    }

    impl Tree {
        /// `a/b/c/` with a file, all of whose directories this thread remembers to have no `.htaccess`.
        fn new() -> Tree {
            remember_absence();
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
            fs::write(dir.path().join("a/b/c/file"), "x").unwrap();
            let root = RootDir::open(dir.path(), Symlinks::Follow).unwrap();
            let tree = Tree {
                dir,
                root,
                files: Files::default(),
            };
            assert_eq!(tree.found(), 0);
            tree
        }

        fn at(&self, name: &str) -> std::path::PathBuf {
            self.dir.path().join(name)
        }

        /// How many files there are on the path.
        fn found(&self) -> usize {
            let chain = self.files.on(&self.root, b"/a/b/c/file", Lies::File);
            chain.files.len()
        }
    }

    fn knows(absent: &mut Absent, tree: &Tree, now: u64) -> bool {
        absent.check(Duration::from_millis(now));
        absent.knows(&tree.root, b"/a/b/c/")
    }

    fn learn(absent: &mut Absent, root: &RootDir) {
        for directory in ["/", "/a/", "/a/b/", "/a/b/c/"] {
            let name = format!("{}.htaccess", &directory[1..]);
            absent.learn(root, directory.as_bytes(), name.as_bytes(), false);
        }
    }

    #[test]
    fn a_file_counts_at_once_however_it_comes_and_wherever() {
        type Make = fn(&Tree, &Path);
        let ways: [(&str, Make); 4] = [
            ("written", |_, file| fs::write(file, CLOSING).unwrap()),
            ("moved", |tree, file| {
                fs::write(tree.at("draft"), CLOSING).unwrap();
                fs::rename(tree.at("draft"), file).unwrap();
            }),
            ("linked", |tree, file| {
                fs::write(tree.at("draft"), CLOSING).unwrap();
                fs::hard_link(tree.at("draft"), file).unwrap();
            }),
            ("a symbolic link", |tree, file| {
                fs::write(tree.at("draft"), CLOSING).unwrap();
                std::os::unix::fs::symlink(tree.at("draft"), file).unwrap();
            }),
        ];
        for (way, make) in ways {
            for directory in ["", "a", "a/b", "a/b/c"] {
                let tree = Tree::new();
                let file = tree.at(directory).join(".htaccess");
                make(&tree, &file);
                assert_eq!(tree.found(), 1, "{way} in {directory:?}");
                fs::remove_file(&file).unwrap();
                assert_eq!(tree.found(), 0, "{way} in {directory:?}");
            }
        }
    }

    #[test]
    fn a_directory_that_takes_the_place_of_another_is_asked() {
        for place in ["a", "a/b", "a/b/c"] {
            let tree = Tree::new();
            fs::rename(tree.at(place), tree.at("old")).unwrap();
            fs::create_dir_all(tree.at("a/b/c")).unwrap();
            fs::write(tree.at(place).join(".htaccess"), CLOSING).unwrap();
            assert_eq!(tree.found(), 1, "made again: {place}");
            let tree = Tree::new();
            fs::create_dir_all(tree.at("new/b/c")).unwrap();
            fs::create_dir_all(tree.at("new/c")).unwrap();
            fs::write(tree.at("new/.htaccess"), CLOSING).unwrap();
            let (one, other) = (tree.at("new"), tree.at(place));
            rustix::fs::renameat_with(
                rustix::fs::CWD,
                &one,
                rustix::fs::CWD,
                &other,
                rustix::fs::RenameFlags::EXCHANGE,
            )
            .unwrap();
            assert_eq!(tree.found(), 1, "exchanged: {place}");
            let tree = Tree::new();
            fs::remove_dir_all(tree.at(place)).unwrap();
            fs::create_dir_all(tree.at("elsewhere/b/c")).unwrap();
            fs::create_dir_all(tree.at("elsewhere/c")).unwrap();
            fs::write(tree.at("elsewhere/.htaccess"), CLOSING).unwrap();
            std::os::unix::fs::symlink(tree.at("elsewhere"), tree.at(place)).unwrap();
            assert_eq!(tree.found(), 1, "a link in the place of {place}");
        }
    }

    #[test]
    fn what_a_link_leads_to_is_not_believed() {
        let outside = tempfile::tempdir().unwrap();
        fs::create_dir_all(outside.path().join("b/c")).unwrap();
        let tree = Tree::new();
        fs::remove_dir_all(tree.at("a")).unwrap();
        std::os::unix::fs::symlink(outside.path(), tree.at("a")).unwrap();
        assert_eq!(tree.found(), 0);
        assert_eq!(tree.found(), 0);
        let mut absent = Absent::new().unwrap();
        learn(&mut absent, &tree.root);
        assert!(absent.knows(&tree.root, b"/"));
        assert!(!absent.knows(&tree.root, b"/a/"));
        assert!(!absent.knows(&tree.root, b"/a/b/"));
        fs::write(outside.path().join("b/.htaccess"), CLOSING).unwrap();
        assert_eq!(tree.found(), 1);
    }

    #[test]
    fn a_link_that_leads_nowhere_may_lead_to_a_file_later() {
        let tree = Tree::new();
        std::os::unix::fs::symlink(tree.at("later"), tree.at("a/.htaccess")).unwrap();
        assert_eq!(tree.found(), 0);
        assert_eq!(tree.found(), 0);
        fs::write(tree.at("later"), CLOSING).unwrap();
        assert_eq!(tree.found(), 1);
    }

    #[test]
    fn other_files_change_nothing_and_a_second_ends_what_is_believed() {
        let tree = Tree::new();
        let mut absent = Absent::new().unwrap();
        absent.check(Duration::from_secs(5));
        learn(&mut absent, &tree.root);
        assert!(knows(&mut absent, &tree, 5_000));
        fs::write(tree.at("a/b/c/other"), "x").unwrap();
        fs::remove_file(tree.at("a/b/c/other")).unwrap();
        assert!(knows(&mut absent, &tree, 5_500));
        fs::write(tree.at("a/b/c/.HTACCESS"), CLOSING).unwrap();
        assert!(
            !knows(&mut absent, &tree, 5_600),
            "its directory may fold case"
        );
        learn(&mut absent, &tree.root);
        assert!(knows(&mut absent, &tree, 5_700));
        assert!(!knows(&mut absent, &tree, 6_000));
        learn(&mut absent, &tree.root);
        assert!(knows(&mut absent, &tree, 6_000));
    }

    #[test]
    fn more_reports_than_the_kernel_keeps_are_a_change() {
        let tree = Tree::new();
        let mut absent = Absent::new().unwrap();
        learn(&mut absent, &tree.root);
        let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let most: usize = most.trim().parse().unwrap();
        // Each is made and removed: two reports.
        for number in 0..most / 2 + 1 {
            let file = tree.at(&format!("a/b/c/{number}"));
            fs::write(&file, "").unwrap();
            fs::remove_file(&file).unwrap();
        }
        assert!(!knows(&mut absent, &tree, 0), "not all of it can be read");
        while rustix::io::ioctl_fionread(&absent.inotify).unwrap() > 0 {
            learn(&mut absent, &tree.root);
            assert!(absent.knows(&tree.root, b"/a/b/c/"));
            absent.check(Duration::ZERO);
        }
        // The last report says that some were lost.
        assert!(!knows(&mut absent, &tree, 0));
        assert_eq!(tree.found(), 0);
    }

    #[test]
    fn a_thread_watches_so_many_directories_and_begins_again() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..MOST + 8 {
            fs::create_dir(dir.path().join(number.to_string())).unwrap();
        }
        let root = RootDir::open(dir.path(), Symlinks::Follow).unwrap();
        let mut absent = Absent::new().unwrap();
        let learn = |absent: &mut Absent| {
            absent.learn(&root, b"/", b".htaccess", false);
            for number in 0..MOST + 8 {
                let (directory, name) = (format!("/{number}/"), format!("{number}/.htaccess"));
                absent.learn(&root, directory.as_bytes(), name.as_bytes(), false);
            }
            absent.roots[&root.id()].len()
        };
        assert_eq!(learn(&mut absent), MOST);
        absent.check(Duration::from_secs(60));
        assert_eq!(absent.watches.len(), 0);
        // What is reported of the watches that have ended.
        absent.check(Duration::from_secs(60));
        assert_eq!(learn(&mut absent), MOST);
    }
}
