//! How the workers of a server share its connections: a worker that is ahead leaves new ones to the others.

use super::SwooleWorker;
use crate::run::log;

/// A worker leaves new connections to the others if another worker has fewer connections by more than this number.
const MAX_LEAD: u64 = 4;
/// The pause before that worker checks again (ms), and the maximum number of checks.
const ACCEPT_PAUSE_MS: u64 = 2;
const MAX_ACCEPT_CHECKS: u32 = 50;
/// How many connections the worker accepts after the pause even if it is still ahead, since the others may not get to
/// run.
const ACCEPTS_BEFORE_CHECK: u32 = 8;

impl SwooleWorker {
    /// Pauses accepting if this worker is ahead. The kernel wakes the workers that are quick to accept, so one worker
    /// under load could end up with all persistent connections. After accepting, a worker that is ahead ignores the
    /// listener for a moment, and the next connection wakes another worker.
    pub(super) fn pause_accepting_when_ahead(&mut self) {
        self.accepts_before_check = self.accepts_before_check.saturating_sub(1);
        if self.accepts_before_check == 0 && self.leaving_since.is_none() && self.is_ahead() {
            self.stop_listening();
            self.accept_checks = 0;
            self.accept_paused_until = Some(self.now + ACCEPT_PAUSE_MS);
        }
    }

    fn is_ahead(&self) -> bool {
        let fewest = self
            .counters
            .fewest_connections_elsewhere(self.now.saturating_sub(ACCEPT_PAUSE_MS));
        fewest.is_some_and(|fewest| self.open_connections > fewest + MAX_LEAD)
    }

    pub(super) fn recheck_accepting(&mut self) {
        self.accept_checks += 1;
        if self.accept_checks < MAX_ACCEPT_CHECKS && self.is_ahead() {
            self.accept_paused_until = Some(self.now + ACCEPT_PAUSE_MS);
            return;
        }
        self.accept_paused_until = None;
        self.accepts_before_check = ACCEPTS_BEFORE_CHECK;
        if let Err(e) = self.listen() {
            log::warn(&format!("CannotListen: {e}"));
        }
    }
}
