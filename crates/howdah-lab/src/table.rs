//! From windows to rows: what each stack did on each page at each level, and what may be said of it.
//! The result is data, and its serialised form is the JSON of `howdah compare`; how it is shown is
//! [`crate::report`]'s business.

use std::collections::BTreeMap;

use howdah_bench::histogram::Histogram;
use howdah_bench::outcome::Outcome;
use howdah_bench::report::ab::AbFigures;
use howdah_bench::report::{bottleneck, judge};
use howdah_bench::run::{Machine, Run};
use howdah_bench::stats::bootstrap::{self, Interval};
use howdah_bench::stats::paired::{Judgement, Settings};
use howdah_bench::stats::{holm, mean};
use serde::{Deserialize, Serialize};

use crate::measure::{Effort, Measured, Window};
use crate::stack::Stack;
use crate::suite::{Reported, Suite};

/// Version of the JSON.
pub const SCHEMA: u32 = 1;
/// Of the intervals' resampling: the same windows always give the same intervals.
const SEED: u64 = 1;

/// A benchmark's result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Table {
    /// Version of this form: [`SCHEMA`].
    pub schema: u32,
    /// The benchmark.
    pub suite: Suite,
    /// Where it was measured.
    pub machine: Machine,
    /// Versions of what took part, a line each.
    pub versions: Vec<String>,
    /// How often and how long: `3 blocks of 1.5 s`.
    pub effort: String,
    /// The command line that measures it again.
    pub command: String,
    /// When: seconds since 1970.
    pub started: f64,
    /// How long it took, seconds.
    pub took: f64,
    /// Somebody stopped it before its end.
    pub interrupted: bool,
    /// Pages and levels, in the suite's order.
    pub cells: Vec<Cell>,
    /// What is not here, or failed, a row each.
    pub missing: Vec<Missing>,
}

/// A page at a level of concurrency.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// The page's name.
    pub page: String,
    /// Clients.
    pub concurrency: u32,
    /// The stack all others are compared with: the first that was measured.
    pub base: String,
    /// What the base differs by from itself, as a ratio (1.02 is 2 %): nothing smaller is claimed.
    pub noise_floor: Option<f64>,
    /// The stacks, in the suite's order.
    pub rows: Vec<Line>,
}

/// A stack's line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// The stack's name.
    pub stack: String,
    /// For people.
    pub title: String,
    /// What the post had in its place.
    pub stands_for: Option<String>,
    /// What the post reported there.
    pub reported: Option<Reported>,
    /// It shows a trap: the sentence. In no ranking.
    pub trap: Option<String>,
    /// Requests per second as ab would have reported them: error pages are in it.
    pub as_ab: f64,
    /// Good answers per second, mean of the windows.
    pub good: f64,
    /// Its 95 % interval over the windows; none for a single one.
    pub interval: Option<Interval>,
    /// All windows' good answers per second.
    pub windows: Vec<f64>,
    /// Requests that ended.
    pub requests: u64,
    /// Those that did not end well, by name.
    pub errors: BTreeMap<Outcome, u64>,
    /// Good answers' latency, seconds; none when too few answers lie beyond it to say.
    pub p50: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// The slowest good answer, seconds.
    pub slowest: f64,
    /// CPU time of the whole stack for each request, seconds. The database's is not in it.
    pub cpu: f64,
    /// Proportional memory of the whole stack, bytes; 0: not ours to see.
    pub memory: u64,
    /// Against the base; none for the base itself, for a trap, and for a single window.
    pub against: Option<Judgement>,
    /// The generator was the bottleneck: these figures are its own. The sentence that says why.
    pub generator_bound: Option<String>,
}

/// A stack without figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Missing {
    /// The stack's name.
    pub stack: String,
    /// For people.
    pub title: String,
    /// On which page and level; none: everywhere.
    pub at: Option<(String, u32)>,
    /// The name of what happened: `NotHere`, `DoesNotStart`, `Died` …
    pub name: String,
    /// The whole message.
    pub message: String,
}

impl Line {
    /// Requests that did not end well, of all that ended, 0 to 1.
    pub fn error_share(&self) -> f64 {
        let errors: u64 = self.errors.values().sum();
        if self.requests == 0 {
            return 0.0;
        }
        errors as f64 / self.requests as f64
    }
}

/// The windows of a suite as its table.
pub fn table(
    suite: &Suite,
    effort: &Effort,
    measured: &Measured,
    versions: Vec<String>,
    command: String,
) -> Table {
    let first = measured.windows.iter().map(|w| &w.run).next();
    let mut cells = Vec::new();
    for (page_at, page) in suite.pages.iter().enumerate() {
        for level in &suite.load.concurrency {
            let here: Vec<&Window> = measured
                .windows
                .iter()
                .filter(|w| w.page == page_at && w.concurrency == *level)
                .collect();
            if let Some(cell) = cell(suite, page_at, *level, &here) {
                debug_assert_eq!(cell.page, page.name);
                cells.push(cell);
            }
        }
    }
    adjust(&mut cells);
    let missing = measured.failures.iter().map(|failure| {
        let row = &suite.rows[failure.row];
        Missing {
            stack: row.stack.clone(),
            title: title(&row.stack),
            at: failure
                .at
                .map(|(page, level)| (suite.pages[page].name.clone(), level)),
            name: failure.error.name().to_owned(),
            message: failure.error.to_string(),
        }
    });
    Table {
        schema: SCHEMA,
        suite: suite.clone(),
        machine: first.map(|run| run.machine.clone()).unwrap_or_default(),
        versions,
        effort: format!(
            "{} blocks of {} s after {} s of warm-up",
            effort.blocks,
            effort.window.as_secs_f64(),
            effort.warmup.as_secs_f64()
        ),
        command,
        started: first.map_or(0.0, |run| run.started),
        took: measured.took.as_secs_f64(),
        interrupted: measured.interrupted,
        cells,
        missing: missing.collect(),
    }
}

