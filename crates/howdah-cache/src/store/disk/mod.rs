//! Pages on disk, below those in memory: one file per page, written after the page's first response and read when the
//! page is not in memory. A restart keeps them, and the purges that were acknowledged. A damaged file counts as a miss,
//! is reported with the name of its fault, and is removed.
//!
//! - [`format`]: a page as bytes. [`journal`]: the purges, and what a crash may lose.
//! - [`directory`]: its owner, its lock, the places of files. [`index`]: which files exist, and which are evicted.
//! - [`writer`]: the only thread that changes files. [`sites`]: the disk as a configuration sees it.
//! - [`fault`]: what can go wrong, by name.
//!
//! # Who waits for the disk
//!
//! A request waits for the disk only if PHP would otherwise have to answer it. One thread writes and removes files and
//! scans the directory after a start; two more threads read. A request's thread puts an order into a bounded queue and
//! continues. If the queue is full, the page is not written, or not searched for ([`DiskFault::DiskBusy`]). The only
//! thing that a request's thread writes itself is a line in the journal, into the kernel's memory, when it purges: the
//! line must be written before the response is sent.

pub mod directory;
pub mod fault;
pub mod format;
pub mod index;
pub mod journal;
mod reader;
pub mod sites;
mod write_job;
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
pub use fault::DiskFault;
pub use format::Owner;
pub use sites::DiskSites;

use crate::Millis;
use crate::generation::Generations;
use directory::{CacheDirectory, FileName};
use fault::FaultCounters;
use index::Index;
use journal::PurgeJournal;
use reader::ReadJob;
use write_job::WriteJob;
use writer::Writer;

/// Maximum number of orders that wait for the writer.
const MAX_WAITING_ORDERS: usize = 4096;
/// Maximum bytes of pages that wait to be written.
const MAX_WAITING_BYTES: u64 = 64 << 20;
/// Maximum number of requests that wait for a file.
const MAX_WAITING_READS: usize = 1024;
/// Number of threads that read. With two, a slow file does not delay the next one.
const READER_THREADS: usize = 2;
/// Minimum time between two reports of the same fault.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// A report from the store to its owner, who logs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskNotice {
    /// The store had this fault; the text gives the details.
    Failed(DiskFault, String),
    /// Pages and purges can be written again.
    Recovered,
}

/// The options for opening a disk store.
pub struct DiskOptions {
    /// The directory in which the pages are kept.
    pub path: PathBuf,
    /// Maximum bytes of disk that the pages use.
    pub capacity: u64,
    /// How long to wait for another server that uses the directory and is about to exit.
    pub lock_timeout: Duration,
    /// How long no write is tried after one has failed.
    pub retry_delay: Duration,
    /// Returns the current time; tests pass their own clock.
    pub now: fn() -> Millis,
    /// Receives the notices, each fault at most once a minute.
    pub notify: Box<dyn Fn(DiskNotice) + Send + Sync>,
}

impl DiskOptions {
    /// Returns options with the usual times and no receiver of notices.
    pub fn new(path: PathBuf, capacity: u64, now: fn() -> Millis) -> DiskOptions {
        DiskOptions {
            path,
            capacity,
            lock_timeout: Duration::from_secs(3),
            retry_delay: Duration::from_secs(10),
            now,
            notify: Box::new(|_| {}),
        }
    }
}

