//! Decides which stream's data is sent next, and how much of it waits in memory for the connection's socket. A stream
//! passes data to the h2 crate only while little data is in transit, and the h2 crate sends data in the order in which
//! it gets it. Urgent data (RFC 9218) goes first; streams of the same urgency take turns.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::memory;

/// The maximum number of bytes of a connection's streams that the h2 crate may hold.
const MAX_IN_TRANSIT_BYTES: usize = 64 << 10;

/// A connection's gate. Its tasks run on one thread, so the lock is never contended.
#[derive(Default)]
pub(super) struct SendGate(Mutex<GateState>);

#[derive(Default)]
struct GateState {
    in_transit: usize,
    in_transit_by_stream: HashMap<u32, usize>,
    waiting: Vec<WaitingStream>,
    /// The tasks that wait until no bytes of a stream are in transit.
    emptied: Vec<(u32, Waker)>,
    next: u64,
    closed: bool,
}

struct WaitingStream {
    stream: u32,
    urgency: u8,
    order: u64,
    waker: Waker,
}

impl GateState {
    fn room(&self) -> usize {
        memory::allowance(MAX_IN_TRANSIT_BYTES).saturating_sub(self.in_transit)
    }

    fn first(&self) -> Option<&WaitingStream> {
        let waiting = self.waiting.iter();
        waiting.min_by_key(|waiting| (waiting.urgency, waiting.order))
    }

    fn wake_first(&self) {
        if self.room() > 0
            && let Some(first) = self.first()
        {
            first.waker.wake_by_ref();
        }
    }

    fn wake_emptied(&mut self, stream: u32) {
        self.emptied.retain(|(of, waker)| {
            if *of == stream {
                waker.wake_by_ref();
            }
            *of != stream
        });
    }
}

impl SendGate {
    fn state(&self) -> MutexGuard<'_, GateState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many bytes the stream may pass on now. A caller that does not use them must call [`SendGate::pass`].
    pub(super) fn poll_room(&self, cx: &mut Context<'_>, stream: u32, urgency: u8) -> Poll<usize> {
        let state = &mut *self.state();
        let at = state.waiting.iter().position(|own| own.stream == stream);
        let order = at.map_or(state.next, |at| state.waiting[at].order);
        let room = state.room();
        let own = (urgency, order);
        let is_first = |first: &WaitingStream| own <= (first.urgency, first.order);
        if state.closed || room > 0 && state.first().is_none_or(is_first) {
            if let Some(at) = at {
                state.waiting.swap_remove(at);
            }
            return Poll::Ready(room.max(1));
        }
        let waker = cx.waker().clone();
        match at {
            Some(at) => state.waiting[at].waker = waker,
            None => {
                state.next += 1;
                state.waiting.push(WaitingStream {
                    stream,
                    urgency,
                    order,
                    waker,
                });
            }
        }
        state.wake_first();
        Poll::Pending
    }

    /// Records that the stream has passed on this many bytes.
    pub(super) fn record_passed_on(&self, stream: u32, bytes: usize) {
        let mut state = self.state();
        state.in_transit += bytes;
        *state.in_transit_by_stream.entry(stream).or_default() += bytes;
        state.wake_first();
    }

    /// Leaves the available room to other streams.
    pub(super) fn pass(&self) {
        self.state().wake_first();
    }

    /// Records that this many bytes of the stream have been written.
    pub(super) fn record_written(&self, stream: u32, bytes: usize) {
        let mut state = self.state();
        let Some(left) = state.in_transit_by_stream.get_mut(&stream) else {
            // The stream was reset while these bytes were being written.
            return;
        };
        let bytes = bytes.min(*left);
        *left -= bytes;
        if *left == 0 {
            state.in_transit_by_stream.remove(&stream);
            state.wake_emptied(stream);
        }
        state.in_transit -= bytes;
        if state.in_transit <= MAX_IN_TRANSIT_BYTES / 2 {
            state.wake_first();
        }
    }

