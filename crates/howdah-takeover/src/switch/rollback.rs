//! The way back to the old servers.

use super::failure::SwitchFailure;
use super::howdah::{ask_to_finish, stop_soon, wait_until_finished};
use super::old_server;
use super::ports::{Recipient, wait_for_handshakes};
use super::process::ProcessIdentity;
use super::run::Run;
use super::service;
use super::state::{FailedRollback, Phase, Rollback, RollbackReason, SwitchState, now};

impl Run {
    /// Gives the old servers all new connections, and stops Howdah when it has finished its requests. If an old server
    /// no longer runs, it is started, which takes a moment in which its addresses refuse connections.
    pub fn return_to_old_servers(
        &mut self,
        state: &mut SwitchState,
        (reason, message): (RollbackReason, String),
    ) -> Result<(), SwitchFailure> {
        self.progress.line(&format!("{reason:?}: {message}"));
        state.howdah_finishes = false;
        state.rollback = Some(Rollback {
            reason,
            message,
            at: now(),
        });
        if let Err(failure) = state.enter(Phase::RollingBack, &self.directory) {
            // A full disk must not keep the visitors at a server that is worse.
            self.progress.line(&failure.to_string());
        }
        self.finish_rollback(state)
    }

    /// Carries out a rollback that has been decided, from wherever it was interrupted.
    ///
    /// # Errors
    /// The failure of a step.
    pub fn finish_rollback(&mut self, state: &mut SwitchState) -> Result<(), SwitchFailure> {
        let howdah = state.howdah.or_else(|| self.howdah.running());
        let howdah = howdah.filter(|howdah| howdah.is_alive());
        if let Err(failure) = self.direct_all(state, Recipient::OldServer) {
            // As soon as Howdah has exited, the kernel gives all connections to the old server.
            self.progress.line(&failure.to_string());
        }
        if state.ports.iter().all(|port| port.owner.is_alive()) {
            wait_for_handshakes(&state.ports);
            self.finish_howdah(state, howdah);
        } else {
            howdah.into_iter().for_each(stop_soon);
            let started = old_server::start_stopped(&self.plan, &state.ports, &self.directory);
            if let Err(failure) = started {
                return self.serve_after_all(state, failure);
            }
        }
        for port in &state.ports {
            if let Err(failure) = port.release() {
                self.progress.line(&failure.to_string());
            }
        }
        self.end_with_old_servers(state)
    }

    /// Records that the old servers serve, and lets the machine start them again.
    fn end_with_old_servers(&self, state: &mut SwitchState) -> Result<(), SwitchFailure> {
        let changed = match state.is_managed() {
            true => service::keep_old_servers(&state.units),
            false => Ok(()),
        };
        self.lock.clear_rollback_request();
        state.howdah = None;
        state.end_log_parts();
        state.enter(Phase::RolledBack, &self.directory)?;
        self.progress.line("the old servers serve");
        changed
    }

    /// Lets Howdah finish its requests. It is asked only once, even if this program is killed meanwhile, because Howdah
    /// ends its requests when it is asked again.
    fn finish_howdah(&self, state: &mut SwitchState, howdah: Option<ProcessIdentity>) {
        let Some(howdah) = howdah else {
            return;
        };
        if !std::mem::replace(&mut state.howdah_finishes, true) {
            if let Err(failure) = state.write(&self.directory) {
                self.progress.line(&failure.to_string());
            }
            ask_to_finish(howdah);
        }
        wait_until_finished(howdah);
    }

    /// Starts Howdah again because an old server does not start.
    fn serve_after_all(
        &mut self,
        state: &mut SwitchState,
        failure: SwitchFailure,
    ) -> Result<(), SwitchFailure> {
        self.progress
            .line(&format!("{failure}; Howdah serves again"));
        // In this phase, the command `rollback` does not repeat its request, and it ends when it sees the failure.
        self.lock.clear_rollback_request();
        let started = self.start_howdah(state);
        let started = started.and_then(|()| self.direct_all(state, Recipient::Howdah));
        if let Err(failure) = started {
            self.progress.line(&failure.to_string());
        }
        state.rollback = None;
        state.failed_rollback = Some(FailedRollback {
            message: failure.message.clone(),
            at: now(),
        });
        if let Err(failure) = state.enter(Phase::Kept, &self.directory) {
            self.progress.line(&failure.to_string());
        }
        Err(failure)
    }

    /// Records a rollback for which nothing has to be done.
    pub fn note_rollback(
        &mut self,
        state: &mut SwitchState,
        (reason, message): (RollbackReason, String),
    ) -> Result<(), SwitchFailure> {
        self.progress.line(&format!("{reason:?}: {message}"));
        state.rollback = Some(Rollback {
            reason,
            message,
            at: now(),
        });
        self.end_with_old_servers(state)
    }
}
