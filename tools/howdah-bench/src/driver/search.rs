//! Finds the highest rate that holds an objective. A closed loop first estimates what the server
//! can do. Open loops then raise or lower the rate until one holds and one breaks, bisect between
//! the two, and finally repeat the winner several times. The search assumes that latency rises with
//! the rate; the repetitions show where it does not.

use std::time::Duration;

use super::{BenchSession, with_arrivals};
use crate::error::BenchError;
use crate::experiment::{Search, Trial};
use crate::outcome::Outcome;
use crate::plan::{Arrivals, Plan, Spacing, StopLimits};
use crate::run::Run;
use crate::slo::Slo;

/// The options of a search.
#[derive(Clone, Copy, Debug)]
pub struct SearchOptions {
    /// How arrivals are spread.
    pub spacing: Spacing,
    /// The maximum number of connections of a trial.
    pub max_connections: u32,
    /// The duration of a trial.
    pub trial: Duration,
    /// The search ends when the highest rate that held and the lowest that broke are this close: 0.05 is 5 %.
    pub resolution: f64,
    /// How many repetitions of the winner have to hold.
    pub confirmations: u32,
}

impl Default for SearchOptions {
    fn default() -> Self {
        SearchOptions {
            spacing: Spacing::Poisson,
            max_connections: 1000,
            trial: Duration::from_secs(5),
            resolution: 0.05,
            confirmations: 3,
        }
    }
}

/// The maximum number of trials of a search, confirmations included.
const MAX_TRIALS: usize = 40;

/// The rate, in requests per second, below which the search does not halve further.
const MIN_RATE: f64 = 0.5;

/// The maximum share of the due requests that may be waiting for a connection at the end of a trial.
const MAX_UNSENT_SHARE: f64 = 0.01;

/// The share of a core above which a generator thread cannot send on time.
const BUSY_CPU_SHARE: f64 = 0.9;

/// Searches for the rate. After an interruption it returns the complete trials and no rate.
pub fn find_max(
    plan: &Plan,
    slo: &Slo,
    options: SearchOptions,
    session: &mut BenchSession<'_>,
) -> Result<Search, BenchError> {
    if !(options.resolution > 0.0 && options.resolution < 1.0) || options.trial.is_zero() {
        return Err(BenchError::Impossible(format!(
            "a search with a resolution of {} and trials of {:?}: expected a share between 0 and 1, \
             and a time",
            options.resolution, options.trial
        )));
    }
    let mut search = RateSearch {
        plan,
        options,
        session,
        found: Search {
            slo: slo.clone(),
            trials: Vec::new(),
            found: None,
            limited_by: None,
        },
    };
    if let Some(start) = search.measure_closed_loop_rate()? {
        search.search(start)?;
    } else if search.session.is_interrupted() {
        search.found.limited_by = Some("it was interrupted".to_owned());
    } else {
        search.found.limited_by = Some(
            "a closed loop with the same requests had no good response at all, so there is no rate at which to start"
                .to_owned(),
        );
    }
    Ok(search.found)
}

struct RateSearch<'a, 'b> {
    plan: &'a Plan,
    options: SearchOptions,
    session: &'a mut BenchSession<'b>,
    found: Search,
}

impl RateSearch<'_, '_> {
    fn trial_stop(&self) -> StopLimits {
        StopLimits {
            requests: None,
            time: Some(self.plan.warmup + self.options.trial),
        }
    }

    /// Measures the rate that a closed loop reaches, at which the search starts.
    fn measure_closed_loop_rate(&mut self) -> Result<Option<f64>, BenchError> {
        let concurrency = self.options.max_connections.min(32);
        let mut plan = with_arrivals(self.plan, Arrivals::Closed { concurrency });
        plan.stop = self.trial_stop();
        plan.keep_samples = false;
        let run = self
            .session
            .measure(&plan, 1, None, "closed loop, for an estimate")?;
        Ok(run
            .map(|run| run.good_rate())
            .filter(|rate| *rate >= MIN_RATE))
    }

