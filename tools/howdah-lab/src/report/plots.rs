//! The page's plots: good responses over clients, errors stacked on them, ratios with their intervals, latency by
//! percentile.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use howdah_bench::outcome::{Outcome, OutcomeStage};
use howdah_bench::report::figures::Figures;
use howdah_bench::report::formatting;
use howdah_bench::report::html::plots::{self, Curve, nines};
use howdah_bench::report::html::scale::Scale;
use howdah_bench::report::html::shell::{LegendKey, escape, figure};
use howdah_bench::report::html::svg::Plot;
use howdah_bench::stats::ComparisonVerdict;

use crate::answer::sentence;
use crate::table::{StackRow, TableCell};

/// The colours of a page's stacks: a stack has one colour in every plot, bar and table.
pub struct StackColours(Vec<String>);

impl StackColours {
    /// Assigns a colour to each name, in the order of their first appearance.
    pub fn of<'a>(names: impl Iterator<Item = &'a str>) -> StackColours {
        let mut known: Vec<String> = Vec::new();
        for name in names {
            if !known.iter().any(|other| other == name) {
                known.push(name.to_owned());
            }
        }
        StackColours(known)
    }

    /// Returns the colour class of a stack.
    pub fn class(&self, name: &str) -> &'static str {
        let place = self.0.iter().position(|known| known == name);
        // A name that was not assigned a colour follows the others.
        colour_class(place.unwrap_or(self.0.len()))
    }
}

/// Returns the colour class at this position.
fn colour_class(at: usize) -> &'static str {
    const COLOURS: [&str; 10] = ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"];
    COLOURS[at % COLOURS.len()]
}

/// How many times a ratio its interval may be before the plot of ratios cuts it off.
const MAX_INTERVAL_SHOWN: f64 = 4.0;

/// Returns the stacks of several cells, by name and title, in the order of the rows.
fn stacks_of<'a>(cells: &[&'a TableCell]) -> Vec<(&'a str, &'a str)> {
    let mut stacks: Vec<(&str, &str)> = Vec::new();
    for line in cells.iter().flat_map(|cell| &cell.rows) {
        if !stacks.iter().any(|(name, _)| *name == line.stack) {
            stacks.push((&line.stack, &line.title));
        }
    }
    stacks
}

/// Returns a stack's row at each level.
fn levels_of<'a>(cells: &[&'a TableCell], stack: &str) -> Vec<(f64, &'a StackRow)> {
    let line = |cell: &&'a TableCell| {
        let line = cell.rows.iter().find(|line| line.stack == stack)?;
        Some((f64::from(cell.concurrency), line))
    };
    cells.iter().filter_map(line).collect()
}

/// A point of a curve of good responses per second.
pub struct Point<'a> {
    /// The number of clients, or of children.
    pub x: f64,
    /// The figures measured there.
    pub figures: &'a Figures,
    /// The name of the point, for readers.
    pub what: String,
}

/// A curve of a plot, with its entry in the legend.
pub struct Series<'a> {
    /// The colour class.
    pub class: &'static str,
    /// The name in the legend.
    pub name: String,
    /// The points, from left to right.
    pub points: Vec<Point<'a>>,
}

