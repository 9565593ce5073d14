//! The connections of one front thread, as a whole: how many, which are idle, and whether they are
//! to end. Costs a request two relaxed stores and a load; ending connections wakes their tasks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::sync::Notify;
use tokio::time::Instant;

// 0: serving.
const DRAINING: u8 = 1;
const KILLED: u8 = 2;

/// Idle connections closed at once when the limit of connections is reached (nginx: 32).
const EVICT: usize = 32;

/// See the module.
pub(crate) struct Lifecycle {
    state: AtomicU8,
    places: Mutex<HashMap<u64, (Waker, Arc<Place>)>>,
    open: AtomicUsize,
    empty: Notify,
    begun: Instant,
    /// Connections accepted so far.
    pub(crate) accepted: AtomicU64,
    /// Requests handed to the handler so far.
    pub(crate) requests: AtomicU64,
    /// Requests refused so far.
    pub(crate) refused: AtomicU64,
}

/// What others may know of a connection.
#[derive(Default)]
struct Place {
    /// Microseconds after [`Lifecycle::begun`], plus one; 0 while it is not idle.
    idle_since: AtomicU64,
    evicted: AtomicBool,
}

impl Default for Lifecycle {
    fn default() -> Lifecycle {
        Lifecycle {
            state: AtomicU8::default(),
            places: Mutex::default(),
            open: AtomicUsize::default(),
            empty: Notify::default(),
            begun: Instant::now(),
            accepted: AtomicU64::default(),
            requests: AtomicU64::default(),
            refused: AtomicU64::default(),
        }
    }
}

impl Lifecycle {
    /// Idle connections are to close, others after the request in progress.
    pub(crate) fn is_draining(&self) -> bool {
        self.state.load(Ordering::Relaxed) >= DRAINING
    }

    /// Connections are to vanish.
    pub(crate) fn is_killed(&self) -> bool {
        self.state.load(Ordering::Relaxed) == KILLED
    }

    pub(crate) fn drain(&self) {
        self.enter(DRAINING);
    }

    pub(crate) fn kill(&self) {
        self.enter(KILLED);
    }

    fn enter(&self, state: u8) {
        self.state.fetch_max(state, Ordering::Relaxed);
        let wakers: Vec<Waker> = self.places().values().map(|(w, _)| w.clone()).collect();
        for waker in wakers {
            waker.wake();
        }
    }

    /// Closes the connections that have been idle the longest, a few, to make room for new ones;
    /// how many there were to close.
    pub(crate) fn evict_idle(&self) -> usize {
        let mut idle: Vec<(u64, Waker, Arc<Place>)> = self
            .places()
            .values()
            .filter_map(|(waker, place)| {
                let since = place.idle_since.load(Ordering::Relaxed);
                (since > 0).then(|| (since, waker.clone(), place.clone()))
            })
            .collect();
        if idle.len() > EVICT {
            idle.select_nth_unstable_by_key(EVICT, |(since, ..)| *since);
            idle.truncate(EVICT);
        }
        for (_, waker, place) in &idle {
            place.evicted.store(true, Ordering::Relaxed);
            waker.wake_by_ref();
        }
        idle.len()
    }

    fn places(&self) -> MutexGuard<'_, HashMap<u64, (Waker, Arc<Place>)>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a connection until the returned value is dropped.
    pub(crate) fn enrol(self: &Arc<Self>, id: u64) -> Enrolled {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Enrolled {
            life: self.clone(),
            place: Arc::default(),
            id,
        }
    }

    /// Returns when no connection is open.
    pub(crate) async fn until_empty(&self) {
        loop {
            let changed = self.empty.notified();
            if self.open() == 0 {
                return;
            }
            changed.await;
        }
    }
}

/// One connection's place among the others.
pub(crate) struct Enrolled {
    pub(crate) life: Arc<Lifecycle>,
    place: Arc<Place>,
    id: u64,
}

impl Enrolled {
    /// The connection's task, to be woken when it is to end.
    pub(crate) fn set_task(&self, waker: &Waker) {
        let entry = (waker.clone(), self.place.clone());
        self.life.places().insert(self.id, entry);
    }

    /// The connection waits for its next request since `now`.
    pub(crate) fn set_idle(&self, now: Instant) {
        let since = now.saturating_duration_since(self.life.begun).as_micros() as u64 + 1;
        self.place.idle_since.store(since, Ordering::Relaxed);
    }

    /// A request has come.
    pub(crate) fn set_busy(&self) {
        self.place.idle_since.store(0, Ordering::Relaxed);
    }

    /// An idle connection is to close, for all or to make room for others.
    pub(crate) fn is_to_close(&self) -> bool {
        self.life.is_draining() || self.place.evicted.load(Ordering::Relaxed)
    }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        self.life.places().remove(&self.id);
        if self.life.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.life.empty.notify_waiters();
        }
    }
}
