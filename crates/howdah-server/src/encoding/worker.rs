//! Threads that compress what would take too long on a front thread. They work in slices, on all pending work in turn,
//! so a long file does not delay a short page. This module does not handle headers; [`super::whole`] and
//! [`super::stream`] submit the work.
//!
//! The amount of waiting work is limited for bodies that can be sent uncompressed as well; more is refused. Work for a
//! stream that has begun cannot be refused: each response has at most one piece of it waiting.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use howdah_http::memory::{self, MemoryPressure};

/// How many plain bytes are compressed before other work gets its turn: 2 ms of brotli.
pub(super) const SLICE_BYTES: usize = 64 << 10;
/// How many plain bytes may wait, of bodies that need not be compressed: half a second of brotli.
const MAX_WAITING_BYTES: u64 = 16 << 20;
/// When more plain bytes than this wait, scripts' pages are sent uncompressed: an eighth of a second of brotli.
const BUSY_THRESHOLD_BYTES: u64 = 4 << 20;

/// Work that is done a slice at a time.
pub(super) trait CompressionWork: Send {
    /// Does one slice. Returns whether that was the last.
    fn step(&mut self) -> bool;
}

struct QueuedWork {
    work: Box<dyn CompressionWork>,
    length: u64,
}

struct WorkQueue {
    waiting: VecDeque<QueuedWork>,
    /// The number of bytes of waiting and current work.
    bytes: u64,
}

static QUEUE: Mutex<WorkQueue> = Mutex::new(WorkQueue {
    waiting: VecDeque::new(),
    bytes: 0,
});
static WORK_ADDED: Condvar = Condvar::new();

fn queue() -> MutexGuard<'static, WorkQueue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Submits `work` on `length` bytes. Returns it if too much is waiting.
pub(super) fn try_enqueue(
    work: Box<dyn CompressionWork>,
    length: u64,
) -> Result<(), Box<dyn CompressionWork>> {
    let mut queue = queue();
    // A single body may be longer than the limit. While memory is short, no body is kept in two forms.
    if memory::pressure() != MemoryPressure::None
        || queue.bytes > 0 && queue.bytes + length > MAX_WAITING_BYTES
    {
        return Err(work);
    }
    push(&mut queue, QueuedWork { work, length })
}

/// Submits `work` on `length` bytes, however much is waiting. Returns it if there are no threads.
pub(super) fn enqueue(
    work: Box<dyn CompressionWork>,
    length: u64,
) -> Result<(), Box<dyn CompressionWork>> {
    push(&mut queue(), QueuedWork { work, length })
}

/// Returns whether so much is waiting that a page is better sent uncompressed.
pub(super) fn is_busy() -> bool {
    queue().bytes > BUSY_THRESHOLD_BYTES
}

fn push(queue: &mut WorkQueue, entry: QueuedWork) -> Result<(), Box<dyn CompressionWork>> {
    if !start_threads() {
        return Err(entry.work);
    }
    queue.bytes += entry.length;
    queue.waiting.push_back(entry);
    WORK_ADDED.notify_one();
    Ok(())
}

/// Starts the threads when there is work for the first time: one for two cores, so PHP and the front keep the others.
/// Returns whether there are any.
fn start_threads() -> bool {
    static STARTED: OnceLock<bool> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let started = (0..(cores / 2).max(1)).filter(|number| {
            std::thread::Builder::new()
                .name(format!("compress-{number}"))
                .spawn(run)
                .is_ok()
        });
        started.count() > 0
    })
}

fn run() {
    loop {
        let mut entry = {
            let mut queue = queue();
            loop {
                match queue.waiting.pop_front() {
                    Some(entry) => break entry,
                    None => {
                        queue = WORK_ADDED
                            .wait(queue)
                            .unwrap_or_else(PoisonError::into_inner)
                    }
                }
            }
        };
        // If work panics, it is dropped, which a waiting caller notices.
        let done = catch_unwind(AssertUnwindSafe(|| entry.work.step())).unwrap_or(true);
        let mut queue = queue();
        if done {
            queue.bytes -= entry.length;
            drop(queue);
            drop(entry);
        } else {
            queue.waiting.push_back(entry);
        }
    }
}
