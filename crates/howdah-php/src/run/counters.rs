//! Counters of a server's workers in shared memory. Each worker writes its own; all workers (`$server->stats()`) and
//! the manager read them. They are lock-free, and a dead worker's counts stay until its successor begins.

use std::sync::atomic::{AtomicU64, Ordering};

use howdah_os::mapping::shared_counters;

/// The counters; each worker has a cell for each of them.
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
    /// Requests refused as malformed, too large or too slow since the start.
    Refused,
    /// 1 once `workerStart` has returned, 0 before.
    Ready,
    /// When the current call of the script began (ms); 0 while the worker handles its connections.
    ScriptCalledAt,
}

const COUNTERS_PER_WORKER: usize = 7;

/// One worker's view of all counters.
#[derive(Clone, Copy, Debug)]
pub struct WorkerCounters {
    cells: &'static [AtomicU64],
    own: usize,
}

impl WorkerCounters {
    /// Creates the counters of `workers` workers, before the workers are forked.
    pub fn new(workers: u64) -> std::io::Result<WorkerCounters> {
        Ok(WorkerCounters {
            cells: shared_counters(workers as usize * COUNTERS_PER_WORKER)?,
            own: 0,
        })
    }

    /// Returns the same counters, with worker `number` as the owner.
    pub fn for_worker(self, number: u64) -> WorkerCounters {
        WorkerCounters {
            own: number as usize,
            ..self
        }
    }

    fn cell(&self, worker: usize, counter: Counter) -> &AtomicU64 {
        &self.cells[worker * COUNTERS_PER_WORKER + counter as usize]
    }

    /// Adds `n` to this worker's counter.
    pub fn add(&self, counter: Counter, n: u64) {
        // A leaving worker and its successor share a cell for a while, so this must be an atomic addition.
        self.cell(self.own, counter).fetch_add(n, Ordering::Relaxed);
    }

    /// Sets this worker's counter to `n`.
    pub fn set(&self, counter: Counter, n: u64) {
        self.cell(self.own, counter).store(n, Ordering::Relaxed);
    }

    /// Returns the value of this worker's counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.cell(self.own, counter).load(Ordering::Relaxed)
    }

    /// Returns the smallest number of connections among the other workers that are ready and can accept one. A worker
    /// that has been in its script since before `then` (ms) cannot.
    pub fn fewest_connections_elsewhere(&self, then: u64) -> Option<u64> {
        let of = |worker, counter| self.cell(worker, counter).load(Ordering::Relaxed);
        (0..self.cells.len() / COUNTERS_PER_WORKER)
            .filter(|worker| *worker != self.own && of(*worker, Counter::Ready) == 1)
            .filter(|worker| !(1..then).contains(&of(*worker, Counter::ScriptCalledAt)))
            .map(|worker| of(worker, Counter::Connections))
            .min()
    }

    /// Returns the sum of a counter over all workers.
    pub fn sum(&self, counter: Counter) -> u64 {
        (0..self.cells.len() / COUNTERS_PER_WORKER)
            .map(|worker| self.cell(worker, counter).load(Ordering::Relaxed))
            .sum()
    }
}
