//! Caches the parsed `.htaccess` files of directories by the directory's URL path. A file is parsed again when its
//! state has changed. A lookup costs one `statx` for each directory, or none while the kernel reports no change
//! ([`thread`](super::thread)).

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use howdah_htaccess::{HtFile, HtFileChain, MAX_FILE_BYTES, Problem, Table};

use super::thread::{self, Thread};
use super::watched::{Asked, NAME};
use crate::docroot::root::{FileKind, FileMeta, RootDir};
use crate::refusal::Refusal;

/// The maximum number of cached files. When it is reached, the cache is cleared.
const MAX_FILES: usize = 4096;
/// How old a change must be before its file is cached. The clock of the file system is coarse, so a file that changed
/// more recently may have changed again unnoticed; it is read again.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

/// The parsed files below a root.
#[derive(Debug, Default)]
pub(crate) struct FileCache {
    known: RwLock<Known>,
    /// The number of changed, new or removed files that requests have found since the start.
    changes: AtomicU64,
    started: Started,
    /// The URL paths of the password files that `.htaccess` files have named.
    password_files: RwLock<HashSet<Box<[u8]>>>,
}

/// The time when the site was opened. A file with an older time already existed then.
#[derive(Debug)]
struct Started(SystemTime);

impl Default for Started {
    fn default() -> Started {
        Started(SystemTime::now())
    }
}

#[derive(Debug, Default)]
struct Known {
    root: u64,
    files: HashMap<Box<[u8]>, (FileMeta, Arc<HtFile>)>,
}

impl FileCache {
    /// Returns the combined files on the way to a directory, and the time since which they have been known if they need
    /// not be checked for every request. `met` is called with the files that have just been parsed.
    pub(crate) fn chain(
        &self,
        root: &RootDir,
        directory: &[u8],
        met: impl FnMut(&[u8], &HtFile),
    ) -> (Option<Duration>, Arc<HtFileChain>) {
        thread::with(|thread| self.chain_of(root, directory, met, thread))
    }

    pub(super) fn chain_of(
        &self,
        root: &RootDir,
        directory: &[u8],
        mut met: impl FnMut(&[u8], &HtFile),
        thread: &mut Thread,
    ) -> (Option<Duration>, Arc<HtFileChain>) {
        thread.begin();
        if let Some((since, known)) = thread.chains.of(&thread.watched, root, directory) {
            return (Some(since), known);
        }
        let mut complete = 0;
        let chain = Arc::new(HtFileChain::of(directory, |directory| {
            complete = directory.len();
            let (file, is_new) = self.of(root, directory, thread)?;
            if is_new {
                met(directory, &file);
            }
            Some(file)
        }));
        // The directories below a file with an error have not been checked.
        if complete != directory.len() {
            return (None, chain);
        }
        let since = thread.known_since(root, directory);
        if let Some(since) = since {
            let (watched, chain) = (&thread.watched, chain.clone());
            thread.chains.keep(watched, root, directory, since, chain);
        }
        (since, chain)
    }

    /// Returns the file of a directory if it exists, and whether it has just been parsed.
    fn of(
        &self,
        root: &RootDir,
        directory: &[u8],
        thread: &mut Thread,
    ) -> Option<(Arc<HtFile>, bool)> {
        if thread.knows_absent(root, directory) {
            return None;
        }
        let Thread { name, watched, .. } = thread;
        name.clear();
        name.extend_from_slice(&directory[1..]);
        name.extend_from_slice(NAME.as_bytes());
        let mut learn = |name: &[u8], asked| {
            if let Some(watched) = watched {
                watched.learn(root, directory, name, asked);
            }
        };
        let meta = match root.stat_relative(name) {
            Ok(meta) => meta,
            Err(Refusal::NotFound) => {
                learn(name, Asked::Absent);
                self.forget(directory);
                return None;
            }
            Err(_) => {
                learn(name, Asked::Other);
                return Some((unusable(Problem::Unreadable), true));
            }
        };
        if let Some(file) = self.known(root, directory, meta) {
            learn(name, Asked::Kept(meta));
            return Some((file, false));
        }
        learn(name, Asked::Other);
        let (file, meta) = read(root, directory, name, meta);
        let file = Arc::new(file);
        self.keep_secret(root, &file.password_files);
        self.count(directory, &meta);
        if is_settled(&meta) {
            self.remember(root, directory, meta, &file);
        }
        Some((file, true))
    }

