//! The answers to the questions of a benchmark: which of two stacks is faster, and which stacks keep their rate as more
//! clients arrive. This is data only; [`sentence`] puts it into words.

pub mod sentence;

use std::collections::BTreeMap;

use howdah_bench::report::figures::BOOTSTRAP_SEED;
use howdah_bench::report::judge as judged;
use howdah_bench::stats::bootstrap::{self, ConfidenceInterval};
use howdah_bench::stats::paired::{
    BetterDirection, FigureQuestion, Judgement, JudgementSettings, judge,
};
use howdah_bench::stats::{ComparisonVerdict, InvalidReason, mean};
use serde::{Deserialize, Serialize};

use crate::adjust::holm_adjust;
use crate::experiment::{ExperimentResult, MeasuredWindow};
use crate::suite::{StackQuestion, Suite};
use crate::table::{StackRow, TableCell, run_pairs, window_pairs};

/// The minimum number of levels of a page for answers over all its levels, and for figures on how the rates hold.
const MIN_SWEEP_LEVELS: usize = 3;

/// The answer to one question on one page at one level.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SuiteAnswer {
    /// What the first stack has and the second lacks.
    pub what: String,
    /// The stack that has it.
    pub stack: String,
    /// The stack that lacks it.
    pub against: String,
    /// The page's name.
    pub page: String,
    /// Number of clients.
    pub concurrency: u32,
    /// The verdict on good responses per second, adjusted for all answers of the benchmark.
    pub judgement: Judgement,
    /// The verdict on the stack's CPU time per request, which takes the place of the rate where the
    /// load tester was the bottleneck and nothing else was wrong. CPU time limits the rate on a
    /// machine with nothing else to do, and it can be measured even when the load tester is at its
    /// limit.
    #[serde(default)]
    pub cpu: Option<Judgement>,
}

/// The answer to one question over all levels of a page. It is computed from the geometric mean of each block's ratios,
/// because a block contains every level. All levels together may show a difference that no single level shows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AllLevelsAnswer {
    /// What the first stack has and the second lacks.
    pub what: String,
    /// The stack that has it.
    pub stack: String,
    /// The stack that lacks it.
    pub against: String,
    /// The page's name.
    pub page: String,
    /// The numbers of clients that were measured.
    pub levels: Vec<u32>,
    /// The verdict on good responses per second, adjusted together with the answers of the single levels.
    pub judgement: Judgement,
}

/// How a stack's rate holds as the number of clients grows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RateRetention {
    /// The stack's name.
    pub stack: String,
    /// The stack's name for readers.
    pub title: String,
    /// The page's name.
    pub page: String,
    /// The number of clients at which its rate is highest.
    pub best_at: u32,
    /// The good responses per second at that number of clients.
    pub best: f64,
    /// The highest number of clients measured.
    pub last_at: u32,
    /// The good responses per second at the highest number of clients.
    pub last: f64,
    /// The share of requests at the highest level that ended as errors.
    pub errors: f64,
    /// The 95 % interval of the share that is kept, over the blocks; `None` for a single block.
    #[serde(default)]
    pub interval: Option<ConfidenceInterval>,
}

impl RateRetention {
    /// Returns the share of its best rate that is left at the highest level; 1 means that the rate holds.
    pub fn share_kept(&self) -> f64 {
        if self.best > 0.0 {
            self.last / self.best
        } else {
            0.0
        }
    }
}

/// Judges the questions of a suite wherever both stacks were measured: at each level, and over all levels of a page
/// that has three or more.
pub fn suite_answers(
    suite: &Suite,
    measured: &ExperimentResult,
) -> (Vec<SuiteAnswer>, Vec<AllLevelsAnswer>) {
    let row = |stack: &str| suite.rows.iter().position(|row| row.stack == stack);
    let (mut all, mut overall) = (Vec::new(), Vec::new());
    for asked in &suite.asked {
        let (Some(with), Some(without)) = (row(&asked.stack), row(&asked.against)) else {
            continue;
        };
        for page in 0..suite.pages.len() {
            let (each, together) = answers_of_page(suite, measured, asked, page, (without, with));
            all.extend(each);
            overall.extend(together);
        }
    }
    let each = all
        .iter_mut()
        .map(|answer: &mut SuiteAnswer| answer.cpu.as_mut().unwrap_or(&mut answer.judgement));
    holm_adjust(each.chain(overall.iter_mut().map(|answer| &mut answer.judgement)));
    (all, overall)
}

