//! What a replay of a log shows: whether requests were sent when the log says, and whether the responses are those of
//! the log.

use crate::plan::Arrivals;
use crate::run::Run;
use crate::run::replay::{LATE_AFTER_SECONDS, Replay};

use super::formatting::{self, count, duration, percent, plural};

/// The share of late requests above which the arrivals were not those of the log.
const MAX_LATE_SHARE: f64 = 0.01;

/// Returns the sentences of the verdict, without full stops: about the arrivals, then about the statuses.
pub fn verdict(run: &Run, replay: &Replay) -> [String; 2] {
    [arrivals(run, replay), statuses(replay)]
}

/// Returns whether requests were sent when the log says.
pub fn has_met_arrivals(run: &Run, replay: &Replay) -> bool {
    let late = replay.late as f64 / replay.lateness.len().max(1) as f64;
    late <= MAX_LATE_SHARE && run.unsent == 0 && !replay.lateness.is_empty()
}

fn arrivals(run: &Run, replay: &Replay) -> String {
    let lateness = &replay.lateness;
    if lateness.is_empty() {
        return "no request was sent".to_owned();
    }
    let at = |quantile: f64| duration(lateness.quantile(quantile) as f64 / 1e9);
    let most = duration(lateness.max() as f64 / 1e9);
    if has_met_arrivals(run, replay) {
        return format!(
            "as in the log: 99 % of the requests were sent within {} of their time, all within {most}",
            at(0.99)
        );
    }
    let mut text = format!(
        "NOT as in the log: {} of the requests were sent over {} late, the latest {most} late",
        percent(replay.late as f64 / lateness.len() as f64),
        duration(LATE_AFTER_SECONDS)
    );
    if run.unsent > 0 {
        text.push_str(&format!(", and {} not at all", count(run.unsent)));
    }
    let tester = run.send_lag.quantile(0.99) as f64 / 1e9 > LATE_AFTER_SECONDS;
    if tester {
        text.push_str(", because the load tester was busy (--threads, a lower --speed)");
    } else {
        text.push_str(&format!(
            ", because all {} were busy: the server is slower than in the log, or --connections is too low",
            plural(
                u64::from(run.plan.arrivals.connections()),
                "connection",
                "connections"
            )
        ));
    }
    text
}

fn statuses(replay: &Replay) -> String {
    let changed: u64 = replay.changed.values().sum();
    let compared = replay.same + changed;
    if compared == 0 {
        return "no response to compare with the log".to_owned();
    }
    let mut text = if changed == 0 {
        format!(
            "{} as in the log",
            plural(compared, "response", "responses")
        )
    } else {
        format!(
            "{} of {} differ from the log ({})",
            count(changed),
            plural(compared, "response", "responses"),
            percent(changed as f64 / compared as f64)
        )
    };
    if replay.without_response > 0 {
        text.push_str(&format!(
            "; {} got no response",
            plural(replay.without_response, "request", "requests")
        ));
    }
    text
}

/// Describes what was read from the log.
pub fn log(run: &Run, replay: &Replay) -> String {
    let summary = &replay.log;
    let mut text = format!(
        "{} of {}",
        plural(summary.released, "request", "requests"),
        plural(summary.lines, "line", "lines")
    );
    if let (Some(first), Some(last)) = (summary.first, summary.last) {
        text.push_str(&format!(
            ", from {}, {} of the log",
            formatting::timestamp(first),
            duration((last - first).max(0.0))
        ));
    }
    if let Arrivals::Log { speed, .. } = run.plan.arrivals
        && speed != 1.0
    {
        text.push_str(&format!(", {speed} times as fast"));
    }
    text
}

/// Describes what was special about the log's clock, in sentences without full stops.
pub fn clock(replay: &Replay) -> Vec<String> {
    let summary = &replay.log;
    let mut notes = Vec::new();
    if summary.whole_seconds {
        notes.push(
            "the log's times are whole seconds, so the requests of each second were spread evenly over that second"
                .to_owned(),
        );
    }
    if summary.clock_jumps > 0 {
        notes.push(format!(
            "the log's clock went back {}: the lines after each jump were replayed after the lines before it",
            plural(summary.clock_jumps, "time", "times")
        ));
    }
    if summary.moved > 0 {
        notes.push(format!(
            "{} had begun more than ten seconds earlier than the requests around them in the log, and were sent late",
            plural(summary.moved, "request", "requests")
        ));
    }
    notes
}
