//! The report of one run as text: ab's fields in ab's order, so that scripts that read ab's report
//! read this one; then what ab does not say; then which figures of ab's would have misled.
//!
//! Names and order are those of ab, the values are true: "Requests per second" and all times are of
//! good answers, "Failed requests" is everything that was not one. Where that differs from what ab
//! would have printed, the last part says so. Times have decimals, since a millisecond is a long
//! time today.

use std::fmt::Write;

use crate::driver;
use crate::histogram::Histogram;
use crate::outcome::Outcome;
use crate::plan::{Arrivals, Scheme, Spacing};
use crate::run::{Ended, Run};
use crate::stats::{little, quantile, steady};

use super::bottleneck::{self, Weight};
use super::misled;
use super::words::{self, bytes, count, duration, ms, percent, rate};

/// Which parts the report has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// The table of percentiles (not with ab's `-d`).
    pub percentiles: bool,
    /// Medians and deviations (not with ab's `-S`).
    pub deviations: bool,
    /// `-l`: say "Variable" for the document's length.
    pub variable_length: bool,
}

impl Default for Style {
    fn default() -> Self {
        Style {
            percentiles: true,
            deviations: true,
            variable_length: false,
        }
    }
}

/// The report of one run.
pub fn report(run: &Run, style: Style) -> String {
    let mut out = String::new();
    if let Some(evidence) = bottleneck::bound(run) {
        let _ = writeln!(
            out,
            "THE LOAD TESTER WAS THE BOTTLENECK: {evidence}.\nThe figures below are its own, not the \
             server's.\n"
        );
    }
    if run.ended == Ended::Interrupted {
        let _ = writeln!(
            out,
            "Interrupted after {}: the report covers what was measured until then.\n",
            duration(run.elapsed)
        );
    }
    abs_fields(&mut out, run, style);
    what_ab_does_not_say(&mut out, run);
    misleading(&mut out, run);
    out
}

fn field(out: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{:<23} {value}", format!("{name}:"));
}