/// Answers one question on one page by comparing two rows.
fn answers_of_page(
    suite: &Suite,
    measured: &ExperimentResult,
    asked: &StackQuestion,
    page: usize,
    (without, with): (usize, usize),
) -> (Vec<SuiteAnswer>, Option<AllLevelsAnswer>) {
    let settings = JudgementSettings::default();
    let windows = |level: u32| {
        let here = move |w: &&MeasuredWindow| (w.page, w.concurrency) == (page, level);
        measured.windows.iter().filter(here)
    };
    // A quick run omits some of the suite's levels.
    let is_measured = |level: &u32| windows(*level).next().is_some();
    let concurrency = suite.load.concurrency.iter().copied();
    let concurrency: Vec<u32> = concurrency.filter(is_measured).collect();
    let (mut each, mut levels) = (Vec::new(), Vec::new());
    for level in &concurrency {
        let of = |row: usize, control: bool| -> Vec<&MeasuredWindow> {
            let its = |w: &&MeasuredWindow| (w.arm, w.control) == (row, control);
            windows(*level).filter(its).collect()
        };
        let (base, again) = (0..suite.rows.len())
            .map(|row| (of(row, false), of(row, true)))
            .find(|(_, again)| !again.is_empty())
            .unwrap_or_default();
        let (without, with) = (of(without, false), of(with, false));
        let compared = run_pairs(&without, &with);
        if compared.len() < 2 {
            continue;
        }
        let figures = judged::figures(&compared, &run_pairs(&base, &again), settings);
        let cpu = || judge_cpu_time(&without, &with, settings);
        each.extend(figures.into_iter().next().map(|judgement| SuiteAnswer {
            what: asked.what.clone(),
            stack: asked.stack.clone(),
            against: asked.against.clone(),
            page: suite.pages[page].name.clone(),
            concurrency: *level,
            cpu: is_generator_bound(&judgement).then(cpu).flatten(),
            judgement,
        }));
        levels.push(LevelPairs {
            compared: rates(&without, &with),
            control: rates(&base, &again),
        });
    }
    let whole = levels.len() == concurrency.len() && each.iter().all(is_valid);
    if !whole || levels.len() < MIN_SWEEP_LEVELS {
        return (each, None);
    }
    let together = judge_all_levels(&levels, settings).map(|judgement| AllLevelsAnswer {
        what: asked.what.clone(),
        stack: asked.stack.clone(),
        against: asked.against.clone(),
        page: suite.pages[page].name.clone(),
        levels: concurrency,
        judgement,
    });
    (each, together)
}

fn is_valid(answer: &SuiteAnswer) -> bool {
    !matches!(answer.judgement.verdict, ComparisonVerdict::Invalid { .. })
}

/// The pairs of good responses per second at one level, by block.
struct LevelPairs {
    compared: BTreeMap<u32, (f64, f64)>,
    control: BTreeMap<u32, (f64, f64)>,
}

fn rates(base: &[&MeasuredWindow], other: &[&MeasuredWindow]) -> BTreeMap<u32, (f64, f64)> {
    window_pairs(base, other)
        .map(|(base, other)| (base.block, (base.run.good_rate(), other.run.good_rate())))
        .collect()
}

/// Judges all levels together, with each block as one pair; returns `None` if fewer than two blocks have all levels.
fn judge_all_levels(levels: &[LevelPairs], settings: JudgementSettings) -> Option<Judgement> {
    type Of = fn(&LevelPairs) -> &BTreeMap<u32, (f64, f64)>;
    let blocks = |of: Of| -> Vec<(f64, f64)> {
        let blocks = levels
            .first()
            .into_iter()
            .flat_map(|level| of(level).keys());
        blocks
            .filter_map(|block| {
                let pairs: Option<Vec<_>> = levels.iter().map(|l| of(l).get(block)).collect();
                let pairs = pairs?;
                let typical = |rate: fn(&(f64, f64)) -> f64| {
                    let logs: Vec<f64> = pairs.iter().map(|pair| rate(pair).ln()).collect();
                    mean(&logs).exp()
                };
                Some((typical(|pair| pair.0), typical(|pair| pair.1)))
            })
            .collect()
    };
    let (pairs, control) = (blocks(|l| &l.compared), blocks(|l| &l.control));
    let question = FigureQuestion {
        metric: "good responses per second",
        primary: true,
        better: BetterDirection::Higher,
        pairs: &pairs,
        control: &control,
    };
    (pairs.len() > 1).then(|| judge(&[question], &[], settings).remove(0))
}

