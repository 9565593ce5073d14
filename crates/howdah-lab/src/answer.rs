//! The answers to what a benchmark asks: pairs of stacks whose difference it wants to know, who stays flat
//! as more clients come. Data only; [`sentence`] puts it into words.

pub mod sentence;

use howdah_bench::report::judge as judged;
use howdah_bench::stats::bootstrap::{self, Interval};
use howdah_bench::stats::paired::{Better, Judgement, Question, Settings, judge};
use howdah_bench::stats::{Invalid, Verdict, mean};
use serde::{Deserialize, Serialize};

use crate::measure::{Measured, Window};
use crate::suite::Suite;
use crate::table::{Cell, Line, SEED, adjust, pairs};

/// One question at one page and level.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// What the difference is.
    pub what: String,
    /// The stack with it.
    pub stack: String,
    /// The stack without it.
    pub against: String,
    /// The page's name.
    pub page: String,
    /// Clients.
    pub concurrency: u32,
    /// Good answers per second, judged; adjusted for all answers of the benchmark.
    pub judgement: Judgement,
    /// Where the load tester was the bottleneck, and nothing else was wrong: CPU time of the stack for a request,
    /// judged in place of the rate. It is what a rate comes to on a machine that has nothing else to do, and
    /// needs no load tester at its end to be seen.
    #[serde(default)]
    pub cpu: Option<Judgement>,
}

/// How a stack's rate holds as more clients come.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Flat {
    /// The stack's name.
    pub stack: String,
    /// For people.
    pub title: String,
    /// The page's name.
    pub page: String,
    /// The level with its highest rate.
    pub best_at: u32,
    /// Good answers per second there.
    pub best: f64,
    /// The highest level.
    pub last_at: u32,
    /// Good answers per second there.
    pub last: f64,
    /// Share of requests at the highest level that ended as errors.
    pub errors: f64,
    /// The 95 % interval of what is kept, over the blocks; none for a single one.
    #[serde(default)]
    pub interval: Option<Interval>,
}

impl Flat {
    /// Of its best rate, what is left at the highest level; 1 is flat.
    pub fn kept(&self) -> f64 {
        if self.best > 0.0 {
            self.last / self.best
        } else {
            0.0
        }
    }
}

/// Judges what a suite asks, as far as both stacks were measured.
pub fn answers(suite: &Suite, measured: &Measured) -> Vec<Answer> {
    let row = |stack: &str| suite.rows.iter().position(|row| row.stack == stack);
    let settings = Settings {
        seed: SEED,
        ..Settings::default()
    };
    let mut all = Vec::new();
    for asked in &suite.asked {
        let (Some(with), Some(without)) = (row(&asked.stack), row(&asked.against)) else {
            continue;
        };
        for (at, page) in suite.pages.iter().enumerate() {
            for level in &suite.load.concurrency {
                let of = |row: usize, control: bool| -> Vec<&Window> {
                    let here = |w: &&Window| {
                        (w.row, w.control, w.page, w.concurrency) == (row, control, at, *level)
                    };
                    measured.windows.iter().filter(here).collect()
                };
                let control = (0..suite.rows.len())
                    .map(|row| (of(row, false), of(row, true)))
                    .find(|(_, again)| !again.is_empty())
                    .map(|(base, again)| pairs(&base, &again))
                    .unwrap_or_default();
                let compared = pairs(&of(without, false), &of(with, false));
                if compared.len() < 2 {
                    continue;
                }
                let figures = judged::figures(&compared, &control, settings);
                let cpu = || cpu(&of(without, false), &of(with, false), settings);
                all.extend(figures.into_iter().next().map(|judgement| Answer {
                    what: asked.what.clone(),
                    stack: asked.stack.clone(),
                    against: asked.against.clone(),
                    page: page.name.clone(),
                    concurrency: *level,
                    cpu: is_generator_bound(&judgement).then(cpu).flatten(),
                    judgement,
                }));
            }
        }
    }
    adjust(
        all.iter_mut()
            .map(|answer| answer.cpu.as_mut().unwrap_or(&mut answer.judgement)),
    );
    all
}

/// Whether that the load tester was the bottleneck is all that is wrong with it.
fn is_generator_bound(judgement: &Judgement) -> bool {
    let bound = |reason: &Invalid| matches!(reason, Invalid::GeneratorBound { .. });
    matches!(&judgement.verdict, Verdict::Invalid { because } if because.iter().all(bound))
}

/// CPU time for a request, in the windows of the same blocks; none where a stack's is not known.
fn cpu(without: &[&Window], with: &[&Window], settings: Settings) -> Option<Judgement> {
    let seconds = |w: &Window| Some(w.cpu_per_request?.as_secs_f64());
    let find = |block| with.iter().find(|w| w.block == block);
    let pairs: Vec<(f64, f64)> = without
        .iter()
        .filter_map(|w| Some((seconds(w)?, seconds(find(w.block)?)?)))
        .collect();
    let question = Question {
        metric: "CPU time for a request",
        primary: true,
        better: Better::Lower,
        pairs: &pairs,
        control: &[],
    };
    let known = pairs.len() > 1 && pairs.iter().all(|(a, b)| *a > 0.0 && *b > 0.0);
    known.then(|| judge(&[question], &[], settings).remove(0))
}

/// How each stack holds, page by page; nothing where there are fewer than three levels.
pub fn flat(cells: &[Cell]) -> Vec<Flat> {
    let mut pages: Vec<&str> = cells.iter().map(|cell| cell.page.as_str()).collect();
    pages.dedup();
    let mut all = Vec::new();
    for page in pages {
        let cells: Vec<&Cell> = cells.iter().filter(|cell| cell.page == page).collect();
        let [first, _, .., last] = cells.as_slice() else {
            continue;
        };
        for line in first.rows.iter().filter(|line| line.trap.is_none()) {
            let of = |cell: &&&Cell| cell.row(&line.stack).is_some();
            let levels: Vec<&Cell> = cells.iter().filter(of).copied().collect();
            let rows: Vec<&Line> = levels.iter().filter_map(|c| c.row(&line.stack)).collect();
            // A run that was out of time may have a block less of some.
            let blocks = rows.iter().map(|row| row.windows.len()).min().unwrap_or(0);
            let rate = |row: &Line| mean(&row.windows[..blocks]);
            let faster = |a: &usize, b: &usize| rate(rows[*a]).total_cmp(&rate(rows[*b]));
            let best = (0..rows.len()).max_by(faster);
            let (Some(best), Some(end)) = (best, last.row(&line.stack)) else {
                continue;
            };
            if blocks == 0 {
                continue;
            }
            all.push(Flat {
                stack: line.stack.clone(),
                title: line.title.clone(),
                page: page.to_owned(),
                best_at: levels[best].concurrency,
                best: rate(rows[best]),
                last_at: last.concurrency,
                last: rate(end),
                errors: end.error_share(),
                interval: kept(&rows, end, blocks),
            });
        }
    }
    all
}

/// The interval of what a stack keeps of its best rate at the last level. Whole blocks are drawn: what slowed a
/// block slowed all of its levels. Each draw has a best level of its own, since another one might have been it.
fn kept(levels: &[&Line], last: &Line, blocks: usize) -> Option<Interval> {
    let blocks: Vec<usize> = (0..blocks).collect();
    bootstrap::interval(&blocks, 0.95, bootstrap::RESAMPLES, SEED, |drawn| {
        let rate = |line: &Line| drawn.iter().map(|block| line.windows[**block]).sum::<f64>();
        let best = levels.iter().map(|line| rate(line)).reduce(f64::max)?;
        Some(rate(last) / best)
    })
}
