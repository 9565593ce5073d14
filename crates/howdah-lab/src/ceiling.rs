//! What the generator itself could have reached: the evidence for whether it was the load tester that was
//! measured. Taken right behind the windows it is said of, since a machine's speed changes by the hour.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use howdah_bench::driver::{self, Session};
use howdah_bench::plan::Plan;
use howdah_bench::run::Run;
use howdah_bench::stats::mean;
use serde::{Deserialize, Serialize};

/// How long it is asked each time, and how often: others who use the machine can only make it too low, so the
/// best counts.
const ASKED: Duration = Duration::from_millis(200);
const TIMES: usize = 3;
/// Answers of lengths that differ by no more than this share of the longer one share a ceiling.
const SAME_LENGTH: f64 = 0.1;

/// Tells each of these runs, which are of one load, what the generator reaches with answers of its length against a
/// server that does nothing, or reached in one of them, if that was more. A run without answers, or one interrupted
/// meanwhile, is told nothing.
///
/// # Errors
/// The generator failed even there: the last reason. The runs' own figures stand.
pub fn tell<'a>(
    runs: impl Iterator<Item = &'a mut Run>,
    interrupt: &Arc<AtomicBool>,
) -> Result<(), String> {
    let mut told = Ok(());
    let mut rest: Vec<&mut Run> = runs.filter(|run| run.answers() > 0).collect();
    while let Some(first) = rest.first() {
        let length = answer_length(first);
        let (alike, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|run| {
            let other = answer_length(run);
            (other - length).abs() <= SAME_LENGTH * other.max(length)
        });
        rest = others;
        match asked(&alike[0].plan, length as u64, interrupt) {
            Ok(None) => {}
            Ok(Some(ceiling)) => {
                let reached = alike.iter().map(|run| run.achieved_rate());
                let ceiling = reached.fold(ceiling, f64::max);
                for run in alike {
                    run.client.ceiling = Some(ceiling);
                }
            }
            Err(why) => told = Err(why),
        }
    }
    told
}

fn answer_length(run: &Run) -> f64 {
    run.bytes.bodies as f64 / run.answers().max(1) as f64
}

fn asked(plan: &Plan, length: u64, interrupt: &Arc<AtomicBool>) -> Result<Option<f64>, String> {
    let mut best = None;
    for _ in 0..TIMES {
        let mut session = Session {
            interrupt: interrupt.clone(),
            command: Vec::new(),
            watch: &mut |_| {},
        };
        let found = driver::ceiling(plan, length, ASKED, &mut session)
            .map_err(|error| error.to_string())?;
        best = found.into_iter().chain(best).reduce(f64::max);
    }
    Ok(best)
}

/// The load tester beside a row: how near it was to its own end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// Of a core, what its busiest thread used: mean of the windows.
    pub cpu: f64,
    /// What it reaches with the same clients and answers of that length against a server that does nothing,
    /// requests per second; none: that was not measured.
    pub ceiling: Option<f64>,
    /// Of that, what it reached here: mean of the windows it was measured beside.
    pub of_ceiling: Option<f64>,
}

impl Generator {
    /// Of a row's windows.
    pub fn of(runs: &[&Run]) -> Generator {
        let over = |figure: &dyn Fn(&Run) -> Option<f64>| {
            let figures: Vec<f64> = runs.iter().filter_map(|run| figure(run)).collect();
            (!figures.is_empty()).then(|| mean(&figures))
        };
        let ceiling = |run: &Run| run.client.ceiling.filter(|ceiling| *ceiling > 0.0);
        Generator {
            cpu: over(&|run| Some(run.client.busiest())).unwrap_or(0.0),
            ceiling: over(&ceiling),
            of_ceiling: over(&|run| Some(run.achieved_rate() / ceiling(run)?)),
        }
    }
}
