//! Counts how much the front has allocated: the memory that the allocator has set aside, including its headers, not the
//! memory that the kernel has made resident. Each thread keeps a count of its own and adds it to the total now and
//! then, so that allocations do not contend for one cache line. The total may therefore be off by
//! [`THREAD_BATCH_BYTES`] per thread.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::thread::Thread;

/// The count in bytes at which a thread adds it to the total.
pub(crate) const THREAD_BATCH_BYTES: i64 = 64 << 10;
/// When the use has fallen this many bytes below the peak, free pages are returned to the system.
const TRIM_BELOW_PEAK_BYTES: i64 = 32 << 20;

static USED: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);
static TRIM_THREAD: OnceLock<Thread> = OnceLock::new();
static TRIM_REQUESTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static OFF: Cell<i64> = const { Cell::new(0) };
}

/// Returns the number of bytes in use, or 0 if they are not counted.
pub(crate) fn used() -> u64 {
    USED.load(Relaxed).max(0) as u64
}

/// Registers the thread that is unparked after a peak. Only the first call has an effect.
pub(crate) fn wake_after_peaks(thread: Thread) {
    let _ = TRIM_THREAD.set(thread);
}

/// Begins a new peak at the current use. The thread that returns pages calls this.
pub(crate) fn begin_next_peak() {
    TRIM_REQUESTED.store(false, Relaxed);
    PEAK.store(USED.load(Relaxed), Relaxed);
}

/// Returns how much memory glibc's malloc takes for `size` bytes: they are preceded by their size and rounded up to a
/// multiple of 16.
pub(crate) const fn allocation_size(size: usize) -> i64 {
    let chunk = (size + 8 + 15) & !15;
    if chunk < 32 { 32 } else { chunk as i64 }
}

/// Counts bytes that were allocated, or freed if negative. The allocator calls this, so it must not allocate.
pub(crate) fn count(bytes: i64) {
    // Fails at the end of a thread, when its count no longer exists.
    let _ = OFF.try_with(|off| {
        let now = off.get() + bytes;
        if now.abs() < THREAD_BATCH_BYTES {
            off.set(now);
        } else {
            off.set(0);
            add_to_total(now);
        }
    });
}

#[cold]
fn add_to_total(bytes: i64) {
    let now = USED.fetch_add(bytes, Relaxed) + bytes;
    if bytes > 0 {
        PEAK.fetch_max(now, Relaxed);
    } else if PEAK.load(Relaxed) - now > TRIM_BELOW_PEAK_BYTES
        && let Some(giver) = TRIM_THREAD.get()
        && !TRIM_REQUESTED.swap(true, Relaxed)
    {
        giver.unpark();
    }
}
