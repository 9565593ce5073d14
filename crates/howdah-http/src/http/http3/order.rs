//! Which stream's data goes next into quinn's send buffer. quinn sends what it has by urgency, but a full
//! buffer takes from whoever asks first: an urgent answer would wait for its room behind those that have
//! filled it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

/// The streams of a connection that wait to hand data to quinn. Its tasks run on one thread: the lock is
/// never contended.
#[derive(Default)]
pub(super) struct SendOrder(Mutex<Vec<Waiting>>);

struct Waiting {
    stream: u64,
    urgency: u8,
    waker: Waker,
}

impl SendOrder {
    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the streams that wait and are more urgent; false: there are none. The caller lets them try
    /// first, once: they may wait for their client, not for room.
    pub(super) fn wake_more_urgent(&self, urgency: u8) -> bool {
        let waiting = self.waiting();
        let mut first = waiting.iter().filter(|w| w.urgency < urgency).peekable();
        let any = first.peek().is_some();
        first.for_each(|waiting| waiting.waker.wake_by_ref());
        any
    }

    /// The stream waits: quinn takes no more of it now.
    pub(super) fn wait(&self, cx: &Context<'_>, stream: u64, urgency: u8) {
        let mut waiting = self.waiting();
        let waker = cx.waker();
        match waiting.iter_mut().find(|waiting| waiting.stream == stream) {
            Some(own) => own.waker.clone_from(waker),
            None => waiting.push(Waiting {
                stream,
                urgency,
                waker: waker.clone(),
            }),
        }
    }

    /// The stream does not wait any more: all of its data has been taken, or it has ended.
    pub(super) fn leave(&self, stream: u64) {
        self.waiting().retain(|waiting| waiting.stream != stream);
    }
}
