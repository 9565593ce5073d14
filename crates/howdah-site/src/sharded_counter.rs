//! A counter for all threads. Each thread counts in a share of its own, so two front threads do not bounce a cache line
//! for every request; a reader adds up the shares.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

/// The number of shares of a counter.
pub const SHARES: usize = 16;

/// A counter that all threads increment.
#[derive(Debug, Default)]
pub struct ShardedCounter([CachePadded<AtomicU64>; SHARES]);

impl ShardedCounter {
    /// Adds one to the share of the calling thread.
    pub fn increment(&self) {
        self.0[share_of_this_thread()].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the sum over all threads.
    pub fn sum(&self) -> u64 {
        let shares = self.0.iter();
        shares.map(|share| share.load(Ordering::Relaxed)).sum()
    }
}

/// Returns the index of the calling thread's share.
pub fn share_of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: Cell<usize> = const { Cell::new(usize::MAX) });
    let mine = MINE.get();
    if mine != usize::MAX {
        return mine;
    }
    let mine = NEXT.fetch_add(1, Ordering::Relaxed) % SHARES;
    MINE.set(mine);
    mine
}
