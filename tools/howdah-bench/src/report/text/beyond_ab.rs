//! The part of the report that ab does not have: the load, the outcomes, the percentiles, and the measurements of the
//! client, the server and the machine.

use std::fmt::Write;

use super::line;
use crate::driver;
use crate::histogram::Histogram;
use crate::plan::{Arrivals, Spacing};
use crate::report::bottleneck::{self, FindingWeight};
use crate::report::formatting::{self, bytes, count, duration, ms, percent, rate};
use crate::report::steadiness;
use crate::run::Run;
use crate::stats::{little, quantile};

/// Writes the part of the report that ab does not have.
pub fn write(out: &mut String, run: &Run) {
    out.push_str("\nWhat ab does not say\n");
    line(out, "mode", mode(run));
    if let Some(protocol) = &run.connections.protocol {
        line(out, "protocol", connections(run, protocol));
    }
    let rates = match run.plan.arrivals {
        Arrivals::Open { rate: asked, .. } => format!(
            "{} offered ({} requested), {} achieved, {} good per second",
            rate(run.offered_rate()),
            rate(asked),
            rate(run.achieved_rate()),
            rate(run.good_rate())
        ),
        Arrivals::Log { .. } => format!(
            "{} offered by the log, {} achieved, {} good per second",
            rate(run.offered_rate()),
            rate(run.achieved_rate()),
            rate(run.good_rate())
        ),
        Arrivals::Closed { .. } => format!(
            "{} achieved, {} good per second",
            rate(run.achieved_rate()),
            rate(run.good_rate())
        ),
    };
    line(out, "rates", rates);
    outcomes(out, run);
    line(out, "percentiles", percentiles(&run.latency()));
    if let Some(loads) = &run.page_loads {
        let text = format!("{} complete, {}", count(loads.len()), percentiles(loads));
        line(out, "page loads", text);
    }
    line(out, "steadiness", steadiness::sentence(run));
    if run.in_flight.count + run.in_flight.connecting > 0 || run.unsent > 0 {
        line(out, "at the end", at_the_end(run));
    }
    if run.warmup.sent > 0 {
        line(out, "warm-up", warm_up(run));
    }
    line(out, "client", client(run));
    for finding in bottleneck::findings(run) {
        if finding.weight == FindingWeight::Notice {
            line(out, "", format!("note: {}", finding.sentence));
        }
    }
    if let Some(server) = server(run) {
        line(out, "server", server);
    }
    line(out, "machine", machine(run));
    line(
        out,
        "command",
        format!(
            "{} ({}, {})",
            run.command.join(" "),
            run.generator,
            formatting::timestamp(run.started)
        ),
    );
}

fn warm_up(run: &Run) -> String {
    let mut text = format!(
        "{} requests before the measurement, which are not part of any figure: {} good, {} not good",
        count(run.warmup.sent),
        count(run.warmup.good),
        count(run.warmup.failed)
    );
    let carried = run.warmup.carried_good + run.warmup.carried_failed;
    if carried > 0 {
        let _ = write!(
            text,
            "; {} of them ended during the measurement and count in its rates",
            count(carried)
        );
    }
    text
}

/// Describes how requests arrived.
pub fn mode(run: &Run) -> String {
    match run.plan.arrivals {
        Arrivals::Closed { concurrency } => format!(
            "closed loop, {}: measures the highest throughput, not the latency at a given rate (--rate measures that)",
            formatting::plural(u64::from(concurrency), "client", "clients")
        ),
        Arrivals::Log { speed, .. } => format!(
            "replay of a log at {speed} times its speed (open loop): latency counts from the time at which a request was due"
        ),
        Arrivals::Open {
            rate: asked,
            spacing,
            ..
        } => format!(
            "open loop, {} per second {}: latency counts from the time at which a request was due",
            rate(asked),
            match spacing {
                Spacing::Poisson => "at random times (Poisson)",
                Spacing::Constant => "at equal intervals",
            }
        ),
    }
}

fn connections(run: &Run, protocol: &str) -> String {
    let connections = &run.connections;
    let mut text = format!(
        "{protocol}, {} opened",
        formatting::plural(connections.opened, "connection", "connections")
    );
    if run.plan.connection.keep_alive {
        let _ = write!(
            text,
            ", {} responses on connections that were kept open",
            count(connections.reused)
        );
        if connections.refused_to_keep > 0 {
            let _ = write!(
                text,
                ", the server refused to keep {} of them open",
                count(connections.refused_to_keep)
            );
        }
        if connections.closed_idle > 0 {
            let _ = write!(
                text,
                ", and closed {} idle connections (no request was lost)",
                count(connections.closed_idle)
            );
        }
    } else {
        text.push_str(", one for each request (--no-keepalive)");
    }
    if connections.backlog_full > 0 {
        let _ = write!(
            text,
            "; the backlog was full {} times",
            count(connections.backlog_full)
        );
    }
    text
}

fn outcomes(out: &mut String, run: &Run) {
    let ended = run.ended_requests();
    let header = format!(
        "{:<24} {:>10} {:>8} {:>9} {:>9} {:>9}",
        "", "requests", "share", "p50 ms", "p99 ms", "max ms"
    );
    line(out, "outcomes", header.trim_end());
    for (outcome, tally) in run.outcomes.iter().filter(|(_, tally)| tally.count > 0) {
        let latency = &tally.latency;
        line(
            out,
            "",
            format!(
                "{:<24} {:>10} {:>8} {:>9} {:>9} {:>9}",
                outcome.description(),
                count(tally.count),
                percent(tally.count as f64 / ended as f64),
                ms(latency.quantile(0.5) as f64),
                ms(latency.quantile(0.99) as f64),
                ms(latency.max() as f64)
            ),
        );
    }
    if run.statuses.len() > 1 || run.statuses.keys().any(|status| status / 100 != 2) {
        let all: Vec<String> = run
            .statuses
            .iter()
            .map(|(status, n)| format!("{status}: {}", count(*n)))
            .collect();
        line(out, "", format!("by status: {}", all.join(", ")));
    }
    for (reason, times) in &run.reasons {
        line(out, "", format!("{reason} ({})", count(*times)));
    }
}

