//! The figures that ab would have printed for the same responses, by ab's arithmetic including its errors, so that a
//! report can say which of them mislead. Follows `support/ab.c` of httpd 2.4 (`output_results`, `close_connection`,
//! `read_connection`). These are not the figures that we report.

use crate::outcome::Outcome;
use crate::plan::Arrivals;
use crate::run::Run;

/// The figures that ab would have printed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AbFigures {
    /// "Complete requests": all requests that ended on an established connection, whatever their status and however
    /// short.
    pub complete: u64,
    /// "Failed requests".
    pub failed: u64,
    /// The part of `failed` that ab lists as Connect.
    pub connect: u64,
    /// The part of `failed` that ab lists as Receive (with `-r`; without it, the first of them ends ab).
    pub receive: u64,
    /// The part of `failed` that ab lists as Length: bodies whose length differs from the first
    /// one's.
    pub length: u64,
    /// "Non-2xx responses".
    pub non_2xx: u64,
    /// "Requests per second".
    pub per_second: f64,
    /// "Time per request (mean)", in milliseconds: not measured, but clients × time / complete.
    pub per_request_ms: f64,
    /// "Time per request (mean, across all concurrent requests)", in milliseconds.
    pub across_all_ms: f64,
    /// Whether ab would have stopped with "Test aborted after 10 failures", because over ten connects failed.
    pub aborted: bool,
}

impl AbFigures {
    /// Computes ab's figures for the responses of a run.
    pub fn of(run: &Run) -> AbFigures {
        let connect = [
            Outcome::ConnectRefused,
            Outcome::ConnectBacklog,
            Outcome::ConnectTimeout,
            Outcome::ConnectFailed,
            Outcome::PortsExhausted,
            Outcome::Tls,
        ]
        .iter()
        .map(|outcome| run.count(*outcome))
        .sum();
        let receive = run.count(Outcome::Reset);
        // For ab, a connection that ends early is a response that ends there; its length differs.
        let cut = run.count(Outcome::Truncated) + run.count(Outcome::ClosedEarly);
        let complete = run.answers() + cut + receive;
        let length = run.document.other_length + cut;
        let non_2xx = run
            .statuses
            .iter()
            .filter(|(status, _)| **status / 100 != 2)
            .map(|(_, count)| count)
            .sum();
        let clients = match run.plan.arrivals {
            Arrivals::Closed { concurrency } => f64::from(concurrency),
            Arrivals::Open { .. } | Arrivals::Log { .. } => run.client.mean_in_flight,
        };
        let each = run.elapsed * 1000.0 / complete as f64;
        AbFigures {
            complete,
            failed: connect + receive + length,
            connect,
            receive,
            length,
            non_2xx,
            per_second: if run.elapsed > 0.0 {
                complete as f64 / run.elapsed
            } else {
                0.0
            },
            per_request_ms: if complete > 0 { clients * each } else { 0.0 },
            across_all_ms: if complete > 0 { each } else { 0.0 },
            aborted: connect > 10,
        }
    }
}
