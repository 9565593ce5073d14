//! Decides when a job that always runs is started again after its process has ended. The code reads no clock.

use std::time::Duration;

/// A process that ran this long is not in a crash loop.
const STEADY: Duration = Duration::from_secs(10);
/// The pause after a failure, which is doubled with each failure in a row, and below, its maximum.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// The number of failures in a row that count as a crash loop.
const CRASH_LOOP: u32 = 5;

/// What is logged when a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Say {
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
    pub fn ended(&mut self, lived: Duration, well: bool) -> (Duration, Say) {
        let was_crash_loop = self.failures >= CRASH_LOOP;
        if well || lived >= STEADY {
            self.failures = 0;
        }
        if well {
            // A worker that ends after a long run is replaced at once. A process that ends right away is started once
            // per second.
            let say = if was_crash_loop {
                Say::Recovered
            } else {
                Say::Nothing
            };
            return (SHORTEST.saturating_sub(lived), say);
        }
        let pause = SHORTEST * (1 << self.failures.min(6));
        self.failures += 1;
        let say = match self.failures {
            CRASH_LOOP => Say::CrashLoop,
            n if n < CRASH_LOOP => Say::Failed,
            _ => Say::Nothing,
        };
        (pause.min(LONGEST), say)
    }

    /// Returns whether a running process has just proved to work after a crash loop.
    pub fn lives(&mut self, lived: Duration) -> bool {
        let recovered = self.failures >= CRASH_LOOP && lived >= STEADY;
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
    fn one_that_dies_at_once_is_started_ever_more_rarely_and_named_a_few_times() {
        let mut restarts = Restarts::default();
        let seen: Vec<(u64, Say)> = (0..9)
            .map(|_| restarts.ended(AT_ONCE, false))
            .map(|(pause, say)| (pause.as_secs(), say))
            .collect();
        let pauses: Vec<u64> = seen.iter().map(|(pause, _)| *pause).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        let said: Vec<Say> = seen.iter().map(|(_, say)| *say).collect();
        assert_eq!(said[..4], [Say::Failed; 4]);
        assert_eq!(said[4], Say::CrashLoop);
        assert_eq!(said[5..], [Say::Nothing; 4]);
        assert!(!restarts.lives(AT_ONCE) && restarts.lives(LONG));
        assert!(!restarts.lives(LONG), "once");
        assert_eq!(
            restarts.ended(LONG, false),
            (Duration::from_secs(1), Say::Failed)
        );
    }

    #[test]
    fn one_that_ends_well_is_started_at_once_but_not_more_than_once_a_second() {
        let mut restarts = Restarts::default();
        assert_eq!(restarts.ended(LONG, true), (Duration::ZERO, Say::Nothing));
        let (pause, _) = restarts.ended(AT_ONCE, true);
        assert_eq!(pause, Duration::from_millis(900));
        for _ in 0..6 {
            restarts.ended(AT_ONCE, false);
        }
        assert_eq!(restarts.ended(AT_ONCE, true).1, Say::Recovered);
    }
}
