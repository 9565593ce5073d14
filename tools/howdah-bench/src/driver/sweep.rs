//! Measures levels of concurrency several times each, in a new random order each time.

use super::{BenchSession, shuffle, with_arrivals};
use crate::error::BenchError;
use crate::experiment::{Sweep, SweepPoint};
use crate::plan::template::XorshiftRandom;
use crate::plan::{Arrivals, Plan};

/// The options of a sweep.
#[derive(Clone, Debug)]
pub struct SweepOptions {
    /// The numbers of clients to measure.
    pub levels: Vec<u32>,
    /// How many times each level is measured.
    pub repetitions: u32,
    /// The seed of the order.
    pub seed: u64,
}

/// Measures the plan at every level. After an interruption it returns the complete points.
pub fn sweep(
    plan: &Plan,
    options: &SweepOptions,
    session: &mut BenchSession<'_>,
) -> Result<Sweep, BenchError> {
    if options.levels.is_empty() || options.levels.contains(&0) || options.repetitions == 0 {
        return Err(BenchError::Impossible(
            "a sweep needs numbers of clients that are at least 1, and each must be measured at least once".to_owned(),
        ));
    }
    if plan.arrivals.is_open() {
        return Err(BenchError::Impossible(
            "a sweep varies the number of clients (closed loop); to vary the rate, use --find-max"
                .to_owned(),
        ));
    }
    let at = |concurrency| with_arrivals(plan, Arrivals::Closed { concurrency });
    for level in &options.levels {
        at(*level).check()?;
    }
    let mut random = XorshiftRandom::new(options.seed, 0);
    let of = options.levels.len() * options.repetitions as usize;
    let mut points = Vec::new();
    'repetitions: for repetition in 0..options.repetitions {
        let mut levels = options.levels.clone();
        shuffle(&mut levels, &mut random);
        for concurrency in levels {
            let number = points.len() + 1;
            let label = format!("c={concurrency}");
            let Some(run) = session.measure(&at(concurrency), number, Some(of), &label)? else {
                break 'repetitions;
            };
            points.push(SweepPoint {
                concurrency,
                repetition,
                run,
            });
        }
    }
    Ok(Sweep {
        points,
        seed: options.seed,
    })
}
