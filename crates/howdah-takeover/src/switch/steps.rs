//! The steps of a switch: start, watch, keep and roll back, and how an interrupted switch continues.
//!
//! In every phase, one of the servers serves without any help of this program. Until the watch begins, the kernel gives
//! all connections to the old servers. During the watch it gives them to Howdah, and, if Howdah exits, to the old
//! servers. Therefore nothing is lost if this program is killed; only nobody watches any more until it is resumed.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use howdah_os::signals::SignalDescriptor;
use rustix::process::Signal;

use super::criteria::WatchRecord;
use super::failure::{FailureName, SwitchFailure};
use super::figures::Baseline;
use super::howdah::{Howdah, StartingHowdah, ask_to_finish, stop_soon, wait_until_finished};
use super::old_server;
use super::ports::{Recipient, SharedPort, shared_ports, wait_for_handshakes};
use super::probe::ProbeResult;
use super::process::ProcessIdentity;
use super::progress::Progress;
use super::refusals::refusals;
use super::service;
use super::state::{
    Phase, Rollback, RollbackReason, SwitchLock, SwitchState, now, request_rollback,
};
use crate::plan::Plan;

/// The time between two rounds of the watch.
const ROUND: Duration = Duration::from_secs(1);
/// The time between two looks at signals, requests for a rollback, and Howdah's process.
const TICK: Duration = Duration::from_millis(50);
/// How long `rollback` waits until the process in charge of the switch has rolled back.
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(150);
/// The pause before Howdah is started again after it has exited.
const RESTART_PAUSE: Duration = Duration::from_secs(2);

/// Switches the machine to Howdah, watches it, and rolls back if it is worse. Returns the state at the end.
///
/// # Errors
/// All reasons why the switch does not begin, or the failure of a step. After a failed step, the old servers serve, or
/// the message says what to do.
pub fn switch(directory: &Path, watch: Duration) -> Result<SwitchState, Vec<SwitchFailure>> {
    let one = |failure| vec![failure];
    let lock = lock_for_switch(directory).map_err(one)?;
    let plan = read_plan(directory).map_err(one)?;
    let ports = shared_ports(&plan);
    let found = refusals(directory, &plan, &ports);
    if !found.is_empty() {
        return Err(found);
    }
    let mut run = Run::new(directory, plan, lock).map_err(one)?;
    run.progress.line("measuring the old servers");
    let baseline = Baseline::measure(&run.plan);
    run.progress.baseline(&baseline);
    let mut state = SwitchState::begin(watch.as_secs(), ports, baseline);
    run.begin(&mut state).map_err(one)?;
    Ok(state)
}

/// Takes the lock, and refuses if there is a switch that has not ended.
fn lock_for_switch(directory: &Path) -> Result<SwitchLock, SwitchFailure> {
    // Without a plan there may be no directory.
    read_plan(directory)?;
    let lock = SwitchLock::try_take(directory)?;
    let lock = lock.ok_or_else(|| {
        FailureName::SwitchInProgress
            .with("another switch is at work; see `howdah takeover status`")
    })?;
    let shown = directory.display();
    match SwitchState::read(directory)? {
        Some(state) if state.is_in_progress() => Err(FailureName::SwitchInProgress.with(format!(
            "an earlier switch was interrupted; continue it with `howdah takeover resume --dir {shown}`, or return to the old servers with `howdah takeover rollback --dir {shown}`"
        ))),
        Some(state) if state.phase == Phase::Kept => Err(FailureName::AlreadySwitched.with(format!(
            "Howdah serves already; to return to the old servers, run `howdah takeover rollback --dir {shown}`"
        ))),
        _ => Ok(lock),
    }
}

fn read_plan(directory: &Path) -> Result<Plan, SwitchFailure> {
    Plan::read(directory).map_err(|why| FailureName::PlanUnreadable.with(why))
}

/// Returns to the old servers. If another process watches the switch, that process does it.
///
/// # Errors
/// `NothingToRollBack`, `RollbackTimeout`, or the failure of a step.
pub fn roll_back(directory: &Path) -> Result<SwitchState, SwitchFailure> {
    let nothing =
        || FailureName::NothingToRollBack.with("the old servers serve; nothing was switched");
    match SwitchState::read(directory)? {
        Some(state) if state.phase != Phase::RolledBack => {}
        _ => return Err(nothing()),
    }
    request_rollback(directory)?;
    let until = Instant::now() + ROLLBACK_TIMEOUT;
    loop {
        if let Some(lock) = SwitchLock::try_take(directory)? {
            lock.clear_rollback_request();
            let mut state = SwitchState::read(directory)?.ok_or_else(nothing)?;
            if state.phase != Phase::RolledBack {
                let mut run = Run::new(directory, read_plan(directory)?, lock)?;
                run.return_to_old_servers(&mut state, by_hand())?;
            }
            return Ok(state);
        }
        if Instant::now() > until {
            let why = "the process that watches the switch does not respond; `fuser` on switch.lock in the directory of the takeover names it: kill it, and roll back again";
            return Err(FailureName::RollbackTimeout.with(why));
        }
        std::thread::sleep(TICK);
    }
}

fn by_hand() -> (RollbackReason, String) {
    let message =
        "`howdah takeover rollback` was run, or the switch was interrupted at the keyboard";
    (RollbackReason::RolledBackByHand, message.to_owned())
}

