//! Decides when to ask whether the other end of a socket still responds, and when it counts as stuck. It has no clock
//! and does no I/O. The other end is asked twice before it counts as stuck, half the limit apart. Time in which the
//! whole machine was suspended (a paused container) therefore does not count as silence of the other end.

use std::time::{Duration, Instant};

/// Decides when to ask the other end, and when it counts as stuck.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heartbeat {
    half: Duration,
    due: Instant,
    asked: u8,
}

/// What the caller has to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeartbeatAction {
    /// Nothing is due for this long.
    Wait(Duration),
    /// Ask whether the other end still responds.
    Ask,
    /// The other end has not responded for the whole limit.
    Stuck,
}

impl Heartbeat {
    /// Starts with a sign of life at `now`. The other end counts as stuck when it has been silent for `limit` after the
    /// first question.
    pub fn new(limit: Duration, now: Instant) -> Heartbeat {
        let half = limit / 2;
        Heartbeat {
            half,
            due: now + half,
            asked: 0,
        }
    }

    /// Records that the other end has sent any message.
    pub fn record_message(&mut self, now: Instant) {
        self.asked = 0;
        self.due = now + self.half;
    }

    /// Decides what to do at `now`. On [`HeartbeatAction::Ask`] the caller asks at once. A question that the caller
    /// cannot send counts as silence, too.
    pub fn action_at(&mut self, now: Instant) -> HeartbeatAction {
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
    fn heartbeat_of_a_responsive_peer_is_never_stuck() {
        let mut now = Instant::now();
        let mut heartbeat = Heartbeat::new(10 * SECOND, now);
        for _ in 0..5 {
            assert_eq!(heartbeat.action_at(now), HeartbeatAction::Wait(5 * SECOND));
            now += 5 * SECOND;
            assert_eq!(heartbeat.action_at(now), HeartbeatAction::Ask);
            now += 4 * SECOND;
            heartbeat.record_message(now);
        }
    }

    #[test]
    fn heartbeat_of_a_silent_peer_is_stuck_after_the_limit_and_two_questions() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(10 * SECOND, start);
        assert_eq!(
            heartbeat.action_at(start + 5 * SECOND),
            HeartbeatAction::Ask
        );
        assert_eq!(
            heartbeat.action_at(start + 10 * SECOND),
            HeartbeatAction::Ask
        );
        assert_eq!(
            heartbeat.action_at(start + 14 * SECOND),
            HeartbeatAction::Wait(SECOND)
        );
        assert_eq!(
            heartbeat.action_at(start + 15 * SECOND),
            HeartbeatAction::Stuck
        );
        // The whole machine was suspended for an hour.
        let mut heartbeat = Heartbeat::new(10 * SECOND, start);
        assert_eq!(
            heartbeat.action_at(start + 5 * SECOND),
            HeartbeatAction::Ask
        );
        assert_eq!(
            heartbeat.action_at(start + 3600 * SECOND),
            HeartbeatAction::Ask
        );
        heartbeat.record_message(start + 3601 * SECOND);
        assert_eq!(
            heartbeat.action_at(start + 3601 * SECOND),
            HeartbeatAction::Wait(5 * SECOND)
        );
    }
}
