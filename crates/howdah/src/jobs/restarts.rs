//! When a job that always runs is started again after its process has ended. Pure: no clock.

use std::time::Duration;

/// A process that ran this long is not in a crash loop.
const STEADY: Duration = Duration::from_secs(10);
/// The pause after a failure, doubled with each one in a row.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// This many failures in a row are a crash loop.
const CRASH_LOOP: u32 = 5;

/// What the log is to say of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Say {
    /// Nothing: it ended well, or keeps failing and that is known.
    Nothing,
    /// That it failed.
    Failed,
    /// That it keeps failing.
    CrashLoop,
    /// That it works again after a crash loop.
    Recovered,
}

/// The failures of one process of a job in a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Restarts {
    failures: u32,
}

impl Restarts {
    /// A process has ended, well or not, after it ran this long: how long to wait before the next one.
    pub fn ended(&mut self, lived: Duration, well: bool) -> (Duration, Say) {
        let was_crash_loop = self.failures >= CRASH_LOOP;
        if well || lived >= STEADY {
            self.failures = 0;
        }
        if well {
            // A worker that has served its time is replaced at once; one that ends right away is
            // started once a second.
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

    /// A process runs: whether it has just turned out to work after a crash loop.
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
