//! The pages of a sweep and of a search.

use std::fmt::Write;

use crate::experiment::{Search, Sweep};

use super::super::bottleneck;
use super::super::experiments::{self, sweep_knee, sweep_sentences};
use super::plots;
use super::svg::escape;
use super::{Page, kicker, lamp, lamps, rate};

pub(super) fn sweep(sweep: &Sweep) -> Page<'_> {
    let first = sweep.points.first().map(|p| &p.run);
    let sentences = sweep_sentences(sweep);
    let mut out = String::new();
    if let Some(run) = first {
        kicker(&mut out, "howdah bench --sweep", run);
    }
    let title = match sweep_knee(sweep) {
        Some(knee) => match (knee.saturated_at, knee.falls_off_at) {
            (None, _) => "Not saturated: it rose up to the highest level".to_owned(),
            (Some(at), Some(falls)) => {
                format!("Saturated at {at} clients, falls off at {falls}")
            }
            (Some(at), None) => format!("Saturated at {at} clients, and stays flat"),
        },
        None => "Too few levels to find a knee".to_owned(),
    };
    let _ = writeln!(
        out,
        "<h1>{}</h1>\n<p class=\"sub\">{}</p>",
        escape(&title),
        escape(&sentences.join(" "))
    );
    let errors = sweep.points.iter().filter(|p| p.run.errors() > 0).count();
    let bound = sweep
        .points
        .iter()
        .filter(|p| bottleneck::bound(&p.run).is_some())
        .count();
    let of = sweep.points.len();
    lamps(
        &mut out,
        &[
            if errors == 0 {
                lamp("", "no errors at any level")
            } else {
                lamp("bad", format!("errors at {errors} of {of} points"))
            },
            if bound == 0 {
                lamp("", "the load tester had room")
            } else {
                lamp(
                    "bad",
                    format!("the load tester was the bottleneck at {bound} of {of} points"),
                )
            },
            lamp("", "random order"),
        ],
    );
    if of > 0 {
        out.push_str("<div class=\"plots\">\n");
        out.push_str(&plots::sweep(sweep));
        out.push_str(&plots::sweep_latency(sweep));
        out.push_str("</div>\n");
    }
    (title, out, first)
}

pub(super) fn search(search: &Search) -> Page<'_> {
    let first = search.trials.first().map(|t| &t.run);
    let mut out = String::new();
    if let Some(run) = first {
        kicker(&mut out, "howdah bench --find-max", run);
    }
    let slo = search.slo.to_string().replace(',', ", ");
    let title = match search.found {
        Some(found) => format!("{} requests per second hold {slo}", rate(found)),
        None => format!("No rate that was tried holds {slo}"),
    };
    let _ = writeln!(out, "<h1>{}</h1>", escape(&title));
    if let Some(limit) = &search.limited_by {
        let _ = writeln!(
            out,
            "<p class=\"sub\">It ended there because {}.</p>",
            escape(limit)
        );
    }
    let bound = search
        .trials
        .iter()
        .filter(|t| bottleneck::bound(&t.run).is_some())
        .count();
    let confirmed = search
        .trials
        .iter()
        .filter(|t| t.confirming && t.broken.is_empty())
        .count();
    lamps(
        &mut out,
        &[
            if confirmed > 0 {
                lamp("", format!("confirmed {confirmed} times"))
            } else {
                lamp("warn", "not confirmed")
            },
            if bound == 0 {
                lamp("", "the load tester had room")
            } else {
                let class = if experiments::broke_by_the_generator(search) {
                    "bad"
                } else {
                    "warn"
                };
                lamp(
                    class,
                    format!("the load tester was the bottleneck in {bound} trials"),
                )
            },
        ],
    );
    out.push_str("<div class=\"plots\">\n");
    out.push_str(&plots::trials(search));
    let best = search
        .trials
        .iter()
        .filter(|t| t.broken.is_empty())
        .max_by(|a, b| a.rate.total_cmp(&b.rate));
    let worst = search
        .trials
        .iter()
        .filter(|t| !t.broken.is_empty())
        .min_by(|a, b| a.rate.total_cmp(&b.rate));
    let curves: Vec<_> = [("a0", best), ("a1", worst)]
        .into_iter()
        .filter_map(|(class, trial)| {
            let trial = trial?;
            let name = format!("{} per second", rate(trial.rate));
            Some(((class, name), trial.run.latency()))
        })
        .collect();
    out.push_str(&plots::percentiles(&curves));
    out.push_str("</div>\n");
    (title, out, first)
}
