//! How much the front has allocated: what the allocator sets aside, headers included, not what the
//! kernel has made resident. A thread counts for itself and settles with the others now and then, so
//! that no cache line is shared by every allocation; that makes the sum vague by [`BATCH`] a thread.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::thread::Thread;

/// A thread settles when it is off by so much.
pub(crate) const BATCH: i64 = 64 << 10;
/// When so much less is used than at the peak, free pages go back to the system.
const GIVE_BACK: i64 = 32 << 20;

static USED: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);
static GIVER: OnceLock<Thread> = OnceLock::new();
static WOKEN: AtomicBool = AtomicBool::new(false);

thread_local! {
    static OFF: Cell<i64> = const { Cell::new(0) };
}

/// Bytes in use now. 0 where nothing counts them.
pub(crate) fn used() -> u64 {
    USED.load(Relaxed).max(0) as u64
}

/// Names the thread that is unparked after a peak. Only the first one counts.
pub(crate) fn wake_after_peaks(thread: Thread) {
    let _ = GIVER.set(thread);
}

/// The thread is at work: the next peak begins at what is in use now.
pub(crate) fn begin_next_peak() {
    WOKEN.store(false, Relaxed);
    PEAK.store(USED.load(Relaxed), Relaxed);
}

/// How much memory glibc's malloc takes for this many bytes: their size before them, in steps of 16.
pub(crate) const fn occupied(size: usize) -> i64 {
    let chunk = (size + 8 + 15) & !15;
    if chunk < 32 { 32 } else { chunk as i64 }
}

/// Counts bytes that were allocated, or freed if negative. Called by the allocator: allocates nothing.
pub(crate) fn count(bytes: i64) {
    // Not at a thread's end, when there is nothing left to count in.
    let _ = OFF.try_with(|off| {
        let now = off.get() + bytes;
        if now.abs() < BATCH {
            off.set(now);
        } else {
            off.set(0);
            settle(now);
        }
    });
}

#[cold]
fn settle(bytes: i64) {
    let now = USED.fetch_add(bytes, Relaxed) + bytes;
    if bytes > 0 {
        PEAK.fetch_max(now, Relaxed);
    } else if PEAK.load(Relaxed) - now > GIVE_BACK
        && let Some(giver) = GIVER.get()
        && !WOKEN.swap(true, Relaxed)
    {
        giver.unpark();
    }
}
