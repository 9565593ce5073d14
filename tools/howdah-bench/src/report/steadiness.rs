//! How steady a run was, measured over its seconds.

use super::formatting::percent;
use crate::run::Run;
use crate::stats::steady;

/// Returns how steady the good responses were over the seconds of the run, in words.
pub fn sentence(run: &Run) -> String {
    match class(run) {
        steady::Steadiness::Flat => "the rate of good responses was steady during the run".into(),
        steady::Steadiness::Warming { by, flat_from } => format!(
            "the rate of good responses rose by {} during the run: the server was warming up{}",
            percent(by),
            match flat_from {
                Some(from) =>
                    format!(", and the rate was steady from second {from} on (use --warmup {from})"),
                None => " and had not finished at the end".into(),
            }
        ),
        steady::Steadiness::Slowing { by } => {
            format!(
                "the rate of good responses fell by {} during the run",
                percent(by)
            )
        }
        steady::Steadiness::Unsteady { variation } => format!(
            "the rate of good responses varied by {} from second to second",
            percent(variation)
        ),
        steady::Steadiness::TooShort => {
            format!(
                "not known: the run took fewer than {} whole seconds",
                steady::MIN_WINDOWS
            )
        }
    }
}

/// Returns the steadiness of the good responses over the whole seconds of the run.
pub fn class(run: &Run) -> steady::Steadiness {
    let counts: Vec<f64> = run
        .seconds
        .iter()
        .filter(|second| second.length > 0.95)
        .map(|second| second.good() as f64 / second.length)
        .collect();
    steady::classify(&counts)
}
