//! How a front thread shares its core. Under load it always finds something ready and never sleeps, and
//! Linux lets whoever does not sleep run until the timer's tick (4 ms at 250 Hz): meanwhile the other
//! front thread, a PHP process or the proxy before the server on the same core stands still, and with
//! it all of its connections. So a thread asks for short slices, and gives way by itself between two
//! rounds once it has run for one.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::sys;

/// How long a thread runs before it gives way: fifty hits of the page cache.
const TURN: Duration = Duration::from_micros(500);
/// A look at the sockets that took longer than this was a sleep, or others had the core meanwhile.
const SLEPT: Duration = Duration::from_micros(20);

thread_local! {
    static TURN_BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
    static PARKED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Asks for short slices, at the thread's start: who wakes up with a short slice to go need not wait
/// for the end of a long one (EEVDF since Linux 6.12; older kernels take the wish and ignore it).
pub(super) fn ask_for_short_slices() {
    // Where it is forbidden (seccomp), latency under load is a little worse, and nothing else.
    let _ = sys::set_slice(TURN);
}

/// Before a look at the sockets that may become a sleep.
pub(super) fn before_park() {
    let mut now = Instant::now();
    let began = TURN_BEGAN.get().unwrap_or(now);
    if now.duration_since(began) >= TURN {
        std::thread::yield_now();
        now = Instant::now();
        TURN_BEGAN.set(Some(now));
    }
    PARKED.set(Some(now));
}

/// After it.
pub(super) fn after_unpark() {
    let now = Instant::now();
    if PARKED
        .get()
        .is_none_or(|at| now.duration_since(at) >= SLEPT)
    {
        TURN_BEGAN.set(Some(now));
    }
}
