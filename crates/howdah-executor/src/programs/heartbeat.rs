//! Whether the other end of a line still answers: when to ask, and when it counts as stuck. No clock,
//! no I/O. It is asked twice before that, half the limit apart, so that a machine which stood still
//! as a whole (a paused container) does not count as silence of the other end.

use std::time::{Duration, Instant};

/// Decides by the clock when to ask the other end, and when it counts as stuck.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heartbeat {
    half: Duration,
    due: Instant,
    asked: u8,
}

/// What the line's owner does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeartbeatAction {
    /// Nothing is due for this long.
    Wait(Duration),
    /// Ask whether the other end still answers.
    Ask,
    /// The other end has not answered for the whole limit.
    Stuck,
}

impl Heartbeat {
    /// Heard at `now`; silence may last for `limit` from the first question on.
    pub fn new(limit: Duration, now: Instant) -> Heartbeat {
        let half = limit / 2;
        Heartbeat {
            half,
            due: now + half,
            asked: 0,
        }
    }

    /// The other end sent something, whatever it was.
    pub fn heard(&mut self, now: Instant) {
        self.asked = 0;
        self.due = now + self.half;
    }

    /// What to do at `now`. The caller of [`HeartbeatAction::Ask`] asks at once; if it cannot, that counts as
    /// silence, too.
    pub fn at(&mut self, now: Instant) -> HeartbeatAction {
        match self.due.saturating_duration_since(now) {
            Duration::ZERO if self.asked == 2 => HeartbeatAction::Stuck,
            Duration::ZERO => {
                self.asked += 1;
                self.due = now + self.half;
                HeartbeatAction::Ask
            }
            left => HeartbeatAction::Wait(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn who_answers_is_asked_now_and_then_and_never_stuck() {
        let mut now = Instant::now();
        let mut heartbeat = Heartbeat::new(10 * SECOND, now);
        for _ in 0..5 {
            assert_eq!(heartbeat.at(now), HeartbeatAction::Wait(5 * SECOND));
            now += 5 * SECOND;
            assert_eq!(heartbeat.at(now), HeartbeatAction::Ask);
            now += 4 * SECOND;
            heartbeat.heard(now);
        }
    }

    #[test]
    fn who_is_silent_is_stuck_after_the_limit_and_not_before_a_second_question() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(10 * SECOND, start);
        assert_eq!(heartbeat.at(start + 5 * SECOND), HeartbeatAction::Ask);
        assert_eq!(heartbeat.at(start + 10 * SECOND), HeartbeatAction::Ask);
        assert_eq!(
            heartbeat.at(start + 14 * SECOND),
            HeartbeatAction::Wait(SECOND)
        );
        assert_eq!(heartbeat.at(start + 15 * SECOND), HeartbeatAction::Stuck);
        // All stood still for an hour.
        let mut heartbeat = Heartbeat::new(10 * SECOND, start);
        assert_eq!(heartbeat.at(start + 5 * SECOND), HeartbeatAction::Ask);
        assert_eq!(heartbeat.at(start + 3600 * SECOND), HeartbeatAction::Ask);
        heartbeat.heard(start + 3601 * SECOND);
        assert_eq!(
            heartbeat.at(start + 3601 * SECOND),
            HeartbeatAction::Wait(5 * SECOND)
        );
    }
}
