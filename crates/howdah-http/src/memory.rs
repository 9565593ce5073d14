//! One bound for all that the front keeps on its heap, whoever keeps it: an allocator that counts.
//! What a connection, a body or an answer may take has limits of its own; this one holds when there
//! are many of them, and for what nobody has thought of.
//!
//! ```text
//! below 1/2 of it   as configured
//! above             bodies and answers of slow clients go to files at once, and a head longer than a
//!                   few KiB is not waited for: whoever asks is still answered
//! all of it         clients that take nothing of their answers are cut off, those who hold most within a
//!                   second (`ClientTooSlow`); new requests are refused until there is room: 503 MemoryLimit
//! ```
//! The upper half has room for what nobody can do without: connections and short heads
//! ([`connections`]).

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::allocated;
pub use crate::sys::Counting;

/// Address space of a thread's stack.
const STACK: u64 = 2 << 20;
/// The least bound that a limited address space makes.
const LEAST: u64 = 8 << 20;
/// Heads up to this length are taken under pressure, too: browsers' are shorter.
pub const SHORT_HEAD: usize = 4 << 10;
/// Bytes of a connection that keeps little: itself, a request's state, a buffer.
const CONNECTION: u64 = 16 << 10;
/// Bytes of an answer, or of a body, that wait in memory under pressure.
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

/// How much of the limit is used at this moment.
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

/// What of `bytes` that were to wait in memory may do so now.
pub fn allowance(bytes: usize) -> usize {
    match pressure() {
        Pressure::None => bytes,
        _ => bytes.min(SPARSE),
    }
}

/// Bytes in use now. 0 where [`Counting`] is not the program's allocator.
pub fn used() -> u64 {
    allocated::used()
}

/// Connections that fit the upper half, with a short head or a little of an answer each.
pub fn connections() -> u64 {
    LIMIT.load(Relaxed) / CONNECTION / 2
}

/// Sets the bound; `u64::MAX` is none.
pub fn set_limit(bytes: u64) {
    LIMIT.store(bytes, Relaxed);
}

/// The limit in bytes, if there is one.
pub fn limit() -> Option<u64> {
    Some(LIMIT.load(Relaxed)).filter(|limit| *limit != u64::MAX)
}

/// `limits.memory = auto`: a quarter of the machine's memory, or of what the control group may use,
/// at least 64 MiB; of a limited address space at most half of what is free of it when this is
/// called first, before `threads` have their stacks.
pub fn auto_limit(threads: usize) -> u64 {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        let memory = howdah_os::machine::memory(read);
        let quarter = memory.map_or(u64::MAX, |bytes| (bytes / 4).max(64 << 20));
        let Some(space) = address_space() else {
            return quarter;
        };
        // The first field: pages of address space.
        let sizes = read(Path::new("/proc/self/statm")).unwrap_or_default();
        let pages = sizes.split_whitespace().next().and_then(|n| n.parse().ok());
        let mapped = pages.unwrap_or(0) * rustix::param::page_size() as u64;
        let free = space.saturating_sub(mapped + threads as u64 * STACK);
        quarter.min((free / 2).max(LEAST))
    })
}

/// What `ulimit -v` leaves a process.
fn address_space() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::As).current
}

/// In a limited address space, has all threads allocate from one arena. glibc's malloc reserves
/// 64 MiB of it for each thread otherwise: a thread that needs more finds none, and the process is
/// aborted far below its memory limit. Called before any thread is started.
pub fn fit_address_space() {
    if address_space().is_some() {
        crate::sys::one_arena();
    }
}

/// Starts the thread that gives free pages back to the system after a peak: the allocator keeps
/// them for itself, and what many slow clients once took would stay with the front.
pub fn start_giving_back() -> std::io::Result<()> {
    let giving = std::thread::Builder::new().name("give-back".to_owned());
    let thread = giving.spawn(|| {
        loop {
            std::thread::park();
            // More is mostly freed together.
            std::thread::sleep(Duration::from_secs(1));
            allocated::begin_next_peak();
            crate::sys::give_back_free_pages();
        }
    })?;
    // Started once: a second thread would sleep for ever.
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
