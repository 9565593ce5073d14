//! One turn: an arm is started afresh, has to respond with the right page, is warmed up and measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use howdah_bench::driver::BenchSession;
use howdah_bench::engine::{self, RunControl};
use howdah_bench::error::BenchError;
use howdah_bench::plan::{Plan, RequestTemplate, StopLimits};
use howdah_bench::run::Run;

use super::runner::ExperimentRunner;
use super::{ArmTurn, Cell, ExperimentSubject, MeasuredWindow};
use crate::LabError;
use crate::stack::RunningStack;
use crate::usage::{MemoryMeasurement, ResourceUsage, busy_time, own_time, usage_of};

/// A rate rises if it exceeds the previous one by more than this factor.
const RISE_FACTOR: f64 = 1.1;
/// How long a program may take to exit if its measurement failed because the program is dying.
const DEATH_TIMEOUT: Duration = Duration::from_secs(1);

/// Measures an arm in a cell, at each of its levels. Returns `None` if it was interrupted.
pub(super) fn measure_turn(
    runner: &ExperimentRunner<'_>,
    session: &mut BenchSession<'_>,
    subject: &dyn ExperimentSubject,
    turn: ArmTurn,
    cell: &Cell,
    block: u32,
) -> Result<Option<Vec<MeasuredWindow>>, LabError> {
    let mut running = subject.start(turn.arm, cell)?;
    let windows = measure_windows(runner, session, subject, turn, cell, block, &running);
    // If the arm has died, that explains the error of the load tester. Its sockets close before its exit becomes
    // visible.
    let begun = Instant::now();
    while windows.is_err() && begun.elapsed() < DEATH_TIMEOUT {
        running.check_alive()?;
        std::thread::sleep(Duration::from_millis(20));
    }
    running.check_alive()?;
    windows
}

fn measure_windows(
    runner: &ExperimentRunner<'_>,
    session: &mut BenchSession<'_>,
    subject: &dyn ExperimentSubject,
    turn: ArmTurn,
    cell: &Cell,
    block: u32,
    running: &RunningStack,
) -> Result<Option<Vec<MeasuredWindow>>, LabError> {
    let not_measured = |why: BenchError| LabError::NotMeasured {
        stack: subject.title(turn.arm),
        why,
    };
    subject.check(turn.arm, cell, running)?;
    let mut levels = cell.levels.clone();
    let first = block as usize % levels.len();
    levels.rotate_left(first);
    let mut windows = Vec::new();
    for level in levels {
        let plan = subject.window_plan(turn.arm, cell, level, running)?;
        let mut steady = true;
        if let Some(plan) = subject.warm_up_plan(cell, &plan) {
            let warmed = warm_up(runner, session, &plan, subject.max_warm_ups());
            steady = warmed.map_err(not_measured)?;
        }
        let sessions = [running.sessions(), subject.shared_sessions()];
        let sessions = [&sessions[0][..], &sessions[1][..]];
        let begun = Instant::now();
        let before = UsageSnapshot::now(sessions, MemoryMeasurement::Skip);
        let beside = subject.side_load(cell, &plan);
        let run = run_plan_with_side_load(runner, session, &plan, beside).map_err(not_measured)?;
        let took = begun.elapsed();
        let after = UsageSnapshot::now(sessions, MemoryMeasurement::Measure);
        let Some(mut run) = run else {
            return Ok(None);
        };
        if runner.journal.is_some() {
            for (_, value) in &mut run.plan.request.headers {
                *value = RequestTemplate::new("(concealed)");
            }
        }
        let cpu = cpu_per_request(&before.stack, &after.stack, run.ended_requests());
        let foreign = foreign_share(&before, &after, took, run.machine.cores);
        let knows_cpu = subject.knows_cpu(turn.arm);
        windows.push(MeasuredWindow {
            arm: turn.arm,
            control: turn.control,
            page: cell.page,
            concurrency: level,
            block,
            cpu_per_request: knows_cpu.then_some(cpu),
            memory: after.stack.memory,
            foreign: knows_cpu.then_some(foreign),
            steady,
            run,
        });
    }
    Ok(Some(windows))
}

/// Repeats the warm-up until its rate no longer rises, at most `most` times. Returns whether the rate became steady.
fn warm_up(
    runner: &ExperimentRunner<'_>,
    session: &BenchSession<'_>,
    plan: &Plan,
    most: u32,
) -> Result<bool, BenchError> {
    until_steady(most, || {
        let mut unwatched = BenchSession {
            interrupt: session.interrupt.clone(),
            command: Vec::new(),
            watch: &mut |_| {},
        };
        Ok(run_plan(runner, &mut unwatched, plan)?.map(|run| run.good_rate()))
    })
}

/// Runs rounds until the rate of one does not exceed that of the previous one, at most `most`. Returns whether the rate
/// became steady. A single round is not compared. A round without a rate was interrupted, and no more follow.
fn until_steady<E>(
    most: u32,
    mut round: impl FnMut() -> Result<Option<f64>, E>,
) -> Result<bool, E> {
    let mut former = None;
    for _ in 0..most {
        let Some(rate) = round()? else {
            break;
        };
        if former.is_some_and(|former| rate <= former * RISE_FACTOR) {
            return Ok(true);
        }
        former = Some(rate);
    }
    Ok(most <= 1)
}

