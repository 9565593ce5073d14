//! Pages on disk, below those in memory: one file per page, written after its first answer and read
//! when it is not in memory. A restart keeps them, and the purges that were acknowledged; a damaged
//! file is a named miss, and is removed.
//!
//! - [`format`]: a page as bytes. [`journal`]: the purges, and what a crash may lose.
//! - [`directory`]: whose it is, its lock, where files are. [`index`]: what is there, and what goes.
//! - [`writer`]: the one thread that changes files. [`sites`]: the disk as a configuration sees it.
//! - [`fault`]: what can go wrong, by name.
//!
//! # Who waits for the disk
//!
//! Only a request that PHP would have to answer otherwise. Writing, removing and looking through the
//! directory after a start are the work of one thread; two more read. A request's thread puts an
//! order into a bounded queue and goes on; when the queue is full, the page is not written, or not
//! looked for ([`Fault::DiskBusy`]). The one thing a request's thread writes itself is a line in the
//! journal, into the kernel's memory, when it purges: it must be there before the answer is.

pub mod directory;
pub mod fault;
pub mod format;
pub mod index;
mod job;
pub mod journal;
mod reader;
pub mod sites;
mod writer;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use directory::OpenError;
pub use fault::Fault;
pub use format::Owner;
pub use sites::DiskSites;

use crate::Millis;
use crate::generation::Generations;
use directory::{Directory, FileName};
use fault::FaultCounters;
use index::Index;
use job::WriteJob;
use journal::PurgeJournal;
use reader::Job;
use writer::Writer;

/// How many orders may wait for the writer.
const ORDERS: usize = 4096;
/// How many bytes of pages may wait to be written.
const WAITING: u64 = 64 << 20;
/// How many requests may wait for a file.
const READS: usize = 1024;
/// Threads that read. Two: a slow file does not hold up the next.
const READERS: usize = 2;
/// The same fault is reported at most once in this time.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// What the store reports to its owner, who logs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The store had this fault; the text gives the details.
    Failed(Fault, String),
    /// Pages and purges are written again.
    WorksAgain,
}

/// How a disk store is opened.
pub struct Options {
    /// The directory the pages are kept in.
    pub path: PathBuf,
    /// How many bytes of disk the pages may take.
    pub capacity: u64,
    /// How long to wait for a server that uses the directory and is about to end.
    pub patience: Duration,
    /// After a write failed, how long none is tried.
    pub pause: Duration,
    /// Returns the current time; tests pass a clock of their own.
    pub now: fn() -> Millis,
    /// Receives the notices; each fault at most once a minute.
    pub notify: Box<dyn Fn(Notice) + Send + Sync>,
}

impl Options {
    /// Options with the usual times and no receiver of notices.
    pub fn new(path: PathBuf, capacity: u64, now: fn() -> Millis) -> Options {
        Options {
            path,
            capacity,
            patience: Duration::from_secs(3),
            pause: Duration::from_secs(10),
            now,
            notify: Box::new(|_| {}),
        }
    }
}

/// The disk store of a server: one for all its configurations, one after the other.
#[derive(Debug)]
pub struct Disk {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    directory: Directory,
    journal: Arc<PurgeJournal>,
    secret: [u8; 16],
    index: Index,
    now: fn() -> Millis,
    pause: Duration,
    notify: Box<dyn Fn(Notice) + Send + Sync>,
    /// When each fault was last reported.
    told: Mutex<HashMap<&'static str, Instant>>,
    faults: FaultCounters,
    /// What keeps pages from being written: the fault's number and one; 0: nothing.
    condition: AtomicU8,
    live: RwLock<HashMap<[u8; 16], Live>>,
    orders: SyncSender<WriteJob>,
    /// Orders to the writer that are not done yet.
    waiting: AtomicU64,
    /// Bytes of the pages in those orders.
    waiting_bytes: AtomicU64,
    reads: Mutex<VecDeque<Job>>,
    bell: Condvar,
    /// Every file that was there at the start is in the index.
    looked_through: AtomicBool,
    ended: AtomicBool,
    hits: AtomicU64,
    written: AtomicU64,
}

