//! Time within a run: nanoseconds since all threads began.

use std::time::Instant;

/// The run's clock. Its copies give the same time.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts a clock; the present moment is its zero.
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Nanoseconds since the start.
    #[inline]
    pub fn now(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// Nanoseconds in a millisecond.
pub const MILLISECOND: u64 = 1_000_000;

/// Converts nanoseconds to seconds.
pub fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}
