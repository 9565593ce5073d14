//! The connections of one front thread as a whole: their number, which of them wait for their client, and whether they
//! must end. The cost per request is a lock that no other thread takes until there are too many connections. Ending
//! connections wakes their tasks.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::deadline::Deadline;
use super::eviction::{EvictionQueue, EvictionQueues, EvictionState};
use super::slots::ConnectionSlot;

// State 0 means serving.
const DRAINING: u8 = 1;
const KILLED: u8 = 2;

/// A connection that has waited for this long in [`EvictionQueue::Owing`] is closed before connections that wait for
/// their next request. A client's first request arrives within a round trip or two; browsers connect in advance and can
/// handle that such a connection is closed.
const OWING_PATIENCE: Duration = Duration::from_secs(2);

/// The connections of one front thread.
#[derive(Default)]
pub(crate) struct FrontThreadConnections {
    state: AtomicU8,
    /// When connections that wait for their clients close during draining, as `u64::MAX` minus the microseconds.
    closes_in_reverse: AtomicU64,
    waiting: Mutex<EvictionQueues>,
    open: AtomicUsize,
    empty: Notify,
    /// Connections accepted so far.
    pub(crate) accepted: AtomicU64,
    /// Requests passed to the handler so far.
    pub(crate) requests: AtomicU64,
    /// Requests refused before they reached a handler so far.
    pub(crate) refused: AtomicU64,
}

