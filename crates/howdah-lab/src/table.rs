//! From windows to rows: what each stack did on each page at each level, and what may be said of it.
//! The result is data, and its serialised form is the JSON of `howdah compare`; how it is shown is
//! [`crate::report`]'s business.

use std::collections::BTreeMap;

use howdah_bench::histogram::Histogram;
use howdah_bench::outcome::Outcome;
use howdah_bench::report::ab::AbFigures;
use howdah_bench::report::{bottleneck, judge, words};
use howdah_bench::run::{Machine, Run};
use howdah_bench::stats::bootstrap::{self, Interval};
use howdah_bench::stats::paired::{Judgement, Settings};
use howdah_bench::stats::{Verdict, holm, mean};
use serde::{Deserialize, Serialize};

use crate::answer::{self, Answer, Flat, Overall};
use crate::ceiling::Generator;
use crate::effort::Effort;
use crate::measure::{LeftOut, Measured, Window};
use crate::stack::Stack;
use crate::suite::{Reported, Suite};

/// Version of the JSON.
pub const SCHEMA: u32 = 3;
/// Of the intervals' resampling: the same windows always give the same intervals.
pub(crate) const SEED: u64 = 1;

/// A benchmark's result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Table {
    /// Version of this form: [`SCHEMA`].
    pub schema: u32,
    /// The benchmark.
    pub suite: Suite,
    /// Its name or file on the command line.
    pub benchmark: String,
    /// Where it was measured.
    pub machine: Machine,
    /// Versions of what took part, a line each.
    pub versions: Vec<String>,
    /// How often and how long, and why not as the post did: sentences.
    pub effort: Vec<String>,
    /// What the time was too short for, a sentence each.
    pub left_out: Vec<String>,
    /// The command line that measures it again.
    pub command: String,
    /// The options that say so much of it for a single figure: `--full`.
    pub options: String,
    /// When: seconds since 1970.
    pub started: f64,
    /// How long it took, seconds.
    pub took: f64,
    /// Somebody stopped it before its end.
    pub interrupted: bool,
    /// Share of the machine's cores that was busy with something else, mean over all windows, 0 to 1.
    pub foreign: f64,
    /// What was asked, and the answers, in the suite's order.
    pub answers: Vec<Answer>,
    /// The same over all levels of a page; empty for fewer than three levels.
    #[serde(default)]
    pub overall: Vec<Overall>,
    /// Who stays flat as more clients come; empty for fewer than three levels.
    pub flat: Vec<Flat>,
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
    /// Of the good answers' latency: percentile and seconds, as far as there are enough answers beyond;
    /// the slowest one is 100.
    pub percentiles: Vec<(f64, f64)>,
    /// The slowest good answer, seconds.
    pub slowest: f64,
    /// CPU time of the whole stack for each request, seconds. The database's is not in it. None: not known.
    pub cpu: Option<f64>,
    /// Proportional memory of the whole stack, bytes; 0: not ours to see.
    pub memory: u64,
    /// Against the base; none for the base itself, for a trap, and for a single window.
    pub against: Option<Judgement>,
    /// What the load tester itself did meanwhile.
    pub generator: Generator,
    /// The generator was the bottleneck: these figures are its own. The sentence that says why.
    pub generator_bound: Option<String>,
}

/// A stack without figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Missing {
    /// The stack's name; none: every one.
    pub stack: Option<String>,
    /// For people.
    pub title: String,
    /// On which page; none: everywhere.
    pub page: Option<String>,
    /// At how many clients; none: everywhere.
    pub concurrency: Option<u32>,
    /// The name of what happened: `NotHere`, `DoesNotStart`, `Died` …
    pub name: String,
    /// The whole message.
    pub message: String,
}

impl Cell {
    /// A stack's line.
    pub fn row(&self, stack: &str) -> Option<&Line> {
        self.rows.iter().find(|line| line.stack == stack)
    }
}

