//! `howdah bench`: from the command line to a report. It measures through [`crate::driver`] and [`crate::engine`] and
//! writes through [`crate::report`]. The report goes to standard output, progress and errors to standard error.
//!
//! - [`arguments`]: the options; [`planning`]: turns them into a plan.
//! - [`progress`]: the display during a run; [`output`]: the files; [`saved`]: `bench report`.
//! - [`secrets`]: conceals passwords and cookies in all of them.

pub mod arguments;
pub mod output;
pub mod planning;
pub mod progress;
mod saved;
mod secrets;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use arguments::{BenchArguments, BenchCommand};

use crate::driver::{
    self, BenchSession, CompareFn, CompareOptions, SearchOptions, SessionEvent, SweepOptions,
};
use crate::engine::{self, RunControl, RunProgress};
use crate::error::BenchError;
use crate::experiment::SavedDocument;
use crate::plan::{Arrivals, Plan};
use crate::report::experiments;
use crate::report::text::ReportStyle;
use crate::run::{Run, RunEnd};
use crate::slo::Slo;

use output::Outputs;
use progress::{ProgressStyle, ProgressWatcher};

/// The exit code after Ctrl-C: 128 plus the signal's number, as in shells.
const EXIT_INTERRUPTED: u8 = 130;
/// The exit code of a run that breaks the objective or has no good response.
const EXIT_FAILED: u8 = 1;
/// The CPU share of the busiest thread, as a share of a core, above which a closed loop is followed by a ceiling run.
const BUSY_CPU_SHARE: f64 = 0.5;
const CEILING_RUN_TIME: Duration = Duration::from_secs(2);

/// Executes the command line and returns the exit code. Setting `interrupt` has the effect of Ctrl-C. `command` is the
/// command line for the report, and `compare` executes `--vs`.
pub fn run(
    typed: &BenchArguments,
    interrupt: Arc<AtomicBool>,
    command: Vec<String>,
    compare: CompareFn,
) -> u8 {
    let done = match &typed.command {
        Some(BenchCommand::Report(files)) => saved::report(files),
        None => bench(typed, interrupt, command, compare),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            // Standard error may be closed, in which case the message cannot be written anywhere.
            let _ = writeln!(std::io::stderr(), "howdah bench: {error}");
            error.exit_code()
        }
    }
}

fn bench(
    typed: &BenchArguments,
    interrupt: Arc<AtomicBool>,
    command: Vec<String>,
    compare: CompareFn,
) -> Result<u8, BenchError> {
    let plan = planning::plan(typed)?;
    let slo = typed.slo.as_deref().map(Slo::parse).transpose()?;
    let outputs = Outputs::open(typed)?;
    let verbosity = typed.verbosity.unwrap_or(0);
    let show = ProgressStyle::choose(typed.quiet, verbosity);
    let mut watcher = ProgressWatcher::new(show, std::io::stderr());
    let mut watch = |event: SessionEvent<'_>| watcher.event(event);
    let mut session = BenchSession {
        interrupt: interrupt.clone(),
        command,
        watch: &mut watch,
    };
    let mut document = measure(typed, &plan, slo.as_ref(), &mut session, compare)?;
    drop(watcher);
    secrets::conceal(&mut document);
    let style = ReportStyle {
        percentiles: !typed.no_percentiles,
        deviations: !typed.no_deviations,
        variable_length: typed.variable_length,
    };
    outputs.write(&document, &experiments::report(&document, style))?;
    if interrupt.load(Ordering::Relaxed) {
        return Ok(EXIT_INTERRUPTED);
    }
    Ok(result_exit_code(&document, slo.as_ref()))
}

fn measure(
    typed: &BenchArguments,
    plan: &Plan,
    slo: Option<&Slo>,
    session: &mut BenchSession<'_>,
    compare: CompareFn,
) -> Result<SavedDocument, BenchError> {
    if !typed.vs.is_empty() {
        let mut plans = vec![plan.clone()];
        for url in &typed.vs {
            plans.push(planning::plan_for_other_server(plan, url)?);
        }
        let options = CompareOptions {
            blocks: typed.pairs,
            control: !typed.no_control,
            margin: planning::margin(&typed.margin)?,
            seed: typed.seed,
        };
        let mut comparison = compare(&plans, options, session)?;
        if let Some(first) = comparison.windows.first() {
            let ceiling = ceiling(typed, &first.run, plan, session)?;
            for window in &mut comparison.windows {
                window.run.client.ceiling = ceiling;
            }
        }
        return Ok(SavedDocument::Comparison(comparison));
    }
    if let Some(levels) = &typed.sweep {
        let options = SweepOptions {
            levels: planning::levels(levels)?,
            repetitions: typed.repeat,
            seed: typed.seed,
        };
        return driver::sweep(plan, &options, session).map(SavedDocument::Sweep);
    }
    if let (true, Some(slo)) = (typed.find_max, slo) {
        let options = SearchOptions {
            spacing: planning::spacing(typed),
            max_connections: typed
                .connections
                .unwrap_or(planning::DEFAULT_MAX_CONNECTIONS),
            trial: plan.stop.time.unwrap_or(SearchOptions::default().trial),
            ..SearchOptions::default()
        };
        return driver::find_max(plan, slo, options, session).map(SavedDocument::Search);
    }
    single(typed, plan, session).map(SavedDocument::Run)
}

fn single(
    typed: &BenchArguments,
    plan: &Plan,
    session: &mut BenchSession<'_>,
) -> Result<Run, BenchError> {
    (session.watch)(SessionEvent::Begins {
        number: 1,
        of: Some(1),
        label: "",
        left: None,
    });
    let watch = &mut session.watch;
    let mut progress = |progress: &RunProgress<'_>| watch(SessionEvent::Second(progress));
    let control = RunControl {
        interrupt: session.interrupt.clone(),
        progress: Some(&mut progress),
        command: session.command.clone(),
    };
    let mut run = engine::run(plan, control)?;
    (session.watch)(SessionEvent::Ended(&run));
    if run.ended != RunEnd::Interrupted {
        run.client.ceiling = ceiling(typed, &run, plan, session)?;
    }
    Ok(run)
}

/// Measures the rate that the generator reaches against a server that does nothing, if the user asks for it or the
/// generator was busy. For an open loop this is done only on request, because the send lag shows there whether the
/// generator was busy.
fn ceiling(
    typed: &BenchArguments,
    run: &Run,
    plan: &Plan,
    session: &mut BenchSession<'_>,
) -> Result<Option<f64>, BenchError> {
    let closed = matches!(plan.arrivals, Arrivals::Closed { .. });
    let doubtful = closed && run.client.busiest() > BUSY_CPU_SHARE && run.elapsed > 1.0;
    if typed.no_ceiling || !(typed.ceiling || doubtful) || run.answers() == 0 {
        return Ok(None);
    }
    let length = run.bytes.bodies / run.answers();
    driver::ceiling(plan, length, CEILING_RUN_TIME, session)
}

/// Returns the exit code for the result of a measurement.
fn result_exit_code(document: &SavedDocument, slo: Option<&Slo>) -> u8 {
    match document {
        SavedDocument::Run(run) => {
            let broken = slo.map(|slo| slo.broken_by(run)).unwrap_or_default();
            for broken in &broken {
                let _ = writeln!(
                    std::io::stderr(),
                    "howdah bench: the run did not meet --slo: {broken}"
                );
            }
            if !broken.is_empty() || run.good() == 0 {
                EXIT_FAILED
            } else {
                0
            }
        }
        SavedDocument::Search(search) if search.found.is_none() => EXIT_FAILED,
        _ => 0,
    }
}