/// The disk store of a server, shared by its successive configurations.
#[derive(Debug)]
pub struct DiskStore {
    shared: Arc<DiskShared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct DiskShared {
    directory: CacheDirectory,
    journal: Arc<PurgeJournal>,
    secret: [u8; 16],
    index: Index,
    now: fn() -> Millis,
    retry_delay: Duration,
    notify: Box<dyn Fn(DiskNotice) + Send + Sync>,
    /// When each fault was last reported.
    reported: Mutex<HashMap<&'static str, Instant>>,
    faults: FaultCounters,
    /// The fault that prevents pages from being written, as its number plus one; 0: none.
    condition: AtomicU8,
    live_sites: RwLock<HashMap<[u8; 16], LiveSite>>,
    orders: SyncSender<WriteJob>,
    /// Orders to the writer that have not been carried out yet.
    waiting: AtomicU64,
    /// Total bytes of the pages in those orders.
    waiting_bytes: AtomicU64,
    reads: Mutex<VecDeque<ReadJob>>,
    bell: Condvar,
    /// Every file that existed at the start is in the index.
    is_scanned: AtomicBool,
    ended: AtomicBool,
    hits: AtomicU64,
    written: AtomicU64,
}

#[derive(Debug)]
struct LiveSite {
    policy: [u8; 16],
    generations: Arc<Generations>,
}

impl fmt::Debug for DiskShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Disk").field(&self.directory.path()).finish()
    }
}

/// The state of the store at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// The directory in which the pages are kept.
    pub path: String,
    /// Files in the directory that the index knows.
    pub entries: u64,
    /// Bytes of disk that the files use.
    pub bytes: u64,
    /// Maximum bytes that the files may use.
    pub capacity: u64,
    /// Files that were removed to make room for others.
    pub evictions: u64,
    /// Requests whose page was read from a file.
    pub hits: u64,
    /// Pages written since the start.
    pub written: u64,
    /// Pages and other orders that wait for the writer.
    pub waiting: u64,
    /// Whether the files of a former process are still being scanned.
    pub indexing: bool,
    /// The fault that currently prevents pages from being written; `None` if they can be written.
    pub condition: Option<&'static str>,
    /// The faults that have occurred, by name, each with its count.
    pub faults: Vec<(String, u64)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DiskStore {
    /// Opens the directory and starts the threads. It reads no page: existing files are found in the background.
    pub fn open(options: DiskOptions) -> Result<Arc<DiskStore>, OpenError> {
        let io = |what| move |error| OpenError::Io { what, error };
        let directory = CacheDirectory::open(&options.path, options.lock_timeout)?;
        let now = (options.now)();
        let (journal, fresh) = PurgeJournal::open(directory.path(), journal::boot_id(), now)
            .map_err(io("open the journal"))?;
        let (orders, inbox) = mpsc::sync_channel(MAX_WAITING_ORDERS);
        let shared = Arc::new(DiskShared {
            secret: journal.secret(),
            index: Index::new(options.capacity),
            directory,
            journal: Arc::new(journal),
            now: options.now,
            retry_delay: options.retry_delay,
            notify: options.notify,
            reported: Mutex::default(),
            faults: FaultCounters::default(),
            condition: AtomicU8::new(0),
            live_sites: RwLock::default(),
            orders,
            waiting: AtomicU64::new(0),
            waiting_bytes: AtomicU64::new(0),
            reads: Mutex::default(),
            bell: Condvar::new(),
            is_scanned: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            hits: AtomicU64::new(0),
            written: AtomicU64::new(0),
        });
        if let Some(fault) = fresh.and_then(DiskFault::from_fresh) {
            shared.report_fault(fault, String::new);
        }
        let disk = DiskStore {
            shared: shared.clone(),
            threads: Mutex::default(),
        };
        let thread = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(body)
                .map(|thread| lock(&disk.threads).push(thread))
                .map_err(io("start a thread"))
        };
        let writer = Writer::new(shared.clone(), inbox);
        thread("cache-write", Box::new(move || writer.run()))?;
        for _ in 0..READER_THREADS {
            let shared = shared.clone();
            thread("cache-read", Box::new(move || reader::run(&shared)))?;
        }
        Ok(Arc::new(disk))
    }

    /// Keeps only the pages of these sites from now on; `owners` contains each site once. Returns the generations of
    /// each site. At the first call, at a start, they continue as they were. At a later call, at a reload, which may
    /// bring new code, all pages of every site are purged.
    pub fn begin(&self, owners: &[Owner]) -> Vec<Arc<Generations>> {
        let shared = &self.shared;
        let mut live = shared
            .live_sites
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let is_first = live.is_empty();
        let mut before = std::mem::take(&mut *live);
        let restored = shared.journal.begin(owners, !is_first);
        let mut all = Vec::new();
        for (owner, restored) in owners.iter().zip(restored) {
            let generations = match before.remove(&owner.site) {
                // Generations in use continue: a request that began before the reload may still purge.
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
                LiveSite {
                    policy,
                    generations,
                },
            );
        }
        drop(live);
        shared.report_journal_error();
        if is_first {
            shared.send_order(WriteJob::Scan);
        }
        all
    }

    /// Sets a new limit of bytes. Files beyond it are removed when the next page is written.
    pub fn resize(&self, capacity: u64) {
        self.shared.send_order(WriteJob::Resize(capacity));
    }

    /// Writes the waiting pages, flushes everything and records that in the journal; afterwards the machine may be
    /// stopped, too. Gives up after `patience`. Returns whether it was done.
    pub fn close(&self, patience: Duration) -> bool {
        let (done, closed) = mpsc::channel();
        // `send` waits if the queue is full, instead of failing.
        self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        self.shared.orders.send(WriteJob::Close(done)).is_ok()
            && closed.recv_timeout(patience).is_ok_and(|closed| closed)
    }

    /// Returns the figures for the status page and the metrics.
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
            indexing: !shared.is_scanned.load(Ordering::Acquire),
            condition: fault.and_then(|n| Some(DiskFault::ALL.get(usize::from(n))?.name())),
            faults: shared.faults.counts(),
        }
    }

    /// Returns the directory in which the pages are kept.
    pub fn path(&self) -> &std::path::Path {
        self.shared.directory.path()
    }
}

