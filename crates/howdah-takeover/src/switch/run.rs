//! The process that is in charge of a switch: starts Howdah, directs the connections to it, watches it and keeps it.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use howdah_os::signals::SignalDescriptor;
use rustix::process::Signal;

use super::criteria::{Counters, WatchRecord};
use super::failure::{FailureName, SwitchFailure};
use super::howdah::{Howdah, StartingHowdah};
use super::ports::{Recipient, SharedPort, every_port_is_served};
use super::probe::{ProbeResult, ProbeRounds};
use super::process::ProcessIdentity;
use super::progress::Progress;
use super::service;
use super::state::{Phase, RollbackReason, SwitchLock, SwitchState, now};
use crate::plan::Plan;

/// The time between two rounds of the watch.
const ROUND: Duration = Duration::from_secs(1);
/// The time between two looks at signals, requests for a rollback, and Howdah's process.
pub const TICK: Duration = Duration::from_millis(50);

/// A process that is in charge of a switch.
#[derive(Debug)]
pub struct Run {
    pub(super) directory: PathBuf,
    pub(super) plan: Plan,
    pub(super) howdah: Howdah,
    pub(super) lock: SwitchLock,
    signals: SignalDescriptor,
    /// Whether a signal has cancelled the start.
    cancelled: Cell<bool>,
    pub(super) progress: Progress,
}

/// How a watch ended.
#[derive(Debug)]
pub enum WatchEnd {
    /// The time has passed, and Howdah is as good as the old servers.
    Passed,
    /// The old servers are to serve again, for this reason.
    Worse(RollbackReason, String),
    /// The process is to exit, and another one will continue.
    Interrupted,
}

impl Run {
    /// Takes charge of the switch in a directory.
    ///
    /// # Errors
    /// `StateNotWritten` if the system gives no descriptor for signals.
    pub fn new(directory: &Path, plan: Plan, lock: SwitchLock) -> Result<Run, SwitchFailure> {
        // A request from before this process was in charge has been dealt with, or concerns an earlier switch.
        lock.clear_rollback_request();
        // The connection of the user may break, which must not end the watch.
        let signals = [Signal::INT, Signal::TERM, Signal::HUP].map(Signal::as_raw);
        let signals = SignalDescriptor::new(&signals).map_err(|error| {
            FailureName::StateNotWritten.with(format!("signals cannot be awaited: {error}"))
        })?;
        Ok(Run {
            directory: directory.to_owned(),
            plan,
            howdah: Howdah::of(directory),
            lock,
            signals,
            cancelled: Cell::new(false),
            progress: Progress::default(),
        })
    }

    /// Begins a switch and carries it to its end.
    ///
    /// # Errors
    /// The failure of a step. The old servers serve unless the message says otherwise.
    pub fn begin(&mut self, state: &mut SwitchState) -> Result<(), SwitchFailure> {
        state.enter(Phase::Starting, &self.directory)?;
        if state.is_managed() {
            let program = std::env::current_exe().unwrap_or_default();
            if let Err(failure) = service::install(&program, &self.directory) {
                let reason = (RollbackReason::RolledBackStart, failure.to_string());
                return self.return_to_old_servers(state, reason);
            }
        }
        self.progress.line("starting Howdah beside the old servers");
        if let Err(failure) = self.start_howdah(state) {
            let reason = match self.is_cancelled() {
                true => by_hand(),
                false => (RollbackReason::RolledBackStart, failure.message),
            };
            return self.return_to_old_servers(state, reason);
        }
        if let Err(failure) = state.enter(Phase::Watching, &self.directory) {
            let reason = (RollbackReason::RolledBackStart, failure.to_string());
            return self.return_to_old_servers(state, reason);
        }
        self.watch_on(state)
    }

    /// Starts Howdah on sockets of its own beside those of the old servers, and waits until it is ready.
    pub fn start_howdah(&mut self, state: &mut SwitchState) -> Result<(), SwitchFailure> {
        let is_complete = state.is_complete();
        let open = |port: &mut SharedPort| match is_complete {
            true => port.open_if_shared(),
            false => port.open(),
        };
        let sockets = state.ports.iter_mut().map(open);
        let sockets: Vec<Vec<OwnedFd>> = sockets.collect::<Result<_, _>>()?;
        let sockets = sockets.into_iter().flatten().collect();
        let starting: StartingHowdah = self.howdah.start(sockets)?;
        state.howdah = Some(starting.process);
        match state.write(&self.directory) {
            // Nobody else would serve, so a full disk does not prevent the start.
            Err(failure) if is_complete => self.progress.once(&failure.to_string()),
            written => written?,
        }
        starting.wait(|| self.is_cancelled())?;
        match is_complete {
            true => Ok(()),
            false => every_port_is_served(&state.ports),
        }
    }

    /// Gives a server all new connections of every address. An address that fails does not prevent the others; returns
    /// the first failure.
    pub fn direct_all(&self, state: &SwitchState, to: Recipient) -> Result<(), SwitchFailure> {
        let directed = state.ports.iter().map(|port| port.direct_to(to));
        directed.fold(Ok(()), Result::and)
    }

    /// Returns whether the user or the system has asked for an end of the start.
    pub fn is_cancelled(&self) -> bool {
        let ends = |signal: &i32| *signal != Signal::HUP.as_raw();
        if self.signals.take_pending().iter().any(ends) {
            self.cancelled.set(true);
        }
        self.cancelled.get() || self.lock.is_rollback_requested()
    }

