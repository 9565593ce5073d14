//! Decides whether the generator was the bottleneck, by what it measured of itself, and says so in
//! sentences. Each threshold has its reason beside it. The report of such a run says so before any
//! figure.

use crate::outcome::{Kind, Outcome};
use crate::plan::{Arrivals, Transcript};
use crate::run::Run;
use crate::stats::little;

use super::words;

/// Something the generator measured of itself that affects the figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// How much the finding affects the figures.
    pub weight: Weight,
    /// The finding as a sentence, without a full stop.
    pub sentence: String,
}

/// How much a finding affects the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// The figures are valid; the reader should know something besides.
    Notice,
    /// The figures are the generator's, not the server's.
    Bound,
}

/// A thread above this share of a core has no room to react: what it reports as the server's
/// latency is its own queue (k6's manual asks for the same 20 % idle).
const BUSY: f64 = 0.80;
/// Waiting this share of the time for a core delays every answer by another program's time slice.
const WAITING: f64 = 0.20;
/// A 99th percentile of the send lag above this, in seconds, distorts every open-loop latency.
const LAG: f64 = 0.010;
/// Shares of the null server's throughput: above the first the generator is at its limit, above the
/// second the report mentions it.
const CEILING_BOUND: f64 = 0.80;
const CEILING_NOTICE: f64 = 0.50;
/// Shares of the machine's cores: what the hypervisor took, and what other programs took.
const STEAL: f64 = 0.02;
const OTHERS: f64 = 0.10;

/// All findings, the worst first.
pub fn findings(run: &Run) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut say = |weight, sentence: String| found.push(Finding { weight, sentence });
    let client = &run.client;

    if let Some(ceiling) = client.ceiling.filter(|ceiling| *ceiling > 0.0) {
        let share = run.achieved_rate() / ceiling;
        let sentence = format!(
            "it reaches {} requests per second against a server that does nothing, and reached {} here, \
             {} of that",
            words::rate(ceiling),
            words::rate(run.achieved_rate()),
            words::percent(share)
        );
        if share > CEILING_BOUND {
            say(Weight::Bound, sentence);
        } else if share > CEILING_NOTICE {
            say(Weight::Notice, sentence);
        }
    }
    if run.plan.transcript != Transcript::Silent {
        let sentence = "it showed every answer on standard error (-v 3, -v 4), which takes longer than \
                        asking";
        say(Weight::Bound, sentence.to_owned());
    }
    let busiest = client.busiest();
    if busiest > BUSY {
        say(
            Weight::Bound,
            format!(
                "{} used {} of a core",
                if client.threads.len() > 1 {
                    "its busiest thread"
                } else {
                    "it"
                },
                words::percent(busiest)
            ),
        );
    }
    let waiting = client.most_waiting();
    if waiting > WAITING {
        say(
            Weight::Notice,
            format!(
                "it waited for a core {} of the time{}: that wait is in the latencies",
                words::percent(waiting),
                if run.machine.shared_with_server {
                    ", which it shares with the server"
                } else {
                    ""
                }
            ),
        );
    }
    if run.plan.arrivals.is_open() && !run.send_lag.is_empty() {
        let lag = run.send_lag.quantile(0.99) as f64 / 1e9;
        if lag > LAG {
            say(
                Weight::Bound,
                format!(
                    "one request in a hundred was sent {} late or later",
                    words::duration(lag)
                ),
            );
        }
    }
    if let Some(gap) = little_gap(run).filter(|gap| *gap > little::TOLERATED) {
        say(
            Weight::Notice,
            format!(
                "by Little's law {} of the clients' time was spent outside of requests, in the generator",
                words::percent(gap)
            ),
        );
    }
    let ports = run.count(Outcome::PortsExhausted);
    if ports > 0 {
        say(
            Weight::Bound,
            format!(
                "{} found no local port left (TIME_WAIT holds each for a minute); use keep-alive, or \
                 several addresses",
                words::plural(ports, "request", "requests")
            ),
        );
    }
    if client.steal > STEAL {
        say(
            Weight::Notice,
            format!(
                "the hypervisor kept back {} of the processors",
                words::percent(client.steal)
            ),
        );
    }
    // If the server runs on this machine, it is one of the other programs.
    if client.machine_busy_others > OTHERS && !run.machine.shared_with_server {
        say(
            Weight::Notice,
            format!(
                "other programs used {} of this machine's processors",
                words::percent(client.machine_busy_others)
            ),
        );
    }
    found.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
    found
}

/// The findings that make the figures the generator's own, in one sentence; `None` if there are
/// none.
pub fn bound(run: &Run) -> Option<String> {
    let reasons: Vec<String> = findings(run)
        .into_iter()
        .filter(|finding| finding.weight == Weight::Bound)
        .map(|finding| finding.sentence)
        .collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Little's law, for a closed loop without failed connects (which pause outside of any request).
pub fn little_gap(run: &Run) -> Option<f64> {
    let Arrivals::Closed { concurrency } = run.plan.arrivals else {
        return None;
    };
    let ended = run.ended_requests();
    if run.outcomes.keys().any(|o| o.kind() == Kind::Connect) {
        return None;
    }
    // The first and last request of every client are cut by the run's ends.
    if ended < 20 * u64::from(concurrency) {
        return None;
    }
    let total: f64 = run
        .outcomes
        .values()
        .map(|tally| tally.latency.mean() * tally.count as f64)
        .sum();
    let think = (run.plan.think.min + run.plan.think.max) / 2.0;
    little::gap(
        f64::from(concurrency),
        run.achieved_rate(),
        total / ended as f64 / 1e9,
        think,
    )
}
