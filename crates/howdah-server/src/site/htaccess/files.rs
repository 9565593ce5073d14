//! The `.htaccess` files on a path, as they are now: asked of the file system at every request, by one
//! `statx` a directory, and read again when their state has changed. Absence is asked for, too, so a
//! file made a moment ago counts for the next request; front threads have the kernel report it
//! ([`absent`](super::absent)).
//!
//! What is kept in memory is what a file says, by the directory's URL path: at most [`MOST`] files.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use super::absent::{Absent, NAME};
use super::access_query::Lies;
use super::decide::InDirectory;
use super::parse::{LONGEST, parse_bytes};
use super::section::{Parsed, Unusable};
use crate::docroot::root::{FileKind, Meta, RootDir};
use crate::refusal::Refusal;
use crate::site::monotonic;

/// Most files kept; beyond it all are forgotten. Only files that exist count.
const MOST: usize = 4096;
/// A file that changed less than this before it was read may have changed again unseen: the file
/// system's clock has its grain. It is read again.
const SETTLED: Duration = Duration::from_millis(100);
/// Below this depth a directory is asked for before those below it: a path of a thousand segments that
/// do not exist costs a few system calls.
const DEEP: usize = 16;
/// Linux's `PATH_MAX`. A directory whose file cannot be named is closed.
const LONGEST_PATH: usize = 4095;

/// What a thread keeps from one request to the next.
#[derive(Default)]
struct ThreadState {
    /// The name that is asked for: reused, so that a path without files allocates nothing.
    name: Vec<u8>,
    absent: Option<Absent>,
}

thread_local! {
    static THREAD: RefCell<ThreadState> = RefCell::default();
}

/// Has the calling thread remember which directories have no file, from now on. Without inotify every
/// directory is asked for at each request, which is slower and gives the same answers.
pub(crate) fn remember_absence() {
    THREAD.with_borrow_mut(|thread| thread.absent = Absent::new().ok());
}

/// A request begins: what the kernel has reported counts.
pub(super) fn begin() {
    THREAD.with_borrow_mut(|thread| {
        if let Some(absent) = &mut thread.absent {
            absent.check(monotonic());
        }
    });
}

/// The calling thread knows that the directory has no file.
pub(super) fn is_known_absent(root: &RootDir, directory: &[u8]) -> bool {
    THREAD.with_borrow(|thread| {
        let absent = thread.absent.as_ref();
        absent.is_some_and(|absent| absent.knows(root, directory))
    })
}

/// The calling thread remembers whether the directory has a file; `name` is that file's.
pub(super) fn learn(root: &RootDir, directory: &[u8], name: &[u8], has_file: bool) {
    THREAD.with_borrow_mut(|thread| {
        if let Some(absent) = &mut thread.absent {
            absent.learn(root, directory, name, has_file);
        }
    });
}

/// What is known of a root's files.
#[derive(Debug, Default)]
pub(crate) struct Files {
    known: RwLock<KnownFiles>,
}

#[derive(Debug, Default)]
struct KnownFiles {
    /// The root they lie below.
    root: u64,
    files: HashMap<Box<[u8]>, KnownFile>,
}

#[derive(Debug)]
struct KnownFile {
    meta: Meta,
    settled: bool,
    file: InDirectory,
}

/// The files on a path.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// From the root down.
    pub files: Vec<InDirectory>,
    /// Which of them were read for the first time, or again.
    pub met: Vec<usize>,
}

impl Files {
    /// The files of the directories that `path` leads through, and of itself if it is one.
    pub(crate) fn on(&self, root: &RootDir, path: &[u8], lies: Lies) -> Chain {
        THREAD.with_borrow_mut(|thread| self.walk(root, path, lies, thread))
    }

    fn walk(&self, root: &RootDir, path: &[u8], lies: Lies, thread: &mut ThreadState) -> Chain {
        if let Some(absent) = &mut thread.absent {
            absent.check(monotonic());
        }
        let mut chain = Chain::default();
        let ends = path.iter().enumerate().filter(|(_, b)| **b == b'/');
        for (depth, (end, _)) in ends.enumerate() {
            let directory = &path[..=end];
            // What is claimed to lie there may be missing, as the file that PATH_INFO would name.
            let lies = match depth {
                0..=DEEP => lies,
                _ => Lies::Nothing,
            };
            if !self.look(root, directory, thread, lies, &mut chain) {
                return chain;
            }
        }
        // A directory named without its slash, and what may be one.
        if !path.ends_with(b"/") && matches!(lies, Lies::Directory | Lies::Nothing) {
            let directory = [path, b"/"].concat();
            self.look(root, &directory, thread, lies, &mut chain);
        }
        chain
    }

