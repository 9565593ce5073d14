//! How the workers of a server share its connections: a worker that is ahead leaves new ones to the others.

use super::SwooleWorker;
use crate::run::log;

/// A worker that has more than this many connections more than another one leaves new connections to the others.
const LEAD: u64 = 4;
/// The pause before that worker checks again (ms), and the maximum number of checks.
const ACCEPT_PAUSE: u64 = 2;
const MOST_LOOKS: u32 = 50;
/// How many connections it then accepts even if it is still ahead, since the others may not get to run.
const TURN: u32 = 8;

impl SwooleWorker {
    /// Pauses accepting if this worker is ahead. The kernel wakes the workers that are quick to accept, so one worker
    /// under load could end up with all persistent connections. After accepting, a worker that is ahead ignores the
    /// listener for a moment, and the next connection wakes another worker.
    pub(super) fn pause_accepting_when_ahead(&mut self) {
        self.turn = self.turn.saturating_sub(1);
        if self.turn == 0 && self.leaving.is_none() && self.leads() {
            self.stop_listening();
            self.looks = 0;
            self.accept_paused_until = Some(self.now + ACCEPT_PAUSE);
        }
    }

    fn leads(&self) -> bool {
        let fewest = self
            .counters
            .fewest_elsewhere(self.now.saturating_sub(ACCEPT_PAUSE));
        fewest.is_some_and(|fewest| self.open > fewest + LEAD)
    }

    pub(super) fn look_again(&mut self) {
        self.looks += 1;
        if self.looks < MOST_LOOKS && self.leads() {
            self.accept_paused_until = Some(self.now + ACCEPT_PAUSE);
            return;
        }
        self.accept_paused_until = None;
        self.turn = TURN;
        if let Err(e) = self.listen() {
            log::warn(&format!("CannotListen: {e}"));
        }
    }
}
