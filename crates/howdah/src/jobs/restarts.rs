//! Decides when a job that always runs is started again after its process has ended. The code reads no clock.

use std::time::Duration;

/// A process that ran this long is not in a crash loop.
const STEADY_AFTER: Duration = Duration::from_secs(10);
/// The pause after a failure, which is doubled with each failure in a row, and below, its maximum.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// The number of failures in a row that count as a crash loop.
const CRASH_LOOP_FAILURES: u32 = 5;

/// What is logged when a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartLog {
    /// Nothing: the process succeeded, or its crash loop has already been logged.
    Nothing,
    /// The process failed.
    Failed,
    /// The process keeps failing.
    CrashLoop,
    /// The process works again after a crash loop.
    Recovered,
}

/// Counts how often one process of a job has failed in a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Restarts {
    failures: u32,
}

impl Restarts {
    /// Handles the end of a process after it ran for `lived`. Returns the pause before the next start, and what is
    /// logged.
    pub fn pause_after_end(&mut self, lived: Duration, well: bool) -> (Duration, RestartLog) {
        let was_crash_loop = self.failures >= CRASH_LOOP_FAILURES;
        if well || lived >= STEADY_AFTER {
            self.failures = 0;
        }
        if well {
            // A worker that ends after a long run is replaced at once. A process that ends right away is started once
            // per second.
            let say = if was_crash_loop {
                RestartLog::Recovered
            } else {
                RestartLog::Nothing
            };
            return (MIN_PAUSE.saturating_sub(lived), say);
        }
        let pause = MIN_PAUSE * (1 << self.failures.min(6));
        self.failures += 1;
        let say = match self.failures {
            CRASH_LOOP_FAILURES => RestartLog::CrashLoop,
            n if n < CRASH_LOOP_FAILURES => RestartLog::Failed,
            _ => RestartLog::Nothing,
        };
        (pause.min(MAX_PAUSE), say)
    }

    /// Returns whether a running process has just proved to work after a crash loop.
    pub fn has_recovered(&mut self, lived: Duration) -> bool {
        let recovered = self.failures >= CRASH_LOOP_FAILURES && lived >= STEADY_AFTER;
        if recovered {
            self.failures = 0;
        }
        recovered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::from_millis(100);
    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn restarts_slow_down_in_a_crash_loop_and_log_it_once() {
        let mut restarts = Restarts::default();
        let seen: Vec<(u64, RestartLog)> = (0..9)
            .map(|_| restarts.pause_after_end(AT_ONCE, false))
            .map(|(pause, say)| (pause.as_secs(), say))
            .collect();
        let pauses: Vec<u64> = seen.iter().map(|(pause, _)| *pause).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        let said: Vec<RestartLog> = seen.iter().map(|(_, say)| *say).collect();
        assert_eq!(said[..4], [RestartLog::Failed; 4]);
        assert_eq!(said[4], RestartLog::CrashLoop);
        assert_eq!(said[5..], [RestartLog::Nothing; 4]);
        assert!(!restarts.has_recovered(AT_ONCE) && restarts.has_recovered(LONG));
        assert!(!restarts.has_recovered(LONG), "once");
        assert_eq!(
            restarts.pause_after_end(LONG, false),
            (Duration::from_secs(1), RestartLog::Failed)
        );
    }

    #[test]
    fn restarts_after_success_are_at_most_one_per_second() {
        let mut restarts = Restarts::default();
        assert_eq!(
            restarts.pause_after_end(LONG, true),
            (Duration::ZERO, RestartLog::Nothing)
        );
        let (pause, _) = restarts.pause_after_end(AT_ONCE, true);
        assert_eq!(pause, Duration::from_millis(900));
        for _ in 0..6 {
            restarts.pause_after_end(AT_ONCE, false);
        }
        assert_eq!(
            restarts.pause_after_end(AT_ONCE, true).1,
            RestartLog::Recovered
        );
    }
}
