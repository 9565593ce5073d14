//! The part of the report about a replayed log.

use std::fmt::Write;

use super::line;
use crate::report::formatting::{count, ms};
use crate::report::replay;
use crate::run::Run;
use crate::stats::quantile;

/// Writes the part, if a log was replayed.
pub fn write(out: &mut String, run: &Run) {
    let (Some(replayed), Some(log)) = (&run.replay, &run.plan.log) else {
        return;
    };
    let _ = writeln!(out, "\nReplay of {}", log.path.display());
    let [arrivals, statuses] = replay::verdict(run, replayed);
    line(out, "arrivals", arrivals);
    line(out, "statuses", statuses);
    for (change, times) in &replayed.changed {
        let (logged, now) = (change.logged, change.now);
        line(
            out,
            "",
            format!("{logged} in the log, {now} now: {}", count(*times)),
        );
    }
    for change in &replayed.changes {
        let text = format!(
            "line {}: {} {}: {} in the log, {} now",
            change.line,
            change.method,
            change.target.escape_default(),
            change.logged,
            change.now
        );
        line(out, "", text);
    }
    line(out, "log", replay::log(run, replayed));
    let summary = &replayed.log;
    if summary.faulty_lines() + summary.no_path > 0
        || !summary.other_methods.is_empty()
        || summary.read_error.is_some()
    {
        line(out, "left out", summary.skipped_sentence());
    }
    for note in replay::clock(replayed) {
        line(out, "clock", note);
    }
    let header = format!(
        "{:<8} {:>10} {:>9} {:>9} {:>9} {:>9}",
        "", "requests", "p50 ms", "p90 ms", "p99 ms", "max ms"
    );
    line(out, "by status", header.trim_end());
    for (status, latency) in &replayed.statuses {
        let at = |percentile: f64| {
            quantile::trusted(latency, percentile).map_or("-".to_owned(), |ns| ms(ns as f64))
        };
        line(
            out,
            "",
            format!(
                "{status:<8} {:>10} {:>9} {:>9} {:>9} {:>9}",
                count(latency.len()),
                at(50.0),
                at(90.0),
                at(99.0),
                ms(latency.max() as f64)
            ),
        );
    }
}
