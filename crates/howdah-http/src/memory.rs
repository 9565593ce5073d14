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
//! The upper half is reserved for indispensable memory: connections and short heads ([`connections`]).

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::allocated;
pub use crate::sys::Counting;

/// Address space of a thread's stack.
const STACK: u64 = 2 << 20;
/// The minimum that `limits.memory = auto` yields in a limited address space.
const LEAST: u64 = 8 << 20;
/// The length up to which heads are accepted under memory pressure. Those of browsers are shorter.
pub const SHORT_HEAD: usize = 4 << 10;
/// The bytes of a connection with little state: the connection itself, a request's state, a buffer.
const CONNECTION: u64 = 16 << 10;
/// The number of bytes of a response or a body that may wait in memory under memory pressure.
pub const SPARSE: usize = 16 << 10;

static LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);

/// How much of the front's memory limit is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Less than half of the memory is used.
    None,
    /// At least half of the memory is used.
    High,
    /// All of the memory is used.
    Full,
}

/// Returns how much of the limit is used at present.
pub fn pressure() -> Pressure {
    pressure_of(used(), LIMIT.load(Relaxed))
}

fn pressure_of(used: u64, limit: u64) -> Pressure {
    if used >= limit {
        Pressure::Full
    } else if used >= limit / 2 {
        Pressure::High
    } else {
        Pressure::None
    }
}

/// Returns how many of `bytes` may be held in memory at present.
pub fn allowance(bytes: usize) -> usize {
    match pressure() {
        Pressure::None => bytes,
        _ => bytes.min(SPARSE),
    }
}

/// Returns the number of bytes in use, or 0 if [`Counting`] is not the program's allocator.
pub fn used() -> u64 {
    allocated::used()
}

/// Returns the number of connections that fit into the upper half, each with a short head or a small part of a
/// response.
pub fn connections() -> u64 {
    LIMIT.load(Relaxed) / CONNECTION / 2
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
        let memory = howdah_os::machine::memory(read);
        let quarter = memory.map_or(u64::MAX, |bytes| (bytes / 4).max(64 << 20));
        let Some(space) = address_space() else {
            return quarter;
        };
        // The first field is the number of pages of address space.
        let sizes = read(Path::new("/proc/self/statm")).unwrap_or_default();
        let pages = sizes.split_whitespace().next().and_then(|n| n.parse().ok());
        let mapped = pages.unwrap_or(0) * rustix::param::page_size() as u64;
        let free = space.saturating_sub(mapped + threads as u64 * STACK);
        quarter.min((free / 2).max(LEAST))
    })
}

/// Returns the limit of `ulimit -v`, if there is one.
fn address_space() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::As).current
}

/// Makes all threads allocate from one arena if the address space is limited. Otherwise glibc's malloc reserves 64 MiB
/// of it for each thread: a thread that needs more gets no memory, and the process is aborted far below its memory
/// limit. To be called before any thread is started.
pub fn fit_address_space() {
    if address_space().is_some() {
        crate::sys::one_arena();
    }
}

/// Starts the thread that returns free pages to the system after a peak. Without it, the allocator would keep the
/// memory that many slow clients once used.
pub fn start_giving_back() -> std::io::Result<()> {
    let giving = std::thread::Builder::new().name("give-back".to_owned());
    let thread = giving.spawn(|| {
        loop {
            std::thread::park();
            // Usually more memory is freed at about the same time.
            std::thread::sleep(Duration::from_secs(1));
            allocated::begin_next_peak();
            crate::sys::give_back_free_pages();
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
            (0, Pressure::None),
            (50 * mega - 1, Pressure::None),
            (50 * mega, Pressure::High),
            (100 * mega - 1, Pressure::High),
            (100 * mega, Pressure::Full),
        ] {
            assert_eq!(pressure_of(used, 100 * mega), pressure, "{used}");
        }
        assert_eq!(pressure_of(1 << 50, u64::MAX), Pressure::None);
    }

    #[test]
    fn a_limit_of_this_machine_is_something_it_has() {
        assert!(auto_limit(2) >= LEAST);
    }
}
