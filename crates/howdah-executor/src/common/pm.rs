//! How many children a pool runs: a pure decision from a census, and the back-off after failures. It forks nothing and
//! reads no clock.
//!
//! The terms and the three modes are php-fpm's (`pm = static | dynamic | ondemand`). php-fpm forks 1, 2, 4 … 32
//! children once a second, and with `ondemand` one child per wake-up (php-src `fpm_process_ctl.c`). Here, a burst
//! immediately gets as many children as it has waiting requests.

use std::time::Duration;

use crate::config::ProcessManager;

/// Requests that have waited for less than this need no new child, because awake children are about to take them. (A
/// fork costs about as much as several short requests.)
pub const FORK_AFTER_WAIT: Duration = Duration::from_millis(2);
/// The maximum pause of a [`Backoff`].
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// The maximum number of forks under way at once.
pub const MAX_FORKS_UNDER_WAY: u32 = 32;

/// The pool at one moment. Children that are exiting are not counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Census {
    /// Children that the zygote has been asked for and has not forked yet.
    pub starting: u32,
    /// Children between two requests.
    pub idle: u32,
    /// Children that are running a request.
    pub busy: u32,
    /// Idle children that have been idle for longer than `process_idle_timeout`.
    pub idle_expired: u32,
    /// Requests that no child has claimed.
    pub waiting: u32,
    /// How long the oldest of these requests has waited.
    pub waited: Duration,
}

/// What the supervisor does next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScalingPlan {
    /// The number of children to fork.
    pub fork: u32,
    /// The number of children to retire, those idle for longest first.
    pub retire: u32,
    /// Decide again after this time, even if nothing else has happened.
    pub recheck_after: Option<Duration>,
}

/// Decides how many children to fork or retire. `first` is the first decision since the zygote became ready.
pub fn plan(pm: ProcessManager, max_children: u32, first: bool, census: Census) -> ScalingPlan {
    let Census {
        starting,
        idle,
        busy,
        ..
    } = census;
    let total = starting + idle + busy;
    let room = max_children.saturating_sub(total);
    let mut plan = ScalingPlan::default();
    // Each waiting request for which no child is free needs one child.
    let mut missing = census.waiting.saturating_sub(idle + starting);
    if missing > 0 && total > 0 && census.waited < FORK_AFTER_WAIT {
        missing = 0;
        plan.recheck_after = Some(FORK_AFTER_WAIT);
    }
    let wanted = match pm {
        ProcessManager::Static => room,
        ProcessManager::Dynamic {
            start_servers,
            min_spare_servers,
            max_spare_servers,
        } => {
            plan.retire = census
                .idle_expired
                .min(idle.saturating_sub(max_spare_servers));
            let spares = min_spare_servers.saturating_sub(idle + starting);
            let at_start = if first {
                start_servers.saturating_sub(total)
            } else {
                0
            };
            missing.max(spares).max(at_start)
        }
        ProcessManager::Ondemand => {
            plan.retire = census.idle_expired;
            missing
        }
    };
    plan.fork = wanted
        .min(room)
        .min(MAX_FORKS_UNDER_WAY.saturating_sub(starting));
    if plan.fork > 0 {
        plan.retire = 0;
    }
    plan
}

/// Determines the pause before the next attempt, which grows with each failure in a row: 100 ms, 200 ms, … 3.2 s, 5 s.
/// The number of attempts has no limit. The pause is at most 5 s, because an administrator who has repaired the cause
/// waits for the next attempt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Records a failure. Returns how long to wait before the next attempt.
    pub fn record_failure(&mut self) -> Duration {
        let wait = Duration::from_millis(100 << self.failures.min(8));
        self.failures += 1;
        wait.min(MAX_PAUSE)
    }

    /// Records a success. The next failure causes the shortest pause again.
    pub fn record_success(&mut self) {
        self.failures = 0;
    }
}

