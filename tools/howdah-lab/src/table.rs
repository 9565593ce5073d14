//! Turns windows into rows: the figures of each stack on each page at each level, and what can be concluded from them.
//! The result is data, and its serialised form is the JSON of `howdah compare`; [`crate::report`] shows it.

use howdah_bench::histogram::Histogram;
use howdah_bench::report::ab::AbFigures;
use howdah_bench::report::figures::{self, Figures};
use howdah_bench::report::{formatting, judge};
use howdah_bench::run::{Machine, Run};
use howdah_bench::stats::paired::{Judgement, JudgementSettings};
use howdah_bench::stats::{mean, quantile};
use serde::{Deserialize, Serialize};

use crate::adjust::holm_adjust;
use crate::answer::{self, AllLevelsAnswer, RateRetention, SuiteAnswer};
use crate::budget::RunBudget;
use crate::experiment::{self, ExperimentEnd, ExperimentResult, IncompleteCell, MeasuredWindow};
use crate::stack::Stack;
use crate::suite::{ReportedFigure, Suite};

/// The version of the JSON format.
pub const SCHEMA: u32 = 3;

/// The result of a benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResultTable {
    /// The version of this format: [`SCHEMA`].
    pub schema: u32,
    /// The benchmark that was measured.
    pub suite: Suite,
    /// The benchmark's name or file on the command line.
    pub benchmark: String,
    /// The machine that it was measured on.
    pub machine: Machine,
    /// Versions of the programs that took part, a line each.
    pub versions: Vec<String>,
    /// The number and length of the windows, and the reasons for differences from the post, as sentences.
    pub effort: Vec<String>,
    /// The parts of the measurement that were omitted for lack of time, a sentence each.
    pub left_out: Vec<String>,
    /// The command line that repeats the measurement.
    pub command: String,
    /// The options that [`ResultTable::repeat_command`] needs to repeat a single figure with the same budget, such as
    /// `--full`.
    pub options: String,
    /// The time at which it began, in seconds since 1970.
    pub started: f64,
    /// How long it took, in seconds.
    pub took: f64,
    /// Whether it was interrupted before its end.
    pub interrupted: bool,
    /// The share of the machine's cores that was busy with other programs, as the mean over all windows, from 0 to 1.
    pub foreign: f64,
    /// The questions and their answers, in the suite's order.
    pub answers: Vec<SuiteAnswer>,
    /// The answers over all levels of a page; empty for fewer than three levels.
    #[serde(default)]
    pub overall: Vec<AllLevelsAnswer>,
    /// How each stack's rate holds as the number of clients grows; empty for fewer than three levels.
    pub flat: Vec<RateRetention>,
    /// The pages at their levels, in the suite's order.
    pub cells: Vec<TableCell>,
    /// The rows that were not measured or failed.
    pub missing: Vec<MissingRow>,
}

/// A page at a level of concurrency.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TableCell {
    /// The page's name.
    pub page: String,
    /// The number of clients.
    pub concurrency: u32,
    /// The stack that all others are compared with: the first one that was measured.
    pub base: String,
    /// How much the base differs from itself, as a ratio (1.02 is 2 %); smaller differences are not claimed. `None` if
    /// it was not measured.
    pub noise_floor: Option<f64>,
    /// The rows, in the suite's order.
    pub rows: Vec<StackRow>,
}

/// The figures of a stack in a cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StackRow {
    /// The stack's name.
    pub stack: String,
    /// The stack's name for readers.
    pub title: String,
    /// The row of the post's table that it represents.
    pub stands_for: Option<String>,
    /// The figure that the post reported for it.
    pub reported: Option<ReportedFigure>,
    /// The trap that the stack demonstrates, as a sentence; a trap is not ranked. `None` for other rows.
    pub trap: Option<String>,
    /// Requests per second as ab would have reported them, error pages included.
    pub as_ab: f64,
    /// The measured figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// The good responses per second of each window.
    pub windows: Vec<f64>,
    /// The latency percentiles of good responses: per cent and seconds, up to the percentile beyond which too few
    /// responses lie. The slowest response is at 100.
    pub percentiles: Vec<(f64, f64)>,
    /// The times from the request for the page until all of its assets have arrived, if the page has assets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_loads: Option<PageLoadTimes>,
    /// The comparison with the base; `None` for the base itself, for a trap, and for a single window.
    pub against: Option<Judgement>,
}

/// How long complete page loads took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PageLoadTimes {
    /// The number of complete page loads in all windows.
    pub complete: u64,
    /// The median, in seconds; `None` if there are too few.
    pub p50: Option<f64>,
    /// The time that 99 of 100 page loads did not exceed, in seconds; `None` if there are too few.
    pub p99: Option<f64>,
}

