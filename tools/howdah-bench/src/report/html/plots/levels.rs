//! Plots over a level: the number of clients of a sweep, the rate of a search.

use crate::experiment::{Search, Sweep};
use crate::outcome::Outcome;
use crate::run::Run;

use super::{ms_tick, number_tick, outcome_class};
use crate::report::formatting;
use crate::report::html::scale::Scale;
use crate::report::html::shell::{LegendKey, figure};
use crate::report::html::svg::Plot;

/// Plots throughput over concurrency, with errors on top.
pub fn sweep(sweep: &Sweep) -> String {
    let mut points: Vec<_> = sweep.points.iter().collect();
    points.sort_by_key(|p| p.concurrency);
    let present: Vec<Outcome> = Outcome::ALL
        .iter()
        .copied()
        .filter(|o| *o == Outcome::Good || points.iter().any(|p| p.run.count(*o) > 0))
        .collect();
    let keys: Vec<LegendKey> = present
        .iter()
        .map(|o| (outcome_class(*o), o.description().to_owned()))
        .collect();
    let mut levels: Vec<f64> = points.iter().map(|p| f64::from(p.concurrency)).collect();
    levels.dedup();
    let drawing = {
        let y = Scale::from_zero(points.iter().map(|p| p.run.achieved_rate()));
        let x = level_scale(&levels);
        let mut plot = Plot::new(x, y, "Responses per second by number of clients");
        plot.y_axis("responses per second", number_tick);
        level_axis(&mut plot, &levels);
        // The stacked means of each level over its repetitions.
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
        for point in &points {
            let rate = point.run.good_rate();
            let title = format!(
                "{} clients: {} good responses per second",
                point.concurrency,
                formatting::rate(rate)
            );
            plot.dot("good", f64::from(point.concurrency), rate, &title);
        }
        plot.finish()
    };
    figure(
        "Throughput by number of clients",
        "Dots are measurements. Errors are stacked on the good responses; they are not throughput.",
        &keys,
        &drawing,
    )
}

/// Plots latency over concurrency.
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
    let keys: Vec<LegendKey> = lines
        .iter()
        .map(|(c, n, _)| (*c, (*n).to_owned()))
        .collect();
    let mut levels: Vec<f64> = points.iter().map(|p| f64::from(p.concurrency)).collect();
    levels.dedup();
    let drawing = {
        let at = |run: &Run, q: f64| run.latency().quantile(q) as f64 / 1e6;
        let y = Scale::log_around(
            points
                .iter()
                .flat_map(|p| [at(&p.run, 0.5), at(&p.run, 1.0)]),
        );
        let mut plot = Plot::new(level_scale(&levels), y, "Latency by number of clients");
        plot.y_axis("latency", ms_tick);
        level_axis(&mut plot, &levels);
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
        "Latency by number of clients",
        "Beyond saturation, each further client only adds waiting time, so the latency rises in a straight line.",
        &keys,
        &drawing,
    )
}

fn level_scale(levels: &[f64]) -> Scale {
    let (low, high) = (levels[0], levels[levels.len() - 1]);
    Scale::Log {
        min: low * 0.95,
        max: (high * 1.05).max(low * 1.5),
    }
}

fn level_axis(plot: &mut Plot, levels: &[f64]) {
    // The space needed for a number of three digits.
    let least = 30.0;
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

/// Plots the offered and good rate of every trial of a search.
pub fn trials(search: &Search) -> String {
    if search.trials.is_empty() {
        return String::new();
    }
    let keys: Vec<LegendKey> = vec![
        ("good", "held".into()),
        ("e5xx", "broke".into()),
        ("one", "all good".into()),
    ];
    let drawing = {
        let rates = || search.trials.iter().map(|t| t.rate);
        let x = Scale::from_zero(rates());
        let mut plot = Plot::new(x, x, "Good responses per second by offered rate");
        plot.y_axis("good responses per second", number_tick);
        plot.x_axis("offered per second", number_tick);
        let top = rates().fold(0.0, f64::max);
        plot.line("one", &[(0.0, 0.0), (top, top)]);
        if let Some(found) = search.found {
            plot.vertical("found", found);
            plot.note(
                "",
                found,
                0.0,
                &format!("{} per second", formatting::rate(found)),
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
                formatting::rate(trial.rate),
                formatting::rate(trial.run.good_rate()),
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
        "Offered rate and rate of good responses",
        "On the line, every request got a good response; below the line, the server could not keep up.",
        &keys,
        &drawing,
    )
}
