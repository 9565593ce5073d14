//! Invented results of the real benchmarks, for the tests of the reports.

#![allow(
    dead_code,
    reason = "every test binary uses its own part of this module"
)]

use std::collections::BTreeMap;

use howdah_bench::outcome::Outcome;
use howdah_bench::report::figures::{Figures, GeneratorLoad};
use howdah_bench::run::Machine;
use howdah_bench::stats::bootstrap::mean_interval;
use howdah_bench::stats::paired::{
    BetterDirection, FigureQuestion, Judgement, JudgementSettings, judge,
};
use howdah_lab::answer::{self, AllLevelsAnswer, SuiteAnswer};
use howdah_lab::app_compare::outcome::AppOutcome;

use howdah_lab::stack::Stack;
use howdah_lab::suite::Suite;
use howdah_lab::table::{MissingRow, ResultTable, SCHEMA, StackRow, TableCell};

/// Returns windows around a rate, a few per cent apart, the same for the same rate.
fn windows(rate: f64) -> Vec<f64> {
    (0..10)
        .map(|n| rate * (1.0 + 0.01 * f64::from((n * 7) % 5 - 2)))
        .collect()
}

/// Judges the windows of two rows.
pub fn judged(base: &[f64], candidate: &[f64]) -> Judgement {
    let pairs: Vec<(f64, f64)> = base
        .iter()
        .copied()
        .zip(candidate.iter().copied())
        .collect();
    let again: Vec<(f64, f64)> = base
        .iter()
        .enumerate()
        .map(|(n, rate)| (*rate, rate * if n % 2 == 0 { 1.004 } else { 0.997 }))
        .collect();
    let question = FigureQuestion {
        metric: "good responses per second",
        primary: true,
        better: BetterDirection::Higher,
        pairs: &pairs,
        control: &again,
    };
    judge(&[question], &[], JudgementSettings::default()).remove(0)
}

/// Returns the figures of a row. Rates rise with the row's index and fall with the level; a trap of nginx has a large
/// share of errors.
fn line(suite: &Suite, row: usize, page: usize, level: u32) -> StackRow {
    let of = &suite.rows[row];
    let speed = 400.0 * (1.0 + row as f64 * 0.6);
    let good = windows(speed / (1.0 + f64::from(level) / 2000.0));
    let mean = good.iter().sum::<f64>() / good.len() as f64;
    let share = match &of.trap {
        Some(_) if of.stack.starts_with("nginx") => 0.86,
        _ => 0.0,
    };
    let requests = (mean * 6.0 / (1.0 - share)) as u64;
    let errors = (requests as f64 * share) as u64;
    let typical = f64::from(level) / mean;
    let percentiles = [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0];
    StackRow {
        stack: of.stack.clone(),
        title: Stack::find(&of.stack).unwrap().title.to_owned(),
        stands_for: of.stands_for.clone(),
        reported: suite.reported_for(of, &suite.pages[page], level).cloned(),
        trap: of.trap.clone(),
        as_ab: mean / (1.0 - share),
        figures: Figures {
            good: mean,
            interval: mean_interval(&good, 0.95, 1),
            requests,
            errors: match errors {
                0 => BTreeMap::new(),
                count => BTreeMap::from([(Outcome::Status5xx, count)]),
            },
            p50: Some(typical),
            p99: Some(typical * 2.5),
            slowest: typical * 4.0,
            cpu: Some(0.000_4),
            memory: 120 << 20,
            generator: GeneratorLoad {
                cpu: if row == 1 { 0.93 } else { 0.31 },
                ceiling: Some(42_000.0),
                of_ceiling: Some(mean / 42_000.0),
            },
            generator_bound: (row == 1).then(|| "it used 93 % of a core".to_owned()),
        },
        percentiles: percentiles
            .into_iter()
            .map(|p| (p, typical * (0.4 + p * p / 8000.0)))
            .collect(),
        page_loads: None,
        against: None,
        windows: good,
    }
}

fn cell(suite: &Suite, page: usize, level: u32) -> TableCell {
    let mut rows: Vec<StackRow> = (0..suite.rows.len())
        .map(|row| line(suite, row, page, level))
        .collect();
    let base = rows[0].windows.clone();
    for row in rows.iter_mut().skip(1).filter(|row| row.trap.is_none()) {
        row.against = Some(judged(&base, &row.windows));
    }
    TableCell {
        page: suite.pages[page].name.clone(),
        concurrency: level,
        base: suite.rows[0].stack.clone(),
        noise_floor: Some(1.004),
        rows,
    }
}

/// Returns a comparison on an application with a worker script, as `howdah compare --app` once saved it (`app.json`).
pub fn outcome() -> AppOutcome {
    serde_json::from_str(include_str!("app.json")).expect("a saved outcome of this version")
}

/// Returns a result of one of the five benchmarks at these levels.
pub fn table(name: &str, levels: &[u32]) -> ResultTable {
    let suite = Suite::built_in(name).unwrap();
    let cells: Vec<TableCell> = (0..suite.pages.len())
        .flat_map(|page| levels.iter().map(move |level| (page, *level)))
        .map(|(page, level)| cell(&suite, page, level))
        .collect();
    let mut answers = Vec::new();
    for asked in &suite.asked {
        for cell in &cells {
            let of = |stack: &str| cell.rows.iter().find(|line| line.stack == stack);
            let (Some(with), Some(without)) = (of(&asked.stack), of(&asked.against)) else {
                continue;
            };
            answers.push(SuiteAnswer {
                what: asked.what.clone(),
                stack: asked.stack.clone(),
                against: asked.against.clone(),
                page: cell.page.clone(),
                concurrency: cell.concurrency,
                judgement: judged(&without.windows, &with.windows),
                cpu: None,
            });
        }
    }
    let mut overall: Vec<AllLevelsAnswer> = Vec::new();
    for of_one in answers.chunk_by(|a, b| (&a.what, &a.page) == (&b.what, &b.page)) {
        if let [first, _, .., _] = of_one {
            overall.push(AllLevelsAnswer {
                what: first.what.clone(),
                stack: first.stack.clone(),
                against: first.against.clone(),
                page: first.page.clone(),
                levels: levels.to_vec(),
                judgement: first.judgement.clone(),
            });
        }
    }
    ResultTable {
        schema: SCHEMA,
        benchmark: name.to_owned(),
        machine: Machine {
            host: "reference".to_owned(),
            kernel: "Linux 6.18".to_owned(),
            cpu: "a processor".to_owned(),
            cores: 2,
            memory: 4 << 30,
            ..Machine::default()
        },
        versions: vec![
            "howdah 0.1.0".to_owned(),
            "nginx version: nginx/1.22.1".to_owned(),
        ],
        effort: vec!["10 blocks of 0.6 s after 0.3 s of warm-up.".to_owned()],
        left_out: vec![
            "LeftOut: the time limit was reached: for blog at 10 clients, only 6 of 10 blocks were measured; --full has no time limit.".to_owned(),
        ],
        command: format!("howdah compare {name}"),
        options: String::new(),
        started: 1_795_000_000.0,
        took: 200.0,
        interrupted: false,
        foreign: 0.02,
        flat: answer::rate_retention(&cells),
        answers,
        overall,
        cells,
        missing: vec![MissingRow {
            stack: Some("frankenphp".to_owned()),
            title: "FrankenPHP".to_owned(),
            page: None,
            concurrency: None,
            name: "NotHere".to_owned(),
            message: "NotHere: FrankenPHP is not installed: see https://frankenphp.dev/docs/"
                .to_owned(),
        }],
        suite,
    }
}