fn abs_fields(out: &mut String, run: &Run, style: Style) {
    let target = &run.plan.targets[0];
    let document = &run.document;
    field(
        out,
        "Server Software",
        document.server.as_deref().unwrap_or_default(),
    );
    field(out, "Server Hostname", target.host());
    match target.port() {
        Some(port) => field(out, "Server Port", port),
        None => field(out, "Server Port", &target.address),
    }
    if target.scheme == Scheme::Https {
        let tls = run.connections.tls.as_deref();
        field(out, "SSL/TLS Protocol", tls.unwrap_or("no handshake done"));
    }
    out.push('\n');
    field(out, "Document Path", &target.path);
    match document.first_length {
        _ if style.variable_length => field(out, "Document Length", "Variable"),
        Some(_) if document.other_length > 0 => field(
            out,
            "Document Length",
            match (document.shortest, document.longest) {
                (Some(low), Some(high)) if low == high => format!("{low} bytes (good answers)"),
                (Some(low), Some(high)) => format!("{low} to {high} bytes"),
                _ => "Variable".to_owned(),
            },
        ),
        Some(length) => field(out, "Document Length", format!("{length} bytes")),
        None => field(out, "Document Length", "no answer"),
    }
    out.push('\n');
    match run.plan.arrivals {
        Arrivals::Closed { concurrency } => field(out, "Concurrency Level", concurrency),
        Arrivals::Open { .. } => field(
            out,
            "Concurrency Level",
            format!(
                "{} on average (open loop, at most {})",
                words::digits(run.client.mean_in_flight),
                run.plan.arrivals.connections()
            ),
        ),
    }
    field(
        out,
        "Time taken for tests",
        format!("{:.3} seconds", run.elapsed),
    );
    field(out, "Complete requests", run.answers());
    field(out, "Failed requests", run.errors());
    let connect = sum(run, crate::outcome::Kind::Connect);
    let transport = sum(run, crate::outcome::Kind::Transport);
    if run.errors() > 0 {
        let cut = run.count(Outcome::Truncated) + run.count(Outcome::ClosedEarly);
        let _ = writeln!(
            out,
            "   (Connect: {connect}, Receive: {}, Length: {cut}, Exceptions: {})",
            transport - cut,
            run.answers() - run.good()
        );
    }
    let non_2xx: u64 = run
        .statuses
        .iter()
        .filter(|(status, _)| **status / 100 != 2)
        .map(|(_, count)| count)
        .sum();
    if non_2xx > 0 {
        field(out, "Non-2xx responses", non_2xx);
    }
    if run.plan.connection.keep_alive {
        field(out, "Keep-Alive requests", run.connections.kept);
    }
    field(
        out,
        "Total transferred",
        format!("{} bytes", run.bytes.received),
    );
    if run.body_length > 0 {
        field(out, "Total body sent", run.bytes.sent);
    }
    field(
        out,
        "HTML transferred",
        format!("{} bytes", run.bytes.bodies),
    );
    let latency = run.latency();
    if run.good() > 0 && run.elapsed > 0.0 {
        field(
            out,
            "Requests per second",
            format!("{:.2} [#/sec] (mean)", run.good_rate()),
        );
        field(
            out,
            "Time per request",
            format!("{:.3} [ms] (mean)", latency.mean() / 1e6),
        );
        field(
            out,
            "Time per request",
            format!(
                "{:.3} [ms] (mean, across all concurrent requests)",
                1e3 / run.good_rate()
            ),
        );
        let kib = |bytes: u64| bytes as f64 / 1024.0 / run.elapsed;
        field(
            out,
            "Transfer rate",
            format!("{:.2} [Kbytes/sec] received", kib(run.bytes.received)),
        );
        if run.body_length > 0 {
            let both = run.bytes.received + run.bytes.sent;
            let _ = writeln!(out, "{:24}{:.2} kb/s sent", "", kib(run.bytes.sent));
            let _ = writeln!(out, "{:24}{:.2} kb/s total", "", kib(both));
        }
        connection_times(out, run, &latency, style);
        if style.percentiles && latency.len() > 1 {
            percentage_served(out, &latency);
        }
    } else {
        out.push_str("\nNot one good answer: there are no times to report.\n");
    }
}

fn sum(run: &Run, kind: crate::outcome::Kind) -> u64 {
    run.outcomes
        .iter()
        .filter(|(outcome, _)| outcome.kind() == kind)
        .map(|(_, tally)| tally.count)
        .sum()
}

fn connection_times(out: &mut String, run: &Run, total: &Histogram, style: Style) {
    out.push_str("\nConnection Times (ms)\n");
    if style.deviations {
        out.push_str("               min    mean[+/-sd]  median      max\n");
    } else {
        out.push_str("               min     avg      max\n");
    }
    // Ab counts a request on a connection that was there as connected in no time.
    let reused = total.len().saturating_sub(run.phases.connect.len());
    row(out, "Connect:", &run.phases.connect, reused, style);
    row(out, "Processing:", &run.phases.processing, 0, style);
    row(out, "Waiting:", &run.phases.wait, 0, style);
    row(out, "Total:", total, 0, style);
}

/// A row of the table; `zeros` is the number of zero values that the histogram lacks.
fn row(out: &mut String, name: &str, histogram: &Histogram, zeros: u64, style: Style) {
    let n = (histogram.len() + zeros) as f64;
    if n == 0.0 {
        return;
    }
    let share = histogram.len() as f64 / n;
    let mean = histogram.mean() * share;
    // E[x²] of all, less the square of the mean.
    let second = (histogram.stdev().powi(2) + histogram.mean().powi(2)) * share;
    let deviation = (second - mean * mean).max(0.0).sqrt();
    let zero_share = zeros as f64 / n;
    let median = if zero_share >= 0.5 {
        0
    } else {
        histogram.quantile((0.5 - zero_share) / (1.0 - zero_share))
    };
    let min = if zeros > 0 { 0 } else { histogram.min() };
    let _ = if style.deviations {
        writeln!(
            out,
            "{name:<12}{:>7} {:>7} {:>7} {:>7} {:>8}",
            ms(min as f64),
            ms(mean),
            ms(deviation),
            ms(median as f64),
            ms(histogram.max() as f64)
        )
    } else {
        writeln!(
            out,
            "{name:<12}{:>7} {:>7} {:>8}",
            ms(min as f64),
            ms(mean),
            ms(histogram.max() as f64)
        )
    };
}

