//! The answers to what a benchmark asks: pairs of stacks whose difference it wants to know, who stays flat
//! as more clients come, and what a trap would have made of it. Each is data with a sentence; nothing
//! is shown here.

use howdah_bench::report::{judge as judged, words};
use howdah_bench::stats::bootstrap::{self, Interval};
use howdah_bench::stats::paired::{Better, Judgement, Question, Settings, judge};
use howdah_bench::stats::{Invalid, Verdict, mean};
use serde::{Deserialize, Serialize};

use crate::measure::{Measured, Window};
use crate::suite::Suite;
use crate::table::{Cell, Line, SEED, Table, adjust, pairs, title};

/// From here on a ratio is told as "2.4 times", below as per cent.
const TIMES: f64 = 1.5;
/// Errors above this share make a row's rate a trap.
const TRAPPED: f64 = 0.01;

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

/// A ratio as people say it, with its interval.
fn ratio(judgement: &Judgement) -> String {
    let ratio = judgement.ratio;
    let Some(interval) = judgement.interval else {
        return format!("{} times", words::digits(ratio));
    };
    if !(1.0 / TIMES..TIMES).contains(&ratio) {
        return format!(
            "{} times [{}, {}]",
            words::digits(ratio),
            words::digits(interval.low),
            words::digits(interval.high)
        );
    }
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    format!(
        "{:+.1} % [{:+.1}, {:+.1}]",
        percent(ratio),
        percent(interval.low),
        percent(interval.high)
    )
}

/// What a judgement says, without the names: `2.41 times [2.3, 2.5]`.
pub fn outcome(judgement: &Judgement, base: &str, candidate: &str) -> String {
    match &judgement.verdict {
        Verdict::Faster { .. } | Verdict::Slower { .. } => ratio(judgement),
        Verdict::Same { within } => format!("the same within ±{within:.0} %"),
        Verdict::CannotTell { more_pairs } => {
            format!(
                "cannot tell ({} so far, {})",
                ratio(judgement),
                more(*more_pairs)
            )
        }
        Verdict::Invalid { because } => {
            let reasons: Vec<String> = because
                .iter()
                .map(|reason| reason.sentence(base, candidate))
                .collect();
            format!("invalid: {}", reasons.join("; "))
        }
    }
}

fn more(pairs: Option<usize>) -> String {
    match pairs {
        Some(pairs) => format!(
            "about {} needed",
            words::plural(pairs as u64, "more pair", "more pairs")
        ),
        None => "over a thousand more pairs needed".to_owned(),
    }
}

/// What may be said of the rates though the load tester held one of them back: that one could only have been
/// higher, so the other is behind it by at least so much. None: nothing may be. `p` is adjusted.
fn held_back(judgement: &Judgement, p: f64, base: &Line, candidate: &Line) -> Option<String> {
    let interval = judgement.interval.as_ref()?;
    let above_noise = judgement
        .noise_floor
        .is_none_or(|floor| judgement.ratio.ln().abs() > floor.ln());
    let holds = p <= 1.0 - Settings::default().level && above_noise;
    if !is_generator_bound(judgement) || !holds {
        return None;
    }
    let bound = |line: &Line| line.generator_bound.is_some();
    let word = match (bound(base), bound(candidate)) {
        (true, false) if interval.high < 1.0 => "at most",
        (false, true) if interval.low > 1.0 => "at least",
        _ => return None,
    };
    Some(format!(
        "{word} {} times [{}, {}]",
        words::digits(judgement.ratio),
        words::digits(interval.low),
        words::digits(interval.high)
    ))
}

/// What may still be said of a row beside the first one of its page and level, though the load tester held back
/// one of the two; none: nothing, or it did not.
pub fn bound(cell: &Cell, line: &Line) -> Option<String> {
    let judgement = line.against.as_ref()?;
    held_back(judgement, judgement.p_adjusted, cell.row(&cell.base)?, line)
}

/// An answer in words: by the rates; where the load tester held them back, by what may still be said of them, or
/// else by the CPU time.
fn said(table: &Table, answer: &Answer) -> String {
    const HELD: &str = "the load tester held one of them back";
    let judgement = &answer.judgement;
    // The rates that are not judged took no part in Holm's adjustment: the strictest one.
    let p = judgement.p * table.answers.len() as f64;
    let here = |cell: &&Cell| cell.page == answer.page && cell.concurrency == answer.concurrency;
    let cell = table.cells.iter().find(here);
    let rows = cell.and_then(|cell| Some((cell.row(&answer.against)?, cell.row(&answer.stack)?)));
    let bound = rows.and_then(|(base, candidate)| held_back(judgement, p, base, candidate));
    let (base, candidate) = (title(&answer.against), title(&answer.stack));
    match (bound, &answer.cpu) {
        (Some(bound), _) => format!("{bound} ({HELD})"),
        (None, Some(cpu)) => by_cpu(cpu, &base, &candidate),
        (None, None) => outcome(judgement, &base, &candidate),
    }
}

