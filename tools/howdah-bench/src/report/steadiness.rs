//! How steady a run was, measured over its seconds.

use super::formatting::percent;
use crate::run::Run;
use crate::stats::steady;

/// Returns how steady the good responses were over the seconds of the run, in words.
pub fn sentence(run: &Run) -> String {
    match class(run) {
        steady::Steadiness::Flat => "the good rate was steady over the run".into(),
        steady::Steadiness::Warming { by, flat_from } => format!(
            "the good rate rose by {} over the run: it was warming up{}",
            percent(by),
            match flat_from {
                Some(from) => format!(", steady from second {from} on (--warmup {from})"),
                None => " and had not finished".into(),
            }
        ),
        steady::Steadiness::Slowing { by } => {
            format!("the good rate fell by {} over the run", percent(by))
        }
        steady::Steadiness::Unsteady { variation } => format!(
            "the good rate jumped by {} from second to second",
            percent(variation)
        ),
        steady::Steadiness::TooShort => {
            format!("not known: under {} whole seconds", steady::MIN_WINDOWS)
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