/// Continues an interrupted switch, or serves after a complete one. Waits while another process is in charge. Returns
/// when the old servers serve, when a switch was completed here, or if there is none.
///
/// # Errors
/// The failure of a step.
pub fn resume(directory: &Path) -> Result<Option<SwitchState>, SwitchFailure> {
    let lock = SwitchLock::wait(directory)?;
    let Some(mut state) = SwitchState::read(directory)? else {
        return Ok(None);
    };
    let mut run = Run::new(directory, read_plan(directory)?, lock)?;
    run.resume(&mut state)?;
    Ok(Some(state))
}

/// A process that is in charge of a switch.
struct Run {
    directory: PathBuf,
    plan: Plan,
    howdah: Howdah,
    lock: SwitchLock,
    signals: SignalDescriptor,
    /// Whether a signal has cancelled the start.
    cancelled: Cell<bool>,
    progress: Progress,
}

/// How a watch ended.
enum WatchEnd {
    Passed,
    Worse(RollbackReason, String),
    /// The process is to exit, and another one will continue.
    Interrupted,
}

impl Run {
    fn new(directory: &Path, plan: Plan, lock: SwitchLock) -> Result<Run, SwitchFailure> {
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
    fn begin(&mut self, state: &mut SwitchState) -> Result<(), SwitchFailure> {
        state.enter(Phase::Starting, &self.directory)?;
        if service::manages(&self.plan) {
            let program = std::env::current_exe().unwrap_or_default();
            service::install(&program, &self.directory)?;
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
    fn start_howdah(&mut self, state: &mut SwitchState) -> Result<(), SwitchFailure> {
        let sockets = state.ports.iter_mut().map(SharedPort::open);
        let sockets: Vec<OwnedFd> = sockets.collect::<Result<_, _>>()?;
        let starting: StartingHowdah = self.howdah.start(sockets)?;
        state.howdah = Some(starting.process);
        state.write(&self.directory)?;
        starting.wait(|| self.is_cancelled())
    }

    /// Returns whether the user or the system has asked for an end of the start.
    fn is_cancelled(&self) -> bool {
        let ends = |signal: &i32| *signal != Signal::HUP.as_raw();
        if self.signals.take_pending().iter().any(ends) {
            self.cancelled.set(true);
        }
        self.cancelled.get() || self.lock.is_rollback_requested()
    }

    /// Gives Howdah all new connections, watches it, and keeps it or returns to the old servers.
    fn watch_on(&mut self, state: &mut SwitchState) -> Result<(), SwitchFailure> {
        let directed = state
            .ports
            .iter()
            .try_for_each(|port| port.direct_to(Recipient::Howdah));
        if let Err(failure) = directed {
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
        loop {
            let round = Instant::now();
            let counters = self.howdah.counters();
            let probes = ProbeResult::of_all(&state.baseline.probes);
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
            if Instant::now() >= until {
                return Ok(WatchEnd::Passed);
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

    fn interruption(&self, state: &SwitchState) -> Option<WatchEnd> {
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
    fn keep(&mut self, state: &mut SwitchState) -> Result<(), SwitchFailure> {
        state.enter(Phase::Keeping, &self.directory)?;
        if service::manages(&self.plan) {
            service::keep_howdah(&self.plan)?;
        }
        state.enter(Phase::Kept, &self.directory)?;
        self.progress.kept(&self.plan, &self.directory);
        Ok(())
    }

    /// Gives the old servers all new connections, and stops Howdah when it has finished its requests. If an old server
    /// no longer runs, it is started, which takes a moment in which its addresses refuse connections.
    fn return_to_old_servers(
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

    fn finish_rollback(&mut self, state: &mut SwitchState) -> Result<(), SwitchFailure> {
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

    fn resume(&mut self, state: &mut SwitchState) -> Result<(), SwitchFailure> {
        let rebooted = state.is_of_earlier_boot();
        let because = |reason: RollbackReason, message: &str| (reason, message.to_owned());
        match state.phase {
            Phase::RolledBack => Ok(()),
            Phase::Kept => self.serve(state),
            Phase::Keeping => {
                self.keep(state)?;
                self.serve(state)
            }
            _ if rebooted => {
                // No process of the switch exists any more, and the machine has started the old servers.
                state.howdah = None;
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

    /// Records a rollback for which nothing has to be done.
    fn note_rollback(
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

    fn resume_watch(&mut self, state: &mut SwitchState) -> Result<(), SwitchFailure> {
        if is_running(state.howdah) {
            self.progress.line("the watch continues");
            self.watch_on(state)?;
            if state.phase == Phase::Kept && service::manages(&self.plan) {
                return self.serve(state);
            }
            return Ok(());
        }
        let message = "Howdah exited while nobody watched it; its last messages are in howdah.log";
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
                    return self.return_to_old_servers(state, (reason, message));
                }
                Some(WatchEnd::Interrupted) => return Ok(()),
                Some(WatchEnd::Passed) | None => std::thread::sleep(TICK),
            }
        }
    }

    /// Starts Howdah until it serves. Returns false if this process is to exit or to roll back instead.
    fn restart(&mut self, state: &mut SwitchState) -> Result<bool, SwitchFailure> {
        while !self.is_cancelled() {
            self.progress.line("Howdah does not run, and is started");
            let Err(failure) = self.start_howdah(state) else {
                for port in &state.ports {
                    port.direct_to(Recipient::Howdah)?;
                }
                return Ok(true);
            };
            self.progress.line(&failure.to_string());
            state.howdah.take().into_iter().for_each(stop_soon);
            std::thread::sleep(RESTART_PAUSE);
        }
        if self.lock.is_rollback_requested() {
            self.return_to_old_servers(state, by_hand())?;
        }
        Ok(false)
    }
}

fn is_running(process: Option<ProcessIdentity>) -> bool {
    process.is_some_and(ProcessIdentity::is_alive)
}
