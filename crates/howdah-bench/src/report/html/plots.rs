//! The plots of the report, each drawn wide and narrow, with its title, a sentence that says how to
//! read it, and a legend.

use std::fmt::Write;

use crate::experiment::{Comparison, Search, Sweep};
use crate::histogram::Histogram;
use crate::outcome::{Kind, Outcome};
use crate::run::{Run, Second};
use crate::stats::{Judgement, quantile};

use super::super::experiments::SweepFindings;
use super::super::words;
use super::svg::{Plot, Scale, Size, escape};

/// Columns of a plot over time at most: longer runs are drawn in steps of several seconds.
const COLUMNS: usize = 240;

/// A name in the legend with its colour.
pub type Key = (&'static str, String);

/// Puts a plot into the page.
fn figure(
    size: Size,
    title: &str,
    how: &str,
    keys: &[Key],
    draw: impl Fn(Size) -> String,
) -> String {
    let mut out = format!(
        "<figure{}>\n<figcaption><h3>{}</h3><p>{}</p></figcaption>\n",
        if size == Size::Full {
            " class=\"full\""
        } else {
            ""
        },
        escape(title),
        escape(how)
    );
    out.push_str(&draw(size));
    out.push_str(&draw(Size::Narrow));
    if keys.len() > 1 {
        out.push_str("<ul class=\"legend\">");
        for (class, name) in keys {
            let _ = write!(out, "<li><i class=\"{class}\"></i>{}</li>", escape(name));
        }
        out.push_str("</ul>\n");
    }
    out.push_str("</figure>\n");
    out
}

/// The colour class of an arm: the base, the candidates in turn, the control.
pub fn arm_class(index: usize, control: bool) -> &'static str {
    const CLASSES: [&str; 5] = ["a0", "a1", "a2", "a3", "a4"];
    if control {
        "control"
    } else {
        CLASSES[index % CLASSES.len()]
    }
}

/// The colour class of an outcome.
pub fn outcome_class(outcome: Outcome) -> &'static str {
    match (outcome, outcome.kind()) {
        (Outcome::Good, _) => "good",
        (Outcome::Status5xx, _) => "e5xx",
        (Outcome::Status4xx, _) => "e4xx",
        (Outcome::WrongBody, _) => "ebody",
        (_, Kind::Answer) => "eanswer",
        (Outcome::Timeout, _) => "etimeout",
        (_, Kind::Connect) => "econnect",
        (_, _) => "etransport",
    }
}

fn ms_tick(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        v if v < 1.0 => format!("{} µs", trim(v * 1e3)),
        v if v < 1000.0 => format!("{} ms", trim(v)),
        v => format!("{} s", trim(v / 1e3)),
    }
}

fn number_tick(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{} M", trim(value / 1e6)),
        v if v >= 1e4 => format!("{} k", trim(value / 1e3)),
        _ => trim(value),
    }
}

