//! Places for connections, of all threads: how many there may be at once, which can change while
//! the server runs. Closes no connection: when there are fewer places than connections, those that
//! end give no place back until there are not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many connections beyond the limit may be open, at most, while others close.
const MOST_BEYOND: usize = 32;

/// How many connections all threads together may have open, and the places still free.
pub(crate) struct Slots {
    free: Arc<Semaphore>,
    limit: AtomicUsize,
    /// Places that are in use and are not to be given back.
    owed: AtomicUsize,
    /// Places beyond the limit, for connections that are about to close.
    overdraft: Arc<Semaphore>,
}

/// A connection's place; dropping it gives it back.
pub(crate) struct Slot {
    slots: Arc<Slots>,
    permit: Option<OwnedSemaphorePermit>,
    beyond: bool,
}

fn clamp(limit: u32) -> usize {
    (limit.max(1) as usize).min(Semaphore::MAX_PERMITS)
}

impl Slots {
    pub(crate) fn new(limit: u32) -> Arc<Slots> {
        let limit = clamp(limit);
        Arc::new(Slots {
            free: Arc::new(Semaphore::new(limit)),
            limit: AtomicUsize::new(limit),
            owed: AtomicUsize::new(0),
            overdraft: Arc::new(Semaphore::new((limit / 16).clamp(1, MOST_BEYOND))),
        })
    }

    /// How many connections may be open at once.
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
        while more > 0 && self.pay() {
            more -= 1;
        }
        self.free.add_permits(more);
    }

    /// There are more connections than places: one that is taken from another is to be dropped.
    pub(crate) fn owes(&self) -> bool {
        self.owed.load(Ordering::Acquire) > 0
    }

    /// Takes one off what is owed, if anything is.
    fn pay(&self) -> bool {
        self.owed
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1))
            .is_ok()
    }

    /// Takes a place if one is free.
    pub(crate) fn try_take(self: &Arc<Slots>) -> Option<Slot> {
        let permit = self.free.clone().try_acquire_owned().ok()?;
        Some(self.slot(permit, false))
    }

    /// A place, as soon as one is free.
    pub(crate) async fn take(self: &Arc<Slots>) -> Slot {
        match self.free.clone().acquire_owned().await {
            Ok(permit) => self.slot(permit, false),
            // Nobody closes the semaphore.
            Err(_) => std::future::pending().await,
        }
    }

    /// A place beyond the limit, for a connection that is to close and gives its own to another: so
    /// that a new one need not wait for the end of an old one, and few are open besides the limit.
    pub(crate) async fn overdraw(self: &Arc<Slots>) -> Slot {
        match self.overdraft.clone().acquire_owned().await {
            Ok(permit) => self.slot(permit, true),
            // Nobody closes the semaphore.
            Err(_) => std::future::pending().await,
        }
    }

    fn slot(self: &Arc<Slots>, permit: OwnedSemaphorePermit, beyond: bool) -> Slot {
        Slot {
            slots: self.clone(),
            permit: Some(permit),
            beyond,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.beyond
            && let Some(permit) = self.permit.take()
            && self.slots.pay()
        {
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all that are free.
    fn take_all(slots: &Arc<Slots>) -> Vec<Slot> {
        std::iter::from_fn(|| slots.try_take()).collect()
    }

    #[test]
    fn the_limit_holds_however_it_changes_while_places_are_in_use() {
        let slots = Slots::new(4);
        let mut held = take_all(&slots);
        assert_eq!(held.len(), 4);
        assert!(!slots.owes());
        slots.set_limit(2);
        assert!(slots.owes());
        held.pop();
        held.pop();
        assert!(slots.try_take().is_none(), "two places went for good");
        assert!(!slots.owes());
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
        assert_eq!(slots.limit(), 1, "none at all would serve nobody");
    }

    #[tokio::test]
    async fn a_place_beyond_the_limit_pays_no_debt() {
        let slots = Slots::new(2);
        let _held = take_all(&slots);
        slots.set_limit(1);
        drop(slots.overdraw().await);
        assert!(slots.owes());
        let _one = slots.overdraw().await;
        assert_eq!(slots.overdraft.available_permits(), 0);
    }
}
