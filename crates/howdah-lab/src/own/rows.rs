//! From windows to rows: what each arm did at each level. Pure.

use std::collections::BTreeMap;

use howdah_bench::histogram::Histogram;
use howdah_bench::outcome::Outcome;
use howdah_bench::report::{bottleneck, judge};
use howdah_bench::run::Run;
use howdah_bench::stats::bootstrap::Interval;
use howdah_bench::stats::mean;
use serde::{Deserialize, Serialize};

use super::arm::Arm;
use super::run::{Block, Window};
use crate::ceiling::Generator;
use crate::table::rate_interval;

/// An arm with a larger share of errors than this is not ranked.
pub const ERRORS: f64 = 0.001;

/// The figures of an arm at a level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The arm's name.
    pub arm: String,
    /// The arm's name for readers.
    pub title: String,
    /// The number of children, if it was set.
    pub children: Option<u32>,
    /// Whether the arm is Howdah and not a rival.
    pub ours: bool,
    /// Good answers per second, mean of the windows.
    pub good: f64,
    /// The 95 % interval of `good` over the windows; None for a single window.
    pub interval: Option<Interval>,
    /// Number of windows.
    pub windows: usize,
    /// Number of requests that ended.
    pub requests: u64,
    /// Requests that were not good, by outcome.
    pub errors: BTreeMap<Outcome, u64>,
    /// Median latency of good answers, seconds; None if too few answers lie beyond it.
    pub p50: Option<f64>,
    /// The 99th percentile of that latency, seconds; None if too few answers lie beyond it.
    pub p99: Option<f64>,
    /// The slowest good answer, seconds.
    pub slowest: f64,
    /// CPU time of the whole stack per request, seconds. A database's is not in it.
    pub cpu: f64,
    /// Proportional memory of the whole stack, bytes; 0 if the lab may not read it.
    pub memory: u64,
    /// How near the load tester was to its own limit.
    pub generator: Generator,
    /// Why the load tester was the bottleneck, as a sentence; the rate is a lower bound then. None if
    /// it was not.
    pub generator_bound: Option<String>,
}

impl Row {
    /// The share of ended requests that were not good, 0 to 1.
    pub fn error_share(&self) -> f64 {
        let errors: u64 = self.errors.values().sum();
        match self.requests {
            0 => 0.0,
            requests => errors as f64 / requests as f64,
        }
    }

    /// Whether the arm has few enough errors to be ranked.
    pub fn is_healthy(&self) -> bool {
        self.good > 0.0 && self.error_share() < ERRORS
    }
}

/// The rows of all arms that were measured at one number of clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Number of clients.
    pub concurrency: u32,
    /// The rows, in the order of the arms.
    pub rows: Vec<Row>,
}

/// All levels of these blocks. An arm that failed in any of them has no row: its windows are no sample
/// of a healthy server.
pub fn levels(arms: &[Arm], blocks: &[Block], clients: &[u32]) -> Vec<Level> {
    let failed = |arm: &Arm| {
        let mut all = blocks.iter().flat_map(|block| &block.failed);
        all.any(|failed| failed.arm == arm.name)
    };
    let of = |arm: &Arm, level: u32| -> Vec<&Window> {
        let all = blocks.iter().flat_map(|block| &block.windows);
        all.filter(|w| w.arm == arm.name && !w.control && w.concurrency == level)
            .collect()
    };
    clients
        .iter()
        .map(|level| Level {
            concurrency: *level,
            rows: arms
                .iter()
                .filter(|arm| !failed(arm))
                .filter_map(|arm| row(arm, &of(arm, *level)))
                .collect(),
        })
        .filter(|level| !level.rows.is_empty())
        .collect()
}

fn row(arm: &Arm, windows: &[&Window]) -> Option<Row> {
    let runs: Vec<&Run> = windows.iter().map(|window| &window.run).collect();
    let good: Vec<f64> = runs.iter().map(|run| run.good_rate()).collect();
    let mut errors: BTreeMap<Outcome, u64> = BTreeMap::new();
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
    let cpu: Vec<f64> = windows.iter().map(|window| window.cpu).collect();
    (!windows.is_empty()).then(|| Row {
        arm: arm.name.clone(),
        title: arm.title.clone(),
        children: arm.choice().and_then(|choice| choice.children),
        ours: arm.choice().is_some(),
        good: mean(&good),
        interval: rate_interval(&good),
        windows: windows.len(),
        requests: runs.iter().map(|run| run.ended_requests()).sum(),
        errors,
        p50: judge::merged_percentile(&runs, 50.0).map(seconds),
        p99: judge::merged_percentile(&runs, 99.0).map(seconds),
        slowest: seconds(latency.max()),
        cpu: mean(&cpu),
        memory: windows
            .iter()
            .map(|window| window.memory)
            .max()
            .unwrap_or(0),
        generator: Generator::of(&runs),
        generator_bound: runs.iter().find_map(|run| bottleneck::bound(run)),
    })
}

/// Memory that one more child takes, bytes: the slope of the stack's memory over the numbers of
/// children that were set, by least squares. None with fewer than two numbers, or if the lab may not
/// read the memory.
pub fn memory_per_child(rows: &[Row]) -> Option<f64> {
    let points: Vec<(f64, f64)> = rows
        .iter()
        .filter(|row| row.memory > 0)
        .filter_map(|row| Some((f64::from(row.children?), row.memory as f64)))
        .collect();
    let x = mean(&points.iter().map(|p| p.0).collect::<Vec<_>>());
    let y = mean(&points.iter().map(|p| p.1).collect::<Vec<_>>());
    let spread: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let common: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    // A slope below zero is noise, not memory.
    (points.len() > 1 && spread > 0.0 && common > 0.0).then(|| common / spread)
}

#[cfg(test)]
pub(super) fn made_up(arm: &str, children: Option<u32>, good: f64, memory: u64) -> Row {
    Row {
        arm: arm.to_owned(),
        title: arm.to_owned(),
        children,
        ours: arm.starts_with("howdah"),
        good,
        interval: None,
        windows: 1,
        requests: 1000,
        errors: BTreeMap::new(),
        p50: None,
        p99: None,
        slowest: 0.1,
        cpu: 0.001,
        memory,
        generator: Generator::default(),
        generator_bound: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_child_is_the_slope_over_their_number() {
        let mib = 1 << 20;
        let rows: Vec<Row> = [1, 2, 4, 8]
            .map(|n| made_up("howdah", Some(n), 1.0, (30 + 6 * u64::from(n)) * mib))
            .to_vec();
        let slope = memory_per_child(&rows).unwrap();
        assert!((slope / mib as f64 - 6.0).abs() < 1e-9, "{slope}");
        assert_eq!(memory_per_child(&rows[..1]), None);
        let hidden: Vec<Row> = rows
            .into_iter()
            .map(|row| Row { memory: 0, ..row })
            .collect();
        assert_eq!(memory_per_child(&hidden), None);
    }
}
