//! Plots of servers measured in turns: the ratio pair by pair, and the windows in their order.

use crate::experiment::Comparison;
use crate::stats::Judgement;

use super::{arm_class, number_tick};
use crate::report::html::scale::Scale;
use crate::report::html::shell::{Key, figure};
use crate::report::html::svg::Plot;
use crate::report::words;

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
    let drawing = {
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
        let mut plot = Plot::new(x, y, "Ratio of every pair, with the interval of their mean");
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
            .step_by(judgement.pairs.len().div_ceil(10))
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
        &format!("{candidate} against {base}, pair by pair"),
        "Above 1 the candidate is better. Dots: pairs of windows measured one after the other. On the right their mean \
         and its 95 % interval. Grey band: differences that do not count.",
        &[],
        &drawing,
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
    let drawing = {
        let y = Scale::from_zero(comparison.windows.iter().map(|w| w.run.good_rate()));
        let x = Scale::Linear {
            min: 0.0,
            max: comparison.windows.len() as f64 + 1.0,
        };
        let mut plot = Plot::new(x, y, "Good answers per second of every window");
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
        "Every window",
        "A drift or a disturbance of the machine hits all servers alike, because they take turns.",
        &keys,
        &drawing,
    )
}
