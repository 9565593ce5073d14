//! The connections of one front thread, as a whole: how many, which wait for their client, and whether
//! they are to end. Costs a request a lock that nobody else wants until connections are too many;
//! ending connections wakes their tasks.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::deadline::Deadline;
use super::eviction::{EvictionQueue, EvictionQueues, Place};
use super::slots::Slot;

// 0: serving.
const DRAINING: u8 = 1;
const KILLED: u8 = 2;

/// A connection that owes the server something for this long is closed before those that have been
/// answered. A client's first request is there within a round trip or two; browsers connect in
/// advance and know that such a connection may be closed.
const PATIENCE: Duration = Duration::from_secs(2);

/// The connections of one front thread.
#[derive(Default)]
pub(crate) struct Lifecycle {
    state: AtomicU8,
    /// When connections that wait for their clients close, once it drains: `u64::MAX` less the microseconds.
    closes_in_reverse: AtomicU64,
    waiting: Mutex<EvictionQueues>,
    open: AtomicUsize,
    empty: Notify,
    /// Connections accepted so far.
    pub(crate) accepted: AtomicU64,
    /// Requests handed to the handler so far.
    pub(crate) requests: AtomicU64,
    /// Requests that were refused before a handler saw them, since the start.
    pub(crate) refused: AtomicU64,
}

/// Has the connection close that has waited longest for its client, of all threads': those that owe the
/// server a request for more than [`PATIENCE`] first. Its place is the caller's for `overdraft`, which
/// it keeps until it is gone. None: all connections answer requests.
pub(crate) fn make_room(all: &[Arc<Lifecycle>], overdraft: Slot) -> Option<Slot> {
    let (life, queue) = late(all).or_else(|| {
        let queues = [
            oldest(all, EvictionQueue::Owing),
            oldest(all, EvictionQueue::Idle),
        ];
        let (_, life, queue) = queues
            .into_iter()
            .flatten()
            .min_by_key(|(since, ..)| *since)?;
        Some((life, queue))
    })?;
    life.evict(queue, Some(overdraft))
}

/// Has a connection close that has owed the server a request for more than [`PATIENCE`]; whether there
/// was one.
pub(crate) fn make_room_in_advance(all: &[Arc<Lifecycle>]) -> bool {
    match late(all) {
        Some((life, queue)) => {
            life.evict(queue, None);
            true
        }
        None => false,
    }
}

fn oldest(
    all: &[Arc<Lifecycle>],
    queue: EvictionQueue,
) -> Option<(u64, &Arc<Lifecycle>, EvictionQueue)> {
    all.iter()
        .filter_map(|life| Some((life.waiting().oldest(queue)?, life, queue)))
        .min_by_key(|(since, ..)| *since)
}

fn late(all: &[Arc<Lifecycle>]) -> Option<(&Arc<Lifecycle>, EvictionQueue)> {
    let (since, life, queue) = oldest(all, EvictionQueue::Owing)?;
    let late = now().saturating_sub(since) >= PATIENCE.as_micros() as u64;
    late.then_some((life, queue))
}

/// The clock of all threads' queues: microseconds.
fn micros(at: Instant) -> u64 {
    at.saturating_duration_since(epoch(at)).as_micros() as u64
}

/// Where that clock begins: the first time it was asked for.
fn epoch(now: Instant) -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(|| now)
}

fn now() -> u64 {
    micros(Instant::now())
}

impl Lifecycle {
    /// Connections are to close: those that wait for their clients soon, others after the request in progress.
    pub(crate) fn is_draining(&self) -> bool {
        self.state.load(Ordering::Relaxed) >= DRAINING
    }

    /// All connections are to close at once, also those that answer a request.
    pub(crate) fn is_killed(&self) -> bool {
        self.state.load(Ordering::Relaxed) == KILLED
    }

    /// Connections are to end; what waits for its client's next request, after `wait`: that may be under way, and
    /// clients do not repeat one that a new connection has lost.
    pub(crate) fn drain(&self, wait: Duration) {
        let at = micros(Instant::now() + wait);
        // Kept as its complement, so that none is 0.
        self.closes_in_reverse
            .fetch_max(u64::MAX - at, Ordering::Relaxed);
        self.enter(DRAINING);
    }

    /// When connections that wait for their clients close.
    fn closes_at(&self) -> Instant {
        let at = u64::MAX - self.closes_in_reverse.load(Ordering::Relaxed);
        epoch(Instant::now()) + Duration::from_micros(at)
    }

    pub(crate) fn kill(&self) {
        self.enter(KILLED);
    }

    fn enter(&self, state: u8) {
        self.state.fetch_max(state, Ordering::Relaxed);
        let tasks = self.waiting().tasks();
        for task in tasks {
            task.wake();
        }
    }

    fn evict(&self, queue: EvictionQueue, other: Option<Slot>) -> Option<Slot> {
        let evicted = self.waiting().evict(queue, other)?;
        if let Some(task) = evicted.task {
            task.wake();
        }
        evicted.slot
    }

    fn waiting(&self) -> MutexGuard<'_, EvictionQueues> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many connections of the thread are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a connection until the returned value is dropped, and holds its slot for so long.
    pub(crate) fn enrol(self: &Arc<Self>, slot: Option<Slot>) -> Enrolled {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let (at, place) = self.waiting().add(slot, now());
        Enrolled {
            life: self.clone(),
            place,
            at,
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
    at: u32,
}

impl Enrolled {
    /// The connection's task, to be woken when it is to end.
    pub(crate) fn set_task(&self, waker: &Waker) {
        self.life.waiting().set_task(self.at, waker);
    }

    /// The connection waits for its next request since `now`.
    pub(crate) fn set_idle(&self, now: Instant) {
        self.wait(EvictionQueue::Idle, now);
    }

    /// The connection waits since `now` for something its client owes: the rest of a head, or the end.
    pub(crate) fn set_owing(&self, now: Instant) {
        self.wait(EvictionQueue::Owing, now);
    }

    fn wait(&self, queue: EvictionQueue, now: Instant) {
        self.place.busy.store(false, Ordering::Relaxed);
        self.life.waiting().wait(self.at, queue, micros(now));
    }

    /// Marks the connection as busy, because a request has arrived.
    pub(crate) fn set_busy(&self) {
        self.place.busy.store(true, Ordering::Relaxed);
    }

    /// The connection is to close to make room for others, unless it answers a request.
    pub(crate) fn is_evicted(&self) -> bool {
        self.place.evicted.load(Ordering::Relaxed)
    }

    /// A connection that waits for its client is to close, for all or to make room for others. Where that is
    /// later, `deadline` is brought forward.
    pub(super) fn is_to_close(&self, deadline: &mut Deadline) -> bool {
        if self.is_evicted() || !self.life.is_draining() {
            return self.is_evicted();
        }
        let at = self.life.closes_at();
        deadline.at_most(at);
        Instant::now() >= at
    }

    /// The request that the connection has begun is its last.
    pub(super) fn is_at_its_last(&self) -> bool {
        self.life.is_draining() || self.is_evicted()
    }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        let slot = self.life.waiting().remove(self.at);
        // Given back outside of the lock: it may wake who waits for it.
        drop(slot);
        if self.life.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.life.empty.notify_waiters();
        }
    }
}