/// Of the connections of all threads, closes the one that has waited longest for its client. Connections that have
/// waited in [`EvictionQueue::Owing`] for more than [`OWING_PATIENCE`] come first. The closing connection keeps
/// `overdraft` until it is closed, and its own slot is returned. Returns `None` if all connections handle requests.
pub(crate) fn make_room(
    all: &[Arc<FrontThreadConnections>],
    overdraft: ConnectionSlot,
) -> Option<ConnectionSlot> {
    let (life, queue) = overdue(all).or_else(|| {
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

/// Closes a connection that has waited in [`EvictionQueue::Owing`] for more than [`OWING_PATIENCE`]. Returns whether
/// there was one.
pub(crate) fn make_room_in_advance(all: &[Arc<FrontThreadConnections>]) -> bool {
    match overdue(all) {
        Some((life, queue)) => {
            life.evict(queue, None);
            true
        }
        None => false,
    }
}

fn oldest(
    all: &[Arc<FrontThreadConnections>],
    queue: EvictionQueue,
) -> Option<(u64, &Arc<FrontThreadConnections>, EvictionQueue)> {
    all.iter()
        .filter_map(|life| Some((life.waiting().waiting_since(queue)?, life, queue)))
        .min_by_key(|(since, ..)| *since)
}

fn overdue(
    all: &[Arc<FrontThreadConnections>],
) -> Option<(&Arc<FrontThreadConnections>, EvictionQueue)> {
    let (since, life, queue) = oldest(all, EvictionQueue::Owing)?;
    let late = now().saturating_sub(since) >= OWING_PATIENCE.as_micros() as u64;
    late.then_some((life, queue))
}

/// Converts to the clock of all threads' queues, in microseconds.
fn micros(at: Instant) -> u64 {
    at.saturating_duration_since(epoch(at)).as_micros() as u64
}

/// Returns the start of that clock: the first time passed to this function.
fn epoch(now: Instant) -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(|| now)
}

fn now() -> u64 {
    micros(Instant::now())
}

impl FrontThreadConnections {
    /// Returns whether connections must close: those that wait for their clients soon, others after the request in
    /// progress.
    pub(crate) fn is_draining(&self) -> bool {
        self.state.load(Ordering::Acquire) >= DRAINING
    }

    /// Returns whether all connections must close at once, including those that handle a request.
    pub(crate) fn is_killed(&self) -> bool {
        self.state.load(Ordering::Relaxed) == KILLED
    }

    /// Makes all connections end. Those that wait for their client's next request close after `wait`, because a request
    /// may be in transit, and a client whose request was lost does not repeat it on a new connection.
    pub(crate) fn drain(&self, wait: Duration) {
        let at = micros(Instant::now() + wait);
        // Stored as its complement, so the initial value 0 means that no time is set.
        self.closes_in_reverse
            .fetch_max(u64::MAX - at, Ordering::Relaxed);
        self.enter(DRAINING);
    }

    /// Returns the time at which connections that wait for their clients close.
    fn closes_at(&self) -> Instant {
        let at = u64::MAX - self.closes_in_reverse.load(Ordering::Relaxed);
        epoch(Instant::now()) + Duration::from_micros(at)
    }

    pub(crate) fn kill(&self) {
        self.enter(KILLED);
    }

    fn enter(&self, state: u8) {
        // Release pairs with `is_draining`: a connection that sees the state also sees when it has to close.
        self.state.fetch_max(state, Ordering::Release);
        let tasks = self.waiting().tasks();
        for task in tasks {
            task.wake();
        }
    }

    fn evict(&self, queue: EvictionQueue, other: Option<ConnectionSlot>) -> Option<ConnectionSlot> {
        let evicted = self.waiting().evict(queue, other)?;
        if let Some(task) = evicted.task {
            task.wake();
        }
        evicted.slot
    }

    fn waiting(&self) -> MutexGuard<'_, EvictionQueues> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many connections of the thread are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a connection and holds its slot until the returned value is dropped.
    pub(crate) fn enrol(self: &Arc<Self>, slot: Option<ConnectionSlot>) -> EnrolledConnection {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let (at, place) = self.waiting().add(slot, now());
        EnrolledConnection {
            life: self.clone(),
            place,
            at,
        }
    }

    /// Waits until no connection is open.
    pub(crate) async fn wait_until_empty(&self) {
        loop {
            let changed = self.empty.notified();
            if self.open() == 0 {
                return;
            }
            changed.await;
        }
    }
}

/// One connection's registration with its thread.
pub(crate) struct EnrolledConnection {
    pub(crate) life: Arc<FrontThreadConnections>,
    place: Arc<EvictionState>,
    at: u32,
}

impl EnrolledConnection {
    /// Sets the connection's task, which is woken when the connection must end.
    pub(crate) fn set_task(&self, waker: &Waker) {
        self.life.waiting().set_task(self.at, waker);
    }

    /// Records that the connection waits for its next request since `now`.
    pub(crate) fn set_idle(&self, now: Instant) {
        self.wait(EvictionQueue::Idle, now);
    }

    /// Records that the connection waits since `now` for something that its client must send: the rest of a head, or
    /// the end of the connection.
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

    /// Returns whether the connection must close to make room for others, unless it handles a request.
    pub(crate) fn is_evicted(&self) -> bool {
        self.place.evicted.load(Ordering::Relaxed)
    }

    /// Returns whether a connection that waits for its client must close now, because the server drains or to make
    /// room. If it must close later, `deadline` is brought forward.
    pub(super) fn must_close(&self, deadline: &mut Deadline) -> bool {
        if self.is_evicted() || !self.life.is_draining() {
            return self.is_evicted();
        }
        let at = self.life.closes_at();
        deadline.at_most(at);
        Instant::now() >= at
    }

    /// Returns whether the connection's current request is its last.
    pub(super) fn is_last_request(&self) -> bool {
        self.life.is_draining() || self.is_evicted()
    }
}

impl Drop for EnrolledConnection {
    fn drop(&mut self) {
        let slot = self.life.waiting().remove(self.at);
        // Dropped outside of the lock, because releasing a slot may wake a task that waits for it.
        drop(slot);
        if self.life.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.life.empty.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn room_is_made_in_advance_only_of_connections_that_owe_a_request_for_long() {
        // Sets the start of the clock, which must not be later than the times below.
        now();
        tokio::time::advance(Duration::from_secs(86_400)).await;
        let threads = [Arc::<FrontThreadConnections>::default(), Arc::default()];
        let first = threads[0].enrol(None);
        let idle = threads[1].enrol(None);
        idle.set_idle(Instant::now());
        let second_later = OWING_PATIENCE / 2;
        tokio::time::advance(second_later).await;
        let second = threads[1].enrol(None);
        assert!(!make_room_in_advance(&threads));
        tokio::time::advance(OWING_PATIENCE - second_later).await;
        assert!(make_room_in_advance(&threads));
        assert!(first.is_evicted() && !second.is_evicted());
        assert!(!make_room_in_advance(&threads));
        tokio::time::advance(second_later).await;
        assert!(make_room_in_advance(&threads) && second.is_evicted());
        tokio::time::advance(OWING_PATIENCE * 10).await;
        assert!(!make_room_in_advance(&threads) && !idle.is_evicted());
    }
}
