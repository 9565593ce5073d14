//! The plot of latency by percentile, the same on every page.

use super::ms_tick;
use crate::histogram::Histogram;
use crate::report::formatting;
use crate::report::html::scale::Scale;
use crate::report::html::shell::{LegendKey, figure};
use crate::report::html::svg::Plot;
use crate::stats::quantile;

/// A curve of latency by percentile.
pub struct Curve {
    /// The curve's colour class and name.
    pub key: LegendKey,
    /// Points in order: the percentile's number of nines (1 for 90 %, 2 for 99 %), and milliseconds.
    pub points: Vec<(f64, f64)>,
    /// The number of nines beyond which the value depends on single responses. The curve is dotted there.
    pub sure: f64,
    /// The latency of the slowest response in milliseconds, if the curve ends there.
    pub longest: Option<f64>,
}

impl Curve {
    /// Returns the curve of a histogram, up to its slowest response.
    pub fn of(key: LegendKey, histogram: &Histogram) -> Curve {
        let count = histogram.len().max(1) as f64;
        let end = count.log10();
        let at = |nines: f64| {
            let quantile = 1.0 - 10f64.powf(-nines);
            (nines, histogram.quantile(quantile) as f64 / 1e6)
        };
        let steps = (end / 0.04).ceil().max(1.0) as usize;
        let longest = histogram.max() as f64 / 1e6;
        let mut points: Vec<_> = (0..steps)
            .map(|step| at(end * step as f64 / steps as f64))
            .collect();
        points.push((end, longest));
        Curve {
            key,
            points,
            sure: (count / quantile::MIN_SAMPLES_BEYOND).log10(),
            longest: Some(longest),
        }
    }
}

/// Returns the number of nines of a percentile, which is given in per cent.
pub fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).log10()
}

/// Draws the curves. Curves without points are skipped, and nothing is drawn if no curve is left.
pub fn percentiles(mut curves: Vec<Curve>) -> String {
    curves.retain(|curve| curve.points.len() > 1);
    let points = || curves.iter().flat_map(|curve| &curve.points);
    if curves.is_empty() {
        return String::new();
    }
    let most = points().map(|(nines, _)| *nines).fold(0.0, f64::max);
    let most = most.ceil().clamp(2.0, 6.0);
    let x = Scale::Linear {
        min: 0.0,
        max: most,
    };
    let y = Scale::log_around(points().map(|(_, latency)| *latency));
    let alt = "Latency by percentile; the same figures are in the report's text";
    let mut plot = Plot::new(x, y, alt);
    plot.y_axis("latency", ms_tick);
    let mut ticks = vec![nines(50.0)];
    ticks.extend((1..=most as u32).map(f64::from));
    plot.x_ticks("good responses within that latency", &ticks, |nines| {
        let share = 100.0 - 100.0 / 10f64.powf(nines);
        let decimals = (nines - 2.0).max(0.0).round() as usize;
        format!("{share:.decimals$} %")
    });
    for curve in &curves {
        let (class, name) = &curve.key;
        let sure = curve
            .points
            .partition_point(|(nines, _)| *nines <= curve.sure);
        plot.line(class, &curve.points[..sure]);
        let beyond = &curve.points[sure.saturating_sub(1)..];
        if sure < curve.points.len() {
            plot.line(&format!("{class} dotted"), beyond);
        }
        let Some((end, latency)) = curve.points.last() else {
            continue;
        };
        let title = match curve.longest {
            Some(_) => format!("{name}: longest {} ms", formatting::digits(*latency)),
            None => name.clone(),
        };
        plot.dot(class, end.min(most), *latency, &title);
        if let (1, Some(longest)) = (curves.len(), curve.longest) {
            let text = format!("max {} ms", formatting::digits(longest));
            plot.note("", end.min(most), longest, &text);
        }
    }
    let keys: Vec<LegendKey> = curves.iter().map(|curve| curve.key.clone()).collect();
    figure(
        "Latency by percentile",
        "The share of the good responses that took no longer than each latency. At each step to the right, a tenth \
         as many responses are slower; where the curve is dotted, fewer than ten are slower, and another run would \
         differ.",
        &keys,
        &plot.finish(),
    )
}
