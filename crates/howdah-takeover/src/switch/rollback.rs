//! The way back to the old servers.

use super::failure::SwitchFailure;
use super::howdah::{ask_to_finish, stop_soon, wait_until_finished};
use super::old_server;
use super::ports::{Recipient, wait_for_handshakes};
use super::process::ProcessIdentity;
use super::run::Run;
use super::service;
use super::state::{Phase, Rollback, RollbackReason, SwitchState, now};

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
        for port in &state.ports {
            port.direct_to(Recipient::OldServer)?;
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
            port.release()?;
        }
        if service::manages(&self.plan) {
            service::keep_old_servers(&self.plan)?;
        }
        self.lock.clear_rollback_request();
        state.howdah = None;
        state.enter(Phase::RolledBack, &self.directory)?;
        self.progress.line("the old servers serve");
        Ok(())
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
        self.lock.clear_rollback_request();
        self.start_howdah(state)?;
        for port in &state.ports {
            port.direct_to(Recipient::Howdah)?;
        }
        state.rollback = None;
        state.enter(Phase::Kept, &self.directory)?;
        Err(failure)
    }

    /// Records a rollback for which nothing has to be done.
    pub fn note_rollback(
        &mut self,
        state: &mut SwitchState,
        (reason, message): (RollbackReason, String),
    ) -> Result<(), SwitchFailure> {
        self.progress.line(&format!("{reason:?}: {message}"));
        if service::manages(&self.plan) {
            service::keep_old_servers(&self.plan)?;
        }
        state.rollback = Some(Rollback {
            reason,
            message,
            at: now(),
        });
        state.enter(Phase::RolledBack, &self.directory)
    }
}