fn percentage_served(out: &mut String, latency: &Histogram) {
    out.push_str("\nPercentage of the requests served within a certain time (ms)\n");
    for percent in [50, 66, 75, 80, 90, 95, 98, 99] {
        let value = latency.quantile(f64::from(percent) / 100.0);
        let _ = writeln!(out, "  {percent}%  {:>7}", ms(value as f64));
    }
    let _ = writeln!(
        out,
        " 100%  {:>7} (longest request)",
        ms(latency.max() as f64)
    );
}

fn line(out: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "  {name:<13} {value}");
}

fn what_ab_does_not_say(out: &mut String, run: &Run) {
    out.push_str("\nWhat ab does not say\n");
    line(out, "mode", mode(run));
    if let Some(protocol) = &run.connections.protocol {
        line(out, "protocol", connections(run, protocol));
    }
    let rates = match run.plan.arrivals {
        Arrivals::Open { rate: asked, .. } => format!(
            "{} offered ({} asked for), {} achieved, {} good per second",
            rate(run.offered_rate()),
            rate(asked),
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
    line(out, "steadiness", steadiness(run));
    if run.in_flight.count + run.in_flight.connecting > 0 || run.unsent > 0 {
        line(out, "at the end", at_the_end(run));
    }
    if run.warmup.sent > 0 {
        let mut text = format!(
            "{} requests before the measurement, in no figure: {} good, {} not",
            count(run.warmup.sent),
            count(run.warmup.good),
            count(run.warmup.failed)
        );
        let carried = run.warmup.carried_good + run.warmup.carried_failed;
        if carried > 0 {
            let _ = write!(
                text,
                "; {} of them ended in the measured part and count in its rates",
                count(carried)
            );
        }
        line(out, "warm-up", text);
    }
    line(out, "client", client(run));
    for finding in bottleneck::findings(run) {
        if finding.weight == Weight::Notice {
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
            words::timestamp(run.started)
        ),
    );
}

/// How requests arrived.
pub fn mode(run: &Run) -> String {
    match run.plan.arrivals {
        Arrivals::Closed { concurrency } => format!(
            "closed loop, {}: saturation, says nothing about latency at a given rate (--rate does)",
            words::plural(u64::from(concurrency), "client", "clients")
        ),
        Arrivals::Open {
            rate: asked,
            spacing,
            ..
        } => format!(
            "open loop, {} per second {}: latency counts from when a request was due",
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
        words::plural(connections.opened, "connection", "connections")
    );
    if run.plan.connection.keep_alive {
        let _ = write!(
            text,
            ", {} answers on a kept one",
            count(connections.reused)
        );
        if connections.refused_to_keep > 0 {
            let _ = write!(
                text,
                ", the server refused to keep {}",
                count(connections.refused_to_keep)
            );
        }
        if connections.closed_idle > 0 {
            let _ = write!(
                text,
                ", and closed {} idle ones (no request lost)",
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
                outcome.words(),
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

/// `p50 4.13, p99 9.5 ms; p99.9 and beyond: too few requests`.
pub fn percentiles(latency: &Histogram) -> String {
    if latency.is_empty() {
        return "no good answer".into();
    }
    let name = |p: f64| format!("p{p}");
    let mut known = Vec::new();
    let mut refused = None;
    for p in quantile::REPORTED {
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
        let needed = (quantile::BEYOND / (1.0 - p / 100.0)).round() as u64;
        let _ = write!(text, "; {} needs {} good answers", name(p), count(needed));
    }
    text
}

/// How steady the good answers were over the seconds of the run, in words.
pub fn steadiness(run: &Run) -> String {
    match steady_class(run) {
        steady::Steadiness::Flat => "the good rate was steady over the run".into(),
        steady::Steadiness::Warming { by, flat_from } => format!(
            "the good rate rose by {} over the run: it was warming up{}",
            percent(by),
            match flat_from {
                Some(from) => format!(", steady from second {from} on (--warmup {from})"),
                None => " and had not finished".into(),
            }
        ),
        steady::Steadiness::Slowing { by } => {
            format!("the good rate fell by {} over the run", percent(by))
        }
        steady::Steadiness::Unsteady { variation } => format!(
            "the good rate jumped by {} from second to second",
            percent(variation)
        ),
        steady::Steadiness::TooShort => {
            format!("not known: under {} whole seconds", steady::FEWEST)
        }
    }
}

/// Steadiness of the whole seconds' good answers.
pub fn steady_class(run: &Run) -> steady::Steadiness {
    let counts: Vec<f64> = run
        .seconds
        .iter()
        .filter(|second| second.length > 0.95)
        .map(|second| second.good() as f64 / second.length)
        .collect();
    steady::classify(&counts)
}

fn at_the_end(run: &Run) -> String {
    let mut parts = Vec::new();
    let in_flight = run.in_flight;
    if in_flight.count > 0 {
        parts.push(format!(
            "{} without an answer yet (the server may log {}), the oldest for {}",
            words::plural(in_flight.count, "request", "requests"),
            if in_flight.count == 1 { "it" } else { "them" },
            duration(in_flight.oldest)
        ));
    }
    if in_flight.connecting > 0 {
        parts.push(format!("{} still connecting", count(in_flight.connecting)));
    }
    if run.unsent > 0 {
        parts.push(format!(
            "{} due and never sent, as every connection was busy",
            count(run.unsent)
        ));
    }
    parts.join("; ")
}

fn client(run: &Run) -> String {
    let client = &run.client;
    let mut text = format!(
        "{} used {} of a core, waited for one {}",
        words::plural(client.threads.len() as u64, "thread", "threads"),
        percent(client.busiest()),
        percent(client.most_waiting())
    );
    if run.plan.arrivals.is_open() && !run.send_lag.is_empty() {
        let _ = write!(
            text,
            "; sent late by {} at p99, {} at most",
            duration(run.send_lag.quantile(0.99) as f64 / 1e9),
            duration(run.send_lag.max() as f64 / 1e9)
        );
    }
    if let Some(gap) = bottleneck::little_gap(run).filter(|gap| gap.abs() <= little::TOLERATED) {
        let _ = write!(text, "; Little's law holds within {}", percent(gap.abs()));
    }
    if let Some(ceiling) = client.ceiling {
        let _ = write!(text, "; its ceiling here is {} per second", rate(ceiling));
    } else if !driver::has_ceiling(&run.plan) && client.busiest() > 0.0 {
        // A null server would spend as much on TLS and frames as the load tester, and be the limit
        // itself.
        let _ = write!(
            text,
            "; by its CPU time its ceiling is about {} per second",
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
            words::plural(u64::from(last.processes), "process", "processes"),
            words::digits(cpu),
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
            "{} requests served meanwhile, queue {} at most, {} of {} children busy at most",
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

/// A description of the machine in one line.
pub fn machine(run: &Run) -> String {
    let machine = &run.machine;
    let mut text = format!(
        "{}, {}, {}, {}",
        machine.cpu,
        words::plural(u64::from(machine.cores), "core", "cores"),
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

fn misleading(out: &mut String, run: &Run) {
    let lines = misled::lines(run);
    if lines.is_empty() {
        out.push_str("\nNone of ab's figures would have misled in this run.\n");
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