/// A row without figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MissingRow {
    /// The stack's name; `None` for all stacks.
    pub stack: Option<String>,
    /// The stack's name for readers.
    pub title: String,
    /// The page on which it failed; `None` for all pages.
    pub page: Option<String>,
    /// The number of clients at which it failed; `None` for all levels.
    pub concurrency: Option<u32>,
    /// The error's name: `NotHere`, `DoesNotStart`, `Died` …
    pub name: String,
    /// The error's whole message.
    pub message: String,
}

impl TableCell {
    /// Returns the row of this stack.
    pub fn row(&self, stack: &str) -> Option<&StackRow> {
        self.rows.iter().find(|line| line.stack == stack)
    }
}

impl MissingRow {
    /// Returns where the row failed, to be appended to its title: ` (blog, 10 clients)`; empty for everywhere.
    pub fn location(&self) -> String {
        match (&self.page, self.concurrency) {
            (Some(page), Some(clients)) => format!(" ({page}, {clients} clients)"),
            (Some(page), None) => format!(" ({page})"),
            _ => String::new(),
        }
    }
}

impl StackRow {
    /// Returns the rate per second that a single request corresponds to; 0 if no request ended.
    pub fn per_request(&self) -> f64 {
        let figures = &self.figures;
        let errors: u64 = figures.errors.values().sum();
        match figures.requests.saturating_sub(errors) {
            0 if figures.requests > 0 => self.as_ab / figures.requests as f64,
            0 => 0.0,
            good => figures.good / good as f64,
        }
    }
}

/// The origin of a table, which the caller adds to it.
#[derive(Clone, Debug, Default)]
pub struct TableOrigin {
    /// Versions of the programs that took part, a line each.
    pub versions: Vec<String>,
    /// The benchmark's name or file on the command line.
    pub benchmark: String,
    /// The command line that repeats the measurement.
    pub command: String,
    /// The part of `command` that sets how often and how long.
    pub options: String,
}

impl ResultTable {
    /// Returns the command line that measures a single row of a cell again, with the row it is compared with.
    pub fn repeat_command(&self, cell: &TableCell, line: &StackRow) -> String {
        let mut stacks = line.stack.clone();
        if line.against.is_some() {
            stacks = format!("{},{stacks}", cell.base);
        }
        format!(
            "howdah compare {} --stacks {stacks} --pages {} --concurrency {}{}",
            self.benchmark, cell.page, cell.concurrency, self.options
        )
    }
}

/// Creates the table of a suite's windows.
pub fn build_table(
    suite: &Suite,
    budget: &RunBudget,
    measured: &ExperimentResult,
    origin: TableOrigin,
) -> ResultTable {
    let first = measured.windows.iter().map(|w| &w.run).next();
    let mut cells = Vec::new();
    for (page_at, page) in suite.pages.iter().enumerate() {
        for level in &suite.load.concurrency {
            let here: Vec<&MeasuredWindow> = measured
                .windows
                .iter()
                .filter(|w| w.page == page_at && w.concurrency == *level)
                .collect();
            if let Some(cell) = build_cell(suite, page_at, *level, &here) {
                debug_assert_eq!(cell.page, page.name);
                cells.push(cell);
            }
        }
    }
    holm_adjust(
        cells
            .iter_mut()
            .flat_map(|cell| &mut cell.rows)
            .filter_map(|line| line.against.as_mut()),
    );
    let foreign: Vec<f64> = measured.windows.iter().filter_map(|w| w.foreign).collect();
    let flat = answer::rate_retention(&cells);
    let missing = measured.failures.iter().map(|failure| {
        let row = failure.arm.map(|row| suite.rows[row].stack.as_str());
        MissingRow {
            stack: row.map(str::to_owned),
            title: row.map_or_else(|| "every stack".to_owned(), stack_title),
            page: failure.page.map(|page| suite.pages[page].name.clone()),
            concurrency: failure.level,
            name: failure.name.clone(),
            message: failure.message.clone(),
        }
    });
    let (answers, overall) = answer::suite_answers(suite, measured);
    ResultTable {
        schema: SCHEMA,
        suite: suite.clone(),
        benchmark: origin.benchmark,
        machine: first.map(|run| run.machine.clone()).unwrap_or_default(),
        versions: origin.versions,
        effort: budget.sentences(suite),
        left_out: measured
            .left_out
            .iter()
            .map(|left| omitted_sentence(suite, budget, left))
            .collect(),
        command: origin.command,
        options: origin.options,
        started: first.map_or(0.0, |run| run.started),
        took: measured.took.as_secs_f64(),
        interrupted: measured.end == ExperimentEnd::Interrupted,
        foreign: if foreign.is_empty() {
            0.0
        } else {
            mean(&foreign)
        },
        answers,
        overall,
        flat,
        cells,
        missing: missing.collect(),
    }
}