/// Returns after how many requests a program's replacement is ordered. The replacement takes time to start, so it is
/// ordered before the last of the `max_requests`: by a tenth to a fifth of them, spread by `salt`, so programs that
/// were started together are not replaced together. 0 stays 0 (never).
pub fn replacement_due_after(max_requests: u64, salt: u64) -> u64 {
    let tenth = max_requests / 10;
    // SplitMix64's finaliser: any salt gives an even spread.
    let mut z = salt.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    max_requests - tenth - z % (tenth + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DYNAMIC: ProcessManager = ProcessManager::Dynamic {
        start_servers: 3,
        min_spare_servers: 2,
        max_spare_servers: 4,
    };

    fn census(starting: u32, idle: u32, busy: u32, waiting: u32) -> Census {
        Census {
            starting,
            idle,
            busy,
            waiting,
            waited: FORK_AFTER_WAIT,
            idle_expired: 0,
        }
    }

    #[track_caller]
    fn check(pm: ProcessManager, max: u32, census: Census, fork: u32, retire: u32) {
        let got = plan(pm, max, false, census);
        assert_eq!((got.fork, got.retire), (fork, retire), "{census:?}");
    }

    #[test]
    fn static_pool_is_filled_and_never_shrinks() {
        check(ProcessManager::Static, 8, census(0, 0, 0, 0), 8, 0);
        check(ProcessManager::Static, 8, census(2, 3, 1, 0), 2, 0);
        let long_idle = Census {
            idle_expired: 8,
            ..census(0, 8, 0, 0)
        };
        check(ProcessManager::Static, 8, long_idle, 0, 0);
    }

    #[test]
    fn ondemand_burst_gets_a_child_for_each_request_at_once() {
        let mut burst = census(0, 0, 0, 20);
        burst.waited = Duration::ZERO;
        check(ProcessManager::Ondemand, 50, burst, 20, 0);
        check(ProcessManager::Ondemand, 8, burst, 8, 0);
        check(ProcessManager::Ondemand, 50, census(20, 0, 0, 20), 0, 0);
    }

    #[test]
    fn new_request_waits_for_awake_children_before_a_fork() {
        let mut young = census(0, 0, 2, 1);
        young.waited = Duration::from_millis(1);
        let plan = plan(ProcessManager::Ondemand, 8, false, young);
        assert_eq!((plan.fork, plan.recheck_after), (0, Some(FORK_AFTER_WAIT)));
        check(ProcessManager::Ondemand, 8, census(0, 0, 2, 1), 1, 0);
    }

    #[test]
    fn ondemand_children_leave_after_their_idle_timeout_but_not_while_others_are_forked() {
        let idle = Census {
            idle_expired: 3,
            ..census(0, 5, 1, 0)
        };
        check(ProcessManager::Ondemand, 8, idle, 0, 3);
    }

    #[test]
    fn dynamic_pool_keeps_its_spares_and_retires_the_rest_in_time() {
        assert_eq!(plan(DYNAMIC, 10, true, census(0, 0, 0, 0)).fork, 3);
        check(DYNAMIC, 10, census(0, 1, 5, 0), 1, 0);
        check(DYNAMIC, 10, census(0, 0, 10, 7), 0, 0);
        check(DYNAMIC, 10, census(0, 0, 4, 7), 6, 0);
        let expired = |n| Census {
            idle_expired: n,
            ..census(0, 7, 0, 0)
        };
        check(DYNAMIC, 10, expired(0), 0, 0);
        check(DYNAMIC, 10, expired(2), 0, 2);
        check(DYNAMIC, 10, expired(7), 0, 3);
    }

    #[test]
    fn fork_count_is_limited_by_max_children_and_max_forks() {
        check(DYNAMIC, 4, census(1, 0, 3, 100), 0, 0);
        check(
            ProcessManager::Static,
            500,
            census(0, 0, 0, 0),
            MAX_FORKS_UNDER_WAY,
            0,
        );
        check(ProcessManager::Static, 500, census(30, 40, 0, 0), 2, 0);
    }

    #[test]
    fn backoff_grows_up_to_a_limit_and_success_resets_it() {
        let mut b = Backoff::default();
        assert_eq!(b.record_failure(), Duration::from_millis(100));
        assert_eq!(b.record_failure(), Duration::from_millis(200));
        for _ in 0..100 {
            b.record_failure();
        }
        assert_eq!(b.record_failure(), MAX_PAUSE);
        b.record_success();
        assert_eq!(b.record_failure(), Duration::from_millis(100));
    }

    #[test]
    fn replacement_is_due_in_time_and_spread_and_zero_means_never() {
        let after: Vec<u64> = (0..1000)
            .map(|salt| replacement_due_after(1000, salt))
            .collect();
        assert!(after.iter().all(|n| (800..=900).contains(n)));
        assert!(after.iter().any(|n| *n < 820) && after.iter().any(|n| *n > 880));
        assert_eq!(
            (
                replacement_due_after(0, 1),
                replacement_due_after(1, 1),
                replacement_due_after(5, 1)
            ),
            (0, 1, 5)
        );
    }
}
