//! Comparisons, sweeps and searches as text: first the verdict, then how reliable it is, then the
//! figures behind it.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::experiment::{Comparison, SavedDocument, Search, Sweep};
use crate::run::Run;
use crate::stats::knee::{self, Knee, MeasuredLevel};
use crate::stats::{ComparisonVerdict, Judgement};

use super::bottleneck;
use super::columns::{ServerColumns, TESTER_COLUMN_MEANING, text_columns, text_errors, text_head};
use super::figures::Figures;
use super::formatting::{self, duration, percent, rate};
use super::judge::{self, ArmJudgement};
use super::text::{self, ReportStyle};

/// Returns the text report of any document.
pub fn report(document: &SavedDocument, style: ReportStyle) -> String {
    match document {
        SavedDocument::Run(run) => text::report(run, style),
        SavedDocument::Comparison(comparison) => self::comparison(comparison),
        SavedDocument::Sweep(sweep) => self::sweep(sweep),
        SavedDocument::Search(search) => self::search(search),
    }
}

/// Writes `A` with its URL, for a legend.
fn legend(out: &mut String, comparison: &Comparison) {
    for arm in &comparison.arms {
        let what = if arm.control { " (control)" } else { "" };
        let _ = writeln!(out, "  {:<8} {}{what}", arm.name, arm.url);
    }
}

/// Returns the text report of a comparison.
pub fn comparison(comparison: &Comparison) -> String {
    let mut out = String::new();
    let base = &comparison.arms[0].name;
    let judged = judge::comparison(comparison);
    for against in &judged {
        let candidate = &comparison.arms[against.arm].name;
        let primary = against.primary();
        let _ = writeln!(
            out,
            "{}. ({}, {})",
            formatting::capital(&primary.verdict.sentence(base, candidate)),
            primary.metric,
            formatting::plural(primary.pairs.len() as u64, "pair", "pairs")
        );
    }
    if judged.is_empty() {
        out.push_str("There is nothing to compare, because there is only one server.\n");
    }
    out.push('\n');
    legend(&mut out, comparison);
    let _ = writeln!(out, "\n  {:<8} {}", "", text_head(ServerColumns::Unknown));
    for (index, arm) in comparison.arms.iter().enumerate() {
        arm_row(&mut out, &arm.name, &comparison.runs(index));
    }
    let _ = writeln!(out, "  tester: {TESTER_COLUMN_MEANING}");
    for against in &judged {
        details(&mut out, comparison, against);
    }
    let first = comparison.windows.first().map(|w| &w.run);
    let each = first.map_or(String::new(), |run| {
        format!("{}, {} each", text::mode(run), duration(run.elapsed))
    });
    machine(&mut out, first, &each);
    out
}

fn arm_row(out: &mut String, name: &str, runs: &[&Run]) {
    if runs.is_empty() {
        let _ = writeln!(out, "  {name:<8} {:>9}", "none");
        return;
    }
    let figures = Figures::of(runs);
    let columns = text_columns(&figures, ServerColumns::Unknown);
    let _ = writeln!(out, "  {name:<8} {columns}");
    text_errors(out, &figures);
}

fn details(out: &mut String, comparison: &Comparison, against: &ArmJudgement) {
    let base = &comparison.arms[0].name;
    let candidate = &comparison.arms[against.arm].name;
    let _ = writeln!(out, "\n{candidate} against {base}");
    for judgement in &against.figures {
        let _ = writeln!(
            out,
            "  {:<26} {}{}",
            judgement.metric,
            judgement.verdict.sentence(base, candidate),
            if judgement.primary {
                " — decides"
            } else {
                ""
            }
        );
        let _ = writeln!(out, "  {:<26} {}", "", numbers(judgement));
        if !judgement.disturbed.is_empty() {
            let which: Vec<String> = judgement
                .disturbed
                .iter()
                .map(|i| (i + 1).to_string())
                .collect();
            let _ = writeln!(
                out,
                "  {:<26} far from the others: pair {}; the ratio of the other pairs is {:.3}",
                "",
                which.join(", "),
                judgement.ratio_without_disturbed.unwrap_or(f64::NAN)
            );
        }
    }
    if let ComparisonVerdict::CannotTell {
        more_pairs: Some(more),
    } = against.primary().verdict
    {
        let _ = writeln!(
            out,
            "  Measure again with --pairs {}. Do not add pairs until you like the result, because that proves nothing.",
            against.primary().pairs.len() + more
        );
    }
}

