//! Decides which stream's data goes next into quinn's send buffer. quinn sends its buffered data by urgency, but a full
//! buffer accepts data from whichever stream asks first: an urgent response would have to wait for space behind the
//! streams that have filled it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

/// The streams of a connection that wait to pass data to quinn. Its tasks run on one thread, so the lock is never
/// contended.
#[derive(Default)]
pub(super) struct SendOrder(Mutex<Vec<WaitingSender>>);

struct WaitingSender {
    stream: u64,
    urgency: u8,
    waker: Waker,
}

impl SendOrder {
    fn waiting(&self) -> MutexGuard<'_, Vec<WaitingSender>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the waiting streams that are more urgent. Returns false if there are none. The caller lets them try first,
    /// but only once, because they may wait for their client rather than for space.
    pub(super) fn wake_more_urgent(&self, urgency: u8) -> bool {
        let waiting = self.waiting();
        let mut first = waiting.iter().filter(|w| w.urgency < urgency).peekable();
        let any = first.peek().is_some();
        first.for_each(|waiting| waiting.waker.wake_by_ref());
        any
    }

    /// Registers a stream as waiting, because quinn takes no more of its data now.
    pub(super) fn add(&self, cx: &Context<'_>, stream: u64, urgency: u8) {
        let mut waiting = self.waiting();
        let waker = cx.waker();
        match waiting.iter_mut().find(|waiting| waiting.stream == stream) {
            Some(own) => own.waker.clone_from(waker),
            None => waiting.push(WaitingSender {
                stream,
                urgency,
                waker: waker.clone(),
            }),
        }
    }

    /// Removes a stream that no longer waits: all of its data has been taken, or it has ended.
    pub(super) fn remove(&self, stream: u64) {
        self.waiting().retain(|waiting| waiting.stream != stream);
    }
}
