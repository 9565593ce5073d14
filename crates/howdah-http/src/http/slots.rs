//! Connection slots of all threads: the maximum number of simultaneous connections, which can change while the server
//! runs. This module closes no connections: if the limit falls below the number of open connections, slots are not
//! reused until enough connections have closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The maximum number of connections beyond the limit while others close.
const MAX_OVERDRAFT: usize = 32;

/// The limit of connections of all threads together, and the free slots.
pub(crate) struct ConnectionSlots {
    free: Arc<Semaphore>,
    limit: AtomicUsize,
    /// The number of slots in use that must not be released for reuse.
    owed: AtomicUsize,
    /// Slots beyond the limit, for connections that are about to close.
    overdraft: Arc<Semaphore>,
}

/// A connection's slot, which is released on drop.
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    permit: Option<OwnedSemaphorePermit>,
    beyond: bool,
}

fn clamp(limit: u32) -> usize {
    (limit.max(1) as usize).min(Semaphore::MAX_PERMITS)
}

impl ConnectionSlots {
    pub(crate) fn new(limit: u32) -> Arc<ConnectionSlots> {
        let limit = clamp(limit);
        Arc::new(ConnectionSlots {
            free: Arc::new(Semaphore::new(limit)),
            limit: AtomicUsize::new(limit),
            owed: AtomicUsize::new(0),
            overdraft: Arc::new(Semaphore::new((limit / 16).clamp(1, MAX_OVERDRAFT))),
        })
    }

    /// Returns the maximum number of simultaneous connections.
    pub(crate) fn limit(&self) -> u32 {
        u32::try_from(self.limit.load(Ordering::Relaxed)).unwrap_or(u32::MAX)
    }

    /// Sets a new limit. Only one caller at a time may do so.
    pub(crate) fn set_limit(&self, limit: u32) {
        let wanted = clamp(limit);
        let before = self.limit.swap(wanted, Ordering::Relaxed);
        if wanted < before {
            let fewer = before - wanted;
            let taken = self.free.forget_permits(fewer);
            self.owed.fetch_add(fewer - taken, Ordering::AcqRel);
            return;
        }
        let mut more = wanted - before;
        while more > 0 && self.repay_one() {
            more -= 1;
        }
        self.free.add_permits(more);
    }

    /// Returns whether there are more connections than the limit allows. In this case, a slot taken from another
    /// connection must be dropped.
    pub(crate) fn is_over_limit(&self) -> bool {
        self.owed.load(Ordering::Acquire) > 0
    }

    /// Decrements the number of owed slots. Returns false if none is owed.
    fn repay_one(&self) -> bool {
        self.owed
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1))
            .is_ok()
    }

    /// Takes a slot if one is free.
    pub(crate) fn try_take(self: &Arc<ConnectionSlots>) -> Option<ConnectionSlot> {
        let permit = self.free.clone().try_acquire_owned().ok()?;
        Some(self.slot(permit, false))
    }

    /// Waits for a free slot and takes it.
    pub(crate) async fn take(self: &Arc<ConnectionSlots>) -> ConnectionSlot {
        match self.free.clone().acquire_owned().await {
            Ok(permit) => self.slot(permit, false),
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    /// Waits for a slot beyond the limit. It is for a connection that is about to close and passes its own slot to a
    /// new one. The new connection then need not wait until the old one is closed, and few connections exceed the
    /// limit.
    pub(crate) async fn overdraw(self: &Arc<ConnectionSlots>) -> ConnectionSlot {
        match self.overdraft.clone().acquire_owned().await {
            Ok(permit) => self.slot(permit, true),
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    fn slot(
        self: &Arc<ConnectionSlots>,
        permit: OwnedSemaphorePermit,
        beyond: bool,
    ) -> ConnectionSlot {
        ConnectionSlot {
            slots: self.clone(),
            permit: Some(permit),
            beyond,
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if !self.beyond
            && let Some(permit) = self.permit.take()
            && self.slots.repay_one()
        {
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all free slots.
    fn take_all(slots: &Arc<ConnectionSlots>) -> Vec<ConnectionSlot> {
        std::iter::from_fn(|| slots.try_take()).collect()
    }

    #[test]
    fn slot_limit_holds_while_it_changes() {
        let slots = ConnectionSlots::new(4);
        let mut held = take_all(&slots);
        assert_eq!(held.len(), 4);
        assert!(!slots.is_over_limit());
        slots.set_limit(2);
        assert!(slots.is_over_limit());
        held.pop();
        held.pop();
        assert!(slots.try_take().is_none(), "two places went for good");
        assert!(!slots.is_over_limit());
        held.pop();
        held.extend(slots.try_take());
        assert_eq!((held.len(), slots.limit()), (2, 2));

        slots.set_limit(1);
        slots.set_limit(5);
        held.extend(take_all(&slots));
        assert_eq!(held.len(), 5);
        drop(held);
        assert_eq!(take_all(&slots).len(), 5);
        slots.set_limit(3);
        assert_eq!(take_all(&slots).len(), 3, "free places go at once");
        slots.set_limit(0);
        assert_eq!(
            slots.limit(),
            1,
            "with a limit of 0, no client would be served"
        );
    }

    #[tokio::test]
    async fn overdraft_slot_repays_nothing() {
        let slots = ConnectionSlots::new(2);
        let _held = take_all(&slots);
        slots.set_limit(1);
        drop(slots.overdraw().await);
        assert!(slots.is_over_limit());
        let _one = slots.overdraw().await;
        assert_eq!(slots.overdraft.available_permits(), 0);
    }
}
