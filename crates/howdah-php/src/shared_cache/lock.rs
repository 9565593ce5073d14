//! A lock in shared memory, which no process waits for longer than [`PATIENCE`]: a word with the number of
//! the process that holds it. The zygote, which learns of each child's end, gives back what it held; who
//! waits in vain looks whether that process still exists, for a zygote may end, too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longer than a value is copied, also where more processes than cores want to run; shorter than a visitor
/// notices.
const PATIENCE: Duration = Duration::from_millis(20);
/// Tries before another process is let run.
const SPINS: u32 = 100;

/// A lock that this process holds until it is dropped.
#[derive(Debug)]
pub struct Held<'a>(&'a AtomicU64);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Takes the lock for process `pid`; none: another holds it for longer than [`PATIENCE`], or `Err` of its number if
/// `exists` does not know that process.
pub fn take(
    word: &AtomicU64,
    pid: u32,
    exists: impl Fn(u32) -> bool,
) -> Result<Option<Held<'_>>, u32> {
    let mut since = None;
    loop {
        for _ in 0..SPINS {
            let free = word.load(Ordering::Relaxed) == 0;
            let taken = free
                && word
                    .compare_exchange(0, u64::from(pid), Ordering::Acquire, Ordering::Relaxed)
                    .is_ok();
            if taken {
                return Ok(Some(Held(word)));
            }
            std::hint::spin_loop();
        }
        let since = *since.get_or_insert_with(Instant::now);
        if since.elapsed() > PATIENCE {
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

/// Whether process `pid`, which has ended, held the lock: then it is the caller's, to put in order what it
/// protects, under the number `own`.
pub fn take_over(word: &AtomicU64, pid: u32, own: u32) -> Option<Held<'_>> {
    word.compare_exchange(
        u64::from(pid),
        u64::from(own),
        Ordering::Acquire,
        Ordering::Relaxed,
    )
    .ok()
    .map(|_| Held(word))
}