    /// Gives Howdah all new connections, watches it, and keeps it or returns to the old servers.
    pub fn watch_on(&mut self, state: &mut SwitchState) -> Result<(), SwitchFailure> {
        if let Err(failure) = self.direct_all(state, Recipient::Howdah) {
            let reason = (RollbackReason::RolledBackOldServer, failure.to_string());
            return self.return_to_old_servers(state, reason);
        }
        self.progress
            .line("Howdah gets all new connections and is watched");
        match self.watch(state)? {
            WatchEnd::Passed => self.keep(state),
            WatchEnd::Worse(reason, message) => {
                self.return_to_old_servers(state, (reason, message))
            }
            WatchEnd::Interrupted => Ok(()),
        }
    }

    fn watch(&mut self, state: &mut SwitchState) -> Result<WatchEnd, SwitchFailure> {
        let mut record = WatchRecord::new(state.baseline.clone());
        let begun = Instant::now();
        // After an interruption, the rest of the time is watched.
        let left = (state.since + state.watch_seconds).saturating_sub(now());
        let until = begun + Duration::from_secs(left);
        let mut rounds = ProbeRounds::new(&state.baseline.probes);
        loop {
            let round = Instant::now();
            let (counters, probes) = match self.measure(&mut rounds, state) {
                Ok(measured) => measured,
                Err(end) => return Ok(end),
            };
            record.add_round(begun.elapsed(), counters, &probes);
            state.figures = record.figures();
            // The figures are only for the user, so a full disk does not end the watch.
            if let Err(failure) = state.write(&self.directory) {
                self.progress.once(&failure.to_string());
            }
            self.warn_of_stopped_servers(state);
            self.progress.watch(state);
            if let Some(end) = self.watch_end(state, &record) {
                return Ok(end);
            }
            while round.elapsed() < ROUND {
                if let Some(end) = self.interruption(state) {
                    return Ok(end);
                }
                std::thread::sleep(TICK);
            }
            if Instant::now() >= until && record.is_settled() {
                return Ok(WatchEnd::Passed);
            }
        }
    }

    /// Asks Howdah for its counters, and requests front pages. Returns the error if the watch ends meanwhile.
    fn measure(
        &self,
        rounds: &mut ProbeRounds,
        state: &SwitchState,
    ) -> Result<(Option<Counters>, Vec<ProbeResult>), WatchEnd> {
        let (sender, counters) = mpsc::channel();
        let howdah = self.howdah.clone();
        std::thread::spawn(move || sender.send(howdah.counters()));
        let probes = rounds.round(|| self.interruption(state))?;
        // The thread ends when `howdah status` has taken too long.
        loop {
            match counters.recv_timeout(TICK) {
                Ok(counters) => return Ok((counters, probes)),
                Err(RecvTimeoutError::Disconnected) => return Ok((None, probes)),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(end) = self.interruption(state) {
                return Err(end);
            }
        }
    }

    fn warn_of_stopped_servers(&self, state: &SwitchState) {
        if let Some(port) = state.ports.iter().find(|port| !port.owner.is_alive()) {
            self.progress.once(&format!(
                "the old server of {} (process {}) has exited, so a rollback has to start it",
                port.address, port.owner.pid
            ));
        }
    }

    fn watch_end(&self, state: &SwitchState, record: &WatchRecord) -> Option<WatchEnd> {
        // If Howdah has exited, its silence is only the consequence.
        self.interruption(state).or_else(|| {
            let (reason, message) = record.verdict()?;
            Some(WatchEnd::Worse(reason, message))
        })
    }

    /// Returns why the watch, or the service after it, ends before its time. Takes pending signals.
    pub fn interruption(&self, state: &SwitchState) -> Option<WatchEnd> {
        let worse = |(reason, message)| Some(WatchEnd::Worse(reason, message));
        if !is_running(state.howdah) {
            let message = "Howdah exited; its last messages are in howdah.log";
            return worse((RollbackReason::RolledBackExit, message.to_owned()));
        }
        if self.lock.is_rollback_requested() {
            return worse(by_hand());
        }
        for signal in self.signals.take_pending() {
            if signal == Signal::INT.as_raw() {
                return worse(by_hand());
            }
            if signal == Signal::TERM.as_raw() {
                return Some(WatchEnd::Interrupted);
            }
        }
        None
    }

    /// Makes the switch permanent.
    pub fn keep(&mut self, state: &mut SwitchState) -> Result<(), SwitchFailure> {
        state.enter(Phase::Keeping, &self.directory)?;
        if state.is_managed() {
            service::keep_howdah(&state.units)?;
        }
        state.enter(Phase::Kept, &self.directory)?;
        self.progress.kept(state, &self.plan, &self.directory);
        Ok(())
    }
}

/// Returns whether Howdah runs.
pub fn is_running(process: Option<ProcessIdentity>) -> bool {
    process.is_some_and(ProcessIdentity::is_alive)
}

/// Returns the reason of a rollback that the user has asked for.
pub fn by_hand() -> (RollbackReason, String) {
    let message =
        "`howdah takeover rollback` was run, or the switch was interrupted at the keyboard";
    (RollbackReason::RolledBackByHand, message.to_owned())
}