    /// Adds a directory's file; says whether anything can lie below.
    fn look(
        &self,
        root: &RootDir,
        directory: &[u8],
        thread: &mut ThreadState,
        lies: Lies,
        chain: &mut Chain,
    ) -> bool {
        let ThreadState { name, absent } = thread;
        if absent
            .as_ref()
            .is_some_and(|absent| absent.knows(root, directory))
        {
            return true;
        }
        name.clear();
        name.extend_from_slice(&directory[1..]);
        // Where nothing was found the directory itself is asked for first: mostly it is not there, and
        // then nothing below it is.
        if lies == Lies::Nothing && !name.is_empty() {
            name.pop();
            match root.stat_relative(name) {
                Ok(meta) if meta.kind == FileKind::Directory => {}
                Ok(_) | Err(Refusal::NotFound) => return false,
                // It may be one that cannot be looked into: its file says so.
                Err(_) => {}
            }
            name.push(b'/');
        }
        name.extend_from_slice(NAME.as_bytes());
        let too_long = root.path().len() + name.len() >= LONGEST_PATH;
        let found = match too_long {
            // Nothing was found there, and no file can be.
            true if lies == Lies::Nothing => return false,
            true => Err(Refusal::Unreadable),
            false => root.stat_relative(name),
        };
        if let Some(absent) = absent {
            absent.learn(root, directory, name, found != Err(Refusal::NotFound));
        }
        let meta = match found {
            Ok(meta) => meta,
            Err(Refusal::NotFound) => return true,
            Err(_) => {
                chain.files.push(in_directory(
                    directory,
                    Parsed::unusable(Unusable::Unreadable),
                ));
                chain.met.push(chain.files.len() - 1);
                return true;
            }
        };
        if let Some(known) = self.known(root, directory, meta) {
            chain.files.push(known);
            return true;
        }
        let (parsed, meta) = read(root, name, meta);
        let file = in_directory(directory, parsed);
        self.remember(root, directory, meta, &file);
        chain.met.push(chain.files.len());
        chain.files.push(file);
        true
    }

    fn known(&self, root: &RootDir, directory: &[u8], meta: Meta) -> Option<InDirectory> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let entry = known
            .files
            .get(directory)
            .filter(|_| known.root == root.id())?;
        (entry.settled && entry.meta == meta).then(|| entry.file.clone())
    }

    fn remember(&self, root: &RootDir, directory: &[u8], meta: Meta, file: &InDirectory) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.root != root.id() || known.files.len() >= MOST {
            known.files.clear();
            known.root = root.id();
        }
        let entry = KnownFile {
            meta,
            settled: is_settled(&meta),
            file: file.clone(),
        };
        known.files.insert(directory.into(), entry);
    }
}

fn in_directory(directory: &[u8], parsed: Parsed) -> InDirectory {
    InDirectory {
        path: directory.into(),
        parsed: Arc::new(parsed),
    }
}

/// It changed long enough ago.
pub(super) fn is_settled(meta: &Meta) -> bool {
    let (seconds, nanoseconds) = meta.ctime;
    let Ok(seconds) = u64::try_from(seconds) else {
        return false;
    };
    let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    SystemTime::now()
        .duration_since(changed)
        .is_ok_and(|age| age >= SETTLED)
}

/// What the file says, and the state it was in when it was opened.
fn read(root: &RootDir, name: &[u8], meta: Meta) -> (Parsed, Meta) {
    if meta.kind != FileKind::File {
        return (Parsed::unusable(Unusable::NotAFile), meta);
    }
    let (file, meta) = match root.open_file(name) {
        Ok(opened) => opened,
        Err(Refusal::NoIndex | Refusal::NotRegular) => {
            return (Parsed::unusable(Unusable::NotAFile), meta);
        }
        // It may be gone since: whatever it closed is closed once more.
        Err(_) => return (Parsed::unusable(Unusable::Unreadable), meta),
    };
    let mut text = Vec::new();
    match file.take(LONGEST + 1).read_to_end(&mut text) {
        Err(_) => (Parsed::unusable(Unusable::Unreadable), meta),
        Ok(_) => (parse_bytes(&text), meta),
    }
}