/// Returns the ratio, interval, p and noise floor of a judgement.
pub fn numbers(judgement: &Judgement) -> String {
    let mut text = format!("ratio {:.3}", judgement.ratio);
    if let Some(interval) = judgement.interval {
        let _ = write!(text, " [{:.3}, {:.3}]", interval.low, interval.high);
    }
    let _ = write!(text, ", p {:.3}", judgement.p);
    if !judgement.primary {
        let _ = write!(text, " ({:.3} adjusted)", judgement.p_adjusted);
    }
    match judgement.noise_floor {
        Some(floor) => {
            let _ = write!(
                text,
                ", noise ±{:.1} % (the first server against itself)",
                (floor - 1.0) * 100.0
            );
        }
        None => text.push_str(", noise unknown (the first server was measured only once)"),
    }
    text
}

/// Returns the knee of a sweep; `None` if it has too few levels.
pub fn sweep_knee(sweep: &Sweep) -> Option<Knee> {
    let levels: Vec<MeasuredLevel> = sweep
        .points
        .iter()
        .map(|point| MeasuredLevel {
            concurrency: point.concurrency,
            good_rate: point.run.good_rate(),
        })
        .collect();
    knee::find(&levels)
}

/// Returns the sentences of a sweep, for the text and the page.
pub fn sweep_sentences(sweep: &Sweep) -> Vec<String> {
    let mut out = Vec::new();
    match sweep_knee(sweep) {
        Some(knee) => {
            out.push(match knee.saturated_at {
                Some(at) => {
                    let clients = formatting::plural(u64::from(at), "client", "clients");
                    format!("Saturated at {clients}: if there are more clients, each of them only waits longer.")
                }
                None => "Not saturated: the rate rose up to the highest level.".to_owned(),
            });
            out.push(match knee.falls_off_at {
                Some(at) => {
                    format!("From {at} clients on, the rate is below 90 % of its maximum.")
                }
                None => "Up to the largest number of clients, the rate stays at 90 % of its maximum or more.".into(),
            });
        }
        None => out.push("Fewer than three numbers of clients were measured, which is too few to find the one that \
                          saturates the server.".into()),
    }
    let levels = |with_errors: bool| {
        let points = sweep.points.iter();
        let all: BTreeSet<u32> = points
            .filter(|point| !with_errors || point.run.errors() > 0)
            .map(|point| point.concurrency)
            .collect();
        all.len()
    };
    let (with_errors, all) = (levels(true), levels(false));
    if with_errors > 0 {
        out.push(format!(
            "At {with_errors} of {all} numbers of clients there were errors: there, the rate of good responses does \
             not show how the server scales."
        ));
    }
    out
}

