//! How the workers of a server share out its connections: one that leads leaves new ones to others.

use super::SwooleWorker;
use crate::run::log;

/// So many connections more than another worker has, and a worker leaves new ones to that.
const LEAD: u64 = 4;
/// For how long (ms) before it looks again, and how often.
const ACCEPT_PAUSE: u64 = 2;
const MOST_LOOKS: u32 = 50;
/// Connections it takes then all the same: the others may not get to run.
const TURN: u32 = 8;

impl SwooleWorker {
    /// The kernel wakes whoever is quick to accept; under load one worker could end up with all
    /// kept connections. One that leads looks away for a moment, after having accepted: what comes
    /// next wakes another.
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
