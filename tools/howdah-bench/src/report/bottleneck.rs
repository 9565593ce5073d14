//! Decides whether the generator was the bottleneck, by its measurements of itself, and says so in sentences. Each
//! threshold is documented with its reason. The report of such a run states this before any figure.

use crate::outcome::{Outcome, OutcomeStage};
use crate::plan::{Arrivals, Transcript};
use crate::run::Run;
use crate::stats::little;

use super::formatting;

/// A measurement of the generator by itself that affects the figures.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratorFinding {
    /// How much the finding affects the figures.
    pub weight: FindingWeight,
    /// The finding as a sentence without a full stop.
    pub sentence: String,
}

/// How much a finding affects the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingWeight {
    /// The figures are valid, but the reader should know about the finding.
    Notice,
    /// The figures describe the generator, not the server.
    Bound,
}

/// The share of a core above which a thread has no room to react: the latency that it reports as the server's is that
/// of its own queue (k6's manual recommends the same 20 % idle).
const BUSY_CPU_SHARE: f64 = 0.80;
/// A thread that waits for a core for this share of the time delays every response by another program's time slice.
const MAX_WAITING_SHARE: f64 = 0.20;
/// The 99th percentile of the send lag, in seconds, above which every open-loop latency is distorted.
const MAX_SEND_LAG_SECONDS: f64 = 0.010;
/// Shares of the null server's throughput: above the first the generator is at its limit, and above the second the
/// report mentions it.
const CEILING_BOUND_SHARE: f64 = 0.80;
const CEILING_NOTICE_SHARE: f64 = 0.50;
/// Shares of the machine's cores taken by the hypervisor, and by other programs, above which the report mentions them.
const MAX_STEAL_SHARE: f64 = 0.02;
const MAX_OTHERS_SHARE: f64 = 0.10;

/// Returns all findings, the worst first.
pub fn findings(run: &Run) -> Vec<GeneratorFinding> {
    let finders = [
        ceiling, transcript, busy, waiting, lag, idle, ports, steal, others,
    ];
    let mut found: Vec<GeneratorFinding> = finders.iter().filter_map(|find| find(run)).collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
    found
}

fn finding(holds: bool, weight: FindingWeight, sentence: String) -> Option<GeneratorFinding> {
    holds.then_some(GeneratorFinding { weight, sentence })
}

fn ceiling(run: &Run) -> Option<GeneratorFinding> {
    let ceiling = run.client.ceiling.filter(|ceiling| *ceiling > 0.0)?;
    let share = run.achieved_rate() / ceiling;
    let weight = match share {
        share if share > CEILING_BOUND_SHARE => FindingWeight::Bound,
        share if share > CEILING_NOTICE_SHARE => FindingWeight::Notice,
        _ => return None,
    };
    let sentence = format!(
        "it reaches {} requests per second against a server that does nothing, and reached {} here, which is {} of \
         that",
        formatting::rate(ceiling),
        formatting::rate(run.achieved_rate()),
        formatting::percent(share)
    );
    finding(true, weight, sentence)
}

fn transcript(run: &Run) -> Option<GeneratorFinding> {
    let sentence = "it printed every response on standard error (-v 3, -v 4), which takes longer than sending \
                    the request";
    let printed = run.plan.transcript != Transcript::Silent;
    finding(printed, FindingWeight::Bound, sentence.to_owned())
}

fn busy(run: &Run) -> Option<GeneratorFinding> {
    let busiest = run.client.busiest();
    let which = match run.client.threads.len() {
        0 | 1 => "it",
        _ => "its busiest thread",
    };
    let sentence = format!("{which} used {} of a core", formatting::percent(busiest));
    finding(busiest > BUSY_CPU_SHARE, FindingWeight::Bound, sentence)
}

fn waiting(run: &Run) -> Option<GeneratorFinding> {
    let waiting = run.client.most_waiting();
    let shared = match run.machine.shared_with_server {
        true => ", which it shares with the server",
        false => "",
    };
    let sentence = format!(
        "the load tester waited {} of the time for a core{shared}, and the latencies include this time",
        formatting::percent(waiting)
    );
    finding(waiting > MAX_WAITING_SHARE, FindingWeight::Notice, sentence)
}

fn lag(run: &Run) -> Option<GeneratorFinding> {
    if !run.plan.arrivals.is_open() || run.send_lag.is_empty() {
        return None;
    }
    let lag = run.send_lag.quantile(0.99) as f64 / 1e9;
    let late = formatting::duration(lag);
    let sentence = format!("one request in a hundred was sent at least {late} late");
    finding(lag > MAX_SEND_LAG_SECONDS, FindingWeight::Bound, sentence)
}

fn idle(run: &Run) -> Option<GeneratorFinding> {
    let gap = little_gap(run)?;
    let sentence = format!(
        "according to Little's law, the clients spent {} of their time outside of requests, in the load tester",
        formatting::percent(gap)
    );
    finding(gap > little::MAX_GAP, FindingWeight::Notice, sentence)
}

fn ports(run: &Run) -> Option<GeneratorFinding> {
    let ports = run.count(Outcome::PortsExhausted);
    let sentence = format!(
        "{} found no free local port (each port stays in TIME_WAIT for a minute); use keep-alive, or several addresses",
        formatting::plural(ports, "request", "requests")
    );
    finding(ports > 0, FindingWeight::Bound, sentence)
}

fn steal(run: &Run) -> Option<GeneratorFinding> {
    let steal = run.client.steal;
    let share = formatting::percent(steal);
    let sentence = format!("the hypervisor withheld {share} of the processors' time");
    finding(steal > MAX_STEAL_SHARE, FindingWeight::Notice, sentence)
}

fn others(run: &Run) -> Option<GeneratorFinding> {
    let others = run.client.machine_busy_others;
    // If the server runs on this machine, it is one of the other programs.
    let foreign = others > MAX_OTHERS_SHARE && !run.machine.shared_with_server;
    let share = formatting::percent(others);
    let sentence = format!("other programs used {share} of this machine's processors");
    finding(foreign, FindingWeight::Notice, sentence)
}

/// Returns the findings that make the figures describe the generator, in one sentence. Returns `None` if there are no
/// such findings.
pub fn bound(run: &Run) -> Option<String> {
    let reasons: Vec<String> = findings(run)
        .into_iter()
        .filter(|finding| finding.weight == FindingWeight::Bound)
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
    if run
        .outcomes
        .keys()
        .any(|o| o.kind() == OutcomeStage::Connect)
    {
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