    /// Records that the stream was reset, so no more bytes of it will be written.
    pub(super) fn reset(&self, stream: u32) {
        let mut state = self.state();
        let bytes = state.in_transit_by_stream.remove(&stream).unwrap_or(0);
        state.in_transit -= bytes;
        state.wake_emptied(stream);
        state.wake_first();
    }

    /// Removes a stream that has ended from the waiting streams.
    pub(super) fn remove(&self, stream: u32) {
        let mut state = self.state();
        state.waiting.retain(|waiting| waiting.stream != stream);
        state.wake_first();
    }

    /// Is ready when all bytes that the stream has passed on have been written, or will never be written.
    pub(super) fn poll_empty(&self, cx: &mut Context<'_>, stream: u32) -> Poll<()> {
        let mut state = self.state();
        if state.closed || !state.in_transit_by_stream.contains_key(&stream) {
            return Poll::Ready(());
        }
        state.emptied.retain(|(of, _)| *of != stream);
        state.emptied.push((stream, cx.waker().clone()));
        Poll::Pending
    }

    /// Declares that no more bytes will be written, which ends all waiting.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        for waiting in &state.waiting {
            waiting.waker.wake_by_ref();
        }
        for (_, waker) in state.emptied.drain(..) {
            waker.wake();
        }
    }

    /// Returns whether no bytes are in transit.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.state().in_transit == 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Streams 1, 2 and so on, each with a waker of its own.
    struct TestStreams(SendGate, Vec<Arc<Woken>>);

    impl TestStreams {
        fn new() -> TestStreams {
            TestStreams(
                SendGate::default(),
                (0..4).map(|_| Arc::default()).collect(),
            )
        }

        fn room(&self, stream: u32, urgency: u8) -> Option<usize> {
            let waker = Waker::from(self.1[stream as usize].clone());
            let cx = &mut Context::from_waker(&waker);
            match self.0.poll_room(cx, stream, urgency) {
                Poll::Ready(room) => Some(room),
                Poll::Pending => None,
            }
        }

        fn woken(&self) -> Vec<usize> {
            let woken = self.1.iter().enumerate();
            let woken = woken.filter(|(_, woken)| woken.0.swap(0, Ordering::Relaxed) > 0);
            woken.map(|(stream, _)| stream).collect()
        }
    }

    #[test]
    fn gate_serves_urgent_streams_first_and_equals_in_turn() {
        let streams = TestStreams::new();
        assert_eq!(streams.room(1, 3), Some(MAX_IN_TRANSIT_BYTES));
        streams.0.record_passed_on(1, MAX_IN_TRANSIT_BYTES);
        assert_eq!(streams.room(1, 3), None);
        assert_eq!(streams.room(2, 3), None);
        assert_eq!(streams.room(3, 0), None);
        streams.0.record_written(1, 100);
        assert_eq!(streams.woken(), [0; 0], "not for every frame");
        streams.0.record_written(1, MAX_IN_TRANSIT_BYTES / 2);
        assert_eq!(streams.woken(), [3]);
        assert_eq!(streams.room(1, 3), None, "another is first");
        let room = streams.room(3, 0).unwrap();
        streams.0.record_passed_on(3, room - 10);
        assert_eq!(streams.woken(), [1, 3], "each when there was room");
        assert!(streams.room(1, 3).is_some());
        streams.0.pass();
        assert_eq!(streams.woken(), [2], "1 had nothing to send");
    }

    #[test]
    fn gate_frees_room_of_reset_or_ended_streams() {
        let streams = TestStreams::new();
        streams.0.record_passed_on(1, MAX_IN_TRANSIT_BYTES);
        assert!(streams.room(2, 3).is_none() && streams.room(3, 3).is_none());
        streams.0.reset(1);
        assert_eq!(streams.woken(), [2]);
        streams.0.record_written(1, 10);
        streams.0.remove(2);
        assert_eq!(streams.woken(), [3]);
        assert_eq!(streams.room(3, 3), Some(MAX_IN_TRANSIT_BYTES));
        assert!(streams.0.is_empty());
    }
}
