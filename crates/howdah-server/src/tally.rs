//! One number that all threads count. Each thread counts in a share of its own, so that two front
//! threads do not pass a cache line to and fro for every request; a reader adds the shares up.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

/// Shares of a number.
pub(crate) const SHARES: usize = 16;

/// A number, counted by all threads.
#[derive(Debug, Default)]
pub(crate) struct Tally([CachePadded<AtomicU64>; SHARES]);

impl Tally {
    /// Counts one more, in the share of the calling thread.
    pub(crate) fn add(&self) {
        self.0[share_of_this_thread()].fetch_add(1, Ordering::Relaxed);
    }

    /// The sum over all threads.
    pub(crate) fn sum(&self) -> u64 {
        let shares = self.0.iter();
        shares.map(|share| share.load(Ordering::Relaxed)).sum()
    }
}

/// Which share the calling thread counts in.
pub(crate) fn share_of_this_thread() -> usize {
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
