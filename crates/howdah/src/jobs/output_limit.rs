//! Limits how much of a job's output is logged: a job that never stops printing must not fill the disk. The time is
//! passed in, so the code has no side effects.

use std::time::{Duration, Instant};

/// The interval in which lines are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// The maximum number of lines, and below, of bytes in an interval.
const LINES: u32 = 1000;
const BYTES: usize = 256 << 10;

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
    pub fn takes(&mut self, length: usize) -> bool {
        let takes = self.lines < LINES && self.bytes + length <= BYTES;
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
    pub fn dropped(&mut self, now: Instant, ended: bool) -> Option<u64> {
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
    fn a_flood_is_cut_off_and_counted_in_each_window() {
        let start = Instant::now();
        let mut limit = OutputLimit::new(start);
        let taken = (0..5000).filter(|_| limit.takes(10)).count();
        assert_eq!(taken, LINES as usize);
        assert_eq!(limit.dropped(start + WINDOW / 2, false), None);
        assert_eq!(limit.dropped(start + WINDOW, false), Some(4000));
        assert_eq!(limit.dropped(start + 2 * WINDOW, false), None);
        let long = (0..100).filter(|_| limit.takes(8 << 10)).count();
        assert_eq!(long, BYTES / (8 << 10));
        assert_eq!(limit.dropped(start + 2 * WINDOW, true), Some(100 - 32));
    }
}
