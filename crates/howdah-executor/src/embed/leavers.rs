//! Clients that request scripts and leave while these run. A script that has begun runs to its end, so a few such
//! clients could make all processes of a pool work on abandoned requests. This module counts and remembers these
//! clients; the server decides what such a client may still request.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long an abandoned run must continue to count, in nanoseconds. A load test that ends leaves many short ones at
/// once, which do not affect visitors.
const LONG: u64 = 50_000_000;
/// How long a client is remembered after it has left long-running scripts, in nanoseconds.
const REMEMBERED: u64 = 10_000_000_000;
/// The maximum number of clients that are remembered.
const MOST: usize = 4096;

/// The clients of a pool that leave running scripts. The common path costs two atomic loads. The slower checks run only
/// while half of the pool's processes work on abandoned requests or a client is remembered.
#[derive(Debug)]
pub(crate) struct Leavers {
    /// The number of long abandoned runs at which their clients are remembered.
    many: u32,
    /// The number of runs whose clients have left.
    abandoned: AtomicU32,
    /// When the last client is forgotten; 0 if no client is remembered.
    until: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The runs whose clients have left.
    abandoned: Vec<Abandoned>,
    /// When each client is forgotten.
    clients: HashMap<IpAddr, u64>,
}

/// A run whose client has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Abandoned {
    client: Option<IpAddr>,
    since: u64,
}

impl Leavers {
    pub fn of(processes: u32) -> Leavers {
        Leavers {
            // Half of the processes, and more than one, because any visitor leaves a page now and then.
            many: processes.div_ceil(2).max(2),
            abandoned: AtomicU32::new(0),
            until: AtomicU64::new(0),
            known: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a run's client has left although a process has begun with the run. The result must be passed to
    /// [`Leavers::ended`].
    pub fn left(&self, client: Option<IpAddr>, now: u64) -> Abandoned {
        let run = Abandoned { client, since: now };
        let mut known = self.lock();
        known.abandoned.push(run);
        self.abandoned.fetch_add(1, Ordering::Relaxed);
        self.look(&mut known, now);
        run
    }

    /// Records that the process has finished the run.
    pub fn ended(&self, run: Abandoned, now: u64) {
        let mut known = self.lock();
        self.look(&mut known, now);
        if let Some(at) = known.abandoned.iter().position(|other| *other == run) {
            known.abandoned.swap_remove(at);
            self.abandoned.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Remembers the clients of the abandoned runs if half of the processes have worked on such runs for long.
    fn look(&self, known: &mut Known, now: u64) {
        let Known { abandoned, clients } = known;
        let is_long = |run: &&Abandoned| run.since + LONG <= now;
        let long = || abandoned.iter().filter(is_long);
        if long().count() < self.many as usize {
            return;
        }
        let left = || long().filter_map(|run| run.client);
        if clients.len() >= MOST && left().any(|client| !clients.contains_key(&client)) {
            clients.retain(|_, until| *until > now);
        }
        for client in left() {
            if clients.len() < MOST || clients.contains_key(&client) {
                clients.insert(client, now + REMEMBERED);
                self.until.fetch_max(now + REMEMBERED, Ordering::Relaxed);
            }
        }
    }

    /// Whether this client is remembered. `now` is called only if any client could be.
    pub fn has(&self, client: IpAddr, now: impl FnOnce() -> u64) -> bool {
        let are_many = self.abandoned.load(Ordering::Relaxed) >= self.many;
        if !are_many && self.until.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let now = now();
        let mut known = self.lock();
        if are_many {
            self.look(&mut known, now);
        }
        if self.until.load(Ordering::Relaxed) <= now {
            known.clients.clear();
            self.until.store(0, Ordering::Relaxed);
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
    fn who_leaves_is_remembered_once_half_of_the_processes_have_worked_for_nobody_for_long() {
        let leavers = Leavers::of(4);
        let first = leavers.left(Some(A), 5);
        assert!(!leavers.has(A, || unreachable!("one changes his mind")));
        let second = leavers.left(Some(B), 6);
        assert!(!leavers.has(A, || 5 + LONG), "the other has only left");
        // The next request of any client remembers both.
        let other = IpAddr::from([192, 0, 2, 3]);
        assert!(!leavers.has(other, || 6 + LONG));
        leavers.ended(first, 6 + LONG);
        leavers.ended(second, 6 + LONG);
        let until = 6 + LONG + REMEMBERED;
        assert!(leavers.has(A, || until - 1) && leavers.has(B, || until - 1));
        assert!(!leavers.has(B, || until));
        assert!(leavers.lock().clients.is_empty());
        assert!(!leavers.has(A, || unreachable!("nobody is remembered")));
    }

    #[test]
    fn runs_that_have_lasted_long_tell_of_their_clients_at_their_end() {
        let leavers = Leavers::of(2);
        let runs = [A, B].map(|client| leavers.left(Some(client), 1));
        for run in runs {
            leavers.ended(run, 1 + LONG);
        }
        assert!(leavers.has(A, || 2 + LONG) && leavers.has(B, || 2 + LONG));
    }

    #[test]
    fn a_load_test_that_ends_leaves_short_scripts_and_is_not_remembered() {
        let leavers = Leavers::of(4);
        for round in 0..100 {
            let runs: Vec<_> = (0..4).map(|_| leavers.left(Some(A), round)).collect();
            assert!(!leavers.has(A, || round + LONG - 1));
            runs.into_iter()
                .for_each(|run| leavers.ended(run, round + LONG - 1));
        }
        assert!(!leavers.has(A, || unreachable!("all have ended")));
    }

    #[test]
    fn the_memory_is_bounded_and_has_room_again_later() {
        let leavers = Leavers::of(2);
        let client = |n: usize| IpAddr::from([10, 0, (n >> 8) as u8, n as u8]);
        let nobody = leavers.left(None, 1);
        for n in 0..2 * MOST {
            leavers.left(Some(client(n)), 1);
        }
        let now = 1 + LONG;
        assert!(leavers.has(client(0), || now) && !leavers.has(client(MOST), || now));
        assert_eq!(leavers.lock().clients.len(), MOST);
        let runs = std::mem::take(&mut leavers.lock().abandoned);
        leavers.lock().abandoned.push(nobody);
        leavers.left(Some(A), now);
        assert!(leavers.has(A, || now + REMEMBERED));
        assert_eq!(
            (leavers.lock().clients.len(), runs.len()),
            (1, 2 * MOST + 1)
        );
    }
}
