//! Several runs that answer one question. Here is who is measured when; what follows from it is
//! [`crate::stats`]'s and the report's.
//!
//! - [`compare`]: servers in turns, so that a machine that slows down or speeds up slows all of them.
//! - [`sweep`]: levels of concurrency in random order, so that drift does not look like saturation.
//! - [`find_max`]: the highest rate that holds an objective.
//! - [`ceiling`]: what the generator itself could have reached.

mod ceiling;
mod compare;
mod search;
mod sweep;

pub use ceiling::{ceiling, has_ceiling};
pub use compare::{CompareOptions, compare, order};
pub use search::{SearchOptions, find_max};
pub use sweep::{SweepOptions, sweep};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::{self, Control, Progress};
use crate::error::BenchError;
use crate::plan::Plan;
use crate::plan::template::Random;
use crate::run::{Ended, Run};

/// What several runs have in common.
pub struct Session<'a> {
    /// Set it to end the session; what has been measured so far is kept.
    pub interrupt: Arc<AtomicBool>,
    /// The command line, for the report.
    pub command: Vec<String>,
    /// Called with every event of the session.
    pub watch: &'a mut dyn FnMut(Event<'_>),
}

/// What happens in a session.
#[derive(Debug)]
pub enum Event<'a> {
    /// A run begins.
    Begins {
        /// The run's number, from 1.
        number: usize,
        /// How many runs there will be; None if that is not known yet.
        of: Option<usize>,
        /// What is measured: `A`, `c=30`, `1200/s`.
        label: &'a str,
    },
    /// A second of the run is over.
    Second(&'a Progress<'a>),
    /// The run is over.
    Ended(&'a Run),
}

impl Session<'_> {
    /// Runs a plan. None if it was interrupted and is therefore incomplete.
    fn measure(
        &mut self,
        plan: &Plan,
        number: usize,
        of: Option<usize>,
        label: &str,
    ) -> Result<Option<Run>, BenchError> {
        if self.interrupted() {
            return Ok(None);
        }
        (self.watch)(Event::Begins { number, of, label });
        let watch = &mut self.watch;
        let mut progress = |progress: &Progress<'_>| watch(Event::Second(progress));
        let control = Control {
            interrupt: self.interrupt.clone(),
            progress: Some(&mut progress),
            command: self.command.clone(),
        };
        let run = engine::run(plan, control)?;
        (self.watch)(Event::Ended(&run));
        Ok((run.ended != Ended::Interrupted).then_some(run))
    }

    fn interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }
}

/// Shuffles in place (Fisher and Yates).
fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.between(0, last as u64) as usize);
    }
}

/// The plan with these arrivals, and with no more threads than it has connections.
fn with_arrivals(plan: &Plan, arrivals: crate::plan::Arrivals) -> Plan {
    let mut plan = plan.clone();
    plan.arrivals = arrivals;
    plan.threads = plan.threads.min(arrivals.connections() as usize);
    plan
}
