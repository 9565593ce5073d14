//! Decides which figures of ab would have misled in this run, and by how much. Each line has the name of the figure in
//! ab, the value that ab would have printed, and the true value. A run for which ab is right has no lines.

use crate::outcome::{Outcome, OutcomeStage};
use crate::plan::{Arrivals, HttpProtocol};
use crate::run::Run;
use crate::stats::quantile;

use super::ab::AbFigures;
use super::formatting;

/// A figure of ab that would have misled the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MisleadingFigure {
    /// The figure's name in ab's report.
    pub figure: &'static str,
    /// The value that ab would have printed.
    pub ab_says: String,
    /// The true value.
    pub truth: String,
}

/// Returns all misleading figures, in the order of ab's report.
pub fn misleading_figures(run: &Run) -> Vec<MisleadingFigure> {
    let ab = AbFigures::of(run);
    let mut found = Vec::new();
    let mut add = |figure, ab_says: String, truth: String| {
        found.push(MisleadingFigure {
            figure,
            ab_says,
            truth,
        });
    };
    document_length(run, &mut add);
    complete_requests(run, &ab, &mut add);
    failed_requests(run, &ab, &mut add);
    requests_per_second(run, &ab, &mut add);
    time_per_request(run, &ab, &mut add);
    keep_alive(run, &mut add);
    latencies(run, &mut add);
    found
}

