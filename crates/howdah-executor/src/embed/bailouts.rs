//! Clients whose scripts make PHP bail out repeatedly. Each such run costs its process, and the fork of another one
//! takes a processor for two milliseconds. A client that exhausts the memory limit two hundred times a second would
//! make the pages of other visitors wait.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The allowed rate: one bailout of a client in this many nanoseconds, which is ten a second.
const BAILOUT_INTERVAL_NS: u64 = 100_000_000;
/// How many bailouts a client may have at once beyond that rate: twenty, expressed in nanoseconds of the rate.
const BURST_NS: u64 = 20 * BAILOUT_INTERVAL_NS;
/// The maximum number of clients that are tracked.
const MAX_TRACKED_CLIENTS: usize = 4096;

/// A client has to wait, because PHP has bailed out of too many of its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyBailouts {
    /// The time until its next request is accepted.
    pub wait: Duration,
    /// Whether this is the first request that has to wait since the client's bailouts began.
    pub is_first: bool,
}

/// The clients of a pool whose scripts bail out. While no client has to wait, a request costs one atomic load here.
#[derive(Debug, Default)]
pub(crate) struct Bailouts {
    /// When the last client no longer has to wait; 0 if no client has to.
    until: AtomicU64,
    clients: Mutex<HashMap<IpAddr, ClientBailouts>>,
}

#[derive(Debug, Default)]
struct ClientBailouts {
    /// When the allowed rate will have caught up with all of the client's bailouts.
    due: u64,
    is_reported: bool,
}

impl Bailouts {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, ClientBailouts>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that PHP has bailed out of a run of this client.
    pub fn count(&self, client: IpAddr, now: u64) {
        let mut clients = self.lock();
        if clients.len() >= MAX_TRACKED_CLIENTS && !clients.contains_key(&client) {
            clients.retain(|_, counted| counted.due > now);
            if clients.len() >= MAX_TRACKED_CLIENTS {
                return;
            }
        }
        let counted = clients.entry(client).or_default();
        counted.is_reported &= counted.due > now;
        counted.due = counted.due.max(now) + BAILOUT_INTERVAL_NS;
        if counted.due > now + BURST_NS {
            self.until
                .fetch_max(counted.due - BURST_NS, Ordering::Relaxed);
        }
    }

    /// Returns whether this client has to wait. `now` is called only if some client has to.
    pub fn too_many(&self, client: IpAddr, now: impl FnOnce() -> u64) -> Option<TooManyBailouts> {
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 {
            return None;
        }
        let now = now();
        if until <= now {
            // Keeps a later value that another thread has stored meanwhile.
            let _ = self
                .until
                .compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
            return None;
        }
        let mut clients = self.lock();
        let counted = clients.get_mut(&client)?;
        let wait = counted.due.saturating_sub(BURST_NS).saturating_sub(now);
        if wait == 0 {
            return None;
        }
        Some(TooManyBailouts {
            wait: Duration::from_nanos(wait),
            is_first: !std::mem::replace(&mut counted.is_reported, true),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn client_waits_after_more_than_ten_bailouts_a_second() {
        let bailouts = Bailouts::default();
        for _ in 0..20 {
            bailouts.count(A, 5);
        }
        assert_eq!(bailouts.too_many(A, || unreachable!("nobody waits")), None);
        bailouts.count(A, 5);
        let told = |is_news| {
            let wait = Duration::from_nanos(BAILOUT_INTERVAL_NS);
            Some(TooManyBailouts {
                wait,
                is_first: is_news,
            })
        };
        assert_eq!(bailouts.too_many(B, || 5), None);
        assert_eq!(bailouts.too_many(A, || 5), told(true));
        assert_eq!(bailouts.too_many(A, || 5), told(false), "once");
        assert_eq!(bailouts.too_many(A, || 5 + BAILOUT_INTERVAL_NS), None);
        assert_eq!(bailouts.too_many(A, || unreachable!("nobody waits")), None);
        // The client regains its bailouts one by one.
        bailouts.count(A, 5 + BAILOUT_INTERVAL_NS);
        assert_eq!(
            bailouts.too_many(A, || 5 + BAILOUT_INTERVAL_NS),
            told(false)
        );
        let later = 5 + 30 * BAILOUT_INTERVAL_NS;
        (0..21).for_each(|_| bailouts.count(A, later));
        assert_eq!(bailouts.too_many(A, || later), told(true), "again");
    }

    #[test]
    fn tracked_clients_are_limited_and_expire() {
        let bailouts = Bailouts::default();
        let client = |n: usize| IpAddr::from([10, 0, (n >> 8) as u8, n as u8]);
        for n in 0..2 * MAX_TRACKED_CLIENTS {
            bailouts.count(client(n), 1);
        }
        assert_eq!(bailouts.lock().len(), MAX_TRACKED_CLIENTS);
        bailouts.count(A, 2 + BAILOUT_INTERVAL_NS);
        assert_eq!(bailouts.lock().len(), 1);
    }
}
