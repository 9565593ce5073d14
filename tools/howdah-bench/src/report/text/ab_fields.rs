//! The fields of ab's report, with ab's names and in ab's order.

use std::fmt::Write;

use super::ReportStyle;
use crate::histogram::Histogram;
use crate::outcome::{Outcome, OutcomeStage};
use crate::plan::{Arrivals, UrlScheme};
use crate::report::formatting::{self, ms};
use crate::run::Run;

fn field(out: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{:<23} {value}", format!("{name}:"));
}

/// Writes the fields of ab.
pub fn write(out: &mut String, run: &Run, style: ReportStyle) {
    server(out, run);
    document(out, run, style);
    load(out, run);
    requests(out, run);
    if run.good() == 0 || run.elapsed <= 0.0 {
        out.push_str("\nThere was no good response, so there are no times to report.\n");
        return;
    }
    let latency = run.latency();
    rates(out, run, &latency);
    connection_times(out, run, &latency, style);
    if style.percentiles && latency.len() > 1 {
        percentage_served(out, &latency);
    }
}

fn server(out: &mut String, run: &Run) {
    let target = &run.plan.targets[0];
    let software = run.document.server.as_deref();
    field(out, "Server Software", software.unwrap_or_default());
    field(out, "Server Hostname", target.host());
    match target.port() {
        Some(port) => field(out, "Server Port", port),
        None => field(out, "Server Port", &target.address),
    }
    if target.scheme == UrlScheme::Https {
        let tls = run.connections.tls.as_deref();
        field(out, "SSL/TLS Protocol", tls.unwrap_or("no handshake done"));
    }
    out.push('\n');
}

fn document(out: &mut String, run: &Run, style: ReportStyle) {
    let document = &run.document;
    field(out, "Document Path", &run.plan.targets[0].path);
    match document.first_length {
        _ if style.variable_length => field(out, "Document Length", "Variable"),
        Some(_) if document.other_length > 0 => field(
            out,
            "Document Length",
            match (document.shortest, document.longest) {
                (Some(low), Some(high)) if low == high => format!("{low} bytes (good responses)"),
                (Some(low), Some(high)) => format!("{low} to {high} bytes"),
                _ => "Variable".to_owned(),
            },
        ),
        Some(length) => field(out, "Document Length", format!("{length} bytes")),
        None => field(out, "Document Length", "no response"),
    }
    out.push('\n');
}

fn load(out: &mut String, run: &Run) {
    match run.plan.arrivals {
        Arrivals::Closed { concurrency } => field(out, "Concurrency Level", concurrency),
        Arrivals::Open { .. } | Arrivals::Log { .. } => field(
            out,
            "Concurrency Level",
            format!(
                "{} on average (open loop, at most {})",
                formatting::digits(run.client.mean_in_flight),
                run.plan.arrivals.connections()
            ),
        ),
    }
    field(
        out,
        "Time taken for tests",
        format!("{:.3} seconds", run.elapsed),
    );
}

fn requests(out: &mut String, run: &Run) {
    field(out, "Complete requests", run.answers());
    field(out, "Failed requests", run.errors());
    let connect = sum(run, OutcomeStage::Connect);
    let transport = sum(run, OutcomeStage::Transport);
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
}

fn rates(out: &mut String, run: &Run, latency: &Histogram) {
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
}

fn sum(run: &Run, kind: OutcomeStage) -> u64 {
    run.outcomes
        .iter()
        .filter(|(outcome, _)| outcome.kind() == kind)
        .map(|(_, tally)| tally.count)
        .sum()
}

fn connection_times(out: &mut String, run: &Run, total: &Histogram, style: ReportStyle) {
    out.push_str("\nConnection Times (ms)\n");
    if style.deviations {
        out.push_str("               min    mean[+/-sd]  median      max\n");
    } else {
        out.push_str("               min     avg      max\n");
    }
    // Ab counts a request on an existing connection as one that connected in no time.
    let reused = total.len().saturating_sub(run.phases.connect.len());
    row(out, "Connect:", &run.phases.connect, reused, style);
    row(out, "Processing:", &run.phases.processing, 0, style);
    row(out, "Waiting:", &run.phases.wait, 0, style);
    row(out, "Total:", total, 0, style);
}

/// Writes a row of the table; `zeros` is the number of zero values that are missing from the histogram.
fn row(out: &mut String, name: &str, histogram: &Histogram, zeros: u64, style: ReportStyle) {
    let n = (histogram.len() + zeros) as f64;
    if n == 0.0 {
        return;
    }
    let share = histogram.len() as f64 / n;
    let mean = histogram.mean() * share;
    // E[x²] of all values, including the zeros. The square of the mean is subtracted below.
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
