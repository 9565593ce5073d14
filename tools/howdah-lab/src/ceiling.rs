//! Measures the highest rate that the load tester itself can reach, as evidence of whether it was the bottleneck. The
//! ceiling is measured right after the windows in question, because the speed of a machine changes from hour to hour.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use howdah_bench::driver::{self, BenchSession};
use howdah_bench::error::BenchError;
use howdah_bench::plan::Plan;
use howdah_bench::run::Run;

/// The length and the number of the ceiling runs. Other programs on the machine can only make the result too low, so
/// the best run counts.
const CEILING_RUN_LENGTH: Duration = Duration::from_millis(200);
const CEILING_RUNS: usize = 3;
/// Response lengths that differ by no more than this share of the longer one use the same ceiling.
const LENGTH_TOLERANCE: f64 = 0.1;

/// Stores a ceiling in each of these runs, which have the same load: the rate that the generator reaches with responses
/// of the same length from a server that does nothing, or the rate of one of the runs if that was higher. Runs without
/// responses get no ceiling, and neither do the remaining runs after an interruption.
///
/// # Errors
/// Returns an error if the generator failed even there. The runs' own figures are still valid.
pub fn measure<'a>(
    runs: impl Iterator<Item = &'a mut Run>,
    interrupt: &Arc<AtomicBool>,
) -> Result<(), BenchError> {
    let mut measured = Ok(());
    let mut rest: Vec<&mut Run> = runs.filter(|run| run.answers() > 0).collect();
    while let Some(first) = rest.first() {
        let length = response_length(first);
        let (alike, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|run| {
            let other = response_length(run);
            (other - length).abs() <= LENGTH_TOLERANCE * other.max(length)
        });
        rest = others;
        match measure_ceiling(&alike[0].plan, length as u64, interrupt) {
            Ok(None) => {}
            Ok(Some(ceiling)) => {
                let reached = alike.iter().map(|run| run.achieved_rate());
                let ceiling = reached.fold(ceiling, f64::max);
                for run in alike {
                    run.client.ceiling = Some(ceiling);
                }
            }
            Err(why) => measured = Err(why),
        }
    }
    measured
}

fn response_length(run: &Run) -> f64 {
    run.bytes.bodies as f64 / run.answers().max(1) as f64
}

fn measure_ceiling(
    plan: &Plan,
    length: u64,
    interrupt: &Arc<AtomicBool>,
) -> Result<Option<f64>, BenchError> {
    let mut best = None;
    for _ in 0..CEILING_RUNS {
        let mut session = BenchSession {
            interrupt: interrupt.clone(),
            command: Vec::new(),
            watch: &mut |_| {},
        };
        let found = driver::ceiling(plan, length, CEILING_RUN_LENGTH, &mut session)?;
        best = found.into_iter().chain(best).reduce(f64::max);
    }
    Ok(best)
}