fn omitted_sentence(suite: &Suite, budget: &RunBudget, left: &IncompleteCell) -> String {
    format!(
        "LeftOut: the time limit was reached: for {} at {}, only {} of {} blocks were measured; --full has no time limit.",
        suite.pages[left.cell.page].name,
        formatting::plural(
            left.cell.level().unwrap_or_default().into(),
            "client",
            "clients"
        ),
        left.blocks,
        budget.blocks
    )
}

pub(crate) fn stack_title(stack: &str) -> String {
    Stack::find(stack).map_or_else(|| stack.to_owned(), |stack| stack.title.to_owned())
}

fn build_cell(
    suite: &Suite,
    page: usize,
    level: u32,
    windows: &[&MeasuredWindow],
) -> Option<TableCell> {
    let of = |row: usize| -> Vec<&MeasuredWindow> {
        let own = windows.iter().filter(|w| w.arm == row && !w.control);
        own.copied().collect()
    };
    let measured = |row: &usize| !of(*row).is_empty();
    let base = (0..suite.rows.len())
        .filter(|row| suite.rows[*row].trap.is_none())
        .find(measured)?;
    let base_windows = of(base);
    let again: Vec<&MeasuredWindow> = windows
        .iter()
        .filter(|w| w.control && w.arm == base)
        .copied()
        .collect();
    let control = run_pairs(&base_windows, &again);
    let settings = JudgementSettings::default();
    let rows: Vec<StackRow> = (0..suite.rows.len())
        .filter(measured)
        .map(|row| {
            let own = of(row);
            let mut line = build_row(suite, row, page, level, &own);
            let compared = run_pairs(&base_windows, &own);
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
    Some(TableCell {
        page: suite.pages[page].name.clone(),
        concurrency: level,
        base: suite.rows[base].stack.clone(),
        noise_floor,
        rows,
    })
}

/// Returns the pairs of windows of the same block.
pub(crate) fn window_pairs<'a>(
    base: &[&'a MeasuredWindow],
    other: &[&'a MeasuredWindow],
) -> impl Iterator<Item = (&'a MeasuredWindow, &'a MeasuredWindow)> {
    let find = |block| other.iter().find(|w| w.block == block).copied();
    base.iter().filter_map(move |w| Some((*w, find(w.block)?)))
}

/// Returns the pairs of runs of the same block.
pub(crate) fn run_pairs<'a>(
    base: &[&'a MeasuredWindow],
    other: &[&'a MeasuredWindow],
) -> Vec<(&'a Run, &'a Run)> {
    window_pairs(base, other)
        .map(|(base, other)| (&base.run, &other.run))
        .collect()
}

fn build_row(
    suite: &Suite,
    row: usize,
    page: usize,
    level: u32,
    windows: &[&MeasuredWindow],
) -> StackRow {
    let of = &suite.rows[row];
    let runs: Vec<&Run> = windows.iter().map(|w| &w.run).collect();
    let as_ab = runs.iter().map(|run| AbFigures::of(run).per_second);
    StackRow {
        stack: of.stack.clone(),
        title: stack_title(&of.stack),
        stands_for: of.stands_for.clone(),
        reported: suite.reported_for(of, &suite.pages[page], level).cloned(),
        trap: of.trap.clone(),
        as_ab: mean(&as_ab.collect::<Vec<f64>>()),
        figures: experiment::figures(windows),
        windows: runs.iter().map(|run| run.good_rate()).collect(),
        percentiles: percentiles(&runs),
        page_loads: page_loads(&runs),
        against: None,
    }
}

/// Returns the times of all page loads of the runs; `None` if the runs are not of a page with assets.
fn page_loads(runs: &[&Run]) -> Option<PageLoadTimes> {
    let mut all: Option<Histogram> = None;
    for loads in runs.iter().filter_map(|run| run.page_loads.as_ref()) {
        all.get_or_insert_default().add(loads);
    }
    let all = all?;
    let seconds = |percentile| Some(quantile::trusted(&all, percentile)? as f64 / 1e9);
    Some(PageLoadTimes {
        complete: all.len(),
        p50: seconds(50.0),
        p99: seconds(99.0),
    })
}

/// The percentiles of a page's curve, in per cent.
const PERCENTILES: [f64; 9] = [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9];

fn percentiles(runs: &[&Run]) -> Vec<(f64, f64)> {
    let latency = figures::latency(runs);
    let known = |percentile: f64| {
        let nanoseconds = judge::merged_percentile(runs, percentile)?;
        Some((percentile, nanoseconds as f64 / 1e9))
    };
    let mut all: Vec<(f64, f64)> = PERCENTILES.into_iter().filter_map(known).collect();
    if !latency.is_empty() {
        all.push((100.0, latency.max() as f64 / 1e9));
    }
    all
}