    /// Returns true if a parsed file names this path as a password file.
    pub(crate) fn holds_passwords(&self, path: &[u8]) -> bool {
        let known = self.password_files.read();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        !known.is_empty() && known.contains(path)
    }

    /// Records the paths of password files below the root: their own, and those that symbolic links lead to.
    fn keep_secret(&self, root: &RootDir, files: &[String]) {
        if files.is_empty() {
            return;
        }
        let top = Path::new(OsStr::from_bytes(root.path()));
        let known = self.password_files.write();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        for file in files.iter().map(|file| top.join(file)) {
            let in_place = || {
                let directory = file.parent()?.canonicalize().ok()?;
                Some(directory.join(file.file_name()?))
            };
            let names = [Some(file.clone()), in_place(), file.canonicalize().ok()];
            for name in names.into_iter().flatten() {
                let below = name.strip_prefix(top).ok();
                if let Some(below) = below.filter(|_| known.len() < MAX_FILES) {
                    known.insert([b"/", below.as_os_str().as_bytes()].concat().into());
                }
            }
        }
    }

    /// Returns the number of changed, new or removed files that requests have found.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    fn forget(&self, directory: &[u8]) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if !known.files.contains_key(directory) {
            return;
        }
        drop(known);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.files.remove(directory).is_some() {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a file that has just been parsed, unless it has existed unchanged since the start.
    fn count(&self, directory: &[u8], meta: &FileMeta) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let changed =
            UNIX_EPOCH + Duration::from_secs(u64::try_from(meta.ctime.0).unwrap_or_default());
        if known.files.contains_key(directory) || changed + Duration::from_secs(1) >= self.started.0
        {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn known(&self, root: &RootDir, directory: &[u8], meta: FileMeta) -> Option<Arc<HtFile>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let (seen, file) = known
            .files
            .get(directory)
            .filter(|_| known.root == root.id())?;
        (*seen == meta).then(|| file.clone())
    }

    fn remember(&self, root: &RootDir, directory: &[u8], meta: FileMeta, file: &Arc<HtFile>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.root != root.id() || known.files.len() >= MAX_FILES {
            known.files.clear();
            known.root = root.id();
        }
        known.files.insert(directory.into(), (meta, file.clone()));
    }
}

/// Returns true if the file's last change is old enough.
fn is_settled(meta: &FileMeta) -> bool {
    let (seconds, nanoseconds) = meta.ctime;
    let Ok(seconds) = u64::try_from(seconds) else {
        return false;
    };
    let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    SystemTime::now()
        .duration_since(changed)
        .is_ok_and(|age| age >= SETTLED_AFTER)
}

fn unusable(problem: Problem) -> Arc<HtFile> {
    Arc::new(HtFile::unusable(problem))
}

fn read(root: &RootDir, directory: &[u8], name: &[u8], meta: FileMeta) -> (HtFile, FileMeta) {
    if meta.kind != FileKind::File {
        return (HtFile::unusable(Problem::NotAFile), meta);
    }
    let (file, meta) = match root.open_file(name) {
        Ok(opened) => opened,
        Err(Refusal::NoIndex | Refusal::NotRegular) => {
            return (HtFile::unusable(Problem::NotAFile), meta);
        }
        Err(_) => return (HtFile::unusable(Problem::Unreadable), meta),
    };
    let mut text = Vec::new();
    match file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text) {
        Err(_) => (HtFile::unusable(Problem::Unreadable), meta),
        Ok(_) => (
            howdah_htaccess::parse(&text, &root.file_name(directory), environment()),
            meta,
        ),
    }
}

/// Returns the server's environment, for `PassEnv`.
fn environment() -> &'static Table {
    static ENVIRONMENT: OnceLock<Table> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let mut table = Table::default();
        for (name, value) in std::env::vars_os() {
            table.set(name.as_bytes(), value.as_bytes());
        }
        table
    })
}