impl Missing {
    /// Where, to be put behind its title: ` (blog, 10 clients)`; nothing for everywhere.
    pub fn place(&self) -> String {
        match (&self.page, self.concurrency) {
            (Some(page), Some(clients)) => format!(" ({page}, {clients} clients)"),
            (Some(page), None) => format!(" ({page})"),
            _ => String::new(),
        }
    }
}

impl Line {
    /// How much one request is of the rate per second: 0 without a good answer to tell it by.
    pub fn per_request(&self) -> f64 {
        let errors: u64 = self.errors.values().sum();
        match self.requests.saturating_sub(errors) {
            0 if self.requests > 0 => self.as_ab / self.requests as f64,
            0 => 0.0,
            good => self.good / good as f64,
        }
    }

    /// Requests that did not end well, of all that ended, 0 to 1.
    pub fn error_share(&self) -> f64 {
        let errors: u64 = self.errors.values().sum();
        if self.requests == 0 {
            return 0.0;
        }
        errors as f64 / self.requests as f64
    }
}

/// What a table is told from outside.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Versions of what took part, a line each.
    pub versions: Vec<String>,
    /// The benchmark's name or file on the command line.
    pub benchmark: String,
    /// The command line that measures it again.
    pub command: String,
    /// The options of it that say how often and how long.
    pub options: String,
}

