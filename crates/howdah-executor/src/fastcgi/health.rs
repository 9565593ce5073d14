//! Tracks which backends are reachable: when a backend is excluded, probed, and used again. Like [`super::balance`], it
//! decides from the values and times that callers pass in.

use std::time::{Duration, Instant};

use super::backend_state::{BackendHealth, BackendState, MAX_LIMIT};
use super::balance::Balance;

/// The number of failures in a row that exclude a backend while another is up.
const EXCLUDE_AFTER_FAILURES: u32 = 3;
/// The initial interval between attempts to reach a backend that is down. Each failed attempt doubles it, up to
/// `MAX_PROBE_INTERVAL`.
const FIRST_PROBE_INTERVAL: Duration = Duration::from_millis(50);
const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(1);

impl<C> Balance<C> {
    /// Records a correct response of a backend.
    pub fn record_success(&mut self, backend: usize, now: Instant) {
        let wanted = self.queued() > 0;
        let member = &mut self.backends[backend];
        member.served += 1;
        member.failures_in_a_row = 0;
        if wanted && member.busy >= member.limit.now {
            member.limit.record_response(now);
        }
    }

    /// Records that a backend's backlog was full.
    pub fn record_overflow(&mut self, backend: usize, now: Instant) {
        let member = &mut self.backends[backend];
        member.overflows += 1;
        member.limit.record_overflow(now, member.busy);
    }

    /// Records that a backend's response broke off or was invalid. Returns whether this excludes the backend.
    pub fn record_failure(&mut self, backend: usize, why: &str, now: Instant) -> bool {
        let other_is_up = self.another_is_up(backend);
        let member = &mut self.backends[backend];
        member.failures += 1;
        member.failures_in_a_row += 1;
        let out =
            member.failures_in_a_row >= EXCLUDE_AFTER_FAILURES && other_is_up && member.is_up();
        if out {
            // The backend was reachable, so an immediate probe would give no new information.
            self.down_for(backend, why, now, MAX_PROBE_INTERVAL);
        }
        out
    }

    /// Records that a backend is not reachable. Returns whether it was up before.
    pub fn record_down(&mut self, backend: usize, why: &str, now: Instant) -> bool {
        self.backends[backend].failures += 1;
        self.down_for(backend, why, now, FIRST_PROBE_INTERVAL)
    }

    fn down_for(&mut self, backend: usize, why: &str, now: Instant, interval: Duration) -> bool {
        let member = &mut self.backends[backend];
        let news = member.is_up();
        if news {
            member.health = BackendHealth::Down {
                since: now,
                probe_at: now + interval,
                interval,
                why: why.to_owned(),
            };
            member.kept.iter_mut().for_each(Vec::clear);
            member.kept_count = 0;
        }
        news
    }

    /// Records that another attempt to reach the backend has failed.
    pub fn record_failed_probe(&mut self, backend: usize, reason: &str, now: Instant) {
        if let BackendHealth::Down {
            probe_at,
            interval,
            why,
            ..
        } = &mut self.backends[backend].health
        {
            *interval = (*interval * 2).min(MAX_PROBE_INTERVAL);
            *probe_at = now + *interval;
            reason.clone_into(why);
        }
    }

    /// Records that the backend is reachable. `limit` is the number of requests that it can run at once, if it reported
    /// one; a configured limit takes precedence. Returns whether it was down before.
    pub fn record_up(&mut self, backend: usize, limit: Option<u32>) -> bool {
        let member = &mut self.backends[backend];
        let news = !member.is_up();
        member.health = BackendHealth::Up;
        member.failures_in_a_row = 0;
        if let Some(limit) = limit
            && !member.limit.configured
        {
            member.limit.now = limit.clamp(1, MAX_LIMIT);
            member.limit.known = true;
        }
        news
    }

    /// If all backends are down, returns when the last of them failed, and why. Returns `None` if any backend is up.
    pub fn all_down(&self) -> Option<(Instant, &str)> {
        let mut last: Option<(Instant, &str)> = None;
        for member in &self.backends {
            match &member.health {
                BackendHealth::Up => return None,
                BackendHealth::Down { since, why, .. } => {
                    if last.is_none_or(|(at, _)| *since > at) {
                        last = Some((*since, why));
                    }
                }
            }
        }
        last
    }

    /// Returns the backends that must be probed now, and postpones the next probe of each by `patience`. A probe that
    /// fails sooner schedules the next one itself. A probe that has no result after `patience` counts as abandoned.
    pub fn take_due(&mut self, now: Instant, patience: Duration) -> Vec<usize> {
        let due = self.due(now);
        for backend in &due {
            if let BackendHealth::Down { probe_at, .. } = &mut self.backends[*backend].health {
                *probe_at = now + patience;
            }
        }
        due
    }

    pub(super) fn due(&self, now: Instant) -> Vec<usize> {
        let due = |m: &BackendState<C>| matches!(&m.health, BackendHealth::Down { probe_at, .. } if *probe_at <= now);
        let all = self.backends.iter().enumerate();
        all.filter(|(_, m)| due(m)).map(|(at, _)| at).collect()
    }
}