fn trim(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Latency by percentile: one curve for each histogram.
pub fn percentiles(curves: &[(Key, Histogram)]) -> String {
    let curves: Vec<&(Key, Histogram)> = curves.iter().filter(|(_, h)| !h.is_empty()).collect();
    if curves.is_empty() {
        return String::new();
    }
    let keys: Vec<Key> = curves.iter().map(|(key, _)| key.clone()).collect();
    let most = curves.iter().map(|(_, h)| h.len()).max().unwrap_or(1) as f64;
    let nines = most.log10().ceil().clamp(2.0, 6.0);
    let draw = |size| {
        let x = Scale::Linear {
            min: 0.0,
            max: nines,
        };
        let values = curves
            .iter()
            .flat_map(|(_, h)| [h.quantile(0.01) as f64 / 1e6, h.max() as f64 / 1e6]);
        let mut plot = Plot::new(
            size,
            x,
            Scale::log_around(values),
            "Latency by percentile; the same figures are in the report's text",
        );
        plot.y_axis("latency", ms_tick);
        let mut ticks = vec![2f64.log10()];
        ticks.extend((1..=nines as u32).map(f64::from));
        plot.x_ticks("answers served within", &ticks, |t| {
            // 1 − 10^−t, with as many nines as there are.
            let share = 100.0 - 100.0 / 10f64.powf(t);
            let decimals = (t - 2.0).max(0.0).round() as usize;
            format!("{share:.decimals$} %")
        });
        for ((class, name), histogram) in &curves {
            let n = histogram.len() as f64;
            // Beyond the last ten answers it is a tale of single ones: dotted.
            let sure = (n / quantile::BEYOND).log10().max(0.0);
            let end = n.log10();
            let at = |t: f64| {
                let q = 1.0 - 10f64.powf(-t);
                (t, histogram.quantile(q) as f64 / 1e6)
            };
            let steps = |from: f64, to: f64| -> Vec<(f64, f64)> {
                let count = ((to - from) / 0.04).ceil().max(1.0) as usize;
                (0..=count)
                    .map(|i| at(from + (to - from) * i as f64 / count as f64))
                    .collect()
            };
            plot.line(class, &steps(0.0, sure.min(end)));
            if end > sure {
                plot.line(&format!("{class} dotted"), &steps(sure, end));
            }
            let max = histogram.max() as f64;
            let title = format!("{name}: longest {} ms", words::ms(max));
            plot.dot(class, end.min(nines), max / 1e6, &title);
            if curves.len() == 1 {
                let text = format!("max {} ms", words::ms(max));
                plot.note("", end.min(nines), max / 1e6, &text);
            }
        }
        plot.finish()
    };
    figure(
        Size::Half,
        "Latency by percentile",
        "Of how many good answers it is true that they took no longer. Each step to the right is ten times rarer; \
         dotted where fewer than ten answers lie beyond, so that another run would draw it elsewhere.",
        &keys,
        draw,
    )
}

/// Seconds put together so that there are no more than [`COLUMNS`]. A last second that was cut very
/// short is left out: its rates are noise.
fn columns(seconds: &[Second]) -> Vec<&[Second]> {
    let seconds = match seconds {
        [whole @ .., last] if last.length < 0.2 && !whole.is_empty() => whole,
        all => all,
    };
    let step = seconds.len().div_ceil(COLUMNS).max(1);
    seconds.chunks(step).collect()
}

/// Throughput second by second: good answers, and on top of them what was not good, by what it was.
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
    let keys: Vec<Key> = present
        .iter()
        .map(|outcome| (outcome_class(*outcome), outcome.words().to_owned()))
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
    let draw = |size| {
        // A cut last second has a rate as noisy as it is short.
        let end = run.seconds.last().map_or(1.0, |s| s.end);
        let x = Scale::Linear { min: 0.0, max: end };
        let y = Scale::from_zero(columns.iter().map(|c| rate(c, None)));
        let mut plot = Plot::new(size, x, y, "Answers per second over the run");
        plot.y_axis("answers per second", number_tick);
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
                        words::rate(value),
                        outcome.words()
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
        Size::Half,
        "Throughput",
        "Good answers per second; errors stand on top, in their own colours, and are no throughput.",
        &keys,
        draw,
    )
}

/// Latency second by second.
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
    let keys: Vec<Key> = lines
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
    let draw = |size| {
        let end = run.seconds.last().map_or(1.0, |s| s.end);
        let y = Scale::log_around(merged.iter().flat_map(|(_, h)| [at(h, 0.5), at(h, 1.0)]));
        let x = Scale::Linear { min: 0.0, max: end };
        let mut plot = Plot::new(size, x, y, "Latency over the run");
        plot.y_axis("latency", ms_tick);
        plot.x_axis("seconds", trim);
        for (class, _, q) in lines {
            let points: Vec<_> = merged.iter().map(|(x, h)| (*x, at(h, q))).collect();
            plot.line(class, &points);
        }
        plot.finish()
    };
    figure(
        Size::Half,
        "Latency over the run",
        "Of good answers, second by second. A gap is a second without any.",
        &keys,
        draw,
    )
}

