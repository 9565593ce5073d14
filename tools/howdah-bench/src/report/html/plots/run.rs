//! Plots of one run, second by second.

use crate::histogram::Histogram;
use crate::outcome::Outcome;
use crate::run::{Run, Second};

use super::{ms_tick, number_tick, outcome_class, trim};
use crate::report::formatting;
use crate::report::html::scale::Scale;
use crate::report::html::shell::{LegendKey, figure};
use crate::report::html::svg::Plot;

/// The maximum number of columns of a plot over time. Longer runs are drawn in steps of several seconds.
const MAX_COLUMNS: usize = 240;

/// Groups seconds so that there are no more than [`MAX_COLUMNS`] groups. A last second that was cut very short is
/// skipped, because its rates are noise.
fn columns(seconds: &[Second]) -> Vec<&[Second]> {
    let seconds = match seconds {
        [whole @ .., last] if last.length < 0.2 && !whole.is_empty() => whole,
        all => all,
    };
    let step = seconds.len().div_ceil(MAX_COLUMNS).max(1);
    seconds.chunks(step).collect()
}

/// Plots throughput second by second: good responses, with errors stacked on them by outcome.
pub fn throughput(run: &Run) -> String {
    if run.seconds.len() < 2 {
        return String::new();
    }
    let columns = columns(&run.seconds);
    let present: Vec<Outcome> = Outcome::ALL
        .iter()
        .copied()
        .filter(|outcome| *outcome == Outcome::Good || run.count(*outcome) > 0)
        .collect();
    let keys: Vec<LegendKey> = present
        .iter()
        .map(|outcome| (outcome_class(*outcome), outcome.description().to_owned()))
        .collect();
    let rate = |column: &[Second], outcome: Option<Outcome>| -> f64 {
        let length: f64 = column.iter().map(|s| s.length).sum();
        let count: u64 = column
            .iter()
            .flat_map(|s| s.outcomes.iter())
            .filter(|(have, _)| outcome.is_none_or(|wanted| **have == wanted))
            .map(|(_, n)| n)
            .sum();
        count as f64 / length.max(1e-9)
    };
    let drawing = {
        // The rate of a second that was cut short is noise.
        let end = run.seconds.last().map_or(1.0, |s| s.end);
        let x = Scale::Linear { min: 0.0, max: end };
        let y = Scale::from_zero(columns.iter().map(|c| rate(c, None)));
        let mut plot = Plot::new(x, y, "Responses per second over the run");
        plot.y_axis("responses per second", number_tick);
        plot.x_axis("seconds", trim);
        for column in &columns {
            let from = column[0].end - column[0].length;
            let to = column[column.len() - 1].end;
            let mut below = 0.0;
            for outcome in &present {
                let value = rate(column, Some(*outcome));
                if value > 0.0 {
                    let title = format!(
                        "{:.0}–{:.0} s: {} {} per second",
                        from,
                        to,
                        formatting::rate(value),
                        outcome.description()
                    );
                    let class = outcome_class(*outcome);
                    plot.bar(class, (from, to), (below, below + value), &title);
                }
                below += value;
            }
        }
        plot.finish()
    };
    figure(
        "Throughput",
        "Good responses per second, with errors stacked on them in other colours; errors are not throughput.",
        &keys,
        &drawing,
    )
}

/// Plots latency second by second.
pub fn latency_over_time(run: &Run) -> String {
    let columns = columns(&run.seconds);
    let merged: Vec<(f64, Histogram)> = columns
        .iter()
        .map(|column| {
            let mut all = Histogram::new();
            for second in column.iter() {
                if let Ok(histogram) = Histogram::decode(&second.latency) {
                    all.add(&histogram);
                }
            }
            let middle = (column[0].end - column[0].length + column[column.len() - 1].end) / 2.0;
            (middle, all)
        })
        .collect();
    if merged.iter().filter(|(_, h)| !h.is_empty()).count() < 2 {
        return String::new();
    }
    let lines: [(&'static str, &str, f64); 3] = [
        ("p50", "p50", 0.5),
        ("p99", "p99", 0.99),
        ("pmax", "longest", 1.0),
    ];
    let keys: Vec<LegendKey> = lines
        .iter()
        .map(|(c, n, _)| (*c, (*n).to_owned()))
        .collect();
    let at = |h: &Histogram, q: f64| {
        if h.is_empty() {
            f64::NAN
        } else {
            h.quantile(q) as f64 / 1e6
        }
    };
    let drawing = {
        let end = run.seconds.last().map_or(1.0, |s| s.end);
        let y = Scale::log_around(merged.iter().flat_map(|(_, h)| [at(h, 0.5), at(h, 1.0)]));
        let x = Scale::Linear { min: 0.0, max: end };
        let mut plot = Plot::new(x, y, "Latency over the run");
        plot.y_axis("latency", ms_tick);
        plot.x_axis("seconds", trim);
        for (class, _, q) in lines {
            let points: Vec<_> = merged.iter().map(|(x, h)| (*x, at(h, q))).collect();
            plot.line(class, &points);
        }
        plot.finish()
    };
    figure(
        "Latency over the run",
        "Good responses, second by second. A gap is a second without a good response.",
        &keys,
        &drawing,
    )
}

/// Plots the CPU use of the load tester and, if it was observed, of the server.
pub fn processors(run: &Run) -> String {
    if run.seconds.len() < 2 {
        return String::new();
    }
    let of = |figure: fn(&Second) -> f64| -> Vec<(f64, f64)> {
        columns(&run.seconds)
            .iter()
            .map(|column| {
                let mean = column.iter().map(figure).sum::<f64>() / column.len() as f64;
                (column[column.len() - 1].end, mean)
            })
            .collect()
    };
    let server: Vec<(f64, f64)> = run
        .server
        .iter()
        .filter_map(|s| Some((s.at, s.process?.cpu)))
        .collect();
    let mut lines: Vec<(LegendKey, Vec<(f64, f64)>)> = vec![
        (("client", "load tester".into()), of(|s| s.client_cpu)),
        (
            ("wait", "load tester waiting for a core".into()),
            of(|s| s.client_wait),
        ),
    ];
    if !server.is_empty() {
        lines.push((("server", "server".into()), server));
    }
    let cores = f64::from(run.machine.cores.max(1));
    let keys: Vec<LegendKey> = lines.iter().map(|(key, _)| key.clone()).collect();
    let drawing = {
        let end = run.seconds.last().map_or(1.0, |s| s.end);
        let x = Scale::Linear { min: 0.0, max: end };
        let y = Scale::Linear {
            min: 0.0,
            max: cores,
        };
        let mut plot = Plot::new(x, y, "Processor use over the run");
        plot.y_axis("cores", trim);
        plot.x_axis("seconds", trim);
        for ((class, _), points) in &lines {
            plot.line(class, points);
        }
        plot.finish()
    };
    figure(
        "Use of the processors",
        "The unit is cores. If the load tester uses nearly one core per thread, the load tester is the bottleneck.",
        &keys,
        &drawing,
    )
}