/// Draws good responses per second over the number of `axis`, as a curve with its intervals for each series that has at
/// least two points. Returns an empty string if there is no such series.
pub fn curves(title: &str, how: &str, axis: &str, series: &[Series<'_>]) -> String {
    let series = series.iter().filter(|series| series.points.len() > 1);
    let series: Vec<&Series<'_>> = series.collect();
    if series.is_empty() {
        return String::new();
    }
    let points = || series.iter().flat_map(|series| &series.points);
    let highest = |f: &Figures| f.interval.as_ref().map_or(f.good, |i| i.high);
    let mut plot = Plot::new(
        Scale::from_zero(points().map(|point| point.x)),
        Scale::from_zero(points().map(|point| highest(point.figures))),
        &format!("Good responses per second by number of {axis}"),
    );
    plot.y_axis("good responses per second", formatting::grouped_rate);
    plot.x_axis(axis, |n| format!("{n:.0}"));
    let mut keys: Vec<LegendKey> = Vec::new();
    for Series {
        class,
        name,
        points,
    } in series
    {
        keys.push((class, name.clone()));
        for Point { x, figures, .. } in points {
            if let Some(interval) = &figures.interval {
                let whisker = [(*x, interval.low), (*x, interval.high)];
                plot.line(&format!("{class} whisker"), &whisker);
            }
        }
        let line: Vec<(f64, f64)> = points.iter().map(|p| (p.x, p.figures.good)).collect();
        plot.line(class, &line);
        for Point { x, figures, what } in points {
            let label = format!(
                "{what}: {} good responses per second, {} errors",
                formatting::grouped_rate(figures.good),
                formatting::percent(figures.error_share())
            );
            plot.dot(class, *x, figures.good, &label);
        }
    }
    figure(title, how, &keys, &plot.finish())
}

/// Draws the stacks of several cells over the number of clients.
pub fn over_clients(cells: &[&TableCell], colours: &StackColours) -> String {
    let series = stacks_of(cells).into_iter().map(|(stack, title)| {
        let levels = levels_of(cells, stack).into_iter();
        let points = levels.map(|(clients, line)| Point {
            x: clients,
            figures: &line.figures,
            what: format!("{title}, {clients:.0} clients"),
        });
        Series {
            class: colours.class(stack),
            name: title.to_owned(),
            points: points.collect(),
        }
    });
    let how = "Only good responses, with their 95 % intervals.";
    curves(
        "Rate by number of clients",
        how,
        "clients",
        &series.collect::<Vec<_>>(),
    )
}

/// Returns the class of an error in the style sheet, and its name.
fn error_class(outcome: Outcome) -> (&'static str, &'static str) {
    match (outcome, outcome.kind()) {
        (Outcome::Status5xx, _) => ("e5xx", "5xx"),
        (Outcome::Timeout, _) => ("etimeout", "timeouts"),
        (_, OutcomeStage::Connect) => ("econnect", "refused"),
        (_, OutcomeStage::Answer) => ("ebody", "wrong responses"),
        (_, _) => ("etransport", "connection errors"),
    }
}

/// Returns errors per second by class.
fn errors_of(line: &StackRow) -> BTreeMap<(&'static str, &'static str), f64> {
    let mut rates = BTreeMap::new();
    for (outcome, count) in &line.figures.errors {
        *rates.entry(error_class(*outcome)).or_default() += *count as f64 * line.per_request();
    }
    rates
}

/// Draws, for each stack that had errors, good responses with the errors stacked on them. A single curve called
/// "requests per second" would hide the difference.
pub fn error_stacks(cells: &[&TableCell], colours: &StackColours) -> Vec<String> {
    let stacks = stacks_of(cells).into_iter();
    let failing = stacks.filter(|(stack, _)| {
        let levels = levels_of(cells, stack);
        levels.len() > 1
            && levels
                .iter()
                .any(|(_, line)| line.figures.error_share() > 0.0)
    });
    let mut out = Vec::new();
    for (stack, title) in failing {
        let levels = levels_of(cells, stack);
        let xs: Vec<f64> = levels.iter().map(|(clients, _)| *clients).collect();
        let mut layers: Vec<(&'static str, &str, Vec<f64>)> = vec![(
            colours.class(stack),
            "good",
            levels.iter().map(|(_, line)| line.figures.good).collect(),
        )];
        let mut classes: Vec<(&'static str, &str)> = levels
            .iter()
            .flat_map(|(_, line)| errors_of(line).into_keys())
            .collect();
        classes.sort_unstable();
        classes.dedup();
        for (class, name) in classes {
            let rate =
                |line: &StackRow| errors_of(line).get(&(class, name)).copied().unwrap_or(0.0);
            let rates = levels.iter().map(|(_, line)| rate(line)).collect();
            layers.push((class, name, rates));
        }
        let top = |at: usize| layers.iter().map(|(_, _, rates)| rates[at]).sum::<f64>();
        let drawing = {
            let y = Scale::from_zero((0..xs.len()).map(top));
            let x = Scale::from_zero(xs.iter().copied());
            let alt = format!("{title}: good responses and errors by number of clients");
            let mut plot = Plot::new(x, y, &alt);
            plot.y_axis("per second", formatting::rate);
            plot.x_axis("clients", |clients| format!("{clients:.0}"));
            let mut floor = vec![0.0; xs.len()];
            for (class, _, rates) in &layers {
                let ceiling: Vec<f64> = floor.iter().zip(rates).map(|(a, b)| a + b).collect();
                plot.area(class, &xs, &floor, &ceiling);
                floor = ceiling;
            }
            plot.finish()
        };
        let keys: Vec<LegendKey> = layers
            .iter()
            .map(|(class, name, _)| (*class, (*name).to_owned()))
            .collect();
        out.push(figure(
            title,
            "Errors are stacked on the good responses.",
            &keys,
            &drawing,
        ));
    }
    out
}

/// Draws each row compared with the first one: a dot and its interval on a logarithmic scale, and the statement that is
/// certain.
pub fn ratios(cell: &TableCell, colours: &StackColours) -> String {
    let judged: Vec<(&StackRow, f64, f64, f64)> = cell
        .rows
        .iter()
        .filter_map(|line| {
            let judgement = line.against.as_ref()?;
            let interval = judgement.interval?;
            let sound = [judgement.ratio, interval.low, interval.high];
            sound
                .iter()
                .all(|ratio| ratio.is_finite() && *ratio > 0.0)
                .then_some((line, judgement.ratio, interval.low, interval.high))
        })
        .collect();
    if judged.is_empty() {
        return String::new();
    }
    // One interval that is nearly endless must not flatten all others: the scale follows the ratios, and an interval is
    // cut off where it leaves the scale. Its numbers are in the text.
    let lowest = judged.iter().map(|j| j.1).fold(1.0, f64::min) / MAX_INTERVAL_SHOWN;
    let highest = judged.iter().map(|j| j.1).fold(1.0, f64::max) * MAX_INTERVAL_SHOWN;
    let low = judged.iter().map(|j| j.2).fold(1.0, f64::min).max(lowest) / 1.1;
    let high = judged.iter().map(|j| j.3).fold(1.0, f64::max).min(highest) * 1.1;
    let place = |ratio: f64| ((ratio / low).ln() / (high / low).ln() * 100.0).clamp(0.0, 100.0);
    let base = cell.rows.iter().find(|line| line.stack == cell.base);
    let base = base.map_or(cell.base.as_str(), |line| line.title.as_str());
    let mut rows = String::from("<table class=\"ratios\">");
    for (line, ratio, from, to) in judged {
        let Some(judgement) = &line.against else {
            continue;
        };
        let bound = sentence::certain_bound_of_row(cell, line);
        let sure = bound.is_some()
            || matches!(
                judgement.verdict,
                ComparisonVerdict::Faster { .. }
                    | ComparisonVerdict::Slower { .. }
                    | ComparisonVerdict::Same { .. }
            );
        let said = bound.unwrap_or_else(|| sentence::judgement_text(judgement, base, &line.title));
        let _ = write!(
            rows,
            "<tr class=\"{}\"><td>{}<div class=\"ratio\"><s style=\"left:{:.2}%\"></s><i style=\"left:{:.2}%;width:{:.2}%\"></i>\
             <b class=\"{}\" style=\"left:{:.2}%\"></b></div><small>{}</small></td></tr>",
            colours.class(&line.stack),
            escape(&line.title),
            place(1.0),
            place(from),
            (place(to) - place(from)).max(0.5),
            if sure { "" } else { "unsure" },
            place(ratio),
            escape(&said)
        );
    }
    rows.push_str("</table>\n");
    let title = format!("Against {base}");
    let how = "Ratio of good responses per second, block by block, with its 95 % interval; the line marks equal rates.";
    figure(&title, how, &[], &rows)
}

/// Draws the latency of the good responses by percentile, up to the percentile beyond which too few responses lie.
pub fn percentiles(cell: &TableCell, colours: &StackColours) -> String {
    let curve = |line: &StackRow| {
        let known = line.percentiles.iter();
        let below = known.filter(|(percentile, _)| *percentile < 100.0);
        let points = below.map(|(percentile, seconds)| (nines(*percentile), seconds * 1e3));
        Curve {
            key: (colours.class(&line.stack), line.title.clone()),
            points: points.collect(),
            sure: f64::INFINITY,
            longest: None,
        }
    };
    plots::percentiles(cell.rows.iter().map(curve).collect())
}