#[derive(Debug)]
struct Live {
    policy: [u8; 16],
    generations: Arc<Generations>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Disk").field(&self.directory.path()).finish()
    }
}

/// The state of the store at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// The directory the pages are kept in.
    pub path: String,
    /// Files in the directory that the index knows.
    pub entries: u64,
    /// Bytes of disk the files take.
    pub bytes: u64,
    /// How many bytes the files may take.
    pub capacity: u64,
    /// Files removed to make room for others.
    pub evictions: u64,
    /// Requests whose page was read from a file.
    pub hits: u64,
    /// Pages written since the start.
    pub written: u64,
    /// Pages and other orders that wait to be written.
    pub waiting: u64,
    /// Whether files of a former process are still being looked through.
    pub indexing: bool,
    /// The fault that keeps pages from being written at present; none: they are written.
    pub condition: Option<&'static str>,
    /// The faults that have happened, by name, each with its count.
    pub faults: Vec<(String, u64)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    /// Opens the directory and starts the threads. Reads no page: what is there is found out behind.
    pub fn open(options: Options) -> Result<Arc<Disk>, OpenError> {
        let io = |what| move |error| OpenError::Io { what, error };
        let directory = Directory::open(&options.path, options.patience)?;
        let now = (options.now)();
        let (journal, fresh) = PurgeJournal::open(directory.path(), journal::boot(), now)
            .map_err(io("open the journal"))?;
        let (orders, inbox) = mpsc::sync_channel(ORDERS);
        let shared = Arc::new(Shared {
            secret: journal.secret(),
            index: Index::new(options.capacity),
            directory,
            journal: Arc::new(journal),
            now: options.now,
            pause: options.pause,
            notify: options.notify,
            told: Mutex::default(),
            faults: FaultCounters::default(),
            condition: AtomicU8::new(0),
            live: RwLock::default(),
            orders,
            waiting: AtomicU64::new(0),
            waiting_bytes: AtomicU64::new(0),
            reads: Mutex::default(),
            bell: Condvar::new(),
            looked_through: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            hits: AtomicU64::new(0),
            written: AtomicU64::new(0),
        });
        if let Some(fault) = fresh.and_then(Fault::of_fresh) {
            shared.fault(fault, String::new);
        }
        let disk = Disk {
            shared: shared.clone(),
            threads: Mutex::default(),
        };
        let thread = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(body)
                .map(|thread| lock(&disk.threads).push(thread))
                .map_err(io("start a thread for it"))
        };
        let writer = Writer::new(shared.clone(), inbox);
        thread("cache-write", Box::new(move || writer.run()))?;
        for _ in 0..READERS {
            let shared = shared.clone();
            thread("cache-read", Box::new(move || reader::run(&shared)))?;
        }
        Ok(Arc::new(disk))
    }

    /// Keeps the pages of these sites only, from now on; `owners` has each site once. Gives the
    /// generations of each site. At the first call, at a start, they continue as they were; at a
    /// later one, at a reload, which may bring new code, all pages of every site are purged.
    pub fn begin(&self, owners: &[Owner]) -> Vec<Arc<Generations>> {
        let shared = &self.shared;
        let mut live = shared.live.write().unwrap_or_else(PoisonError::into_inner);
        let is_first = live.is_empty();
        let mut before = std::mem::take(&mut *live);
        let restored = shared.journal.begin(owners, !is_first);
        let mut all = Vec::new();
        for (owner, restored) in owners.iter().zip(restored) {
            let generations = match before.remove(&owner.site) {
                // Those in use go on: a request that began before the reload may yet purge.
                Some(live) => {
                    live.generations.reset_at(restored.now());
                    live.generations
                }
                None => Arc::new(restored),
            };
            all.push(generations.clone());
            let policy = owner.policy;
            live.insert(
                owner.site,
                Live {
                    policy,
                    generations,
                },
            );
        }
        drop(live);
        shared.journal_state();
        if is_first {
            shared.order(WriteJob::LookThrough);
        }
        all
    }

    /// Another limit of bytes; what has to go for it goes with the next page that is written.
    pub fn resize(&self, capacity: u64) {
        self.shared.order(WriteJob::Resize(capacity));
    }

    /// Writes what waits, flushes everything, and says so in the journal: after that the machine may
    /// be stopped, too. Gives up after `patience`. Whether it was done.
    pub fn close(&self, patience: Duration) -> bool {
        let (done, closed) = mpsc::channel();
        // Not refused by a full queue: it waits for its turn.
        self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        self.shared.orders.send(WriteJob::Close(done)).is_ok()
            && closed.recv_timeout(patience).is_ok_and(|closed| closed)
    }

    /// What the status page and the metrics show of the store.
    pub fn usage(&self) -> DiskUsage {
        let shared = &self.shared;
        let (entries, bytes, capacity, evictions) = shared.index.usage();
        let condition = shared.condition.load(Ordering::Relaxed);
        let fault = condition.checked_sub(1);
        DiskUsage {
            path: shared.directory.path().display().to_string(),
            entries,
            bytes,
            capacity,
            evictions,
            hits: shared.hits.load(Ordering::Relaxed),
            written: shared.written.load(Ordering::Relaxed),
            waiting: shared.waiting.load(Ordering::Acquire),
            indexing: !shared.looked_through.load(Ordering::Acquire),
            condition: fault.and_then(|n| Some(Fault::ALL.get(usize::from(n))?.name())),
            faults: shared.faults.sums(),
        }
    }

    /// The directory the pages are kept in.
    pub fn path(&self) -> &std::path::Path {
        self.shared.directory.path()
    }
}

