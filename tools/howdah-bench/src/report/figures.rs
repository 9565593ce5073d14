//! The figures of a server, computed from its runs. The tables of all comparisons contain these figures in their rows;
//! [`super::columns`] formats them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{bottleneck, judge};
use crate::histogram::Histogram;
use crate::outcome::Outcome;
use crate::run::Run;
use crate::stats::bootstrap::{self, ConfidenceInterval};
use crate::stats::mean;

/// The seed for resampling the intervals. It is fixed, so the same runs always give the same intervals.
pub const BOOTSTRAP_SEED: u64 = 1;

/// The figures of a server under one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The number of good responses per second, mean of the runs.
    pub good: f64,
    /// The 95 % interval of `good` over the runs; `None` for a single run.
    pub interval: Option<ConfidenceInterval>,
    /// The number of requests that ended.
    pub requests: u64,
    /// Requests that were not good, by outcome.
    pub errors: BTreeMap<Outcome, u64>,
    /// The median latency of good responses, in seconds; `None` if too few responses lie beyond it.
    pub p50: Option<f64>,
    /// The 99th percentile of that latency, in seconds; `None` if too few responses lie beyond it.
    pub p99: Option<f64>,
    /// The latency of the slowest good response, in seconds.
    pub slowest: f64,
    /// The CPU time of the whole stack per request, in seconds, without that of a database. `None` if it is not known.
    pub cpu: Option<f64>,
    /// The proportional memory of the whole stack, in bytes; 0 if it is not known.
    pub memory: u64,
    /// How close the load tester was to its own limit.
    pub generator: GeneratorLoad,
    /// If the load tester was the bottleneck, a sentence that says why; the rate is then only a lower bound. `None` if
    /// it was not.
    pub generator_bound: Option<String>,
}

impl Figures {
    /// Returns the figures of these runs, without CPU time and memory of the server.
    pub fn of(runs: &[&Run]) -> Figures {
        let good: Vec<f64> = runs.iter().map(|run| run.good_rate()).collect();
        let mut errors = BTreeMap::new();
        for (outcome, tally) in runs.iter().flat_map(|run| &run.outcomes) {
            if *outcome != Outcome::Good && tally.count > 0 {
                *errors.entry(*outcome).or_default() += tally.count;
            }
        }
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        Figures {
            good: mean(&good),
            interval: rate_interval(&good),
            requests: runs.iter().map(|run| run.ended_requests()).sum(),
            errors,
            p50: judge::merged_percentile(runs, 50.0).map(seconds),
            p99: judge::merged_percentile(runs, 99.0).map(seconds),
            slowest: seconds(latency(runs).max()),
            cpu: None,
            memory: 0,
            generator: GeneratorLoad::of(runs),
            generator_bound: runs.iter().find_map(|run| bottleneck::bound(run)),
        }
    }

    /// Returns the share of ended requests that were not good, 0 to 1.
    pub fn error_share(&self) -> f64 {
        let errors: u64 = self.errors.values().sum();
        match self.requests {
            0 => 0.0,
            requests => errors as f64 / requests as f64,
        }
    }
}

/// How close the load tester was to its own limit in the runs of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorLoad {
    /// The share of a core that the load tester's busiest thread used, mean of the runs.
    pub cpu: f64,
    /// The rate that the load tester reaches with the same clients and response length against a server that does
    /// nothing, in requests per second. `None` if it was not measured.
    pub ceiling: Option<f64>,
    /// The share of the ceiling that the load tester reached in these runs, mean of the runs that have a ceiling.
    pub of_ceiling: Option<f64>,
}

impl GeneratorLoad {
    /// Returns how close the load tester was to its own limit in these runs.
    pub fn of(runs: &[&Run]) -> GeneratorLoad {
        let over = |figure: &dyn Fn(&Run) -> Option<f64>| {
            let figures: Vec<f64> = runs.iter().filter_map(|run| figure(run)).collect();
            (!figures.is_empty()).then(|| mean(&figures))
        };
        let ceiling = |run: &Run| run.client.ceiling.filter(|ceiling| *ceiling > 0.0);
        GeneratorLoad {
            cpu: over(&|run| Some(run.client.busiest())).unwrap_or(0.0),
            ceiling: over(&ceiling),
            of_ceiling: over(&|run| Some(run.achieved_rate() / ceiling(run)?)),
        }
    }
}

/// Returns the latencies of the good responses of all runs.
pub fn latency(runs: &[&Run]) -> Histogram {
    let mut latency = Histogram::new();
    for run in runs {
        latency.add(&run.latency());
    }
    latency
}

/// Returns the 95 % interval of a mean rate, which is never negative; `None` for a single run.
fn rate_interval(rates: &[f64]) -> Option<ConfidenceInterval> {
    let interval = bootstrap::mean_interval(rates, 0.95, BOOTSTRAP_SEED)?;
    Some(interval.map(|rate| rate.max(0.0)))
}