fn title(stack: &str) -> String {
    Stack::find(stack).map_or_else(|| stack.to_owned(), |stack| stack.title.to_owned())
}

fn cell(suite: &Suite, page: usize, level: u32, windows: &[&Window]) -> Option<Cell> {
    let of = |row: usize| -> Vec<&Window> {
        let own = windows.iter().filter(|w| w.row == row && !w.control);
        own.copied().collect()
    };
    let measured = |row: &usize| !of(*row).is_empty();
    let base = (0..suite.rows.len())
        .filter(|row| suite.rows[*row].trap.is_none())
        .find(measured)?;
    let base_windows = of(base);
    let again: Vec<&Window> = windows
        .iter()
        .filter(|w| w.control && w.row == base)
        .copied()
        .collect();
    let control = pairs(&base_windows, &again);
    let settings = Settings {
        seed: SEED,
        ..Settings::default()
    };
    let rows: Vec<Line> = (0..suite.rows.len())
        .filter(measured)
        .map(|row| {
            let own = of(row);
            let mut line = line(suite, row, page, level, &own);
            let compared = pairs(&base_windows, &own);
            if row != base && line.trap.is_none() && compared.len() > 1 {
                let figures = judge::figures(&compared, &control, settings);
                line.against = figures.into_iter().next();
            }
            line
        })
        .collect();
    let noise_floor = rows
        .iter()
        .find_map(|line| line.against.as_ref()?.noise_floor);
    Some(Cell {
        page: suite.pages[page].name.clone(),
        concurrency: level,
        base: suite.rows[base].stack.clone(),
        noise_floor,
        rows,
    })
}

/// Windows of the same block.
fn pairs<'a>(base: &[&'a Window], other: &[&'a Window]) -> Vec<(&'a Run, &'a Run)> {
    let find = |block| other.iter().find(|w| w.block == block);
    base.iter()
        .filter_map(|w| Some((&w.run, &find(w.block)?.run)))
        .collect()
}

fn line(suite: &Suite, row: usize, page: usize, level: u32, windows: &[&Window]) -> Line {
    let of = &suite.rows[row];
    let runs: Vec<&Run> = windows.iter().map(|w| &w.run).collect();
    let good: Vec<f64> = runs.iter().map(|run| run.good_rate()).collect();
    let as_ab: Vec<f64> = runs
        .iter()
        .map(|run| AbFigures::of(run).per_second)
        .collect();
    let mut errors = BTreeMap::new();
    let mut latency = Histogram::new();
    for run in &runs {
        latency.add(&run.latency());
        for (outcome, tally) in &run.outcomes {
            if *outcome != Outcome::Good && tally.count > 0 {
                *errors.entry(*outcome).or_default() += tally.count;
            }
        }
    }
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    let cpu: Vec<f64> = windows
        .iter()
        .map(|w| w.cpu_per_request.as_secs_f64())
        .collect();
    Line {
        stack: of.stack.clone(),
        title: title(&of.stack),
        stands_for: of.stands_for.clone(),
        reported: suite.reported_for(of, &suite.pages[page], level).cloned(),
        trap: of.trap.clone(),
        as_ab: mean(&as_ab),
        good: mean(&good),
        interval: bootstrap::mean_interval(&good, 0.95, SEED),
        windows: good,
        requests: runs.iter().map(|run| run.ended_requests()).sum(),
        errors,
        p50: judge::merged_percentile(&runs, 50.0).map(seconds),
        p99: judge::merged_percentile(&runs, 99.0).map(seconds),
        slowest: seconds(latency.max()),
        cpu: mean(&cpu),
        memory: windows.iter().map(|w| w.memory).max().unwrap_or(0),
        against: None,
        generator_bound: runs.iter().find_map(|run| bottleneck::bound(run)),
    }
}

/// Holm's adjustment over all comparisons of the suite: many questions find something by chance.
fn adjust(cells: &mut [Cell]) {
    let mut all: Vec<&mut Judgement> = cells
        .iter_mut()
        .flat_map(|cell| &mut cell.rows)
        .filter_map(|line| line.against.as_mut())
        .collect();
    let raw: Vec<f64> = all.iter().map(|judgement| judgement.p).collect();
    for (judgement, adjusted) in all.iter_mut().zip(holm::adjust(&raw)) {
        judgement.p_adjusted = adjusted;
    }
}