/// Formats the percentiles: `p50 4.13, p99 9.5 ms; p99.9 and beyond: too few requests`.
pub fn percentiles(latency: &Histogram) -> String {
    if latency.is_empty() {
        return "no good response".into();
    }
    let name = |p: f64| format!("p{p}");
    let mut known = Vec::new();
    let mut refused = None;
    for p in quantile::REPORTED_PERCENTILES {
        match quantile::trusted(latency, p) {
            Some(value) => known.push(format!("{} {}", name(p), ms(value as f64))),
            None => {
                refused = Some(p);
                break;
            }
        }
    }
    let max = format!("max {} ms", ms(latency.max() as f64));
    known.push(max);
    let mut text = known.join(", ");
    if let Some(p) = refused {
        let needed = (quantile::MIN_SAMPLES_BEYOND / (1.0 - p / 100.0)).round() as u64;
        let _ = write!(text, "; {} needs {} good responses", name(p), count(needed));
    }
    text
}

fn at_the_end(run: &Run) -> String {
    let mut parts = Vec::new();
    let in_flight = run.in_flight;
    if in_flight.count > 0 {
        parts.push(format!(
            "{} still without a response (the server may log {}); the oldest had waited for {}",
            formatting::plural(in_flight.count, "request", "requests"),
            if in_flight.count == 1 { "it" } else { "them" },
            duration(in_flight.oldest)
        ));
    }
    if in_flight.connecting > 0 {
        parts.push(format!("{} still connecting", count(in_flight.connecting)));
    }
    if run.unsent > 0 {
        parts.push(format!(
            "{} due but never sent, because every connection was busy",
            count(run.unsent)
        ));
    }
    parts.join("; ")
}

fn client(run: &Run) -> String {
    let client = &run.client;
    let mut text = format!(
        "{} used {} of a core and waited for a core {} of the time",
        formatting::plural(client.threads.len() as u64, "thread", "threads"),
        percent(client.busiest()),
        percent(client.most_waiting())
    );
    if run.plan.arrivals.is_open() && !run.send_lag.is_empty() {
        let _ = write!(
            text,
            "; requests were sent {} late at p99, and {} late at most",
            duration(run.send_lag.quantile(0.99) as f64 / 1e9),
            duration(run.send_lag.max() as f64 / 1e9)
        );
    }
    if let Some(gap) = bottleneck::little_gap(run).filter(|gap| gap.abs() <= little::MAX_GAP) {
        let _ = write!(text, "; Little's law holds within {}", percent(gap.abs()));
    }
    if let Some(ceiling) = client.ceiling {
        let _ = write!(
            text,
            "; the load tester's own maximum on this machine is {} requests per second",
            rate(ceiling)
        );
    } else if !driver::has_ceiling(&run.plan) && client.busiest() > 0.0 {
        // A null server would spend as much on TLS and frames as the load tester, and would itself be the limit.
        let _ = write!(
            text,
            "; judging by CPU time, the load tester's own maximum is about {} requests per second",
            rate(run.achieved_rate() / client.busiest())
        );
    }
    text
}

fn server(run: &Run) -> Option<String> {
    let mut parts = Vec::new();
    let used: Vec<_> = run.server.iter().filter_map(|s| s.process).collect();
    if let Some(last) = used.last() {
        let cpu = used.iter().map(|u| u.cpu).sum::<f64>() / used.len() as f64;
        let memory = used
            .iter()
            .map(|u| u.proportional.unwrap_or(u.resident))
            .max()
            .unwrap_or(0);
        parts.push(format!(
            "{} used {} cores on average, {} of memory at most",
            formatting::plural(u64::from(last.processes), "process", "processes"),
            formatting::digits(cpu),
            bytes(memory as f64)
        ));
    }
    let howdah: Vec<_> = run
        .server
        .iter()
        .filter_map(|s| s.howdah.as_ref())
        .collect();
    if let (Some(first), Some(last)) = (howdah.first(), howdah.last()) {
        parts.push(format!(
            "{} requests served during the run, at most {} in the queue, and at most {} of {} children busy",
            count(last.requests.saturating_sub(first.requests)),
            howdah.iter().map(|h| h.queued).max().unwrap_or(0),
            howdah.iter().map(|h| h.busy).max().unwrap_or(0),
            howdah.iter().map(|h| h.children).max().unwrap_or(0),
        ));
    }
    if let Some(missing) = run.server.iter().find_map(|s| s.missing.as_ref()) {
        parts.push(format!("not sampled: {missing}"));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Describes the machine in one line.
pub fn machine(run: &Run) -> String {
    let machine = &run.machine;
    let mut text = format!(
        "{}, {}, {}, {}",
        machine.cpu,
        formatting::plural(u64::from(machine.cores), "core", "cores"),
        bytes(machine.memory as f64),
        machine.kernel
    );
    if machine.shared_with_server {
        text.push_str(
            "; the server runs on the same machine and shares its cores with the load tester",
        );
    }
    text
}
