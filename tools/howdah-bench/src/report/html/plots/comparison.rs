//! Plots of servers measured in turns: the ratio pair by pair, and the windows in their order.

use crate::experiment::Comparison;
use crate::stats::Judgement;

use super::{arm_class, number_tick};
use crate::report::formatting;
use crate::report::html::scale::Scale;
use crate::report::html::shell::{LegendKey, figure};
use crate::report::html::svg::Plot;

/// Plots every pair's ratio, the interval and the margin, in the colour of the candidate's CSS class.
pub fn ratios(judgement: &Judgement, candidate_class: &str, base: &str, candidate: &str) -> String {
    let last = judgement.pairs.len() as f64 + 2.0;
    let Some(y) = ratio_scale(judgement) else {
        return String::new();
    };
    let x = Scale::Linear {
        min: 0.0,
        max: last,
    };
    let mut plot = Plot::new(x, y, "Ratio of each pair, and their mean with its interval");
    let band = (1.0 / (1.0 + judgement.margin), 1.0 + judgement.margin);
    let title = "the margin: differences that do not count";
    plot.bar("margin", (0.0, last), band, title);
    plot.y_axis(&format!("{candidate} to {base}"), |v| format!("{v:.2}"));
    let ticks: Vec<f64> = (1..=judgement.pairs.len())
        .step_by(judgement.pairs.len().div_ceil(10))
        .map(|i| i as f64)
        .collect();
    plot.x_ticks("pair, in the order measured", &ticks, |t| format!("{t:.0}"));
    plot.horizontal("one", 1.0);
    for (i, ratio) in judgement.pairs.iter().enumerate() {
        let (class, far) = match judgement.disturbed.contains(&i) {
            true => (format!("{candidate_class} hollow"), ", far from the others"),
            false => (candidate_class.to_owned(), ""),
        };
        let title = format!("pair {}: {ratio:.3}{far}", i + 1);
        plot.dot(&class, i as f64 + 1.0, *ratio, &title);
    }
    if let Some(interval) = judgement.interval {
        let (at, ratio, low, high) = (last - 0.9, judgement.ratio, interval.low, interval.high);
        let title = format!("mean {ratio:.3} [{low:.3}, {high:.3}]");
        let class = format!("interval {candidate_class}");
        plot.bar(&class, (at - 0.25, at + 0.25), (low, high), &title);
        let mean = [(at - 0.45, ratio), (at + 0.45, ratio)];
        plot.line(&format!("{candidate_class} thick"), &mean);
    }
    figure(
        &format!("{candidate} against {base}, pair by pair"),
        "Above 1 the candidate is better. Dots are pairs of windows measured one after the other. On the right is \
         their mean with its 95 % interval. The grey band contains differences that do not count.",
        &[],
        &plot.finish(),
    )
}

/// Returns the scale of the pairs' ratios, with the margin and the interval; `None` if no ratio is a number.
fn ratio_scale(judgement: &Judgement) -> Option<Scale> {
    let ratios = judgement.pairs.iter().copied();
    let ratios: Vec<f64> = ratios.filter(|r| r.is_finite() && *r > 0.0).collect();
    ratios.first()?;
    let margin = 1.0 + judgement.margin;
    let interval = judgement.interval.map(|i| [i.low, i.high]);
    let all = ratios.into_iter().chain([1.0 / margin, margin]);
    let (low, high) = all
        .chain(interval.into_iter().flatten())
        .fold((f64::INFINITY, 0.0f64), |(l, h), r| (l.min(r), h.max(r)));
    let room = (high - low) * 0.12;
    Some(Scale::Linear {
        min: low - room,
        max: high + room,
    })
}

/// Plots every window's good rate, in the order measured.
pub fn windows(comparison: &Comparison) -> String {
    let keys: Vec<LegendKey> = comparison
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
        let mut plot = Plot::new(x, y, "Good responses per second of every window");
        plot.y_axis("good responses per second", number_tick);
        plot.x_axis("window, in the order measured", |t| format!("{t:.0}"));
        for (i, window) in comparison.windows.iter().enumerate() {
            let (class, name) = &keys[window.arm];
            let title = format!(
                "{name}: {} per second",
                formatting::rate(window.run.good_rate())
            );
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
