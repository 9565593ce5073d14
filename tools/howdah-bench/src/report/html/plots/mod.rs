//! The plots of the load tester's reports, each with its title, a sentence that says how to read
//! it, and a legend.
//!
//! - [`run`]: of one run; [`comparison`]: of servers measured in turns; [`levels`]: of sweeps and
//!   searches.
//! - [`mod@percentiles`]: of latency, on every page.

mod comparison;
mod levels;
mod percentiles;
mod run;

use crate::outcome::{Outcome, OutcomeStage};

pub use comparison::{ratios, windows};
pub use levels::{sweep, sweep_latency, trials};
pub use percentiles::{Curve, nines, percentiles};
pub use run::{latency_over_time, processors, throughput};

/// Returns the colour class of an arm: the base, the candidates in turn, the control.
pub fn arm_class(index: usize, control: bool) -> &'static str {
    const CLASSES: [&str; 5] = ["a0", "a1", "a2", "a3", "a4"];
    if control {
        "control"
    } else {
        CLASSES[index % CLASSES.len()]
    }
}

/// Returns the colour class of an outcome.
pub fn outcome_class(outcome: Outcome) -> &'static str {
    match (outcome, outcome.kind()) {
        (Outcome::Good, _) => "good",
        (Outcome::Status5xx, _) => "e5xx",
        (Outcome::Status4xx, _) => "e4xx",
        (Outcome::WrongBody, _) => "ebody",
        (_, OutcomeStage::Answer) => "eanswer",
        (Outcome::Timeout, _) => "etimeout",
        (_, OutcomeStage::Connect) => "econnect",
        (_, _) => "etransport",
    }
}

pub(super) fn ms_tick(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        v if v < 1.0 => format!("{} µs", trim(v * 1e3)),
        v if v < 1000.0 => format!("{} ms", trim(v)),
        v => format!("{} s", trim(v / 1e3)),
    }
}

pub(super) fn number_tick(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{} M", trim(value / 1e6)),
        v if v >= 1e4 => format!("{} k", trim(value / 1e3)),
        _ => trim(value),
    }
}

fn trim(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
