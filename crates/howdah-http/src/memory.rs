//! One limit for all heap memory of the front, enforced by a counting allocator. A connection, a body or a response has
//! limits of its own; this limit covers large numbers of them, and memory that no other limit covers.
//!
//! ```text
//! below 1/2 of it   as configured
//! above             bodies and responses of slow clients are moved to files immediately, and heads longer than a
//!                   few KiB are not waited for; all other requests are still handled
//! all of it         clients that take no data of their responses are disconnected, those that hold the most within
//!                   a second (`ClientTooSlow`); new requests are refused until memory is free: 503 MemoryLimit
//! ```
//! The upper half is reserved for indispensable memory: connections and short heads ([`max_connections`]).

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::allocated;
pub use crate::sys::CountingAllocator;

/// Address space of a thread's stack.
const STACK_BYTES: u64 = 2 << 20;
/// The minimum that `limits.memory = auto` yields in a limited address space.
const MIN_AUTO_LIMIT_BYTES: u64 = 8 << 20;
/// The length up to which heads are accepted under memory pressure. Those of browsers are shorter.
pub const SHORT_HEAD_BYTES: usize = 4 << 10;
/// The bytes of a connection with little state: the connection itself, a request's state, a buffer.
const CONNECTION_BYTES: u64 = 16 << 10;
/// The number of bytes of a response or a body that may wait in memory under memory pressure.
pub const PRESSURE_BUFFER_BYTES: usize = 16 << 10;

static LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);

/// How much of the front's memory limit is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryPressure {
    /// Less than half of the memory is used.
    None,
    /// At least half of the memory is used.
    High,
    /// All of the memory is used.
    Full,
}

/// Returns how much of the limit is used at present.
pub fn pressure() -> MemoryPressure {
    pressure_of(used(), LIMIT.load(Relaxed))
}

fn pressure_of(used: u64, limit: u64) -> MemoryPressure {
    if used >= limit {
        MemoryPressure::Full
    } else if used >= limit / 2 {
        MemoryPressure::High
    } else {
        MemoryPressure::None
    }
}

/// Returns how many of `bytes` may be held in memory at present.
pub fn allowance(bytes: usize) -> usize {
    match pressure() {
        MemoryPressure::None => bytes,
        _ => bytes.min(PRESSURE_BUFFER_BYTES),
    }
}

/// Returns the number of bytes in use, or 0 if [`CountingAllocator`] is not the program's allocator.
pub fn used() -> u64 {
    allocated::used()
}

/// Returns the number of connections that fit into the upper half, each with a short head or a small part of a
/// response.
pub fn max_connections() -> u64 {
    LIMIT.load(Relaxed) / CONNECTION_BYTES / 2
}

/// Sets the limit in bytes; `u64::MAX` means no limit.
pub fn set_limit(bytes: u64) {
    LIMIT.store(bytes, Relaxed);
}

/// Returns the limit in bytes, if there is one.
pub fn limit() -> Option<u64> {
    Some(LIMIT.load(Relaxed)).filter(|limit| *limit != u64::MAX)
}

/// Returns the limit for `limits.memory = auto`: a quarter of the machine's memory or of the control group's limit, at
/// least 64 MiB. In a limited address space it is at most half of the space that is free when this is first called,
/// before `threads` threads have their stacks.
pub fn auto_limit(threads: usize) -> u64 {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        let memory = howdah_os::machine::available_memory(read);
        let quarter = memory.map_or(u64::MAX, |bytes| (bytes / 4).max(64 << 20));
        let Some(space) = address_space() else {
            return quarter;
        };
        // The first field is the number of pages of address space.
        let sizes = read(Path::new("/proc/self/statm")).unwrap_or_default();
        let pages = sizes.split_whitespace().next().and_then(|n| n.parse().ok());
        let mapped = pages.unwrap_or(0) * rustix::param::page_size() as u64;
        let free = space.saturating_sub(mapped + threads as u64 * STACK_BYTES);
        quarter.min((free / 2).max(MIN_AUTO_LIMIT_BYTES))
    })
}

/// Returns the limit of `ulimit -v`, if there is one.
fn address_space() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::As).current
}

/// Makes all threads allocate from one arena if the address space is limited. Otherwise glibc's malloc reserves 64 MiB
/// of the address space for each thread: once the address space is used up, a thread gets no memory, and the process is
/// aborted far below its memory limit. Call this before any thread is started.
pub fn limit_malloc_arenas() {
    if address_space().is_some() {
        crate::sys::use_single_arena();
    }
}

/// Starts the thread that returns free pages to the system after a peak. Without it, the allocator would keep the
/// memory that many slow clients once used.
pub fn start_trim_thread() -> std::io::Result<()> {
    let giving = std::thread::Builder::new().name("give-back".to_owned());
    let thread = giving.spawn(|| {
        loop {
            std::thread::park();
            // Usually more memory is freed at about the same time.
            std::thread::sleep(Duration::from_secs(1));
            allocated::begin_next_peak();
            crate::sys::trim_heap();
        }
    })?;
    // This is called once. A second thread would never be woken.
    allocated::wake_after_peaks(thread.thread().clone());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_rises_at_half_and_at_the_limit() {
        let mega = 1 << 20;
        for (used, pressure) in [
            (0, MemoryPressure::None),
            (50 * mega - 1, MemoryPressure::None),
            (50 * mega, MemoryPressure::High),
            (100 * mega - 1, MemoryPressure::High),
            (100 * mega, MemoryPressure::Full),
        ] {
            assert_eq!(pressure_of(used, 100 * mega), pressure, "{used}");
        }
        assert_eq!(pressure_of(1 << 50, u64::MAX), MemoryPressure::None);
    }

    #[test]
    fn auto_limit_has_a_minimum() {
        assert!(auto_limit(2) >= MIN_AUTO_LIMIT_BYTES);
    }
}
