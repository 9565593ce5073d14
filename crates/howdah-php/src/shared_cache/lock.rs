//! A lock in shared memory for which no process waits longer than [`MAX_LOCK_WAIT`]. The lock is a word with the id of
//! the process that holds it. The zygote, which is notified when a child exits, releases the locks that the child held.
//! A process that waits in vain checks whether the holder still exists, because the zygote may have died too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a process waits for the lock: longer than copying a value takes, even when more processes than cores want
/// to run, and shorter than a visitor notices.
const MAX_LOCK_WAIT: Duration = Duration::from_millis(20);
/// Attempts before the process yields to another one.
const SPINS_BEFORE_YIELD: u32 = 100;

/// A lock that this process holds until the value is dropped.
#[derive(Debug)]
pub struct SharedLockGuard<'a>(&'a AtomicU64);

impl Drop for SharedLockGuard<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Takes the lock for process `pid`. Returns `Ok(None)` if another process holds it for longer than [`MAX_LOCK_WAIT`],
/// and `Err` with that process's id if `exists` says that the process is gone.
pub fn acquire(
    word: &AtomicU64,
    pid: u32,
    exists: impl Fn(u32) -> bool,
) -> Result<Option<SharedLockGuard<'_>>, u32> {
    let mut since = None;
    loop {
        for _ in 0..SPINS_BEFORE_YIELD {
            let free = word.load(Ordering::Relaxed) == 0;
            let taken = free
                && word
                    .compare_exchange(0, u64::from(pid), Ordering::Acquire, Ordering::Relaxed)
                    .is_ok();
            if taken {
                return Ok(Some(SharedLockGuard(word)));
            }
            std::hint::spin_loop();
        }
        let since = *since.get_or_insert_with(Instant::now);
        if since.elapsed() > MAX_LOCK_WAIT {
            let holder = word.load(Ordering::Relaxed) as u32;
            return match holder {
                0 => Ok(None),
                holder if exists(holder) => Ok(None),
                holder => Err(holder),
            };
        }
        std::thread::yield_now();
    }
}

/// If process `pid`, which has exited, held the lock, takes it over under the id `own`. The caller then repairs what
/// the lock protects.
pub fn take_over(word: &AtomicU64, pid: u32, own: u32) -> Option<SharedLockGuard<'_>> {
    word.compare_exchange(
        u64::from(pid),
        u64::from(own),
        Ordering::Acquire,
        Ordering::Relaxed,
    )
    .ok()
    .map(|_| SharedLockGuard(word))
}
