//! What the generator itself could have reached: the evidence for whether it was the load tester that was
//! measured. Taken right behind the windows it is said of, since a machine's speed changes by the hour.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use howdah_bench::driver::{self, Session};
use howdah_bench::run::Run;
use howdah_bench::stats::mean;
use serde::{Deserialize, Serialize};

/// How long it is asked. What comes of it varies by a few per cent, and what is drawn from it are halves and
/// fifths.
const ASKED: Duration = Duration::from_millis(500);
/// Answers of lengths that differ by no more than this share of the longer one share a ceiling.
const SAME_LENGTH: f64 = 0.1;

/// Tells each of these runs, which are of one load, what the generator reaches with answers of its length against a
/// server that does nothing. A run without answers, or one interrupted meanwhile, is told nothing.
///
/// # Errors
/// The generator failed even there: the last reason. The runs' own figures stand.
pub fn tell<'a>(
    runs: impl Iterator<Item = &'a mut Run>,
    interrupt: &Arc<AtomicBool>,
) -> Result<(), String> {
    let mut known: Vec<(f64, Option<f64>)> = Vec::new();
    let mut told = Ok(());
    for run in runs.filter(|run| run.answers() > 0) {
        let length = run.bytes.bodies as f64 / run.answers() as f64;
        let near = |(other, _): &&(f64, Option<f64>)| {
            (other - length).abs() <= SAME_LENGTH * other.max(length)
        };
        let ceiling = match known.iter().find(near) {
            Some((_, ceiling)) => *ceiling,
            None => {
                let mut session = Session {
                    interrupt: interrupt.clone(),
                    command: Vec::new(),
                    watch: &mut |_| {},
                };
                let found = driver::ceiling(&run.plan, length as u64, ASKED, &mut session);
                let found = found.unwrap_or_else(|error| {
                    told = Err(error.to_string());
                    None
                });
                known.push((length, found));
                found
            }
        };
        run.client.ceiling = ceiling;
    }
    told
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
