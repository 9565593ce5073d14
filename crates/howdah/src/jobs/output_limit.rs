//! Limits how much of a job's output is logged: a job that never stops printing must not fill the disk. The time is
//! passed in, so the code has no side effects.

use std::time::{Duration, Instant};

/// The interval in which lines are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// The maximum number of lines, and below, of bytes in an interval.
const MAX_LINES: u32 = 1000;
const MAX_BYTES: usize = 256 << 10;

/// What a job has printed in the current interval.
#[derive(Clone, Copy, Debug)]
pub struct OutputLimit {
    since: Instant,
    lines: u32,
    bytes: usize,
    dropped: u64,
}

impl OutputLimit {
    /// Starts with an empty interval.
    pub fn new(now: Instant) -> OutputLimit {
        OutputLimit {
            since: now,
            lines: 0,
            bytes: 0,
            dropped: 0,
        }
    }

    /// Returns whether a line of this length is logged. A line that is not logged is counted.
    pub fn admit(&mut self, length: usize) -> bool {
        let takes = self.lines < MAX_LINES && self.bytes + length <= MAX_BYTES;
        match takes {
            true => {
                self.lines += 1;
                self.bytes += length;
            }
            false => self.dropped += 1,
        }
        takes
    }

    /// Starts the next interval if the time has passed or the job has ended. Returns how many lines were dropped in the
    /// previous one.
    pub fn take_dropped(&mut self, now: Instant, ended: bool) -> Option<u64> {
        if !ended && now.saturating_duration_since(self.since) < WINDOW {
            return None;
        }
        let dropped = self.dropped;
        *self = OutputLimit::new(now);
        (dropped > 0).then_some(dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_limit_drops_and_counts_a_flood_in_each_window() {
        let start = Instant::now();
        let mut limit = OutputLimit::new(start);
        let taken = (0..5000).filter(|_| limit.admit(10)).count();
        assert_eq!(taken, MAX_LINES as usize);
        assert_eq!(limit.take_dropped(start + WINDOW / 2, false), None);
        assert_eq!(limit.take_dropped(start + WINDOW, false), Some(4000));
        assert_eq!(limit.take_dropped(start + 2 * WINDOW, false), None);
        let long = (0..100).filter(|_| limit.admit(8 << 10)).count();
        assert_eq!(long, MAX_BYTES / (8 << 10));
        assert_eq!(limit.take_dropped(start + 2 * WINDOW, true), Some(100 - 32));
    }
}