    /// Makes a trial and returns whether the rate holds. Returns `None` if it was interrupted or no trials are left.
    fn try_rate(&mut self, rate: f64, confirming: bool) -> Result<Option<bool>, BenchError> {
        if self.found.trials.len() >= MAX_TRIALS {
            self.found.limited_by = Some(format!(
                "{MAX_TRIALS} trials disagreed: the same rate met the objective in one trial and not in another"
            ));
            return Ok(None);
        }
        let arrivals = Arrivals::Open {
            rate,
            spacing: self.options.spacing,
            max_connections: self.options.max_connections,
        };
        let mut plan = with_arrivals(self.plan, arrivals);
        plan.stop = self.trial_stop();
        plan.think = Default::default();
        // Repeating the same arrivals would confirm nothing.
        plan.seed = self.plan.seed + self.found.trials.len() as u64;
        let number = self.found.trials.len() + 2;
        let Some(run) = self
            .session
            .measure(&plan, number, None, &format!("{rate:.0}/s"))?
        else {
            self.found.limited_by = Some("it was interrupted".to_owned());
            return Ok(None);
        };
        let mut broken = self.found.slo.broken_by(&run);
        broken.extend(unsent_reason(&run));
        let held = broken.is_empty();
        if !held && let Some(why) = generator_limit_reason(&run, rate) {
            self.found.limited_by = Some(why);
        }
        self.found.trials.push(Trial {
            rate,
            confirming,
            broken,
            run,
        });
        Ok(Some(held))
    }

    fn search(&mut self, start: f64) -> Result<(), BenchError> {
        let (mut holding, mut breaking) = (None, None);
        let mut rate = start * 0.7;
        let mut best = loop {
            match self.try_rate(rate, false)? {
                None => return Ok(()),
                Some(true) => holding = Some(rate),
                Some(false) => breaking = Some(rate),
            }
            rate = match (holding, breaking) {
                (Some(low), Some(high)) if high / low <= 1.0 + self.options.resolution => {
                    break low;
                }
                (Some(low), Some(high)) => (low + high) / 2.0,
                (Some(low), None) => low * 1.5,
                (None, Some(high)) if high / 2.0 < MIN_RATE => return Ok(()),
                (None, Some(high)) => high / 2.0,
                (None, None) => return Ok(()),
            };
        };
        'candidate: loop {
            for _ in 0..self.options.confirmations {
                match self.try_rate(best, true)? {
                    None => return Ok(()),
                    Some(true) => {}
                    Some(false) => {
                        best *= 1.0 - self.options.resolution;
                        if best < MIN_RATE {
                            return Ok(());
                        }
                        continue 'candidate;
                    }
                }
            }
            self.found.found = Some(best);
            return Ok(());
        }
    }
}

/// Returns why a rate did not hold although the responses met the objective: in an overloaded trial, due requests pile
/// up waiting for a connection and are never sent.
fn unsent_reason(run: &Run) -> Option<String> {
    (run.unsent as f64 > run.due as f64 * MAX_UNSENT_SHARE).then(|| {
        format!(
            "{} of {} due requests were never sent, because all {} connections were busy",
            run.unsent,
            run.due,
            run.plan.arrivals.connections()
        )
    })
}

/// Returns why the generator, rather than the server, broke the objective; `None` if it did not.
fn generator_limit_reason(run: &Run, rate: f64) -> Option<String> {
    let ports = run.count(Outcome::PortsExhausted);
    if ports > 0 {
        return Some(format!(
            "at {rate:.0}/s this machine ran out of local ports ({ports} requests)"
        ));
    }
    (run.client.busiest() > BUSY_CPU_SHARE).then(|| {
        format!(
            "at {rate:.0}/s the load tester was busy {:.0} % of the time, which may be the reason why the objective \
             was not met",
            run.client.busiest() * 100.0
        )
    })
}
