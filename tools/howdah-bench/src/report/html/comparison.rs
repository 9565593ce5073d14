//! The page of a comparison: servers measured in turns, or saved runs side by side.

use std::fmt::Write;

use crate::experiment::{Comparison, ComparisonArm};
use crate::stats::{ComparisonVerdict, InvalidReason};

use super::super::columns::{HtmlHead, HtmlRow, ServerColumns, html_table};
use super::super::figures::{Figures, latency};
use super::super::{experiments, formatting, judge};
use super::PageParts;
use super::plots::{self, Curve};
use super::shell::{self, badge, badges, escape, heading};

pub(super) fn comparison(comparison: &Comparison) -> PageParts<'_> {
    let first = comparison.windows.first().map(|w| &w.run);
    let base = comparison.arms.first().map_or("A", |arm| &arm.name);
    let judged = judge::comparison(comparison);
    let mut out = String::new();
    let sentences: Vec<String> = judged
        .iter()
        .map(|against| {
            let candidate = &comparison.arms[against.arm].name;
            formatting::capital(&against.primary().verdict.sentence(base, candidate))
        })
        .collect();
    let invalid: Vec<&InvalidReason> = judged
        .iter()
        .filter_map(|against| match &against.primary().verdict {
            ComparisonVerdict::Invalid { because } => Some(because),
            _ => None,
        })
        .flatten()
        .collect();
    let title = if invalid.is_empty() {
        sentences.join(". ")
    } else {
        "These servers cannot be compared by this measurement".to_owned()
    };
    let started = first.map_or(String::new(), |run| formatting::timestamp(run.started));
    let about = judged.first().map_or(String::new(), |against| {
        let primary = against.primary();
        format!(
            "The verdict is based on {} in {} of measurements; the 95 % interval is in brackets.",
            primary.metric,
            formatting::plural(primary.pairs.len() as u64, "pair", "pairs")
        )
    });
    heading(&mut out, &["howdah bench --vs", &started], &title, &about);
    if !invalid.is_empty() {
        banner(&mut out, comparison, &judged);
    }
    comparison_badges(&mut out, comparison, &judged, &invalid);
    arms_table(&mut out, comparison);
    shell::plots(&mut out, &figures(comparison, &judged));
    judgements_table(&mut out, comparison, &judged);
    (title, out, first)
}

fn figures(comparison: &Comparison, judged: &[judge::ArmJudgement]) -> Vec<String> {
    let base = &comparison.arms[0].name;
    let mut figures: Vec<String> = judged
        .iter()
        .map(|against| {
            let candidate = &comparison.arms[against.arm].name;
            let class = plots::arm_class(against.arm, false);
            plots::ratios(against.primary(), class, base, candidate)
        })
        .collect();
    let curves: Vec<_> = comparison
        .arms
        .iter()
        .enumerate()
        .map(|(i, arm)| {
            let key = (plots::arm_class(i, arm.control), arm.name.clone());
            Curve::of(key, &latency(&comparison.runs(i)))
        })
        .collect();
    figures.push(plots::percentiles(curves));
    figures.push(plots::windows(comparison));
    figures
}

/// Writes why the comparison is invalid.
fn banner(out: &mut String, comparison: &Comparison, judged: &[judge::ArmJudgement]) {
    let base = &comparison.arms[0].name;
    out.push_str("<div class=\"banner\"><strong>Invalid, whatever the ratios below say:</strong>");
    let reasons: Vec<String> = judged
        .iter()
        .filter_map(|against| match &against.primary().verdict {
            ComparisonVerdict::Invalid { because } => Some((against.arm, because)),
            _ => None,
        })
        .flat_map(|(arm, because)| {
            let candidate = &comparison.arms[arm].name;
            because
                .iter()
                .map(move |why| escape(&why.sentence(base, candidate)))
        })
        .collect();
    let _ = writeln!(out, "{}.</div>", formatting::capital(&reasons.join("; ")));
}

fn comparison_badges(
    out: &mut String,
    comparison: &Comparison,
    judged: &[judge::ArmJudgement],
    invalid: &[&InvalidReason],
) {
    let mut all = Vec::new();
    for why in invalid {
        all.push(badge("bad", why.name().replace('-', " ")));
    }
    if invalid.is_empty() {
        all.push(badge(
            "",
            "same error rates, bodies, protocol and keep-alive",
        ));
        all.push(badge("", "the load tester had capacity to spare"));
    }
    if let Some(against) = judged.first() {
        let primary = against.primary();
        all.push(match primary.noise_floor {
            Some(floor) => badge(
                if floor - 1.0 < primary.margin {
                    ""
                } else {
                    "warn"
                },
                format!("A against itself: ±{:.1} %", (floor - 1.0) * 100.0),
            ),
            None => badge("warn", "noise unknown"),
        });
        if !primary.disturbed.is_empty() {
            all.push(badge(
                "warn",
                format!(
                    "{} far from the others, but not excluded",
                    formatting::plural(primary.disturbed.len() as u64, "pair", "pairs")
                ),
            ));
        }
    }
    if comparison
        .windows
        .iter()
        .any(|w| w.run.machine.shared_with_server)
    {
        all.push(badge("warn", "servers and load tester share a machine"));
    }
    badges(out, &all);
}

fn arms_table(out: &mut String, comparison: &Comparison) {
    let measured: Vec<(usize, &ComparisonArm, Figures)> = comparison
        .arms
        .iter()
        .enumerate()
        .map(|(at, arm)| (at, arm, Figures::of(&comparison.runs(at))))
        .collect();
    let rows: Vec<HtmlRow<'_>> = measured
        .iter()
        .map(|(at, arm, figures)| HtmlRow {
            colour: plots::arm_class(*at, arm.control),
            title: &arm.name,
            ours: false,
            trap: false,
            notes: vec![escape(&arm.url)],
            before: Vec::new(),
            figures,
            after: Vec::new(),
        })
        .collect();
    let head = HtmlHead {
        row: "server",
        before: &[],
        server: ServerColumns::Unknown,
        after: &[],
    };
    html_table(out, &head, &rows);
}

fn judgements_table(out: &mut String, comparison: &Comparison, judged: &[judge::ArmJudgement]) {
    out.push_str(
        "<h2>Every figure that was compared</h2>\n<div class=\"scroll\"><table class=\"misled\"><tr><th></th><th>figure</th>\
         <th>verdict</th><th>ratio, interval, p</th></tr>\n",
    );
    let base = &comparison.arms[0].name;
    for against in judged {
        let candidate = &comparison.arms[against.arm].name;
        for judgement in &against.figures {
            let _ = writeln!(
                out,
                "<tr><td>{}</td><td data-is=\"figure\">{}{}</td><td data-is=\"verdict\">{}</td>\
                 <td data-is=\"ratio, interval, p\">{}</td></tr>",
                escape(candidate),
                escape(&judgement.metric),
                if judgement.primary { " (decides)" } else { "" },
                escape(&judgement.verdict.sentence(base, candidate)),
                escape(&experiments::numbers(judgement))
            );
        }
    }
    out.push_str("</table></div>\n");
}
