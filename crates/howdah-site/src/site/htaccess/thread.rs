//! The data about `.htaccess` files that a thread caches between requests: the directories that it
//! [watches](super::watched), and the combined files on the way to a directory, while none of these can have changed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use howdah_htaccess::{AccessVerdict, HtFileChain, RequestDecision};

use super::evaluation::CachedResult;
use super::result_cache::{CacheKey, ResultCache};
use super::watched::{FOR, Watched};
use crate::docroot::root::RootDir;
use crate::site::monotonic;

/// The maximum number of cached directories. When it is reached, the cache is cleared.
const MOST: usize = 1024;

/// The cache of a thread.
#[derive(Default)]
pub(super) struct Thread {
    /// The file name that is looked up. The buffer is reused, so a path without files costs no allocation.
    pub name: Vec<u8>,
    /// The buffer for the key that is looked up.
    pub key: CacheKey,
    pub watched: Option<Watched>,
    /// The combined files on the way to a directory.
    pub chains: Remembered<Arc<HtFileChain>>,
    /// `htaccess = "on"`: decisions that are the same for every visitor.
    pub answers: ResultCache<CachedResult<Arc<RequestDecision>>>,
    /// `htaccess = "deny"`: whether there are files on the way to a path.
    pub has_files: ResultCache<CachedResult<bool>>,
    /// `htaccess = "deny"`: verdicts that are the same for every visitor.
    pub verdicts: ResultCache<CachedResult<Arc<AccessVerdict>>>,
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::default();
}

/// Makes the calling thread watch the directories of its requests from now on. Where this is not possible, every
/// request checks each directory, which is slower but gives the same results.
pub fn watch_directories() {
    with(|thread| thread.watched = Watched::new().ok());
}

/// Gives access to the cache of the calling thread.
pub(super) fn with<T>(use_it: impl FnOnce(&mut Thread) -> T) -> T {
    THREAD.with_borrow_mut(use_it)
}

impl Thread {
    /// Processes the kernel's reports. Called at the beginning of each request.
    pub(super) fn begin(&mut self) {
        if let Some(watched) = &mut self.watched {
            watched.check(monotonic());
        }
    }

    /// Returns true if the directory is known to have no file.
    pub(super) fn knows_absent(&self, root: &RootDir, directory: &[u8]) -> bool {
        let watched = self.watched.as_ref();
        watched.is_some_and(|watched| watched.knows_absent(root, directory))
    }

    /// Returns the time since which the files of all directories on the way have been known, or `None` if one of them
    /// must be checked for every request.
    pub(super) fn known_since(&self, root: &RootDir, directory: &[u8]) -> Option<Duration> {
        let watched = self.watched.as_ref()?;
        let slashes = directory.iter().enumerate().filter(|(_, b)| **b == b'/');
        let mut since = watched.now();
        for (slash, _) in slashes {
            since = since.min(watched.known_since(root, &directory[..=slash])?);
        }
        Some(since)
    }
}

/// Values by directory, each with the time since which its sources have been known.
type ByDirectory<T> = HashMap<Box<[u8]>, (Duration, T)>;

/// Cached values by root and directory, each derived from all directories on the way.
pub(super) struct Remembered<T> {
    roots: HashMap<u64, ByDirectory<T>>,
    entries: usize,
    /// The change count of [`Watched`] for which the values are valid.
    changes: u64,
}

impl<T> Default for Remembered<T> {
    fn default() -> Remembered<T> {
        Remembered {
            roots: HashMap::new(),
            entries: 0,
            changes: 0,
        }
    }
}

impl<T: Clone> Remembered<T> {
    /// Returns the cached value of a directory if it is still valid, and the time since which it has been known.
    pub(super) fn of(
        &mut self,
        watched: &Option<Watched>,
        root: &RootDir,
        directory: &[u8],
    ) -> Option<(Duration, T)> {
        let watched = watched.as_ref()?;
        if watched.changes() != self.changes {
            self.clear();
            self.changes = watched.changes();
        }
        let (since, value) = self.roots.get(&root.id())?.get(directory)?;
        (watched.now().saturating_sub(*since) < FOR).then(|| (*since, value.clone()))
    }

    /// Caches a value that is derived from all directories on the way and has been known since `since`.
    pub(super) fn keep(
        &mut self,
        watched: &Option<Watched>,
        root: &RootDir,
        directory: &[u8],
        since: Duration,
        value: T,
    ) {
        let Some(watched) = watched else { return };
        if watched.changes() != self.changes || self.entries >= MOST {
            self.clear();
            self.changes = watched.changes();
        }
        let of_root = self.roots.entry(root.id()).or_default();
        let entry = (since, value);
        let before = of_root.insert(directory.into(), entry);
        self.entries += usize::from(before.is_none());
    }

    fn clear(&mut self) {
        self.roots.clear();
        self.entries = 0;
    }
}
