//! Watches files for a pool by inotify, and reports whether a file that the patterns match has changed. The caller
//! decides what to do about it. Directories are watched instead of files, so new files are seen as well as files that
//! editors and deployments replace. The symbolic links on the way to the directories are watched too, so a deployment
//! that points `current` to another release is a change.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use super::glob::Glob;

/// The maximum number of directories that one pool watches. Changes in further directories are not noticed, and the log
/// says so.
const MAX_DIRECTORIES: usize = 8192;

/// Watches the files of one pool; see the module's documentation.
pub(super) struct FileWatcher {
    inotify: OwnedFd,
    globs: Vec<Glob>,
    directories: HashMap<i32, PathBuf>,
    /// Symbolic links in the paths of the patterns.
    links: HashSet<PathBuf>,
    /// Why something could not be watched; logged once.
    complaint: Option<String>,
}

impl FileWatcher {
    /// Starts to watch. Relative patterns are resolved against `base`.
    pub fn start(patterns: &[String], base: &Path) -> Result<FileWatcher, String> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|e| format!("cannot watch files: {e}; check fs.inotify.max_user_instances"))?;
        let globs: Vec<Glob> = patterns
            .iter()
            .map(|text| Glob::parse(text, base))
            .collect::<Result<_, _>>()?;
        let mut watch = FileWatcher {
            inotify,
            globs: globs.clone(),
            directories: HashMap::new(),
            links: HashSet::new(),
            complaint: None,
        };
        for glob in &globs {
            watch.add_links(glob.root());
            watch.add(glob.root(), glob.is_deep());
        }
        Ok(watch)
    }

    /// Returns a descriptor that is readable when something has happened.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Returns why something could not be watched, if anything, and clears it.
    pub fn take_complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    /// Reads the events. Returns the last changed file that a pattern matches.
    pub fn take_changed(&mut self) -> Option<PathBuf> {
        let mut space = [MaybeUninit::<u8>::uninit(); 8192];
        let mut seen: Vec<(i32, ReadFlags, Option<PathBuf>)> = Vec::new();
        let mut reader = inotify::Reader::new(self.inotify.as_fd(), &mut space);
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(|n| OsStr::from_bytes(n.to_bytes()));
            seen.push((event.wd(), event.events(), name.map(PathBuf::from)));
        }
        let mut changed = None;
        for (directory, what, name) in seen {
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                // Some file has changed, but it is not known which.
                changed = Some(PathBuf::from("(there are too many to list)"));
            }
            if what.contains(ReadFlags::IGNORED) {
                self.directories.remove(&directory);
            }
            let (Some(directory), Some(name)) = (self.directories.get(&directory), name) else {
                continue;
            };
            let path = directory.join(name);
            let comes = what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
            if comes && self.links.contains(&path) {
                changed = Some(path);
            } else if what.contains(ReadFlags::ISDIR) {
                if comes {
                    self.add(&path, true);
                }
            } else if self.globs.iter().any(|g| g.matches(&path)) {
                changed = Some(path);
            }
        }
        changed
    }

    /// Watches the parent directory of each symbolic link in a path, to see when the link gets another target.
    fn add_links(&mut self, path: &Path) {
        for link in path.ancestors().filter(|path| path.is_symlink()) {
            if let Some(parent) = link.parent() {
                self.links.insert(link.to_owned());
                self.add(parent, false);
            }
        }
    }

    /// Watches a directory and, with `deep`, those below it. Symbolic links are not followed. `.git` and `node_modules`
    /// are skipped, since they contain no scripts that are run.
    fn add(&mut self, directory: &Path, deep: bool) {
        if self.directories.len() >= MAX_DIRECTORIES {
            let why = format!(
                "the patterns of `watch` match more than {MAX_DIRECTORIES} directories: name fewer directories"
            );
            self.complaint.get_or_insert(why);
            return;
        }
        let flags = WatchFlags::CREATE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR;
        match inotify::add_watch(&self.inotify, directory, flags) {
            Ok(number) => {
                self.directories.insert(number, directory.to_owned());
            }
            Err(error) => {
                let hint = match error {
                    rustix::io::Errno::NOSPC => " (fs.inotify.max_user_watches)",
                    _ => "",
                };
                let why = format!("cannot watch {}: {error}{hint}", directory.display());
                self.complaint.get_or_insert(why);
                return;
            }
        }
        if !deep {
            return;
        }
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let boring = name == ".git" || name == "node_modules";
            if !boring && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.add(&entry.path(), true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_seen_only_where_a_pattern_matches() {
        let dir = std::env::temp_dir().join(format!("howdah-watch-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("src/deep")).unwrap();
        let mut watch = FileWatcher::start(&["src/**/*.php".to_owned()], &dir).unwrap();
        assert_eq!(watch.take_changed(), None);
        std::fs::write(dir.join("src/a.txt"), "").unwrap();
        std::fs::write(dir.join("b.php"), "").unwrap();
        assert_eq!(watch.take_changed(), None);
        std::fs::write(dir.join("src/deep/a.php"), "").unwrap();
        assert_eq!(watch.take_changed(), Some(dir.join("src/deep/a.php")));
        // The changes are: a file is replaced, as editors do; a file is created in a new directory; a file is deleted.
        std::fs::rename(dir.join("b.php"), dir.join("src/b.php")).unwrap();
        assert_eq!(watch.take_changed(), Some(dir.join("src/b.php")));
        std::fs::create_dir(dir.join("src/new")).unwrap();
        assert_eq!(watch.take_changed(), None);
        std::fs::write(dir.join("src/new/c.php"), "").unwrap();
        assert_eq!(watch.take_changed(), Some(dir.join("src/new/c.php")));
        std::fs::remove_file(dir.join("src/new/c.php")).unwrap();
        assert_eq!(watch.take_changed(), Some(dir.join("src/new/c.php")));
        assert_eq!((watch.take_changed(), watch.take_complaint()), (None, None));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn symlink_to_another_release_is_a_change() {
        let dir = std::env::temp_dir().join(format!("howdah-links-{}", std::process::id()));
        for release in ["1", "2"] {
            std::fs::create_dir_all(dir.join(release).join("src")).unwrap();
        }
        std::os::unix::fs::symlink("1", dir.join("current")).unwrap();
        let mut watch = FileWatcher::start(&["current/**/*.php".to_owned()], &dir).unwrap();
        assert_eq!((watch.take_changed(), watch.take_complaint()), (None, None));
        std::fs::write(dir.join("1/src/a.php"), "").unwrap();
        assert_eq!(watch.take_changed(), Some(dir.join("current/src/a.php")));
        std::fs::write(dir.join("2/src/a.php"), "").unwrap();
        std::os::unix::fs::symlink("2", dir.join("next")).unwrap();
        assert_eq!(watch.take_changed(), None);
        std::fs::rename(dir.join("next"), dir.join("current")).unwrap();
        assert_eq!(watch.take_changed(), Some(dir.join("current")));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn missing_directory_is_reported() {
        let mut watch =
            FileWatcher::start(&["/no/such/place/*.php".to_owned()], Path::new("/")).unwrap();
        assert!(watch.take_complaint().unwrap().contains("/no/such/place"));
    }
}