/// Returns the text report of a sweep.
pub fn sweep(sweep: &Sweep) -> String {
    let mut out = String::new();
    for sentence in sweep_sentences(sweep) {
        let _ = writeln!(out, "{sentence}");
    }
    let _ = writeln!(
        out,
        "\n  {:>7} {:>10} {:>12} {:>10} {:>10} {:>10} {:>8}",
        "clients", "good/s", "achieved/s", "p50 ms", "p99 ms", "max ms", "errors"
    );
    let mut points: Vec<_> = sweep.points.iter().collect();
    points.sort_by_key(|point| (point.concurrency, point.repetition));
    for point in &points {
        let run = &point.run;
        let latency = run.latency();
        let _ = writeln!(
            out,
            "  {:>7} {:>10} {:>12} {:>10} {:>10} {:>10} {:>8}{}",
            point.concurrency,
            rate(run.good_rate()),
            rate(run.achieved_rate()),
            formatting::ms(latency.quantile(0.5) as f64),
            formatting::ms(latency.quantile(0.99) as f64),
            formatting::ms(latency.max() as f64),
            percent(run.errors() as f64 / run.ended_requests().max(1) as f64),
            if bottleneck::bound(run).is_some() {
                "  generator-bound"
            } else {
                ""
            }
        );
    }
    let order: Vec<String> = sweep
        .points
        .iter()
        .map(|p| p.concurrency.to_string())
        .collect();
    let _ = writeln!(out, "\n  measured in this order: {}", order.join(", "));
    let first = sweep.points.first().map(|p| &p.run);
    let each = first.map_or(String::new(), |run| {
        format!(
            "closed loop, {} for each number of clients: measures the highest throughput, not the latency at a \
             given rate",
            duration(run.elapsed)
        )
    });
    machine(&mut out, first, &each);
    out
}

/// Returns whether all rates above the one that was found broke because of the generator's limit.
pub fn broke_by_the_generator(search: &Search) -> bool {
    let found = search.found.unwrap_or(0.0);
    let mut above = search
        .trials
        .iter()
        .filter(|trial| trial.rate > found && !trial.broken.is_empty())
        .peekable();
    above.peek().is_some() && above.all(|trial| bottleneck::bound(&trial.run).is_some())
}

/// Returns the text report of a search.
pub fn search(search: &Search) -> String {
    let mut out = String::new();
    match search.found {
        Some(found) => {
            let _ = writeln!(
                out,
                "{} requests per second meet the objective {}.",
                rate(found),
                search.slo
            );
        }
        None => {
            let _ = writeln!(
                out,
                "No rate that was tried meets the objective {}.",
                search.slo
            );
        }
    }
    if broke_by_the_generator(search) {
        out.push_str(
            "At every higher rate that was tried, the load tester was the bottleneck, so the limit may be the load \
             tester's, not the server's.\n",
        );
    }
    if let Some(limit) = &search.limited_by {
        let _ = writeln!(out, "The search ended because {limit}.");
    }
    let _ = writeln!(
        out,
        "\n  {:>10} {:>10} {:>10} {:>10} {:>8}",
        "offered/s", "good/s", "p50 ms", "p99 ms", "errors"
    );
    for trial in &search.trials {
        let run = &trial.run;
        let latency = run.latency();
        let verdict = if trial.broken.is_empty() {
            "met".to_owned()
        } else {
            trial.broken.join("; ")
        };
        let _ = writeln!(
            out,
            "  {:>10} {:>10} {:>10} {:>10} {:>8}  {verdict}{}{}",
            rate(trial.rate),
            rate(run.good_rate()),
            formatting::ms(latency.quantile(0.5) as f64),
            formatting::ms(latency.quantile(0.99) as f64),
            percent(run.errors() as f64 / run.ended_requests().max(1) as f64),
            if trial.confirming {
                " (confirming)"
            } else {
                ""
            },
            if bottleneck::bound(run).is_some() {
                " (generator-bound)"
            } else {
                ""
            }
        );
    }
    let first = search.trials.first().map(|t| &t.run);
    let each = first.map_or(String::new(), |run| {
        format!(
            "open loop, {} for each rate: latency counts from the time at which a request was due",
            duration(run.elapsed)
        )
    });
    machine(&mut out, first, &each);
    out
}

fn machine(out: &mut String, run: Option<&Run>, mode: &str) {
    if let Some(run) = run {
        let _ = writeln!(out, "\n  machine  {}", text::machine(run));
        let _ = writeln!(out, "  mode     {mode}");
        let _ = writeln!(
            out,
            "  command  {} ({})",
            run.command.join(" "),
            run.generator
        );
    }
}
