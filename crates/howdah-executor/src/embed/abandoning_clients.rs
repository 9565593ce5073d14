//! Clients that request scripts and leave while the scripts run. A script that has begun runs to its end, so a few such
//! clients could make all processes of a pool work on abandoned requests. This module counts and remembers these
//! clients; the server decides what such a client may still request.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long a run must continue after its client has disconnected before it counts as long, in nanoseconds. A load test
/// that ends leaves many short runs at once, which do not affect visitors.
const LONG_RUN_NS: u64 = 50_000_000;
/// How long a client is remembered after it has left long-running scripts, in nanoseconds.
const REMEMBERED_FOR_NS: u64 = 10_000_000_000;
/// The maximum number of clients that are remembered.
const MAX_REMEMBERED_CLIENTS: usize = 4096;

/// The clients of a pool that leave running scripts. The common path costs two atomic loads. The slower checks run only
/// while half of the pool's processes work on abandoned requests or a client is remembered.
#[derive(Debug)]
pub(crate) struct AbandoningClients {
    /// The number of long abandoned runs at which their clients are remembered.
    threshold: u32,
    /// The number of runs whose clients have disconnected.
    abandoned: AtomicU32,
    /// When the last client is forgotten; 0 if no client is remembered.
    remembered_until: AtomicU64,
    records: Mutex<AbandonmentRecords>,
}

#[derive(Debug, Default)]
struct AbandonmentRecords {
    /// The runs whose clients have disconnected.
    abandoned: Vec<AbandonedRun>,
    /// When each client is forgotten.
    clients: HashMap<IpAddr, u64>,
}

/// A run whose client has disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AbandonedRun {
    client: Option<IpAddr>,
    since: u64,
}