/// Runs a plan, cut off at the deadline, however slow the server is. Returns `None` if it was interrupted.
fn run_plan(
    runner: &ExperimentRunner<'_>,
    session: &mut BenchSession<'_>,
    plan: &Plan,
) -> Result<Option<Run>, BenchError> {
    let mut plan = plan.clone();
    if let Some(deadline) = runner.deadline {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = left.max(Duration::from_millis(100));
        plan.stop.time = plan.stop.time.map(|time| time.min(left));
    }
    session.run(&plan)
}

/// Runs a plan while another one, if there is one, runs on the same server.
fn run_plan_with_side_load(
    runner: &ExperimentRunner<'_>,
    session: &mut BenchSession<'_>,
    plan: &Plan,
    beside: Option<Plan>,
) -> Result<Option<Run>, BenchError> {
    let Some(mut beside) = beside else {
        return run_plan(runner, session, plan);
    };
    beside.stop = StopLimits {
        requests: None,
        time: Some(Duration::from_secs(3600)),
    };
    let over = Arc::new(AtomicBool::new(false));
    let interrupt = over.clone();
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            let control = RunControl {
                interrupt,
                ..RunControl::default()
            };
            engine::run(&beside, control).map(drop)
        });
        let run = run_plan(runner, session, plan);
        over.store(true, Ordering::Relaxed);
        // The errors of the side load also show in the window.
        let _ = other.join();
        run
    })
}

/// The usage of the stack, the database, the lab and the machine up to one edge of a window.
struct UsageSnapshot {
    stack: ResourceUsage,
    database: ResourceUsage,
    ourselves: Duration,
    machine: Duration,
}

impl UsageSnapshot {
    fn now([stack, database]: [&[u32]; 2], memory: MemoryMeasurement) -> UsageSnapshot {
        // The clocks are read before the pass over the processes, which takes time itself.
        let (machine, ourselves) = (busy_time(), own_time());
        let [stack, database] = usage_of([stack, database], memory);
        UsageSnapshot {
            stack,
            database,
            ourselves,
            machine,
        }
    }
}

/// Returns the share of the cores' time that other programs used. Ticks are 10 ms, so in a short window it is accurate
/// to a few per cent.
fn foreign_share(before: &UsageSnapshot, after: &UsageSnapshot, took: Duration, cores: u32) -> f64 {
    let used = |of: fn(&UsageSnapshot) -> Duration| of(after).saturating_sub(of(before));
    let ours = used(|m| m.stack.cpu) + used(|m| m.database.cpu) + used(|m| m.ourselves);
    let foreign = used(|m| m.machine).saturating_sub(ours);
    (foreign.as_secs_f64() / (took.as_secs_f64() * f64::from(cores.max(1)))).min(1.0)
}

fn cpu_per_request(before: &ResourceUsage, after: &ResourceUsage, requests: u64) -> Duration {
    let used = after.cpu.saturating_sub(before.cpu);
    if requests == 0 {
        return Duration::ZERO;
    }
    Duration::from_secs_f64(used.as_secs_f64() / requests as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether rounds with these rates end as steady, and how many of at most `most` are run.
    fn rounds(most: u32, rates: &[f64]) -> (bool, usize) {
        let mut run = 0;
        let steady = until_steady(most, || {
            let rate = rates.get(run).copied();
            run += 1;
            Ok::<_, ()>(rate)
        });
        (steady.unwrap(), run)
    }

    #[test]
    fn warm_up_repeats_until_the_rate_is_steady() {
        assert_eq!(rounds(8, &[60.0, 61.0, 90.0]), (true, 2));
        assert_eq!(rounds(8, &[20.0, 40.0, 58.0, 60.0, 60.0]), (true, 4));
        // A slower round does not count as a rise, and neither does a server that responds to nothing.
        assert_eq!(rounds(8, &[20.0, 40.0, 30.0]), (true, 3));
        assert_eq!(rounds(8, &[0.0, 0.0]), (true, 2));
    }

    #[test]
    fn warm_up_that_still_rises_is_not_steady() {
        assert_eq!(rounds(3, &[10.0, 20.0, 40.0, 40.0]), (false, 3));
        assert_eq!(rounds(2, &[0.0, 10.0]), (false, 2));
    }

    #[test]
    fn warm_up_of_one_round_or_none_counts_as_steady() {
        assert_eq!(rounds(1, &[10.0]), (true, 1));
        assert_eq!(rounds(0, &[]), (true, 0));
    }

    #[test]
    fn warm_up_that_is_interrupted_is_not_steady() {
        assert_eq!(rounds(8, &[10.0]), (false, 2));
        assert_eq!(
            until_steady(8, || Err::<Option<f64>, _>("broken")),
            Err("broken")
        );
    }
}