impl Drop for Disk {
    /// Ends as a killed process does: what waits is not written, and nothing is flushed. The lock is
    /// released when the threads have ended.
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        lock(&self.shared.reads).clear();
        self.shared.bell.notify_all();
        // A full queue wakes the writer as well.
        self.shared.order(WriteJob::End);
        for thread in lock(&self.threads).drain(..) {
            // One that panicked is gone, too.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Hands an order on; false: the queue is full.
    fn order(&self, order: WriteJob) -> bool {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let taken = self.orders.try_send(order).is_ok();
        if !taken {
            self.done();
        }
        taken
    }

    fn done(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Counts a fault, and reports it unless it was reported within [`TOLD_EVERY`].
    fn fault(&self, fault: Fault, detail: impl FnOnce() -> String) {
        self.faults.add(fault);
        let now = Instant::now();
        let mut told = lock(&self.told);
        let last = told.get(fault.name());
        if last.is_some_and(|last| now.duration_since(*last) < TOLD_EVERY) {
            return;
        }
        told.insert(fault.name(), now);
        drop(told);
        (self.notify)(Notice::Failed(fault, detail()));
    }

    /// Something keeps pages or purges from being written, or no longer.
    fn condition(&self, fault: Option<Fault>) {
        let number = fault.map_or(0, |fault| fault as u8 + 1);
        let before = self.condition.swap(number, Ordering::Relaxed);
        if before != 0 && number == 0 {
            lock(&self.told).clear();
            (self.notify)(Notice::WorksAgain);
        }
    }

    /// Reports what is wrong with the journal, if anything has gone wrong since.
    fn journal_state(&self) {
        if let Some(error) = self.journal.take_error() {
            self.condition(Some(Fault::JournalFailed));
            self.fault(Fault::JournalFailed, || error.to_string());
        }
    }

    /// The generations a page's validity is judged by, if it is of a site as it is configured now.
    fn generations(&self, owner: &Owner) -> Option<Arc<Generations>> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        let site = live.get(&owner.site)?;
        (site.policy == owner.policy).then(|| site.generations.clone())
    }

    fn name(&self, owner: &Owner, key: &[u8]) -> FileName {
        FileName::new(self.secret, owner, key)
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests;