/// What is said where the load tester was the bottleneck of the rate: as a share of the base's CPU time, since of
/// a cost "more" is ambiguous.
fn by_cpu(cpu: &Judgement, base: &str, candidate: &str) -> String {
    let share = |ratio: f64| words::digits(1.0 / ratio);
    let so_far = match &cpu.interval {
        Some(found) => format!(
            "{} [{}, {}]",
            share(cpu.ratio),
            share(found.high),
            share(found.low)
        ),
        None => share(cpu.ratio),
    };
    let said = match &cpu.verdict {
        Verdict::Faster { .. } | Verdict::Slower { .. } => {
            format!("{so_far} of the CPU time for a request")
        }
        Verdict::CannotTell { more_pairs } => format!(
            "CPU time for a request: cannot tell ({so_far} of it so far, {})",
            more(*more_pairs)
        ),
        Verdict::Same { .. } | Verdict::Invalid { .. } => {
            format!("CPU time for a request: {}", outcome(cpu, base, candidate))
        }
    };
    format!("{said} (for a rate the load tester was the bottleneck)")
}

/// The verdict of a benchmark: a sentence for each thing asked, then who stays flat, then the traps.
pub fn verdict(table: &Table) -> Vec<String> {
    let mut all = Vec::new();
    let mut asked: Vec<(&str, &str, &str)> = Vec::new();
    for answer in &table.answers {
        let key = (
            answer.what.as_str(),
            answer.stack.as_str(),
            answer.against.as_str(),
        );
        if !asked.contains(&key) {
            asked.push(key);
        }
    }
    let one_page = table.suite.pages.len() == 1;
    let mut levels: Vec<u32> = table.cells.iter().map(|cell| cell.concurrency).collect();
    levels.sort_unstable();
    levels.dedup();
    let one_level = levels.len() == 1;
    for (what, stack, against) in asked {
        let same = |answer: &&Answer| {
            answer.what == what && answer.stack == stack && answer.against == against
        };
        let parts: Vec<String> = table
            .answers
            .iter()
            .filter(same)
            .map(|answer| {
                let place = match (one_page, one_level) {
                    (true, true) => String::new(),
                    (true, false) => format!(" at {} clients", answer.concurrency),
                    (false, true) => format!(" on {}", answer.page),
                    (false, false) => {
                        format!(" on {} at {} clients", answer.page, answer.concurrency)
                    }
                };
                format!("{}{place}", said(table, answer))
            })
            .collect();
        let what = super::report::text::capital(what);
        all.push(format!("{what}: {}.", parts.join(", ")));
    }
    all.extend(table.flat.first().map(|first| {
        let mut flat: Vec<&Flat> = table.flat.iter().collect();
        flat.sort_by(|a, b| b.kept().total_cmp(&a.kept()));
        let each: Vec<String> = flat
            .iter()
            .map(|flat| {
                let errors = match flat.errors > 0.0 {
                    true => format!(", {} errors", words::percent(flat.errors)),
                    false => String::new(),
                };
                let interval = flat.interval.map_or(String::new(), |interval| {
                    let percent = |share: f64| format!("{:.0}", share * 100.0);
                    format!(" [{}, {}]", percent(interval.low), percent(interval.high))
                });
                format!(
                    "{} {}{interval}{errors}",
                    flat.title,
                    words::percent(flat.kept())
                )
            })
            .collect();
        format!(
            "Of its best rate each keeps, at {} clients: {}.",
            first.last_at,
            each.join("; ")
        )
    }));
    all.extend(traps(table));
    if all.is_empty() {
        all.push(fastest(table));
    }
    all
}

/// What ab would have made of each trap that caught something.
fn traps(table: &Table) -> Vec<String> {
    let caught = |line: &&Line| line.trap.is_some() && line.error_share() > TRAPPED;
    let sentence = |cell: &Cell, line: &Line| {
        format!(
            "The trap, on {} at {} clients: ab would report {} per second for {}, of which {} are good; {} of its answers are errors.",
            cell.page,
            cell.concurrency,
            words::rate(line.as_ab),
            line.title,
            words::rate(line.good),
            words::percent(line.error_share())
        )
    };
    table
        .cells
        .iter()
        .flat_map(|cell| {
            let lines = cell.rows.iter().filter(caught);
            lines.map(move |line| sentence(cell, line))
        })
        .collect()
}

/// For what has no questions of its own, or had too few windows for an answer.
fn fastest(table: &Table) -> String {
    let Some(cell) = table.cells.first() else {
        return "Nothing could be measured.".to_owned();
    };
    let ranked = cell.rows.iter().filter(|line| line.trap.is_none());
    match ranked.max_by(|a, b| a.good.total_cmp(&b.good)) {
        Some(line) => format!(
            "{} gave {} good answers per second on {} at {} clients; nothing is claimed beyond that.",
            line.title,
            words::rate(line.good),
            cell.page,
            cell.concurrency
        ),
        None => "Nothing could be measured.".to_owned(),
    }
}