impl Drop for DiskStore {
    /// Stops as a killed process does: waiting pages are not written, and nothing is flushed. The lock is released when
    /// the threads have ended.
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        lock(&self.shared.reads).clear();
        self.shared.bell.notify_all();
        // If the queue is full, the writer wakes anyway.
        self.shared.send_order(WriteJob::Stop);
        for thread in lock(&self.threads).drain(..) {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

impl DiskShared {
    /// Passes an order to the writer. Returns false if the queue is full.
    fn send_order(&self, order: WriteJob) -> bool {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let taken = self.orders.try_send(order).is_ok();
        if !taken {
            self.order_done();
        }
        taken
    }

    fn order_done(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Counts a fault, and reports it unless it was reported within [`REPORT_INTERVAL`].
    fn report_fault(&self, fault: DiskFault, detail: impl FnOnce() -> String) {
        self.faults.add(fault);
        let now = Instant::now();
        let mut told = lock(&self.reported);
        let last = told.get(fault.name());
        if last.is_some_and(|last| now.duration_since(*last) < REPORT_INTERVAL) {
            return;
        }
        told.insert(fault.name(), now);
        drop(told);
        (self.notify)(DiskNotice::Failed(fault, detail()));
    }

    /// Notes that a fault prevents pages or purges from being written, or that none does any more.
    fn set_condition(&self, fault: Option<DiskFault>) {
        let number = fault.map_or(0, |fault| fault as u8 + 1);
        let before = self.condition.swap(number, Ordering::Relaxed);
        if before != 0 && number == 0 {
            lock(&self.reported).clear();
            (self.notify)(DiskNotice::Recovered);
        }
    }

    /// Reports an error of the journal, if one has occurred since the last call.
    fn report_journal_error(&self) {
        if let Some(error) = self.journal.take_error() {
            self.set_condition(Some(DiskFault::JournalFailed));
            self.report_fault(DiskFault::JournalFailed, || error.to_string());
        }
    }

    /// Returns the generations that decide whether a page is valid; `None` if its site is not configured the same way
    /// any more.
    fn generations(&self, owner: &Owner) -> Option<Arc<Generations>> {
        let live = self
            .live_sites
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let site = live.get(&owner.site)?;
        (site.policy == owner.policy).then(|| site.generations.clone())
    }

    fn file_name(&self, owner: &Owner, key: &[u8]) -> FileName {
        FileName::new(self.secret, owner, key)
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests;