/// What the load tester and, if watched, the server used.
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
    let mut lines: Vec<(Key, Vec<(f64, f64)>)> = vec![
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
    let keys: Vec<Key> = lines.iter().map(|(key, _)| key.clone()).collect();
    let draw = |size| {
        let end = run.seconds.last().map_or(1.0, |s| s.end);
        let x = Scale::Linear { min: 0.0, max: end };
        let y = Scale::Linear {
            min: 0.0,
            max: cores,
        };
        let mut plot = Plot::new(size, x, y, "Processor use over the run");
        plot.y_axis("cores", trim);
        plot.x_axis("seconds", trim);
        for ((class, _), points) in &lines {
            plot.line(class, points);
        }
        plot.finish()
    };
    figure(
        Size::Half,
        "Who used the processors",
        "In cores. A load tester near one core per thread measures itself.",
        &keys,
        draw,
    )
}

/// Every pair's ratio, the interval and the margin; `arm` is the candidate's colour class.
pub fn ratios(judgement: &Judgement, arm: &str, base: &str, candidate: &str) -> String {
    let finite: Vec<f64> = judgement
        .pairs
        .iter()
        .copied()
        .filter(|r| r.is_finite() && *r > 0.0)
        .collect();
    if finite.is_empty() {
        return String::new();
    }
    let interval = judgement.interval;
    let draw = |size| {
        let bounds = interval.map_or((1.0, 1.0), |i| (i.low, i.high));
        let (low, high) = finite
            .iter()
            .copied()
            .chain([
                1.0 / (1.0 + judgement.margin),
                1.0 + judgement.margin,
                bounds.0,
                bounds.1,
            ])
            .fold((f64::INFINITY, 0.0f64), |(l, h), r| (l.min(r), h.max(r)));
        let room = (high - low) * 0.12;
        let x = Scale::Linear {
            min: 0.0,
            max: judgement.pairs.len() as f64 + 2.0,
        };
        let y = Scale::Linear {
            min: low - room,
            max: high + room,
        };
        let mut plot = Plot::new(
            size,
            x,
            y,
            "Ratio of every pair, with the interval of their mean",
        );
        let last = judgement.pairs.len() as f64 + 2.0;
        let band = (1.0 / (1.0 + judgement.margin), 1.0 + judgement.margin);
        plot.bar(
            "margin",
            (0.0, last),
            band,
            "the margin: differences that do not count",
        );
        plot.y_axis(&format!("{candidate} to {base}"), |v| format!("{v:.2}"));
        let ticks: Vec<f64> = (1..=judgement.pairs.len())
            .step_by(
                judgement
                    .pairs
                    .len()
                    .div_ceil(if size == Size::Narrow { 8 } else { 20 }),
            )
            .map(|i| i as f64)
            .collect();
        plot.x_ticks("pair, in the order measured", &ticks, |t| format!("{t:.0}"));
        plot.level("one", 1.0);
        for (i, ratio) in judgement.pairs.iter().enumerate() {
            let disturbed = judgement.disturbed.contains(&i);
            let class = if disturbed {
                format!("{arm} hollow")
            } else {
                arm.to_owned()
            };
            let title = format!(
                "pair {}: {ratio:.3}{}",
                i + 1,
                if disturbed {
                    ", far from the others"
                } else {
                    ""
                }
            );
            plot.dot(&class, i as f64 + 1.0, *ratio, &title);
        }
        if let Some(interval) = interval {
            let at = last - 0.9;
            let title = format!(
                "mean {:.3} [{:.3}, {:.3}]",
                judgement.ratio, interval.low, interval.high
            );
            plot.bar(
                &format!("interval {arm}"),
                (at - 0.25, at + 0.25),
                (interval.low, interval.high),
                &title,
            );
            plot.line(
                &format!("{arm} thick"),
                &[(at - 0.45, judgement.ratio), (at + 0.45, judgement.ratio)],
            );
        }
        plot.finish()
    };
    figure(
        Size::Full,
        &format!("{candidate} against {base}, pair by pair"),
        "Above 1 the candidate is better. Dots: pairs of windows measured one after the other. On the right their mean \
         and its 95 % interval. Grey band: differences that do not count.",
        &[],
        draw,
    )
}

