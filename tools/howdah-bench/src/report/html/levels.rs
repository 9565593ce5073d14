//! The pages of a sweep and of a search.

use crate::experiment::{Search, Sweep};

use super::super::bottleneck;
use super::super::experiments::{self, sweep_knee, sweep_sentences};
use super::plots::{self, Curve};
use super::shell::{self, badge, badges};
use super::{PageParts, heading, rate};

pub(super) fn sweep(sweep: &Sweep) -> PageParts<'_> {
    let first = sweep.points.first().map(|p| &p.run);
    let sentences = sweep_sentences(sweep);
    let mut out = String::new();
    let title = match sweep_knee(sweep) {
        Some(knee) => match (knee.saturated_at, knee.falls_off_at) {
            (None, _) => "Not saturated: the rate rose up to the highest level".to_owned(),
            (Some(at), Some(falls)) => {
                format!("Saturated at {at} clients, and the rate falls from {falls} clients on")
            }
            (Some(at), None) => format!("Saturated at {at} clients, and the rate stays flat"),
        },
        None => "Too few numbers of clients to find the saturation".to_owned(),
    };
    let about = sentences.join(" ");
    heading(&mut out, "howdah bench --sweep", first, &title, &about);
    let errors = sweep.points.iter().filter(|p| p.run.errors() > 0).count();
    let bound = sweep
        .points
        .iter()
        .filter(|p| bottleneck::bound(&p.run).is_some())
        .count();
    let of = sweep.points.len();
    badges(
        &mut out,
        &[
            if errors == 0 {
                badge("", "no errors at any level")
            } else {
                badge("bad", format!("errors at {errors} of {of} points"))
            },
            if bound == 0 {
                badge("", "the load tester had capacity to spare")
            } else {
                badge(
                    "bad",
                    format!("the load tester was the bottleneck at {bound} of {of} points"),
                )
            },
            badge("", "random order"),
        ],
    );
    if of > 0 {
        let figures = [plots::sweep(sweep), plots::sweep_latency(sweep)];
        shell::plots(&mut out, &figures);
    }
    (title, out, first)
}

pub(super) fn search(search: &Search) -> PageParts<'_> {
    let first = search.trials.first().map(|t| &t.run);
    let mut out = String::new();
    let slo = search.slo.to_string().replace(',', ", ");
    let title = match search.found {
        Some(found) => format!("{} requests per second meet {slo}", rate(found)),
        None => format!("No rate that was tried meets {slo}"),
    };
    let limit = search.limited_by.as_ref();
    let about = limit.map_or(String::new(), |limit| {
        format!("The search ended because {limit}.")
    });
    heading(&mut out, "howdah bench --find-max", first, &title, &about);
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
    badges(
        &mut out,
        &[
            if confirmed > 0 {
                badge("", format!("confirmed {confirmed} times"))
            } else {
                badge("warn", "not confirmed")
            },
            if bound == 0 {
                badge("", "the load tester had capacity to spare")
            } else {
                let class = if experiments::broke_by_the_generator(search) {
                    "bad"
                } else {
                    "warn"
                };
                badge(
                    class,
                    format!("the load tester was the bottleneck in {bound} trials"),
                )
            },
        ],
    );
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
            Some(Curve::of((class, name), &trial.run.latency()))
        })
        .collect();
    let figures = [plots::trials(search), plots::percentiles(curves)];
    shell::plots(&mut out, &figures);
    (title, out, first)
}
