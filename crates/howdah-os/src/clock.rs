//! The monotonic clock and the wall clock, for code that must also run in a simulation.
//!
//! With the feature `simulation`, a thread can set both clocks by [`simulated`]; other threads and other builds read
//! those of the system.

use std::time::{Instant, SystemTime};

/// Returns the time of the monotonic clock.
pub fn now() -> Instant {
    #[cfg(feature = "simulation")]
    if let Some(times) = simulated::times() {
        return times.began + times.elapsed;
    }
    Instant::now()
}

/// Returns CLOCK_MONOTONIC in nanoseconds, which other processes read as well.
pub fn monotonic_ns() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(times) = simulated::times() {
        return simulated::BEGAN_NS + times.elapsed.as_nanos() as u64;
    }
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the time of the wall clock, which an administrator may set.
pub fn wall() -> SystemTime {
    #[cfg(feature = "simulation")]
    if let Some(times) = simulated::times() {
        return times.wall;
    }
    SystemTime::now()
}

/// The clocks of a thread that simulates time.
#[cfg(feature = "simulation")]
pub mod simulated {
    use std::cell::Cell;
    use std::time::{Duration, Instant, SystemTime};

    /// What [`super::monotonic_ns`] returns when the simulation begins. It is not 0, which means "never" in the shared
    /// memory of a pool.
    pub(super) const BEGAN_NS: u64 = 1_000_000_000;

    #[derive(Clone, Copy)]
    pub(super) struct Times {
        pub began: Instant,
        pub elapsed: Duration,
        pub wall: SystemTime,
    }

    thread_local! {
        static TIMES: Cell<Option<Times>> = const { Cell::new(None) };
    }

    pub(super) fn times() -> Option<Times> {
        TIMES.get()
    }

    /// Makes this thread read simulated clocks from now on: the monotonic clock begins at `began`, the wall clock at
    /// `wall`, and neither moves by itself.
    pub fn begin(began: Instant, wall: SystemTime) {
        let elapsed = Duration::ZERO;
        TIMES.set(Some(Times {
            began,
            elapsed,
            wall,
        }));
    }

    /// Moves both simulated clocks forward.
    pub fn advance(by: Duration) {
        if let Some(mut times) = TIMES.get() {
            times.elapsed += by;
            times.wall += by;
            TIMES.set(Some(times));
        }
    }

    /// Sets the simulated wall clock, as an administrator or a time server does.
    pub fn set_wall(wall: SystemTime) {
        if let Some(times) = TIMES.get() {
            TIMES.set(Some(Times { wall, ..times }));
        }
    }
}