/// Every window's good rate, in the order measured.
pub fn windows(comparison: &Comparison) -> String {
    let keys: Vec<Key> = comparison
        .arms
        .iter()
        .enumerate()
        .map(|(i, arm)| (arm_class(i, arm.control), arm.name.clone()))
        .collect();
    let draw = |size| {
        let y = Scale::from_zero(comparison.windows.iter().map(|w| w.run.good_rate()));
        let x = Scale::Linear {
            min: 0.0,
            max: comparison.windows.len() as f64 + 1.0,
        };
        let mut plot = Plot::new(size, x, y, "Good answers per second of every window");
        plot.y_axis("good answers per second", number_tick);
        plot.x_axis("window, in the order measured", |t| format!("{t:.0}"));
        for (i, window) in comparison.windows.iter().enumerate() {
            let (class, name) = &keys[window.arm];
            let title = format!("{name}: {} per second", words::rate(window.run.good_rate()));
            plot.dot(class, i as f64 + 1.0, window.run.good_rate(), &title);
        }
        plot.finish()
    };
    figure(
        Size::Half,
        "Every window",
        "A drift or a disturbance of the machine hits all servers alike, because they take turns.",
        &keys,
        draw,
    )
}

/// Throughput over concurrency, errors on top, with the law where there is one.
pub fn sweep(sweep: &Sweep, findings: &SweepFindings) -> String {
    let mut points: Vec<_> = sweep.points.iter().collect();
    points.sort_by_key(|p| p.concurrency);
    let present: Vec<Outcome> = Outcome::ALL
        .iter()
        .copied()
        .filter(|o| *o == Outcome::Good || points.iter().any(|p| p.run.count(*o) > 0))
        .collect();
    let mut keys: Vec<Key> = present
        .iter()
        .map(|o| (outcome_class(*o), o.words().to_owned()))
        .collect();
    if findings.law.is_ok() {
        keys.push(("law", "scalability law".into()));
    }
    let mut levels: Vec<f64> = points.iter().map(|p| f64::from(p.concurrency)).collect();
    levels.dedup();
    let draw = |size| {
        let y = Scale::from_zero(points.iter().map(|p| p.run.achieved_rate()));
        let x = level_scale(&levels);
        let mut plot = Plot::new(size, x, y, "Answers per second by number of clients");
        plot.y_axis("answers per second", number_tick);
        level_axis(&mut plot, &levels, size);
        // Stacks of each level's mean over its repetitions.
        let mut below = vec![0.0; levels.len()];
        for outcome in &present {
            let high: Vec<f64> = levels
                .iter()
                .zip(&below)
                .map(|(level, below)| {
                    let of: Vec<f64> = points
                        .iter()
                        .filter(|p| f64::from(p.concurrency) == *level)
                        .map(|p| p.run.count(*outcome) as f64 / p.run.elapsed.max(1e-9))
                        .collect();
                    below + crate::stats::mean(&of)
                })
                .collect();
            plot.area(outcome_class(*outcome), &levels, &below, &high);
            below = high;
        }
        if let Ok(fit) = &findings.law {
            // Only where it was fitted: levels with errors are another system.
            let steps = 80;
            let line: Vec<(f64, f64)> = (0..=steps)
                .map(|i| levels[0] * (fit.up_to / levels[0]).powf(f64::from(i) / f64::from(steps)))
                .map(|n| (n, fit.rate(n)))
                .collect();
            plot.line("law", &line);
        }
        for point in &points {
            let rate = point.run.good_rate();
            let title = format!(
                "{} clients: {} good per second",
                point.concurrency,
                words::rate(rate)
            );
            plot.dot("good", f64::from(point.concurrency), rate, &title);
        }
        plot.finish()
    };
    figure(
        Size::Full,
        "Throughput by number of clients",
        "Dots: measured. Errors stand on top of the good answers and are no throughput.",
        &keys,
        draw,
    )
}

