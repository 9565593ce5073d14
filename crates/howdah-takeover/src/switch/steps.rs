//! The steps of a switch: start, watch, keep and roll back, and how an interrupted switch continues.
//!
//! In every phase, one of the servers serves without any help of this program. Until the watch begins, the kernel gives
//! all connections to the old servers. During the watch it gives them to Howdah, and, if Howdah exits, to the old
//! servers. Therefore nothing is lost if this program is killed, but no process watches Howdah until the switch is
//! resumed.

use std::path::Path;
use std::time::{Duration, Instant};

use super::failure::{FailureName, SwitchFailure};
use super::figures::{Baseline, LogPart};
use super::ports::shared_ports;
use super::refusals::refusals;
use super::run::{Run, TICK, by_hand};
use super::service;
use super::state::{Phase, SwitchLock, SwitchState, request_rollback};
use crate::plan::Plan;

/// How long `rollback` waits until the process in charge of the switch has rolled back.
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(150);

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
    let earlier = SwitchState::read(directory).map_err(one)?;
    let earlier = earlier.map_or(Vec::new(), |state| state.log_parts);
    let cancelled = || {
        let why = "the old servers serve; nothing was switched";
        run.is_cancelled()
            .then(|| vec![FailureName::Cancelled.with(why)])
    };
    let baseline = Baseline::measure(&run.plan, &earlier, cancelled)?;
    run.progress.baseline(&baseline);
    // Something may have been changed meanwhile.
    let found = refusals(directory, &run.plan, &ports);
    if !found.is_empty() {
        return Err(found);
    }
    let units = service::old_units(&run.plan);
    let parts = LogPart::begin(&run.plan, &earlier);
    let mut state = SwitchState::begin(watch.as_secs(), ports, baseline, units, parts);
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
    let before = match SwitchState::read(directory)? {
        Some(state) if state.phase != Phase::RolledBack => state.failed_rollback,
        _ => return Err(nothing()),
    };
    let until = Instant::now() + ROLLBACK_TIMEOUT;
    loop {
        let state = SwitchState::read(directory)?.ok_or_else(nothing)?;
        match state.failed_rollback {
            Some(failed) if Some(&failed) != before.as_ref() => {
                return Err(FailureName::OldServerDoesNotStart.with(failed.message));
            }
            _ if state.phase == Phase::RollingBack => {}
            // Repeated, because a process that has just taken charge removes the requests of earlier switches.
            _ => request_rollback(directory)?,
        }
        if let Some(lock) = SwitchLock::try_take(directory)? {
            lock.clear_rollback_request();
            let mut state = SwitchState::read(directory)?.ok_or_else(nothing)?;
            state.enter_present_boot();
            if state.phase != Phase::RolledBack {
                let mut run = Run::new(directory, read_plan(directory)?, lock)?;
                run.return_to_old_servers(&mut state, by_hand())?;
            }
            return Ok(state);
        }
        if Instant::now() > until {
            let why = "the process that watches the switch does not respond; find its process ID with `fuser switch.lock` in the takeover's directory, kill it, and roll back again";
            return Err(FailureName::RollbackTimeout.with(why));
        }
        std::thread::sleep(TICK);
    }
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