impl AbandoningClients {
    pub fn new(processes: u32) -> AbandoningClients {
        AbandoningClients {
            // Half of the processes, and more than one, because any visitor leaves a page now and then.
            threshold: processes.div_ceil(2).max(2),
            abandoned: AtomicU32::new(0),
            remembered_until: AtomicU64::new(0),
            records: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, AbandonmentRecords> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a run's client has disconnected although a process has begun with the run. The result must be
    /// passed to [`AbandoningClients::record_end`].
    pub fn record_abandoned(&self, client: Option<IpAddr>, now: u64) -> AbandonedRun {
        let run = AbandonedRun { client, since: now };
        let mut known = self.lock();
        known.abandoned.push(run);
        self.abandoned.fetch_add(1, Ordering::Relaxed);
        self.remember_clients(&mut known, now);
        run
    }

    /// Records that the process has finished the run.
    pub fn record_end(&self, run: AbandonedRun, now: u64) {
        let mut known = self.lock();
        self.remember_clients(&mut known, now);
        if let Some(at) = known.abandoned.iter().position(|other| *other == run) {
            known.abandoned.swap_remove(at);
            self.abandoned.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Remembers the clients of the long abandoned runs, if half of the processes work on such runs.
    fn remember_clients(&self, known: &mut AbandonmentRecords, now: u64) {
        let AbandonmentRecords { abandoned, clients } = known;
        let is_long = |run: &&AbandonedRun| run.since + LONG_RUN_NS <= now;
        let long = || abandoned.iter().filter(is_long);
        if long().count() < self.threshold as usize {
            return;
        }
        let left = || long().filter_map(|run| run.client);
        if clients.len() >= MAX_REMEMBERED_CLIENTS
            && left().any(|client| !clients.contains_key(&client))
        {
            clients.retain(|_, until| *until > now);
        }
        for client in left() {
            if clients.len() < MAX_REMEMBERED_CLIENTS || clients.contains_key(&client) {
                clients.insert(client, now + REMEMBERED_FOR_NS);
                self.remembered_until
                    .fetch_max(now + REMEMBERED_FOR_NS, Ordering::Relaxed);
            }
        }
    }

    /// Returns whether this client is remembered. `now` is called only if any client could be.
    pub fn contains(&self, client: IpAddr, now: impl FnOnce() -> u64) -> bool {
        let are_many = self.abandoned.load(Ordering::Relaxed) >= self.threshold;
        if !are_many && self.remembered_until.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let now = now();
        let mut known = self.lock();
        if are_many {
            self.remember_clients(&mut known, now);
        }
        if self.remembered_until.load(Ordering::Relaxed) <= now {
            known.clients.clear();
            self.remembered_until.store(0, Ordering::Relaxed);
        }
        known.clients.get(&client).is_some_and(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn client_is_remembered_once_half_of_the_processes_run_long_abandoned_scripts() {
        let leavers = AbandoningClients::new(4);
        let first = leavers.record_abandoned(Some(A), 5);
        assert!(!leavers.contains(A, || unreachable!("one changes his mind")));
        let second = leavers.record_abandoned(Some(B), 6);
        assert!(
            !leavers.contains(A, || 5 + LONG_RUN_NS),
            "the other has only left"
        );
        // Any client's next request makes the pool remember both clients.
        let other = IpAddr::from([192, 0, 2, 3]);
        assert!(!leavers.contains(other, || 6 + LONG_RUN_NS));
        leavers.record_end(first, 6 + LONG_RUN_NS);
        leavers.record_end(second, 6 + LONG_RUN_NS);
        let until = 6 + LONG_RUN_NS + REMEMBERED_FOR_NS;
        assert!(leavers.contains(A, || until - 1) && leavers.contains(B, || until - 1));
        assert!(!leavers.contains(B, || until));
        assert!(leavers.lock().clients.is_empty());
        assert!(!leavers.contains(A, || unreachable!("nobody is remembered")));
    }

    #[test]
    fn long_abandoned_runs_mark_their_clients_at_their_end() {
        let leavers = AbandoningClients::new(2);
        let runs = [A, B].map(|client| leavers.record_abandoned(Some(client), 1));
        for run in runs {
            leavers.record_end(run, 1 + LONG_RUN_NS);
        }
        assert!(leavers.contains(A, || 2 + LONG_RUN_NS) && leavers.contains(B, || 2 + LONG_RUN_NS));
    }

    #[test]
    fn client_that_abandons_short_scripts_is_not_remembered() {
        let leavers = AbandoningClients::new(4);
        for round in 0..100 {
            let runs: Vec<_> = (0..4)
                .map(|_| leavers.record_abandoned(Some(A), round))
                .collect();
            assert!(!leavers.contains(A, || round + LONG_RUN_NS - 1));
            runs.into_iter()
                .for_each(|run| leavers.record_end(run, round + LONG_RUN_NS - 1));
        }
        assert!(!leavers.contains(A, || unreachable!("all have ended")));
    }

    #[test]
    fn remembered_clients_are_limited_and_expire() {
        let leavers = AbandoningClients::new(2);
        let client = |n: usize| IpAddr::from([10, 0, (n >> 8) as u8, n as u8]);
        let nobody = leavers.record_abandoned(None, 1);
        for n in 0..2 * MAX_REMEMBERED_CLIENTS {
            leavers.record_abandoned(Some(client(n)), 1);
        }
        let now = 1 + LONG_RUN_NS;
        assert!(
            leavers.contains(client(0), || now)
                && !leavers.contains(client(MAX_REMEMBERED_CLIENTS), || now)
        );
        assert_eq!(leavers.lock().clients.len(), MAX_REMEMBERED_CLIENTS);
        let runs = std::mem::take(&mut leavers.lock().abandoned);
        leavers.lock().abandoned.push(nobody);
        leavers.record_abandoned(Some(A), now);
        assert!(leavers.contains(A, || now + REMEMBERED_FOR_NS));
        assert_eq!(
            (leavers.lock().clients.len(), runs.len()),
            (1, 2 * MAX_REMEMBERED_CLIENTS + 1)
        );
    }
}
