//! The page of one run.

use std::fmt::Write;

use crate::run::{Run, RunEnd};
use crate::stats::steady::Steadiness;

use super::super::bottleneck::{self, FindingWeight};
use super::super::formatting::{self, grouped, percent};
use super::super::misled;
use super::super::{steadiness, text};
use super::plots::{self, Curve};
use super::shell::{self, Badge, badge, badges, escape};
use super::{heading, number, rate};

pub(super) fn run(run: &Run) -> String {
    let mut out = String::new();
    let about = format!("{}.", formatting::capital(&text::mode(run)));
    heading(&mut out, "howdah bench", Some(run), &headline(run), &about);
    if let Some(evidence) = bottleneck::bound(run) {
        let _ = writeln!(
            out,
            "<div class=\"banner\"><strong>The load tester was the bottleneck: these figures are the load tester's, \
             not the server's.</strong>{}.</div>",
            escape(&formatting::capital(&evidence))
        );
    }
    badges(&mut out, &run_badges(run));
    let notes: Vec<String> = bottleneck::findings(run)
        .into_iter()
        .filter(|finding| finding.weight == FindingWeight::Notice)
        .map(|finding| format!("{}.", formatting::capital(&finding.sentence)))
        .collect();
    if !notes.is_empty() {
        let _ = writeln!(
            out,
            "<p class=\"notes\">About the load tester: {}</p>",
            escape(&notes.join(" "))
        );
    }
    if let Some(replay) = &run.replay {
        let [arrivals, statuses] = super::super::replay::verdict(run, replay);
        let _ = writeln!(
            out,
            "<p class=\"notes\">Arrivals: {}. Statuses: {}.</p>",
            escape(&arrivals),
            escape(&statuses)
        );
    }
    numbers(&mut out, run);
    let figures = [
        plots::percentiles(vec![Curve::of(("a0", "good".to_owned()), &run.latency())]),
        plots::throughput(run),
        plots::latency_over_time(run),
        plots::processors(run),
    ];
    shell::plots(&mut out, &figures);
    outcomes(&mut out, run);
    misleading(&mut out, run);
    out
}

pub(super) fn headline(run: &Run) -> String {
    if run.good() == 0 {
        return format!(
            "No good response to {}",
            formatting::plural(run.begun, "request", "requests")
        );
    }
    let latency = run.latency();
    let mut title = format!("{} good responses per second", rate(run.good_rate()));
    let errors = run.errors();
    if errors > 0 {
        let _ = write!(
            title,
            ", and {} of the requests failed",
            percent(errors as f64 / run.ended_requests() as f64)
        );
    } else {
        let _ = write!(
            title,
            ", half of them within {} ms",
            formatting::ms(latency.quantile(0.5) as f64)
        );
    }
    title
}

fn run_badges(run: &Run) -> Vec<Badge> {
    let mut all = Vec::new();
    let errors = run.errors();
    all.push(if errors == 0 {
        badge("", "no errors")
    } else {
        badge("bad", format!("{} errors", grouped(errors)))
    });
    let findings = bottleneck::findings(run);
    let worst = findings.iter().map(|f| f.weight).max();
    all.push(match worst {
        None => badge("", "the load tester had capacity to spare"),
        Some(FindingWeight::Notice) => badge("warn", "a note about the load tester"),
        Some(FindingWeight::Bound) => badge("bad", "the load tester was the bottleneck"),
    });
    all.push(match steadiness::class(run) {
        Steadiness::Flat => badge("", "steady"),
        Steadiness::TooShort => badge("warn", "too short to tell whether the rate was steady"),
        Steadiness::Warming { .. } => badge("warn", "still warming up"),
        Steadiness::Slowing { .. } => badge("bad", "slowing down"),
        Steadiness::Unsteady { .. } => badge("warn", "unsteady"),
    });
    if run.plan.connection.keep_alive {
        let closed = run.connections.refused_to_keep;
        all.push(if misled::is_test_of_connecting(closed, run.answers()) {
            badge("warn", "the server closed connections")
        } else {
            badge("", "connections kept open")
        });
    }
    if run.in_flight.count > 0 && run.in_flight.oldest > run.latency().max() as f64 / 1e9 {
        all.push(badge(
            "bad",
            format!(
                "without a response at the end: {}",
                grouped(run.in_flight.count)
            ),
        ));
    }
    if run.unsent > 0 {
        all.push(badge("bad", format!("never sent: {}", grouped(run.unsent))));
    }
    if run.ended == RunEnd::Interrupted {
        all.push(badge("warn", "interrupted"));
    }
    all
}

fn numbers(out: &mut String, run: &Run) {
    out.push_str("<dl class=\"numbers\">");
    if run.plan.arrivals.is_open() {
        number(out, "", "offered", &rate(run.offered_rate()), "/s");
    }
    number(out, "", "good responses", &rate(run.good_rate()), "/s");
    let share = run.errors() as f64 / run.ended_requests().max(1) as f64;
    let class = if run.errors() > 0 { "bad" } else { "" };
    number(out, class, "errors", &percent(share), "");
    let latency = run.latency();
    for (name, p) in [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9)] {
        if let Some(ns) = crate::stats::quantile::trusted(&latency, p) {
            number(out, "", name, &formatting::ms(ns as f64), "ms");
        }
    }
    if !latency.is_empty() {
        number(
            out,
            "",
            "longest",
            &formatting::ms(latency.max() as f64),
            "ms",
        );
    }
    out.push_str("</dl>\n");
}

fn outcomes(out: &mut String, run: &Run) {
    out.push_str(
        "<h2>How the requests ended</h2>\n<div class=\"scroll\"><table class=\"figures\"><tr><th></th><th class=\"n\">requests</th>\
         <th class=\"n\">share</th><th class=\"n\">p50</th><th class=\"n\">p99</th><th class=\"n\">longest</th></tr>\n",
    );
    let ended = run.ended_requests().max(1);
    for (outcome, tally) in run.outcomes.iter().filter(|(_, tally)| tally.count > 0) {
        let ms = |q: f64| format!("{} ms", formatting::ms(tally.latency.quantile(q) as f64));
        let _ = writeln!(
            out,
            "<tr><td class=\"stack\"><i class=\"{}\"></i>{}</td><td class=\"n\" data-is=\"requests\">{}</td>\
             <td class=\"n\" data-is=\"share\">{}</td><td class=\"n\" data-is=\"p50\">{}</td>\
             <td class=\"n\" data-is=\"p99\">{}</td><td class=\"n\" data-is=\"longest\">{}</td></tr>",
            plots::outcome_class(*outcome),
            escape(outcome.description()),
            grouped(tally.count),
            percent(tally.count as f64 / ended as f64),
            ms(0.5),
            ms(0.99),
            ms(1.0)
        );
    }
    out.push_str("</table></div>\n");
}

fn misleading(out: &mut String, run: &Run) {
    let lines = misled::misleading_figures(run);
    if lines.is_empty() {
        return;
    }
    out.push_str(
        "<h2>What ab would have reported</h2>\n<div class=\"scroll\"><table class=\"misled\"><tr><th>ab’s figure</th>\
         <th>would say</th><th>the truth</th></tr>\n",
    );
    for line in lines {
        let _ = writeln!(
            out,
            "<tr><td><q>{}</q></td><td data-is=\"would say\">{}</td><td data-is=\"the truth\">{}</td></tr>",
            escape(line.figure),
            escape(&line.ab_says),
            escape(&line.truth)
        );
    }
    out.push_str("</table></div>\n");
}
