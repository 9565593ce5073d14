//! The connections of one front thread, as a whole: how many, and whether they are to end. Costs a
//! request one relaxed load; ending them wakes each connection's task once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::sync::Notify;

// 0: serving.
const DRAINING: u8 = 1;
const KILLED: u8 = 2;

/// See the module.
#[derive(Default)]
pub(crate) struct Lifecycle {
    state: AtomicU8,
    tasks: Mutex<HashMap<u64, Waker>>,
    open: AtomicUsize,
    empty: Notify,
    /// Connections accepted so far.
    pub(crate) accepted: AtomicU64,
    /// Requests handed to the handler so far.
    pub(crate) requests: AtomicU64,
    /// Requests refused so far.
    pub(crate) refused: AtomicU64,
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
        let wakers: Vec<Waker> = self.tasks().values().cloned().collect();
        for waker in wakers {
            waker.wake();
        }
    }

    fn tasks(&self) -> MutexGuard<'_, HashMap<u64, Waker>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a connection until the returned value is dropped.
    pub(crate) fn enrol(self: &std::sync::Arc<Self>, id: u64) -> Enrolled {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Enrolled {
            life: self.clone(),
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
    pub(crate) life: std::sync::Arc<Lifecycle>,
    id: u64,
}

impl Enrolled {
    /// The connection's task, to be woken when it is to end.
    pub(crate) fn set_task(&self, waker: &Waker) {
        self.life.tasks().insert(self.id, waker.clone());
    }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        self.life.tasks().remove(&self.id);
        if self.life.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.life.empty.notify_waiters();
        }
    }
}
