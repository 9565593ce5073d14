//! Threads that compress what would take too long on a front thread. They work in slices, on all pending work in turn,
//! so a long file does not delay a short page. This module does not handle headers; [`super::whole`] and
//! [`super::stream`] submit the work.
//!
//! The amount of waiting work for bodies that can also be sent uncompressed is limited, and further work is refused.
//! Work for a stream that has begun cannot be refused: each response has at most one piece of it waiting.

use std::collections::VecDeque;
use std::sync::LazyLock;

use howdah_http::memory::{self, MemoryPressure};

use crate::thread_pool::{ThreadPool, ThreadPoolQueue, half_of_the_cores};

/// How many plain bytes are compressed before other work gets its turn: 2 ms of brotli.
pub(super) const SLICE_BYTES: usize = 64 << 10;
/// The maximum number of waiting plain bytes of bodies that can also be sent uncompressed: half a second of brotli.
const MAX_WAITING_BYTES: u64 = 16 << 20;
/// When more plain bytes than this wait, scripts' pages are sent uncompressed: an eighth of a second of brotli.
const BUSY_THRESHOLD_BYTES: u64 = 4 << 20;

/// Work that is done a slice at a time.
pub(super) trait CompressionWork: Send {
    /// Does one slice. Returns whether that was the last.
    fn step(&mut self) -> bool;
}

/// Work, and the number of plain bytes that it compresses.
type QueuedWork = (u64, Box<dyn CompressionWork>);

#[derive(Default)]
struct WorkQueue {
    waiting: VecDeque<QueuedWork>,
    /// The number of bytes of waiting and current work.
    bytes: u64,
}

static THREADS: LazyLock<ThreadPool<WorkQueue>> =
    LazyLock::new(|| ThreadPool::new("compress", half_of_the_cores(), WorkQueue::default()));

/// Submits `work` on `length` bytes. Returns it if too much is waiting.
pub(super) fn try_enqueue(
    work: Box<dyn CompressionWork>,
    length: u64,
) -> Result<(), Box<dyn CompressionWork>> {
    // While memory is short, no body is kept in two forms.
    if memory::pressure() != MemoryPressure::None || !THREADS.start() {
        return Err(work);
    }
    THREADS.add(|queue| {
        // A single body may be longer than the limit.
        if queue.bytes > 0 && queue.bytes + length > MAX_WAITING_BYTES {
            return Err(work);
        }
        queue.push(work, length);
        Ok(())
    })
}

/// Submits `work` on `length` bytes, however much is waiting. Returns it if there are no threads.
pub(super) fn enqueue(
    work: Box<dyn CompressionWork>,
    length: u64,
) -> Result<(), Box<dyn CompressionWork>> {
    if !THREADS.start() {
        return Err(work);
    }
    THREADS.add(|queue| {
        queue.push(work, length);
        Ok(())
    })
}

/// Whether so much is waiting that a page is better sent uncompressed.
pub(super) fn is_busy() -> bool {
    THREADS.queue().bytes > BUSY_THRESHOLD_BYTES
}

impl WorkQueue {
    fn push(&mut self, work: Box<dyn CompressionWork>, length: u64) {
        self.bytes += length;
        self.waiting.push_back((length, work));
    }
}

impl ThreadPoolQueue for WorkQueue {
    type Work = Box<dyn CompressionWork>;
    type Account = u64;

    fn pop(&mut self) -> Option<QueuedWork> {
        self.waiting.pop_front()
    }

    fn perform(mut work: Box<dyn CompressionWork>) -> Option<Box<dyn CompressionWork>> {
        let is_last = work.step();
        (!is_last).then_some(work)
    }

    fn settle(&mut self, length: u64, unfinished: Option<Box<dyn CompressionWork>>) {
        match unfinished {
            Some(work) => self.waiting.push_back((length, work)),
            None => self.bytes -= length,
        }
    }
}
