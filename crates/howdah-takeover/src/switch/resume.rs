//! The continuation of a switch whose process was killed, and the service after a complete one.

use std::time::Duration;

use super::failure::SwitchFailure;
use super::howdah::stop_soon;
use super::ports::Recipient;
use super::run::{Run, TICK, WatchEnd, by_hand, is_running};
use super::state::{Phase, RollbackReason, SwitchState};

/// The pause before Howdah is started again after it has exited.
const RESTART_PAUSE: Duration = Duration::from_secs(2);

impl Run {
    /// Continues the switch from the phase in which it was interrupted.
    ///
    /// # Errors
    /// The failure of a step.
    pub fn resume(&mut self, state: &mut SwitchState) -> Result<(), SwitchFailure> {
        let rebooted = state.enter_present_boot();
        let because = |reason: RollbackReason, message: &str| (reason, message.to_owned());
        match state.phase {
            Phase::RolledBack => Ok(()),
            Phase::Kept => self.serve(state),
            Phase::Keeping => {
                self.keep(state)?;
                self.serve(state)
            }
            _ if rebooted => {
                // The machine has started the old servers.
                let message = "the machine was started again before the switch was complete";
                self.note_rollback(state, because(RollbackReason::RolledBackReboot, message))
            }
            Phase::Starting => {
                let message = "the program was killed before Howdah served";
                let reason = because(RollbackReason::RolledBackInterrupted, message);
                self.return_to_old_servers(state, reason)
            }
            Phase::RollingBack => self.finish_rollback(state),
            Phase::Watching => self.resume_watch(state),
        }
    }

    fn resume_watch(&mut self, state: &mut SwitchState) -> Result<(), SwitchFailure> {
        if is_running(state.howdah) {
            self.progress.line("the watch continues");
            self.watch_on(state)?;
            if state.phase == Phase::Kept && state.is_managed() {
                return self.serve(state);
            }
            return Ok(());
        }
        let message =
            "Howdah exited while no process watched it; its last messages are in howdah.log";
        let reason = (RollbackReason::RolledBackExit, message.to_owned());
        self.return_to_old_servers(state, reason)
    }

    /// Serves after a complete switch: waits while Howdah runs, and starts it whenever it does not. Returns when the
    /// switch was rolled back, or when this process is to exit.
    fn serve(&mut self, state: &mut SwitchState) -> Result<(), SwitchFailure> {
        loop {
            if !is_running(state.howdah) && !self.restart(state)? {
                return Ok(());
            }
            match self.interruption(state) {
                // Howdah has exited; the next round starts it.
                Some(WatchEnd::Worse(RollbackReason::RolledBackExit, _)) => {}
                Some(WatchEnd::Worse(reason, message)) => {
                    if !self.still_serves(state, (reason, message))? {
                        return Ok(());
                    }
                }
                Some(WatchEnd::Interrupted) => return Ok(()),
                Some(WatchEnd::Passed) | None => std::thread::sleep(TICK),
            }
        }
    }

    /// Starts Howdah until it serves. Returns false if this process is to exit instead.
    fn restart(&mut self, state: &mut SwitchState) -> Result<bool, SwitchFailure> {
        while !self.is_cancelled() {
            self.progress.line("Howdah does not run, and is started");
            let Err(failure) = self.start_howdah(state) else {
                if let Err(failure) = self.direct_all(state, Recipient::Howdah) {
                    self.progress.line(&failure.to_string());
                }
                return Ok(true);
            };
            self.progress.line(&failure.to_string());
            state.howdah.take().into_iter().for_each(stop_soon);
            std::thread::sleep(RESTART_PAUSE);
        }
        match self.lock.is_rollback_requested() {
            true => self.still_serves(state, by_hand()),
            false => Ok(false),
        }
    }

    /// Rolls back. Returns whether Howdah is to serve nevertheless, because an old server does not start.
    fn still_serves(
        &mut self,
        state: &mut SwitchState,
        reason: (RollbackReason, String),
    ) -> Result<bool, SwitchFailure> {
        match self.return_to_old_servers(state, reason) {
            // The failure has been printed.
            Err(_) if state.phase == Phase::Kept => Ok(true),
            result => result.map(|()| false),
        }
    }
}