fn document_length(run: &Run, add: &mut impl FnMut(&'static str, String, String)) {
    let document = &run.document;
    if let (Some(length), Some(status)) = (document.first_length, document.first_status)
        && !run.plan.checks.status.contains(status)
        && run.good() > 0
    {
        add(
            "Document Length",
            format!("{length} bytes"),
            format!("that is the length of the first response, which had status {status}"),
        );
    }
}

fn complete_requests(
    run: &Run,
    ab: &AbFigures,
    add: &mut impl FnMut(&'static str, String, String),
) {
    let wrong = ab.complete.saturating_sub(run.good());
    if ab.aborted {
        add(
            "Complete requests",
            "nothing (\"Test aborted after 10 failures\")".into(),
            format!(
                "{} could not connect, but {} got good responses",
                formatting::plural(ab.connect, "request", "requests"),
                formatting::count(run.good())
            ),
        );
    } else if wrong > 0 {
        add(
            "Complete requests",
            formatting::count(ab.complete),
            format!(
                "{} were good; the others: {}",
                formatting::count(run.good()),
                bad_responses_in_words(run)
            ),
        );
    }
}

fn failed_requests(run: &Run, ab: &AbFigures, add: &mut impl FnMut(&'static str, String, String)) {
    let document = &run.document;
    if document.other_length_good > 0 {
        add(
            "Failed requests (Length)",
            formatting::count(ab.length),
            format!(
                "{} of these were good responses whose length ({}) differs from the first response's: {}",
                formatting::count(document.other_length_good),
                match (document.shortest, document.longest) {
                    (Some(low), Some(high)) if low < high => format!("{low} to {high} bytes"),
                    (low, _) => format!("{} bytes", low.unwrap_or(0)),
                },
                if document.shortest == document.longest {
                    "the first response was not good"
                } else {
                    "a dynamic page's length varies"
                }
            ),
        );
    }
    let unseen = errors_ab_does_not_fail(run, ab);
    if unseen > 0 {
        add(
            "Failed requests",
            formatting::count(ab.failed),
            format!(
                "{} more responses were complete but not good, and ab does not count them as failed",
                formatting::count(unseen)
            ),
        );
    }
}

fn requests_per_second(
    run: &Run,
    ab: &AbFigures,
    add: &mut impl FnMut(&'static str, String, String),
) {
    let wrong = ab.complete.saturating_sub(run.good());
    if wrong > 0 && run.elapsed > 0.0 {
        add(
            "Requests per second",
            format!("{:.2}", ab.per_second),
            format!(
                "{:.2} per second were good; {} of {} were not",
                run.good_rate(),
                formatting::count(wrong),
                formatting::count(ab.complete)
            ),
        );
    }
}

/// Returns the outcomes of the complete requests that were not good: `8603 unexpected 5xx, 12 truncated`.
fn bad_responses_in_words(run: &Run) -> String {
    let parts: Vec<String> = run
        .outcomes
        .iter()
        .filter(|(outcome, tally)| {
            tally.count > 0
                && (outcome.kind() == OutcomeStage::Answer
                    || matches!(
                        outcome,
                        Outcome::Truncated | Outcome::ClosedEarly | Outcome::Reset
                    ))
        })
        .map(|(outcome, tally)| {
            format!(
                "{} {}",
                formatting::count(tally.count),
                outcome.description()
            )
        })
        .collect();
    parts.join(", ")
}

/// Returns the number of bad responses of the same length as the first: they are complete, and not in "Failed
/// requests".
fn errors_ab_does_not_fail(run: &Run, ab: &AbFigures) -> u64 {
    let wrong_answers = run.answers() - run.good();
    let of_another_length = run
        .document
        .other_length
        .saturating_sub(run.document.other_length_good);
    debug_assert!(ab.length >= run.document.other_length);
    wrong_answers.saturating_sub(of_another_length)
}

fn time_per_request(run: &Run, ab: &AbFigures, add: &mut impl FnMut(&'static str, String, String)) {
    let good = run.latency();
    if good.is_empty() {
        return;
    }
    let mean = good.mean() / 1e6;
    if run.plan.arrivals.is_open() {
        add(
            "Time per request (mean)",
            "nothing (ab has no open loop)".into(),
            format!(
                "counted from the time at which each request was due, the mean is {mean:.3} ms"
            ),
        );
        return;
    }
    // ab derives this figure instead of measuring it. It is wrong if requests failed fast, or clients were idle.
    if (ab.per_request_ms / mean - 1.0).abs() > 0.05 {
        add(
            "Time per request (mean)",
            format!("{:.3} ms", ab.per_request_ms),
            format!(
                "good responses took {mean:.3} ms on average; ab calculates its figure and does not measure it"
            ),
        );
    }
    if let Some((fast, slow)) = quantile::two_modes(&good) {
        add(
            "Total (mean)",
            format!("{} ms", formatting::ms(good.mean())),
            format!(
                "no request took about that long: requests took either about {} ms or about {} ms",
                formatting::ms(fast as f64),
                formatting::ms(slow as f64)
            ),
        );
    }
}

/// Returns whether the server closed a connection after more than one in a hundred of its responses. Servers also close
/// a kept-alive connection after some thousands of requests, but the cost of such rare closes cannot be measured.
pub(super) fn is_test_of_connecting(closed: u64, responses: u64) -> bool {
    responses > 0 && closed * 100 > responses
}

fn keep_alive(run: &Run, add: &mut impl FnMut(&'static str, String, String)) {
    if !run.plan.connection.keep_alive {
        return;
    }
    let without_length = run.document.without_length;
    if is_test_of_connecting(run.connections.refused_to_keep, run.answers()) {
        add(
            "Keep-Alive requests",
            formatting::count(run.connections.kept),
            format!(
                "the server closed the connection after {} of {} responses, so the run also measures the cost of \
                 connecting",
                formatting::count(run.connections.refused_to_keep),
                formatting::count(run.answers())
            ),
        );
    }
    if without_length > 0 && run.plan.connection.protocol == HttpProtocol::Http11 {
        add(
            "Keep-Alive requests",
            "0 for pages without a Content-Length".into(),
            format!(
                "{} good responses had no Content-Length, which HTTP/1.0 needs to keep a connection open: ab -k \
                 would have opened a new connection after each of them",
                formatting::count(without_length)
            ),
        );
    }
}

fn latencies(run: &Run, add: &mut impl FnMut(&'static str, String, String)) {
    let good = run.latency();
    let late = run.in_flight.oldest;
    let longest = good.max() as f64 / 1e9;
    if run.in_flight.count > 0 && late > longest.max(0.001) {
        add(
            "100% (longest request)",
            format!("{:.0}", longest * 1e3),
            format!(
                "{} had no response when the run ended; the oldest had waited for {}",
                formatting::plural(run.in_flight.count, "request", "requests"),
                formatting::duration(late)
            ),
        );
    }
    let median = good.quantile(0.5) as f64;
    if !good.is_empty() && median < 500_000.0 {
        add(
            "Percentage of the requests … 50%",
            "0".into(),
            format!(
                "the median is {} ms, but ab rounds to whole milliseconds",
                formatting::ms(median)
            ),
        );
    }
    // One stall in a closed loop delays all clients but counts only once for each.
    if let Arrivals::Closed { concurrency } = run.plan.arrivals {
        let stalled = good.max() as f64;
        let p99 = good.quantile(0.99) as f64;
        if good.len() >= 1000 && stalled > 500e6 && stalled > 10.0 * p99 {
            add(
                "99%",
                format!("{:.0}", p99 / 1e6),
                format!(
                    "a stall of {} counts at most once for each of the {} clients; at a constant rate, it would \
                     have delayed up to about {} requests (measure with --rate)",
                    formatting::duration(stalled / 1e9),
                    concurrency,
                    formatting::count((run.good_rate() * stalled / 1e9) as u64)
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_test_of_connecting;

    #[test]
    fn is_test_of_connecting_ignores_occasional_closes() {
        assert!(!is_test_of_connecting(16, 205_615));
        assert!(!is_test_of_connecting(10, 1000));
        assert!(is_test_of_connecting(11, 1000));
        assert!(is_test_of_connecting(3000, 3000));
        assert!(!is_test_of_connecting(0, 0));
    }
}
