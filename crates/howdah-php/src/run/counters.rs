//! Counters of a server's workers in shared memory: written by each worker for itself, read by all
//! (`$server->stats()`), and by the manager. Lock-free; a dead worker's count stays until its
//! successor begins.

use std::sync::atomic::{AtomicU64, Ordering};

use howdah_os::mapping::shared_counters;

/// What is counted; each worker has a cell for each counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Connections that are open now.
    Connections,
    /// Connections accepted since the start.
    Accepted,
    /// Connections closed since the start.
    Closed,
    /// Requests received since the start.
    Requests,
    /// Requests ever refused as bad.
    Refused,
    /// The worker's process id.
    Pid,
    /// 1 when `workerStart` has returned, 0 before.
    Ready,
    /// Since when the script runs (ms), or 0: the worker looks at its connections.
    Called,
}

const COUNTERS: usize = 8;

/// One worker's view of all counters.
#[derive(Clone, Copy, Debug)]
pub struct Counters {
    cells: &'static [AtomicU64],
    own: usize,
}

impl Counters {
    /// Makes the counters of `workers` workers, before these are forked.
    pub fn new(workers: u64) -> std::io::Result<Counters> {
        Ok(Counters {
            cells: shared_counters(workers as usize * COUNTERS)?,
            own: 0,
        })
    }

    /// The same counters, seen as worker `number`.
    pub fn of(self, number: u64) -> Counters {
        Counters {
            own: number as usize,
            ..self
        }
    }

    fn cell(&self, worker: usize, counter: Counter) -> &AtomicU64 {
        &self.cells[worker * COUNTERS + counter as usize]
    }

    /// Adds `n` to this worker's counter.
    pub fn add(&self, counter: Counter, n: u64) {
        // A leaving worker and its successor share a cell for a while.
        self.cell(self.own, counter).fetch_add(n, Ordering::Relaxed);
    }

    /// Sets this worker's counter to `n`.
    pub fn set(&self, counter: Counter, n: u64) {
        self.cell(self.own, counter).store(n, Ordering::Relaxed);
    }

    /// The value of this worker's counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.cell(self.own, counter).load(Ordering::Relaxed)
    }

    /// The fewest connections that another worker has which is ready and could take one: it has
    /// not been in its script since before `then` (ms).
    pub fn fewest_elsewhere(&self, then: u64) -> Option<u64> {
        let of = |worker, counter| self.cell(worker, counter).load(Ordering::Relaxed);
        (0..self.cells.len() / COUNTERS)
            .filter(|worker| *worker != self.own && of(*worker, Counter::Ready) == 1)
            .filter(|worker| !(1..then).contains(&of(*worker, Counter::Called)))
            .map(|worker| of(worker, Counter::Connections))
            .min()
    }

    /// The sum of a counter over all workers.
    pub fn sum(&self, counter: Counter) -> u64 {
        (0..self.cells.len() / COUNTERS)
            .map(|worker| self.cell(worker, counter).load(Ordering::Relaxed))
            .sum()
    }
}
