//! The `.htaccess` files on a path for `htaccess = "deny"`, as they are now. A thread remembers those of
//! a directory while the kernel reports no change ([`thread`](super::thread)); otherwise each directory is
//! asked, by one `statx`, and a file is read again when its state has changed.
//!
//! What a file says is kept by the directory's URL path: at most [`MOST`] files.

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use super::access_query::Lies;
use super::decide::InDirectory;
use super::parse::{LONGEST, parse_bytes};
use super::section::{Parsed, Unusable};
use super::thread::Thread;
use super::watched::{Asked, NAME};
use crate::docroot::root::{FileKind, Meta, RootDir};
use crate::refusal::Refusal;

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
    pub files: Arc<[InDirectory]>,
    /// Which of them were read for the first time, or again.
    pub met: Vec<usize>,
    /// Since when it is known that they are all; none if that is to be asked each time.
    pub since: Option<Duration>,
}

/// A chain that grows.
#[derive(Default)]
struct Growing {
    files: Vec<InDirectory>,
    met: Vec<usize>,
}

impl From<Growing> for Chain {
    fn from(Growing { files, met }: Growing) -> Chain {
        let files = match files.is_empty() {
            // Allocates nothing.
            true => Arc::default(),
            false => files.into(),
        };
        Chain {
            files,
            met,
            since: None,
        }
    }
}

impl Files {
    /// The files of the directories that `path` leads through, and of itself if it is one.
    pub(super) fn walk(
        &self,
        root: &RootDir,
        path: &[u8],
        lies: Lies,
        thread: &mut Thread,
    ) -> Chain {
        thread.begin();
        let end = path.iter().rposition(|b| *b == b'/');
        let directory = &path[..end.map_or(0, |slash| slash + 1)];
        if let Some((since, files)) = thread.closing.of(&thread.watched, root, directory) {
            let chain = Chain {
                files,
                met: Vec::new(),
                since: Some(since),
            };
            return self.extend(root, path, lies, thread, chain);
        }
        let mut chain = Growing::default();
        let is_there = self.descend(root, directory, lies, thread, &mut chain);
        let mut chain = Chain::from(chain);
        if !is_there {
            return chain;
        }
        if let Some(since) = thread.known_since(root, directory) {
            chain.since = Some(since);
            let (watched, files) = (&thread.watched, chain.files.clone());
            thread.closing.keep(watched, root, directory, since, files);
        }
        self.extend(root, path, lies, thread, chain)
    }

    /// Looks into the directories that a path leads through; says whether anything can lie below.
    fn descend(
        &self,
        root: &RootDir,
        directory: &[u8],
        lies: Lies,
        thread: &mut Thread,
        chain: &mut Growing,
    ) -> bool {
        let ends = directory.iter().enumerate().filter(|(_, b)| **b == b'/');
        for (depth, (end, _)) in ends.enumerate() {
            // What is claimed to lie there may be missing, as the file that PATH_INFO would name.
            let lies = match depth {
                0..=DEEP => lies,
                _ => Lies::Nothing,
            };
            if !self.look(root, &directory[..=end], thread, lies, chain) {
                return false;
            }
        }
        true
    }

    /// Adds the file of a directory named without its slash, and of what may be one.
    fn extend(
        &self,
        root: &RootDir,
        path: &[u8],
        lies: Lies,
        thread: &mut Thread,
        chain: Chain,
    ) -> Chain {
        if path.ends_with(b"/") || matches!(lies, Lies::File | Lies::Script) {
            return chain;
        }
        // Mostly nothing is there, and what comes to be is reported.
        if lies == Lies::Nothing
            && let Some(watched) = &mut thread.watched
            && chain.since.is_some()
            && watched.trusts(root, &path[1..], Err(Refusal::NotFound))
        {
            return chain;
        }
        let mut own = Growing::default();
        self.look(root, &[path, b"/"].concat(), thread, lies, &mut own);
        if own.files.is_empty() {
            return Chain {
                since: None,
                ..chain
            };
        }
        let number = chain.files.len();
        let mut met = chain.met;
        met.extend(own.met.iter().map(|own| number + own));
        Chain {
            files: [&chain.files[..], &own.files].concat().into(),
            met,
            since: None,
        }
    }

    /// Adds a directory's file; says whether anything can lie below.
    fn look(
        &self,
        root: &RootDir,
        directory: &[u8],
        thread: &mut Thread,
        lies: Lies,
        chain: &mut Growing,
    ) -> bool {
        if thread.knows_absent(root, directory) {
            return true;
        }
        let Thread { name, watched, .. } = thread;
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
        let mut learn = |asked| {
            if let Some(watched) = watched {
                watched.learn(root, directory, name, asked);
            }
        };
        let meta = match found {
            Ok(meta) => meta,
            Err(Refusal::NotFound) => {
                learn(Asked::Absent);
                return true;
            }
            Err(_) => {
                learn(Asked::Other);
                let file = in_directory(directory, Parsed::unusable(Unusable::Unreadable));
                chain.met.push(chain.files.len());
                chain.files.push(file);
                return true;
            }
        };
        if let Some(known) = self.known(root, directory, meta) {
            learn(Asked::Kept(meta));
            chain.files.push(known);
            return true;
        }
        learn(Asked::Other);
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
