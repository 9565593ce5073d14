//! Threads that compress what would keep a front thread from its other visitors for too long. They work
//! in slices, on everybody's work in turn, so that a long file does not hold a short page up. Knows no
//! heads; [`super::whole`] and [`super::stream`] give it work.
//!
//! Of bodies that can as well be sent as they are, only so much may wait; more is refused. Work for a
//! stream that has begun cannot be: each response has at most one piece of it waiting.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use howdah_http::memory::{self, Pressure};

/// Plain bytes compressed before it is another's turn: 2 ms of brotli.
pub(super) const SLICE: usize = 64 << 10;
/// Plain bytes that may wait, of bodies that need not be compressed: half a second of brotli.
const MOST_WAITING: u64 = 16 << 20;
/// Plain bytes waiting at which scripts' pages are sent as they are: an eighth of a second.
const BUSY: u64 = 4 << 20;

/// Work that is done a slice at a time.
pub(super) trait Work: Send {
    /// Does some; whether that was all.
    fn step(&mut self) -> bool;
}

struct QueuedWork {
    work: Box<dyn Work>,
    length: u64,
}

struct Queue {
    waiting: VecDeque<QueuedWork>,
    /// Bytes of what waits and of what is being worked on.
    bytes: u64,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    waiting: VecDeque::new(),
    bytes: 0,
});
static MORE: Condvar = Condvar::new();

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has `work` done on `length` bytes; gives it back while too much is waiting.
pub(super) fn offer(work: Box<dyn Work>, length: u64) -> Result<(), Box<dyn Work>> {
    let mut queue = queue();
    // One body alone may be longer than all that may wait. Where memory is short, none is kept twice.
    if memory::pressure() != Pressure::None
        || queue.bytes > 0 && queue.bytes + length > MOST_WAITING
    {
        return Err(work);
    }
    push(&mut queue, QueuedWork { work, length })
}

/// Has `work` done on `length` bytes, however much is waiting; gives it back if there are no threads.
pub(super) fn enqueue(work: Box<dyn Work>, length: u64) -> Result<(), Box<dyn Work>> {
    push(&mut queue(), QueuedWork { work, length })
}

/// So much is waiting that a page is better sent as it is.
pub(super) fn is_busy() -> bool {
    queue().bytes > BUSY
}

fn push(queue: &mut Queue, entry: QueuedWork) -> Result<(), Box<dyn Work>> {
    if !start() {
        return Err(entry.work);
    }
    queue.bytes += entry.length;
    queue.waiting.push_back(entry);
    MORE.notify_one();
    Ok(())
}

/// Starts the threads when there is first something to do: one for two cores, so that PHP and the front
/// keep the others. Whether there are any.
fn start() -> bool {
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
                    None => queue = MORE.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            }
        };
        // A caller that waits for work that panicked sees it dropped.
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
