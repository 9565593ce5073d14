//! Decides whether the generator was the bottleneck, by its measurements of itself, and says so in sentences. Each
//! threshold is documented with its reason. The report of such a run states this before any figure.

use crate::outcome::{Kind, Outcome};
use crate::plan::{Arrivals, Transcript};
use crate::run::Run;
use crate::stats::little;

use super::words;

/// A measurement of the generator by itself that affects the figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// How much the finding affects the figures.
    pub weight: Weight,
    /// The finding as a sentence without a full stop.
    pub sentence: String,
}

/// How much a finding affects the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// The figures are valid, but the reader should know about the finding.
    Notice,
    /// The figures describe the generator, not the server.
    Bound,
}

/// The share of a core above which a thread has no room to react: what it reports as the server's latency is its own
/// queue (k6's manual recommends the same 20 % idle).
const BUSY: f64 = 0.80;
/// A thread that waits for a core for this share of the time delays every response by another program's time slice.
const WAITING: f64 = 0.20;
/// The 99th percentile of the send lag, in seconds, above which every open-loop latency is distorted.
const LAG: f64 = 0.010;
/// Shares of the null server's throughput: above the first the generator is at its limit, and above the second the
/// report mentions it.
const CEILING_BOUND: f64 = 0.80;
const CEILING_NOTICE: f64 = 0.50;
/// Shares of the machine's cores taken by the hypervisor, and by other programs, above which the report mentions them.
const STEAL: f64 = 0.02;
const OTHERS: f64 = 0.10;

/// Returns all findings, the worst first.
pub fn findings(run: &Run) -> Vec<Finding> {
    let finders = [
        ceiling, transcript, busy, waiting, lag, idle, ports, steal, others,
    ];
    let mut found: Vec<Finding> = finders.iter().filter_map(|find| find(run)).collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
    found
}

fn finding(holds: bool, weight: Weight, sentence: String) -> Option<Finding> {
    holds.then_some(Finding { weight, sentence })
}

fn ceiling(run: &Run) -> Option<Finding> {
    let ceiling = run.client.ceiling.filter(|ceiling| *ceiling > 0.0)?;
    let share = run.achieved_rate() / ceiling;
    let weight = match share {
        share if share > CEILING_BOUND => Weight::Bound,
        share if share > CEILING_NOTICE => Weight::Notice,
        _ => return None,
    };
    let sentence = format!(
        "it reaches {} requests per second against a server that does nothing, and reached {} here, {} of \
         that",
        words::rate(ceiling),
        words::rate(run.achieved_rate()),
        words::percent(share)
    );
    finding(true, weight, sentence)
}

fn transcript(run: &Run) -> Option<Finding> {
    let sentence = "it printed every answer on standard error (-v 3, -v 4), which takes longer than sending \
                    the request";
    let printed = run.plan.transcript != Transcript::Silent;
    finding(printed, Weight::Bound, sentence.to_owned())
}

fn busy(run: &Run) -> Option<Finding> {
    let busiest = run.client.busiest();
    let which = match run.client.threads.len() {
        0 | 1 => "it",
        _ => "its busiest thread",
    };
    let sentence = format!("{which} used {} of a core", words::percent(busiest));
    finding(busiest > BUSY, Weight::Bound, sentence)
}

fn waiting(run: &Run) -> Option<Finding> {
    let waiting = run.client.most_waiting();
    let shared = match run.machine.shared_with_server {
        true => ", which it shares with the server",
        false => "",
    };
    let sentence = format!(
        "it waited for a core {} of the time{shared}: that wait is in the latencies",
        words::percent(waiting)
    );
    finding(waiting > WAITING, Weight::Notice, sentence)
}

fn lag(run: &Run) -> Option<Finding> {
    if !run.plan.arrivals.is_open() || run.send_lag.is_empty() {
        return None;
    }
    let lag = run.send_lag.quantile(0.99) as f64 / 1e9;
    let late = words::duration(lag);
    let sentence = format!("one request in a hundred was sent {late} late or later");
    finding(lag > LAG, Weight::Bound, sentence)
}

fn idle(run: &Run) -> Option<Finding> {
    let gap = little_gap(run)?;
    let sentence = format!(
        "by Little's law {} of the clients' time was spent outside of requests, in the generator",
        words::percent(gap)
    );
    finding(gap > little::TOLERATED, Weight::Notice, sentence)
}

fn ports(run: &Run) -> Option<Finding> {
    let ports = run.count(Outcome::PortsExhausted);
    let sentence = format!(
        "{} found no local port left (TIME_WAIT holds each for a minute); use keep-alive, or several \
         addresses",
        words::plural(ports, "request", "requests")
    );
    finding(ports > 0, Weight::Bound, sentence)
}

fn steal(run: &Run) -> Option<Finding> {
    let steal = run.client.steal;
    let share = words::percent(steal);
    let sentence = format!("the hypervisor kept back {share} of the processors");
    finding(steal > STEAL, Weight::Notice, sentence)
}

fn others(run: &Run) -> Option<Finding> {
    let others = run.client.machine_busy_others;
    // If the server runs on this machine, it is one of the other programs.
    let foreign = others > OTHERS && !run.machine.shared_with_server;
    let share = words::percent(others);
    let sentence = format!("other programs used {share} of this machine's processors");
    finding(foreign, Weight::Notice, sentence)
}

/// Returns the findings by which the figures describe the generator, in one sentence; `None` if there are none.
pub fn bound(run: &Run) -> Option<String> {
    let reasons: Vec<String> = findings(run)
        .into_iter()
        .filter(|finding| finding.weight == Weight::Bound)
        .map(|finding| finding.sentence)
        .collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Returns the gap by Little's law, for a closed loop without failed connects (which cause pauses outside of any
/// request).
pub fn little_gap(run: &Run) -> Option<f64> {
    let Arrivals::Closed { concurrency } = run.plan.arrivals else {
        return None;
    };
    let ended = run.ended_requests();
    if run.outcomes.keys().any(|o| o.kind() == Kind::Connect) {
        return None;
    }
    // The first and last request of every client are cut off by the run's start and end.
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
