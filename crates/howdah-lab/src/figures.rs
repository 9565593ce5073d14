//! What an arm did in its windows, as figures: the part of a row that all comparisons have.

use std::collections::BTreeMap;

use howdah_bench::histogram::Histogram;
use howdah_bench::outcome::Outcome;
use howdah_bench::report::{bottleneck, judge};
use howdah_bench::run::Run;
use howdah_bench::stats::bootstrap::{self, Interval};
use howdah_bench::stats::mean;
use serde::{Deserialize, Serialize};

use crate::ceiling::Generator;
use crate::experiment::Window;

/// Seed of the intervals' resampling: the same windows always give the same intervals.
pub(crate) const SEED: u64 = 1;

/// The figures of an arm on a page at a number of clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Good answers per second, mean of the windows.
    pub good: f64,
    /// The 95 % interval of `good` over the windows; None for a single window.
    pub interval: Option<Interval>,
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
    /// CPU time of the whole stack per request, seconds. A database's is not in it. None: not known.
    pub cpu: Option<f64>,
    /// Proportional memory of the whole stack, bytes; 0 if the lab may not read it.
    pub memory: u64,
    /// How near the load tester was to its own limit.
    pub generator: Generator,
    /// Why the load tester was the bottleneck, as a sentence; the rate is a lower bound then. None if
    /// it was not.
    pub generator_bound: Option<String>,
}

impl Figures {
    /// The figures of these windows.
    pub fn of(windows: &[&Window]) -> Figures {
        let runs: Vec<&Run> = windows.iter().map(|window| &window.run).collect();
        let good: Vec<f64> = runs.iter().map(|run| run.good_rate()).collect();
        let mut errors = BTreeMap::new();
        for (outcome, tally) in runs.iter().flat_map(|run| &run.outcomes) {
            if *outcome != Outcome::Good && tally.count > 0 {
                *errors.entry(*outcome).or_default() += tally.count;
            }
        }
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        let cpu = windows.iter().filter_map(|window| window.cpu_per_request);
        let cpu: Vec<f64> = cpu.map(|cpu| cpu.as_secs_f64()).collect();
        let memory = windows.iter().map(|window| window.memory);
        Figures {
            good: mean(&good),
            interval: rate_interval(&good),
            requests: runs.iter().map(|run| run.ended_requests()).sum(),
            errors,
            p50: judge::merged_percentile(&runs, 50.0).map(seconds),
            p99: judge::merged_percentile(&runs, 99.0).map(seconds),
            slowest: seconds(latency(&runs).max()),
            cpu: (!cpu.is_empty()).then(|| mean(&cpu)),
            memory: memory.max().unwrap_or(0),
            generator: Generator::of(&runs),
            generator_bound: runs.iter().find_map(|run| bottleneck::bound(run)),
        }
    }

    /// The share of ended requests that were not good, 0 to 1.
    pub fn error_share(&self) -> f64 {
        let errors: u64 = self.errors.values().sum();
        match self.requests {
            0 => 0.0,
            requests => errors as f64 / requests as f64,
        }
    }
}

/// The latencies of the good answers of all runs.
pub(crate) fn latency(runs: &[&Run]) -> Histogram {
    let mut latency = Histogram::new();
    for run in runs {
        latency.add(&run.latency());
    }
    latency
}

/// The 95 % interval of a mean rate, which is never negative; None for a single window.
fn rate_interval(rates: &[f64]) -> Option<Interval> {
    let interval = bootstrap::mean_interval(rates, 0.95, SEED)?;
    Some(interval.map(|rate| rate.max(0.0)))
}