/// Returns whether the only defect is that the load tester was the bottleneck.
fn is_generator_bound(judgement: &Judgement) -> bool {
    let bound = |reason: &InvalidReason| matches!(reason, InvalidReason::GeneratorBound { .. });
    matches!(&judgement.verdict, ComparisonVerdict::Invalid { because } if because.iter().all(bound))
}

/// Judges the CPU time per request in the windows of the same blocks; returns `None` if a stack's CPU time is not
/// known.
fn judge_cpu_time(
    without: &[&MeasuredWindow],
    with: &[&MeasuredWindow],
    settings: JudgementSettings,
) -> Option<Judgement> {
    let seconds = |w: &MeasuredWindow| Some(w.cpu_per_request?.as_secs_f64());
    let pairs: Vec<(f64, f64)> = window_pairs(without, with)
        .filter_map(|(without, with)| Some((seconds(without)?, seconds(with)?)))
        .collect();
    let question = FigureQuestion {
        metric: "CPU time for a request",
        primary: true,
        better: BetterDirection::Lower,
        pairs: &pairs,
        control: &[],
    };
    let known = pairs.len() > 1 && pairs.iter().all(|(a, b)| *a > 0.0 && *b > 0.0);
    known.then(|| judge(&[question], &[], settings).remove(0))
}

/// Returns how each stack's rate holds, page by page; pages with fewer than three levels are omitted.
pub fn rate_retention(cells: &[TableCell]) -> Vec<RateRetention> {
    let mut pages: Vec<&str> = cells.iter().map(|cell| cell.page.as_str()).collect();
    pages.dedup();
    let mut all = Vec::new();
    for page in pages {
        let cells: Vec<&TableCell> = cells.iter().filter(|cell| cell.page == page).collect();
        let (Some(first), Some(last)) = (cells.first(), cells.last()) else {
            continue;
        };
        if cells.len() < MIN_SWEEP_LEVELS {
            continue;
        }
        for line in first.rows.iter().filter(|line| line.trap.is_none()) {
            let of = |cell: &&&TableCell| cell.row(&line.stack).is_some();
            let levels: Vec<&TableCell> = cells.iter().filter(of).copied().collect();
            let rows: Vec<&StackRow> = levels.iter().filter_map(|c| c.row(&line.stack)).collect();
            // If the time ran out, some levels may have one block fewer than others.
            let blocks = rows.iter().map(|row| row.windows.len()).min().unwrap_or(0);
            let rate = |row: &StackRow| mean(&row.windows[..blocks]);
            let faster = |a: &usize, b: &usize| rate(rows[*a]).total_cmp(&rate(rows[*b]));
            let best = (0..rows.len()).max_by(faster);
            let (Some(best), Some(end)) = (best, last.row(&line.stack)) else {
                continue;
            };
            if blocks == 0 {
                continue;
            }
            all.push(RateRetention {
                stack: line.stack.clone(),
                title: line.title.clone(),
                page: page.to_owned(),
                best_at: levels[best].concurrency,
                best: rate(rows[best]),
                last_at: last.concurrency,
                last: rate(end),
                errors: end.figures.error_share(),
                interval: kept(&rows, end, blocks),
            });
        }
    }
    all
}

/// Returns the interval of the share of its best rate that a stack keeps at the last level. Whole blocks are resampled,
/// because a disturbance slows all levels of a block. Each resample has its own best level, because another level might
/// have been the best.
fn kept(levels: &[&StackRow], last: &StackRow, blocks: usize) -> Option<ConfidenceInterval> {
    let blocks: Vec<usize> = (0..blocks).collect();
    let share = bootstrap::interval(
        &blocks,
        0.95,
        bootstrap::RESAMPLE_COUNT,
        BOOTSTRAP_SEED,
        |drawn| {
            let rate =
                |line: &StackRow| drawn.iter().map(|block| line.windows[**block]).sum::<f64>();
            let best = levels.iter().map(|line| rate(line)).reduce(f64::max)?;
            Some(rate(last) / best)
        },
    )?;
    Some(share.map(|kept| kept.clamp(0.0, 1.0)))
}

#[cfg(test)]
mod tests;
