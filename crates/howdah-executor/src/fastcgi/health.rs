//! Tracks which backends are reachable: when a backend is excluded, probed, and used again. Like [`super::balance`], it
//! decides from the values and times that callers pass in.

use std::time::{Duration, Instant};

use super::balance::Balance;
use super::member::{HIGHEST_LIMIT, Health, Member};

/// The number of failures in a row that exclude a backend while another is up.
const FAILURES_IN_A_ROW: u32 = 3;
/// The first time between two attempts to reach a backend that is down. `PROBE_LAST` is the maximum.
const PROBE_FIRST: Duration = Duration::from_millis(50);
const PROBE_LAST: Duration = Duration::from_secs(1);

impl<C> Balance<C> {
    /// Records a correct response of a backend.
    pub fn succeeded(&mut self, backend: usize, now: Instant) {
        let wanted = self.queued() > 0;
        let member = &mut self.members[backend];
        member.answered += 1;
        member.failures_in_a_row = 0;
        if wanted && member.busy >= member.limit.now {
            member.limit.answered(now);
        }
    }

    /// Records that a backend's backlog was full.
    pub fn overflowed(&mut self, backend: usize, now: Instant) {
        let member = &mut self.members[backend];
        member.overflows += 1;
        member.limit.overflowed(now, member.busy);
    }

    /// Records that a backend's response broke off or was invalid. Returns whether this excludes the backend.
    pub fn failed(&mut self, backend: usize, why: &str, now: Instant) -> bool {
        let other_is_up = self.another_is_up(backend);
        let member = &mut self.members[backend];
        member.failures += 1;
        member.failures_in_a_row += 1;
        let out = member.failures_in_a_row >= FAILURES_IN_A_ROW && other_is_up && member.is_up();
        if out {
            // The backend was reachable, so an immediate probe would give no new information.
            self.down_for(backend, why, now, PROBE_LAST);
        }
        out
    }

    /// Records that a backend is not reachable. Returns whether it was up before.
    pub fn down(&mut self, backend: usize, why: &str, now: Instant) -> bool {
        self.members[backend].failures += 1;
        self.down_for(backend, why, now, PROBE_FIRST)
    }

    fn down_for(&mut self, backend: usize, why: &str, now: Instant, interval: Duration) -> bool {
        let member = &mut self.members[backend];
        let news = member.is_up();
        if news {
            member.health = Health::Down {
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
    pub fn still_down(&mut self, backend: usize, reason: &str, now: Instant) {
        if let Health::Down {
            probe_at,
            interval,
            why,
            ..
        } = &mut self.members[backend].health
        {
            *interval = (*interval * 2).min(PROBE_LAST);
            *probe_at = now + *interval;
            reason.clone_into(why);
        }
    }

    /// Records that the backend is reachable. `limit` is the number of requests that it can run at once, if it reported
    /// one; a configured limit takes precedence. Returns whether it was down before.
    pub fn up(&mut self, backend: usize, limit: Option<u32>) -> bool {
        let member = &mut self.members[backend];
        let news = !member.is_up();
        member.health = Health::Up;
        member.failures_in_a_row = 0;
        if let Some(limit) = limit
            && !member.limit.configured
        {
            member.limit.now = limit.clamp(1, HIGHEST_LIMIT);
            member.limit.known = true;
        }
        news
    }

    /// Returns since when all backends have been down, and the reason of the one that failed last.
    pub fn all_down(&self) -> Option<(Instant, &str)> {
        let mut last: Option<(Instant, &str)> = None;
        for member in &self.members {
            match &member.health {
                Health::Up => return None,
                Health::Down { since, why, .. } => {
                    if last.is_none_or(|(at, _)| *since > at) {
                        last = Some((*since, why));
                    }
                }
            }
        }
        last
    }

    /// Returns the backends that must be probed now. Each is returned once: the probe schedules the next one, or counts
    /// as abandoned after `patience`.
    pub fn take_due(&mut self, now: Instant, patience: Duration) -> Vec<usize> {
        let due = self.due(now);
        for backend in &due {
            if let Health::Down { probe_at, .. } = &mut self.members[*backend].health {
                *probe_at = now + patience;
            }
        }
        due
    }

    pub(super) fn due(&self, now: Instant) -> Vec<usize> {
        let due =
            |m: &Member<C>| matches!(&m.health, Health::Down { probe_at, .. } if *probe_at <= now);
        let all = self.members.iter().enumerate();
        all.filter(|(_, m)| due(m)).map(|(at, _)| at).collect()
    }
}
