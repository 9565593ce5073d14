//! How a front thread shares its core. Under load it always finds something ready and never sleeps, and
//! Linux lets whoever does not sleep run until the timer's tick (4 ms at 250 Hz): meanwhile the other
//! front thread, a PHP process or the proxy before the server on the same core stands still, and with
//! it all of its connections. So a thread asks for short slices, and gives way by itself between two
//! rounds once it has run for one.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::{sys, turn};

/// How long a thread runs before it gives way: fifty hits of the page cache.
const LENGTH: Duration = Duration::from_micros(500);
/// A look at the sockets that took longer than this was a sleep, or others had the core meanwhile.
const SLEPT: Duration = Duration::from_micros(20);

thread_local! {
    static SLICE: RefCell<Slice> = const { RefCell::new(Slice::new()) };
}

/// Asks for short slices, at the thread's start: who wakes up with a short slice to go need not wait
/// for the end of a long one (EEVDF since Linux 6.12; older kernels take the wish and ignore it).
pub(super) fn ask_for_short_slices() {
    // Where it is forbidden (seccomp), latency under load is a little worse, and nothing else.
    let _ = sys::set_slice(LENGTH);
}

/// Before a look at the sockets that may become a sleep.
pub(super) fn before_park() {
    SLICE.with_borrow_mut(|slice| {
        if slice.is_over(turn::now()) {
            std::thread::yield_now();
            slice.begin(turn::now());
        }
    });
}

/// Runs after the thread has looked at the sockets, whether it slept or not.
pub(super) fn after_unpark() {
    SLICE.with_borrow_mut(|slice| slice.looked(turn::now()));
}

/// What a thread has of its slice. No time: it has only begun.
struct Slice {
    began: Option<Instant>,
    look: Option<Instant>,
}

impl Slice {
    const fn new() -> Slice {
        Slice {
            began: None,
            look: None,
        }
    }

    fn begin(&mut self, now: Instant) {
        self.began = Some(now);
        self.look = Some(now);
    }

    /// Whether the thread is to give way before it looks at the sockets.
    fn is_over(&mut self, now: Instant) -> bool {
        self.look = Some(now);
        now.duration_since(*self.began.get_or_insert(now)) >= LENGTH
    }

    /// The look is over; if it was a sleep, the next slice begins.
    fn looked(&mut self, now: Instant) {
        if self.look.is_none_or(|at| now.duration_since(at) >= SLEPT) {
            self.began = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_never_sleeps_gives_way_after_a_slice_and_who_sleeps_does_not() {
        let start = Instant::now();
        let at = |us| start + Duration::from_micros(us);
        let mut slice = Slice::new();
        // A round of 200 us, a look that finds something at once, and again.
        for (round, over) in [(0, false), (200, false), (400, false), (600, true)] {
            assert_eq!(slice.is_over(at(round)), over, "{round}");
            slice.looked(at(round + 1));
        }
        slice.begin(at(610));
        assert!(!slice.is_over(at(1100)));
        assert!(slice.is_over(at(1110)));
        // It slept in its look at 1110.
        slice.looked(at(1200));
        assert!(!slice.is_over(at(1650)));
        assert!(slice.is_over(at(1700)));
    }
}
