//! Carries out the runs that together answer one question. This module decides what is measured and when;
//! [`crate::stats`] and the report draw the conclusions.
//!
//! - [`BenchSession`]: what all runs share. [`CompareFn`]: a comparison, which `howdah-lab` carries out.
//! - [`sweep`]: levels of concurrency in random order, so that drift does not look like saturation.
//! - [`find_max`]: the highest rate that holds an objective.
//! - [`ceiling`]: the rate that the generator itself could have reached.

mod ceiling;
mod search;
mod sweep;

pub use ceiling::{ceiling, has_ceiling};
pub use search::{SearchOptions, find_max};
pub use sweep::{SweepOptions, sweep};

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::engine::{self, RunControl, RunProgress};
use crate::error::BenchError;
use crate::experiment::Comparison;
use crate::plan::Plan;
use crate::plan::template::XorshiftRandom;
use crate::run::{Run, RunEnd};

/// The state that the runs of a session share.
pub struct BenchSession<'a> {
    /// Set this to end the session. The results so far are kept.
    pub interrupt: Arc<AtomicBool>,
    /// The command line, for the report.
    pub command: Vec<String>,
    /// Called with every event of the session.
    pub watch: &'a mut dyn FnMut(SessionEvent<'_>),
}

/// An event of a session.
pub enum SessionEvent<'a> {
    /// A run begins.
    Begins {
        /// The run's number, from 1.
        number: usize,
        /// How many runs there will be; `None` if that is not known yet.
        of: Option<usize>,
        /// The measurement's name, such as `A`, `c=30` or `1200/s`.
        label: &'a str,
        /// The estimated time until the session ends; `None` if it is not known.
        left: Option<Duration>,
    },
    /// A second of the run has passed.
    Second(&'a RunProgress<'a>),
    /// The run has ended.
    Ended(&'a Run),
    /// A measurement failed, and the session continues without it.
    Failed {
        /// The measurement that failed.
        label: &'a str,
        /// The error that ended the measurement.
        error: &'a dyn Display,
    },
}

/// The options of a comparison of servers.
#[derive(Clone, Copy, Debug)]
pub struct CompareOptions {
    /// The number of blocks. Each block gives one pair of every server with the first.
    pub blocks: u32,
    /// Whether to measure the first server again in every block, as a control that shows the noise floor.
    pub control: bool,
    /// Differences below this share count as "the same".
    pub margin: f64,
    /// The seed of the resampling.
    pub seed: u64,
}

impl Default for CompareOptions {
    fn default() -> Self {
        CompareOptions {
            blocks: 10,
            control: true,
            margin: 0.03,
            seed: 1,
        }
    }
}

/// A function that measures plans in turns, one window for each turn. The first plan is the base of the comparison.
/// After an interruption the function returns the complete windows. It is implemented in `howdah-lab`, because it uses
/// the runner of all comparisons.
pub type CompareFn =
    fn(&[Plan], CompareOptions, &mut BenchSession<'_>) -> Result<Comparison, BenchError>;

impl BenchSession<'_> {
    /// Announces a run and carries it out. Returns `None` if it was interrupted and is therefore incomplete.
    fn measure(
        &mut self,
        plan: &Plan,
        number: usize,
        of: Option<usize>,
        label: &str,
    ) -> Result<Option<Run>, BenchError> {
        if self.is_interrupted() {
            return Ok(None);
        }
        (self.watch)(SessionEvent::Begins {
            number,
            of,
            label,
            left: None,
        });
        self.run(plan)
    }

    /// Carries out a run and reports its progress. Returns `None` if it was interrupted and is therefore incomplete.
    pub fn run(&mut self, plan: &Plan) -> Result<Option<Run>, BenchError> {
        let watch = &mut self.watch;
        let mut progress = |progress: &RunProgress<'_>| watch(SessionEvent::Second(progress));
        let control = RunControl {
            interrupt: self.interrupt.clone(),
            progress: Some(&mut progress),
            command: self.command.clone(),
        };
        let run = engine::run(plan, control)?;
        (self.watch)(SessionEvent::Ended(&run));
        Ok((run.ended != RunEnd::Interrupted).then_some(run))
    }

    /// Returns whether the session was interrupted.
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }
}

/// Shuffles in place (Fisher and Yates).
fn shuffle<T>(items: &mut [T], random: &mut XorshiftRandom) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.next_between(0, last as u64) as usize);
    }
}

/// Returns the plan with these arrivals, and with no more threads than connections.
fn with_arrivals(plan: &Plan, arrivals: crate::plan::Arrivals) -> Plan {
    let mut plan = plan.clone();
    plan.arrivals = arrivals;
    plan.threads = plan.threads.min(arrivals.connections() as usize);
    plan
}