impl Table {
    /// The command line that measures one row of one cell again, with the row it is compared with.
    pub fn again(&self, cell: &Cell, line: &Line) -> String {
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

/// The windows of a suite as its table.
pub fn table(suite: &Suite, effort: &Effort, measured: &Measured, told: Told) -> Table {
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
    adjust(
        cells
            .iter_mut()
            .flat_map(|cell| &mut cell.rows)
            .filter_map(|line| line.against.as_mut()),
    );
    let foreign: Vec<f64> = measured.windows.iter().filter_map(|w| w.foreign).collect();
    let flat = answer::flat(&cells);
    let missing = measured.failures.iter().map(|failure| {
        let row = failure.row.map(|row| suite.rows[row].stack.as_str());
        Missing {
            stack: row.map(str::to_owned),
            title: row.map_or_else(|| "every stack".to_owned(), title),
            page: failure.at.map(|(page, _)| suite.pages[page].name.clone()),
            concurrency: failure.at.and_then(|(_, level)| level),
            name: failure.name.clone(),
            message: failure.message.clone(),
        }
    });
    let (answers, overall) = answer::answers(suite, measured);
    Table {
        schema: SCHEMA,
        suite: suite.clone(),
        benchmark: told.benchmark,
        machine: first.map(|run| run.machine.clone()).unwrap_or_default(),
        versions: told.versions,
        effort: effort.sentences(suite),
        left_out: measured
            .left_out
            .iter()
            .map(|left| left_out(suite, effort, left))
            .collect(),
        command: told.command,
        options: told.options,
        started: first.map_or(0.0, |run| run.started),
        took: measured.took.as_secs_f64(),
        interrupted: measured.interrupted,
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

fn left_out(suite: &Suite, effort: &Effort, left: &LeftOut) -> String {
    format!(
        "LeftOut: the time was up: {} at {} has {} of {} blocks; --full has no limit.",
        suite.pages[left.page].name,
        words::plural(u64::from(left.concurrency), "client", "clients"),
        left.blocks,
        effort.blocks
    )
}

pub(crate) fn title(stack: &str) -> String {
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
pub(crate) fn same_block<'a>(
    base: &[&'a Window],
    other: &[&'a Window],
) -> impl Iterator<Item = (&'a Window, &'a Window)> {
    let find = |block| other.iter().find(|w| w.block == block).copied();
    base.iter().filter_map(move |w| Some((*w, find(w.block)?)))
}

/// Runs of the same block.
pub(crate) fn pairs<'a>(base: &[&'a Window], other: &[&'a Window]) -> Vec<(&'a Run, &'a Run)> {
    same_block(base, other)
        .map(|(base, other)| (&base.run, &other.run))
        .collect()
}

/// The 95 % interval of a mean rate, which is never negative; none for a single window.
pub(crate) fn rate_interval(rates: &[f64]) -> Option<Interval> {
    let interval = bootstrap::mean_interval(rates, 0.95, SEED)?;
    Some(interval.map(|rate| rate.max(0.0)))
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
        .filter_map(|w| w.cpu_per_request)
        .map(|cpu| cpu.as_secs_f64())
        .collect();
    Line {
        stack: of.stack.clone(),
        title: title(&of.stack),
        stands_for: of.stands_for.clone(),
        reported: suite.reported_for(of, &suite.pages[page], level).cloned(),
        trap: of.trap.clone(),
        as_ab: mean(&as_ab),
        good: mean(&good),
        interval: rate_interval(&good),
        windows: good,
        requests: runs.iter().map(|run| run.ended_requests()).sum(),
        errors,
        p50: judge::merged_percentile(&runs, 50.0).map(seconds),
        p99: judge::merged_percentile(&runs, 99.0).map(seconds),
        percentiles: percentiles(&runs, &latency),
        slowest: seconds(latency.max()),
        cpu: (!cpu.is_empty()).then(|| mean(&cpu)),
        memory: windows.iter().map(|w| w.memory).max().unwrap_or(0),
        against: None,
        generator: Generator::of(&runs),
        generator_bound: runs.iter().find_map(|run| bottleneck::bound(run)),
    }
}

/// Those of a page's curve.
const PERCENTILES: [f64; 9] = [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9];

fn percentiles(runs: &[&Run], latency: &Histogram) -> Vec<(f64, f64)> {
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

/// Holm's adjustment over a family of comparisons: many questions find something by chance. What was
/// found only before it is taken back.
pub(crate) fn adjust<'a>(family: impl Iterator<Item = &'a mut Judgement>) {
    let mut family: Vec<&mut Judgement> = family.collect();
    let raw: Vec<f64> = family.iter().map(|judgement| judgement.p).collect();
    let level = 1.0 - Settings::default().level;
    let questions = family.len();
    for (judgement, adjusted) in family.iter_mut().zip(holm::adjust(&raw)) {
        judgement.p_adjusted = adjusted;
        let found = matches!(
            judgement.verdict,
            Verdict::Faster { .. } | Verdict::Slower { .. }
        );
        if found && adjusted > level {
            judgement.verdict = Verdict::CannotTell {
                more_pairs: Some(more_pairs(judgement.pairs.len(), questions, level)),
            };
        }
    }
}

/// How many pairs are missing before the test could pass Holm's first step at all; at least one.
fn more_pairs(have: usize, questions: usize, level: f64) -> usize {
    let fewest = howdah_bench::stats::sign_flip::fewest_pairs(level / questions.max(1) as f64);
    fewest.saturating_sub(have).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_bench::stats::paired::{Better, Question, judge};

    fn twice_as_fast(pairs: usize) -> Judgement {
        let pairs: Vec<(f64, f64)> = (0..pairs)
            .map(|n| (100.0 + n as f64, 200.0 + 3.0 * n as f64))
            .collect();
        let question = Question {
            metric: "good answers per second",
            primary: true,
            better: Better::Higher,
            pairs: &pairs,
            control: &[],
        };
        let found = judge(&[question], &[], Settings::default());
        found.into_iter().next().unwrap()
    }

    #[test]
    fn what_one_question_proves_ten_do_not() {
        let mut alone = [twice_as_fast(6)];
        adjust(alone.iter_mut());
        assert!(matches!(alone[0].verdict, Verdict::Faster { .. }));
        let mut family: Vec<Judgement> = (0..10).map(|_| twice_as_fast(6)).collect();
        adjust(family.iter_mut());
        // 2^-8 * 10 is the first to be under 0.05.
        let expected = Verdict::CannotTell {
            more_pairs: Some(3),
        };
        assert_eq!(family[0].verdict, expected);
        let mut family: Vec<Judgement> = (0..10).map(|_| twice_as_fast(9)).collect();
        adjust(family.iter_mut());
        assert!(matches!(family[9].verdict, Verdict::Faster { .. }));
    }
}
