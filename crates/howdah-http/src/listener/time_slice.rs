//! Controls how a front thread shares its core. Under load it always finds something to do and never sleeps, and Linux
//! lets a thread that does not sleep run until the timer tick (4 ms at 250 Hz). Meanwhile another front thread, a PHP
//! process or a proxy on the same core cannot run, which stalls all of its connections. So a thread asks for short time
//! slices, and yields between two rounds of its event loop once it has run for one slice.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::{sys, turn};

/// How long a thread runs before it yields: the time of fifty page cache hits.
const SLICE_LENGTH: Duration = Duration::from_micros(500);
/// A poll of the sockets that took longer than this was a sleep, or other threads had the core meanwhile.
const MIN_SLEEP: Duration = Duration::from_micros(20);

thread_local! {
    static SLICE: RefCell<TimeSlice> = const { RefCell::new(TimeSlice::new()) };
}

/// Asks for short time slices at the start of the thread: a thread that wakes up with a short slice need not wait for
/// the end of a long one (EEVDF since Linux 6.12; older kernels accept the request and ignore it).
pub(super) fn request_short_slices() {
    // If this is forbidden (seccomp), only the latency under load is slightly worse.
    let _ = sys::set_time_slice(SLICE_LENGTH);
}

/// Runs before the thread polls the sockets, which may become a sleep.
pub(super) fn before_park() {
    SLICE.with_borrow_mut(|slice| {
        if slice.is_over(turn::now()) {
            std::thread::yield_now();
            slice.begin(turn::now());
        }
    });
}

/// Runs after the thread has polled the sockets, whether it slept or not.
pub(super) fn after_unpark() {
    SLICE.with_borrow_mut(|slice| slice.end_poll(turn::now()));
}

/// When a thread's slice began, and when its last poll of the sockets began. Both are `None` before the first poll.
struct TimeSlice {
    began: Option<Instant>,
    look: Option<Instant>,
}

impl TimeSlice {
    const fn new() -> TimeSlice {
        TimeSlice {
            began: None,
            look: None,
        }
    }

    fn begin(&mut self, now: Instant) {
        self.began = Some(now);
        self.look = Some(now);
    }

    /// Returns whether the thread should yield before it polls the sockets.
    fn is_over(&mut self, now: Instant) -> bool {
        self.look = Some(now);
        now.duration_since(*self.began.get_or_insert(now)) >= SLICE_LENGTH
    }

    /// Records the end of a poll. If it was a sleep, the next slice begins.
    fn end_poll(&mut self, now: Instant) {
        if self
            .look
            .is_none_or(|at| now.duration_since(at) >= MIN_SLEEP)
        {
            self.began = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_yields_after_a_slice_unless_it_slept() {
        let start = Instant::now();
        let at = |us| start + Duration::from_micros(us);
        let mut slice = TimeSlice::new();
        // Each round takes 200 us and is followed by a poll that finds something immediately.
        for (round, over) in [(0, false), (200, false), (400, false), (600, true)] {
            assert_eq!(slice.is_over(at(round)), over, "{round}");
            slice.end_poll(at(round + 1));
        }
        slice.begin(at(610));
        assert!(!slice.is_over(at(1100)));
        assert!(slice.is_over(at(1110)));
        // The thread slept in its poll at 1110.
        slice.end_poll(at(1200));
        assert!(!slice.is_over(at(1650)));
        assert!(slice.is_over(at(1700)));
    }
}
