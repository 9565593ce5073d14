//! The report of one run as text: first ab's fields in ab's order, so that scripts for ab's report can read this one;
//! then what ab does not say; then which figures of ab's would have misled.
//!
//! Names and order are those of ab, but the values are true: "Requests per second" and all times are of good responses,
//! and "Failed requests" is every request that was not good. Where that differs from what ab would have printed, the
//! last part says so. Times have decimals, since a millisecond is a long time today.
//!
//! - [`ab_fields`]: the fields of ab; [`beyond_ab`]: what ab does not say; [`replay`]: a replayed log.

mod ab_fields;
mod beyond_ab;
mod replay;

use std::fmt::Write;

use super::bottleneck;
use super::formatting::duration;
use super::misled;
use crate::run::{Run, RunEnd};

pub use beyond_ab::{machine, mode, percentiles};

/// The parts of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportStyle {
    /// Whether to write the table of percentiles (not with ab's `-d`).
    pub percentiles: bool,
    /// Whether to write medians and deviations (not with ab's `-S`).
    pub deviations: bool,
    /// Whether to write "Variable" for the document's length (`-l`).
    pub variable_length: bool,
}

impl Default for ReportStyle {
    fn default() -> Self {
        ReportStyle {
            percentiles: true,
            deviations: true,
            variable_length: false,
        }
    }
}

/// Returns the report of one run.
pub fn report(run: &Run, style: ReportStyle) -> String {
    let mut out = String::new();
    if let Some(evidence) = bottleneck::bound(run) {
        let _ = writeln!(
            out,
            "THE LOAD TESTER WAS THE BOTTLENECK: {evidence}.\nThe figures below are the load tester's, not the \
             server's.\n"
        );
    }
    if run.ended == RunEnd::Interrupted {
        let _ = writeln!(
            out,
            "The run was interrupted after {}; the report covers the time until then.\n",
            duration(run.elapsed)
        );
    }
    ab_fields::write(&mut out, run, style);
    beyond_ab::write(&mut out, run);
    replay::write(&mut out, run);
    misleading(&mut out, run);
    out
}

fn line(out: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "  {name:<13} {value}");
}

fn misleading(out: &mut String, run: &Run) {
    let lines = misled::misleading_figures(run);
    if lines.is_empty() {
        out.push_str("\nNone of ab's figures would have been misleading in this run.\n");
        return;
    }
    out.push_str("\nWhat ab would have reported, and the truth\n");
    for line in lines {
        let _ = writeln!(
            out,
            "  ab's \"{}\" would say {}: {}.",
            line.figure, line.ab_says, line.truth
        );
    }
}
