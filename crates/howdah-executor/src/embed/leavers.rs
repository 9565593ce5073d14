//! Clients who ask for scripts and leave while these run. A script that has begun runs to its end, so a
//! few clients who ask and leave could have all processes of a pool work for nobody. Counts and remembers;
//! the server decides what such a client may still ask for.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long a client is remembered after it has left a script, in nanoseconds.
const REMEMBERED: u64 = 10_000_000_000;
/// Clients that are remembered.
const MOST: usize = 4096;

/// A pool's clients of that kind. Costs a request of anybody one read of memory that hardly ever changes.
#[derive(Debug)]
pub(crate) struct Leavers {
    /// Runs that must be abandoned before a client is remembered.
    many: u32,
    /// Runs whose clients have left.
    abandoned: AtomicU32,
    /// When the last of the clients is forgotten.
    until: AtomicU64,
    /// When each is.
    clients: Mutex<HashMap<IpAddr, u64>>,
}

impl Leavers {
    pub fn of(processes: u32) -> Leavers {
        Leavers {
            // Half of the processes, and more than one: everybody changes his mind now and then.
            many: processes.div_ceil(2).max(2),
            abandoned: AtomicU32::new(0),
            until: AtomicU64::new(0),
            clients: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, u64>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run's client has left, and a process has begun with it. The client is remembered if half of
    /// the processes work for nobody now.
    pub fn left(&self, client: Option<IpAddr>, now: u64) {
        let abandoned = self.abandoned.fetch_add(1, Ordering::Relaxed) + 1;
        let (Some(client), true) = (client, abandoned >= self.many) else {
            return;
        };
        let mut clients = self.lock();
        if clients.len() >= MOST {
            clients.retain(|_, until| *until > now);
        }
        if clients.len() < MOST || clients.contains_key(&client) {
            clients.insert(client, now + REMEMBERED);
            self.until.fetch_max(now + REMEMBERED, Ordering::Relaxed);
        }
    }

    /// The process is done with a run for which [`Leavers::left`] was called.
    pub fn ended(&self) {
        self.abandoned.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether this client is remembered; `now` is read only if anybody is.
    pub fn has(&self, client: IpAddr, now: impl FnOnce() -> u64) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 {
            return false;
        }
        let now = now();
        if until > now {
            return self.lock().get(&client).is_some_and(|until| *until > now);
        }
        let mut clients = self.lock();
        if self.until.load(Ordering::Relaxed) == until {
            clients.clear();
            self.until.store(0, Ordering::Relaxed);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn who_leaves_is_remembered_while_half_of_the_processes_work_for_nobody() {
        let leavers = Leavers::of(4);
        leavers.left(Some(A), 5);
        assert!(!leavers.has(A, || unreachable!("nobody is remembered")));
        leavers.left(Some(B), 6);
        assert!(!leavers.has(A, || 7));
        assert!(leavers.has(B, || 7));
        leavers.ended();
        leavers.ended();
        assert!(leavers.has(B, || 5 + REMEMBERED));
        assert!(!leavers.has(B, || 6 + REMEMBERED));
        assert!(leavers.lock().is_empty());
    }

    #[test]
    fn the_memory_is_bounded_and_has_room_again_later() {
        let leavers = Leavers::of(2);
        leavers.left(None, 1);
        let client = |n: usize| IpAddr::from([10, 0, (n >> 8) as u8, n as u8]);
        for n in 0..2 * MOST {
            leavers.left(Some(client(n)), 1);
        }
        assert_eq!(leavers.lock().len(), MOST);
        assert!(leavers.has(client(0), || 2) && !leavers.has(client(MOST), || 2));
        leavers.left(Some(A), 1 + REMEMBERED);
        assert_eq!(leavers.lock().len(), 1);
    }
}
