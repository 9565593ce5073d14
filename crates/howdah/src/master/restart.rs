//! Decides when a process of the master is started again after it died. The pause grows while the process keeps dying.

use std::time::{Duration, Instant};

const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// A process that runs this long is not in a crash loop.
const SETTLED_AFTER: Duration = Duration::from_secs(60);

/// The next start, if one is planned, and how often the process has died.
#[derive(Default)]
pub struct RestartPlan {
    at: Option<Instant>,
    crashes: u32,
}

impl RestartPlan {
    /// Plans a start after the process, which was started at `since`, has exited. `None` means that it could not be
    /// started.
    pub fn plan(&mut self, since: Option<Instant>) {
        if since.is_some_and(|since| since.elapsed() >= SETTLED_AFTER) {
            self.crashes = 0;
        }
        self.crashes += 1;
        let pause = MIN_PAUSE * (1 << self.crashes.min(10));
        self.at = Some(Instant::now() + pause.min(MAX_PAUSE));
    }

    /// Plans a start without a pause.
    pub fn plan_now(&mut self) {
        self.at = Some(Instant::now());
    }

    /// Cancels the planned start.
    pub fn cancel(&mut self) {
        self.at = None;
    }

    /// Returns when the start is due.
    pub fn due_at(&self) -> Option<Instant> {
        self.at
    }

    /// Returns whether the start is due.
    pub fn is_due(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| now >= at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_pause_grows_with_each_crash_and_a_restart_without_crash_has_none() {
        let mut plan = RestartPlan::default();
        assert!(plan.due_at().is_none() && !plan.is_due(Instant::now()));
        let mut last = Duration::ZERO;
        for crash in 1..=12 {
            let now = Instant::now();
            plan.plan(Some(now));
            assert!(!plan.is_due(now));
            let pause = plan.due_at().unwrap() - now;
            let grows = pause > last || pause >= MAX_PAUSE;
            assert!(grows && pause < MAX_PAUSE * 2, "{crash}: {pause:?}");
            last = pause;
        }
        plan.plan_now();
        assert!(plan.is_due(Instant::now()));
        plan.cancel();
        assert!(!plan.is_due(Instant::now()));
    }
}
