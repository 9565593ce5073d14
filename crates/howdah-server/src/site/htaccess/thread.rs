//! What a thread remembers of `.htaccess` files from one request to the next: which directories it
//! [watches](super::watched), and what the files on the way to a directory say together, as long as
//! nothing of that can have changed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use howdah_htaccess::{Answer, Chain, Verdict};

use super::evaluation::CachedResult;
use super::result_cache::{CacheKey, ResultCache};
use super::watched::{FOR, Watched};
use crate::docroot::root::RootDir;
use crate::site::monotonic;

/// Most directories remembered; beyond it all are forgotten.
const MOST: usize = 1024;

/// See the module.
#[derive(Default)]
pub(super) struct Thread {
    /// The name that is asked for: reused, so that a path without files allocates nothing.
    pub name: Vec<u8>,
    /// The key that is looked up: reused.
    pub key: CacheKey,
    pub watched: Option<Watched>,
    /// What the files on the way to a directory say together.
    pub chains: Remembered<Arc<Chain>>,
    /// `htaccess = "on"`: answers that are the same for every visitor.
    pub answers: ResultCache<CachedResult<Arc<Answer>>>,
    /// `htaccess = "deny"`: whether there are files on the way to a path.
    pub has_files: ResultCache<CachedResult<bool>>,
    /// `htaccess = "deny"`: verdicts that are the same for every visitor.
    pub verdicts: ResultCache<CachedResult<Arc<Verdict>>>,
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::default();
}

/// Has the calling thread watch the directories that requests lead to, from now on. Where that is not
/// possible each directory is asked at each request, which is slower and gives the same answers.
pub(crate) fn watch_directories() {
    with(|thread| thread.watched = Watched::new().ok());
}

/// What the calling thread remembers.
pub(super) fn with<T>(use_it: impl FnOnce(&mut Thread) -> T) -> T {
    THREAD.with_borrow_mut(use_it)
}

impl Thread {
    /// A request begins: what the kernel has reported counts.
    pub(super) fn begin(&mut self) {
        if let Some(watched) = &mut self.watched {
            watched.check(monotonic());
        }
    }

    /// The directory has no file.
    pub(super) fn knows_absent(&self, root: &RootDir, directory: &[u8]) -> bool {
        let watched = self.watched.as_ref();
        watched.is_some_and(|watched| watched.knows_absent(root, directory))
    }

    /// Since when it is known what all directories on the way say; none if one is to be asked each time.
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

/// Since when what it is made of is known, and a value.
type ByDirectory<T> = HashMap<Box<[u8]>, (Duration, T)>;

/// Values by root and directory, each made of what is known of all directories on the way.
pub(super) struct Remembered<T> {
    roots: HashMap<u64, ByDirectory<T>>,
    entries: usize,
    /// The state of [`Watched`] that they are of.
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
    /// What was kept for a directory, if it still holds, and since when it is known.
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

    /// Keeps what all directories on the way say, as is known since `since`.
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