/// Latency over concurrency.
pub fn sweep_latency(sweep: &Sweep) -> String {
    let mut points: Vec<_> = sweep.points.iter().collect();
    points.sort_by_key(|p| (p.concurrency, p.repetition));
    points.retain(|p| p.run.good() > 0);
    if points.is_empty() {
        return String::new();
    }
    let lines: [(&'static str, &str, f64); 3] = [
        ("p50", "p50", 0.5),
        ("p99", "p99", 0.99),
        ("pmax", "longest", 1.0),
    ];
    let keys: Vec<Key> = lines
        .iter()
        .map(|(c, n, _)| (*c, (*n).to_owned()))
        .collect();
    let mut levels: Vec<f64> = points.iter().map(|p| f64::from(p.concurrency)).collect();
    levels.dedup();
    let draw = |size| {
        let at = |run: &Run, q: f64| run.latency().quantile(q) as f64 / 1e6;
        let y = Scale::log_around(
            points
                .iter()
                .flat_map(|p| [at(&p.run, 0.5), at(&p.run, 1.0)]),
        );
        let mut plot = Plot::new(
            size,
            level_scale(&levels),
            y,
            "Latency by number of clients",
        );
        plot.y_axis("latency", ms_tick);
        level_axis(&mut plot, &levels, size);
        for (class, _, q) in lines {
            let line: Vec<_> = points
                .iter()
                .map(|p| (f64::from(p.concurrency), at(&p.run, q)))
                .collect();
            plot.line(class, &line);
        }
        plot.finish()
    };
    figure(
        Size::Full,
        "Latency by number of clients",
        "Beyond saturation each further client only adds waiting: a straight rise is the queue.",
        &keys,
        draw,
    )
}

fn level_scale(levels: &[f64]) -> Scale {
    let (low, high) = (levels[0], levels[levels.len() - 1]);
    Scale::Log {
        min: low * 0.95,
        max: (high * 1.05).max(low * 1.5),
    }
}

fn level_axis(plot: &mut Plot, levels: &[f64], size: Size) {
    let least = if size == Size::Narrow { 30.0 } else { 26.0 };
    let mut shown: Vec<f64> = Vec::new();
    for level in levels.iter().rev() {
        if shown
            .last()
            .is_none_or(|last| plot.at_x(*last) - plot.at_x(*level) >= least)
        {
            shown.push(*level);
        }
    }
    shown.reverse();
    plot.x_ticks("clients", &shown, |t| format!("{t:.0}"));
}

/// Offered and good rate of every trial of a search.
pub fn trials(search: &Search) -> String {
    if search.trials.is_empty() {
        return String::new();
    }
    let keys: Vec<Key> = vec![
        ("good", "held".into()),
        ("e5xx", "broke".into()),
        ("one", "all answered well".into()),
    ];
    let draw = |size| {
        let rates = || search.trials.iter().map(|t| t.rate);
        let x = Scale::from_zero(rates());
        let mut plot = Plot::new(size, x, x, "Good answers per second by offered rate");
        plot.y_axis("good per second", number_tick);
        plot.x_axis("offered per second", number_tick);
        let top = rates().fold(0.0, f64::max);
        plot.line("one", &[(0.0, 0.0), (top, top)]);
        if let Some(found) = search.found {
            plot.upright("law", found);
            plot.note(
                "",
                found,
                0.0,
                &format!("{} per second", words::rate(found)),
            );
        }
        for trial in &search.trials {
            let class = if trial.broken.is_empty() {
                "good"
            } else {
                "e5xx"
            };
            let title = format!(
                "{} offered, {} good: {}",
                words::rate(trial.rate),
                words::rate(trial.run.good_rate()),
                if trial.broken.is_empty() {
                    "held".to_owned()
                } else {
                    trial.broken.join("; ")
                }
            );
            plot.dot(class, trial.rate, trial.run.good_rate(), &title);
        }
        plot.finish()
    };
    figure(
        Size::Half,
        "Offered and good rate",
        "On the line every request was answered well; below it the server could not keep up.",
        &keys,
        draw,
    )
}
