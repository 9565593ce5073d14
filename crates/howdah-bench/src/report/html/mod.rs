//! The report as one page: complete in itself (no script, no network), dark and light, readable on a
//! phone and on paper. Order: the verdict, whether it may be believed, the figures, the plots, what ab
//! would have said, the text of the terminal, how it was made.
//!
//! - [`svg`]: drawing; [`plots`]: the plots.

mod plots;
pub mod svg;

use std::fmt::Write;

use crate::experiment::{Comparison, Document, Search, Sweep};
use crate::histogram::Histogram;
use crate::plan::Arrivals;
use crate::run::{Ended, Run};
use crate::stats::steady::Steadiness;
use crate::stats::{Invalid, Verdict};

use super::bottleneck::{self, Weight};
use super::experiments::{self, sweep_findings, sweep_sentences};
use super::words::{self, grouped, percent};
use super::{judge, misled, text};
use svg::escape;

/// The style sheet, for pages of the same look.
pub const STYLE: &str = include_str!("style.css");

/// The page of anything measured or saved; `text` is the report as on the terminal.
pub fn page(document: &Document, text: &str) -> String {
    let (title, body, run) = match document {
        Document::Run(run) => (headline(run), self::run(run), Some(run)),
        Document::Comparison(comparison) => self::comparison(comparison),
        Document::Sweep(sweep) => self::sweep(sweep),
        Document::Search(search) => self::search(search),
    };
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<meta name=\"generator\" content=\"{}\">\n\
         <title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n",
        escape(run.map_or("howdah bench", |run| &run.generator)),
        escape(&title),
        STYLE
    );
    out.push_str(&body);
    let _ = writeln!(
        out,
        "<details><summary>The report as text</summary><pre>{}</pre></details>",
        escape(text)
    );
    if let Some(run) = run {
        footer(&mut out, run);
    }
    out.push_str("</body>\n</html>\n");
    out
}

fn kicker(out: &mut String, what: &str, run: &Run) {
    let _ = writeln!(
        out,
        "<p class=\"kicker\">{} · {} · {}</p>",
        escape(what),
        escape(run.plan.targets[0].text()),
        words::timestamp(run.started)
    );
}

fn headline(run: &Run) -> String {
    if run.good() == 0 {
        return format!(
            "Not one good answer to {}",
            words::plural(run.begun, "request", "requests")
        );
    }
    let latency = run.latency();
    let mut title = format!("{} good answers per second", rate(run.good_rate()));
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
            words::ms(latency.quantile(0.5) as f64)
        );
    }
    title
}

fn rate(value: f64) -> String {
    if value < 9999.5 {
        words::rate(value)
    } else {
        grouped(value.round() as u64)
    }
}

/// A condition of the measurement.
struct Lamp {
    class: &'static str,
    text: String,
}

fn lamp(class: &'static str, text: impl Into<String>) -> Lamp {
    Lamp {
        class,
        text: text.into(),
    }
}

fn lamps(out: &mut String, lamps: &[Lamp]) {
    out.push_str("<ul class=\"lamps\">");
    for lamp in lamps {
        let _ = write!(
            out,
            "<li class=\"{}\">{}</li>",
            lamp.class,
            escape(&lamp.text)
        );
    }
    out.push_str("</ul>\n");
}

fn run_lamps(run: &Run) -> Vec<Lamp> {
    let mut all = Vec::new();
    let errors = run.errors();
    all.push(if errors == 0 {
        lamp("", "no errors")
    } else {
        lamp("bad", format!("{} errors", grouped(errors)))
    });
    let findings = bottleneck::findings(run);
    let worst = findings.iter().map(|f| f.weight).max();
    all.push(match worst {
        None => lamp("", "the load tester had room"),
        Some(Weight::Notice) => lamp("warn", "a note about the load tester"),
        Some(Weight::Bound) => lamp("bad", "the load tester was the bottleneck"),
    });
    all.push(match text::steady_class(run) {
        Steadiness::Flat => lamp("", "steady"),
        Steadiness::TooShort => lamp("warn", "too short to see whether it was steady"),
        Steadiness::Warming { .. } => lamp("warn", "still warming up"),
        Steadiness::Slowing { .. } => lamp("bad", "slowing down"),
        Steadiness::Unsteady { .. } => lamp("warn", "unsteady"),
    });
    if run.plan.connection.keep_alive {
        all.push(if run.connections.refused_to_keep == 0 {
            lamp("", "connections kept")
        } else {
            lamp("warn", "the server closed connections")
        });
    }
    if run.in_flight.count > 0 && run.in_flight.oldest > run.latency().max() as f64 / 1e9 {
        all.push(lamp(
            "bad",
            format!("unanswered at the end: {}", grouped(run.in_flight.count)),
        ));
    }
    if run.unsent > 0 {
        all.push(lamp("bad", format!("never sent: {}", grouped(run.unsent))));
    }
    if run.ended == Ended::Interrupted {
        all.push(lamp("warn", "interrupted"));
    }
    all
}

fn number(out: &mut String, class: &str, name: &str, value: &str, unit: &str) {
    let _ = write!(
        out,
        "<div class=\"{class}\"><dt>{}</dt><dd>{}<small>{}</small></dd></div>",
        escape(name),
        escape(value),
        escape(unit)
    );
}

fn run(run: &Run) -> String {
    let mut out = String::new();
    kicker(&mut out, "howdah bench", run);
    let _ = writeln!(out, "<h1>{}</h1>", escape(&headline(run)));
    let _ = writeln!(
        out,
        "<p class=\"sub\">{}.</p>",
        escape(&capital(&text::mode(run)))
    );
    if let Some(evidence) = bottleneck::bound(run) {
        let _ = writeln!(
            out,
            "<div class=\"banner\"><strong>The load tester was the bottleneck: these figures are its own.</strong>{}.</div>",
            escape(&capital(&evidence))
        );
    }
    lamps(&mut out, &run_lamps(run));
    let notes: Vec<String> = bottleneck::findings(run)
        .into_iter()
        .filter(|finding| finding.weight == Weight::Notice)
        .map(|finding| format!("{}.", capital(&finding.sentence)))
        .collect();
    if !notes.is_empty() {
        let _ = writeln!(
            out,
            "<p class=\"notes\">About the load tester: {}</p>",
            escape(&notes.join(" "))
        );
    }
    numbers(&mut out, run);
    out.push_str("<div class=\"plots\">\n");
    out.push_str(&plots::percentiles(&[(
        ("a0", "good".into()),
        run.latency(),
    )]));
    out.push_str(&plots::throughput(run));
    out.push_str(&plots::latency_over_time(run));
    out.push_str(&plots::processors(run));
    out.push_str("</div>\n");
    outcomes(&mut out, run);
    misleading(&mut out, run);
    out
}

fn numbers(out: &mut String, run: &Run) {
    out.push_str("<dl class=\"numbers\">");
    if let Arrivals::Open { .. } = run.plan.arrivals {
        number(out, "", "offered", &rate(run.offered_rate()), "/s");
    }
    number(out, "", "good answers", &rate(run.good_rate()), "/s");
    let share = run.errors() as f64 / run.ended_requests().max(1) as f64;
    let class = if run.errors() > 0 { "bad" } else { "" };
    number(out, class, "errors", &percent(share), "");
    let latency = run.latency();
    for (name, p) in [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9)] {
        if let Some(ns) = crate::stats::quantile::trusted(&latency, p) {
            number(out, "", name, &words::ms(ns as f64), "ms");
        }
    }
    if !latency.is_empty() {
        number(out, "", "longest", &words::ms(latency.max() as f64), "ms");
    }
    out.push_str("</dl>\n");
}

fn outcomes(out: &mut String, run: &Run) {
    out.push_str(
        "<h2>How the requests ended</h2>\n<div class=\"scroll\"><table><tr><th></th><th class=\"n\">requests</th>\
         <th class=\"n\">share</th><th class=\"n\">p50</th><th class=\"n\">p99</th><th class=\"n\">longest</th></tr>\n",
    );
    let ended = run.ended_requests().max(1);
    for (outcome, tally) in run.outcomes.iter().filter(|(_, tally)| tally.count > 0) {
        let ms = |q: f64| format!("{} ms", words::ms(tally.latency.quantile(q) as f64));
        let _ = writeln!(
            out,
            "<tr><td><i class=\"{}\"></i>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            plots::outcome_class(*outcome),
            escape(outcome.words()),
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
    let lines = misled::lines(run);
    if lines.is_empty() {
        return;
    }
    out.push_str(
        "<h2>What ab would have said</h2>\n<div class=\"scroll\"><table><tr><th>ab’s figure</th>\
         <th>would say</th><th>what is the case</th></tr>\n",
    );
    for line in lines {
        let _ = writeln!(
            out,
            "<tr><td><q>{}</q></td><td>{}</td><td>{}</td></tr>",
            escape(line.figure),
            escape(&line.ab_says),
            escape(&line.truth)
        );
    }
    out.push_str("</table></div>\n");
}

type Page<'a> = (String, String, Option<&'a Run>);

fn comparison(comparison: &Comparison) -> Page<'_> {
    let first = comparison.windows.first().map(|w| &w.run);
    let base = comparison.arms.first().map_or("A", |arm| &arm.name);
    let judged = judge::comparison(comparison);
    let mut out = String::new();
    if let Some(run) = first {
        let _ = writeln!(
            out,
            "<p class=\"kicker\">howdah bench --vs · {}</p>",
            words::timestamp(run.started)
        );
    }
    let sentences: Vec<String> = judged
        .iter()
        .map(|against| {
            let candidate = &comparison.arms[against.arm].name;
            capital(&against.primary().verdict.sentence(base, candidate))
        })
        .collect();
    let invalid: Vec<&Invalid> = judged
        .iter()
        .filter_map(|against| match &against.primary().verdict {
            Verdict::Invalid { because } => Some(because),
            _ => None,
        })
        .flatten()
        .collect();
    let title = if invalid.is_empty() {
        sentences.join(". ")
    } else {
        "These servers cannot be compared by this measurement".to_owned()
    };
    let _ = writeln!(out, "<h1>{}</h1>", escape(&title));
    if let Some(against) = judged.first() {
        let primary = against.primary();
        let _ = writeln!(
            out,
            "<p class=\"sub\">By {}, over {} of windows measured in turns; 95 % interval in brackets.</p>",
            escape(&primary.metric),
            words::plural(primary.pairs.len() as u64, "pair", "pairs")
        );
    }
    if !invalid.is_empty() {
        out.push_str(
            "<div class=\"banner\"><strong>Invalid, whatever the ratios below say:</strong>",
        );
        let reasons: Vec<String> = judged
            .iter()
            .filter_map(|against| match &against.primary().verdict {
                Verdict::Invalid { because } => Some((against.arm, because)),
                _ => None,
            })
            .flat_map(|(arm, because)| {
                let candidate = &comparison.arms[arm].name;
                because
                    .iter()
                    .map(move |why| escape(&why.sentence(base, candidate)))
            })
            .collect();
        let _ = writeln!(out, "{}.</div>", capital(&reasons.join("; ")));
    }
    comparison_lamps(&mut out, comparison, &judged, &invalid);
    arms_table(&mut out, comparison);
    out.push_str("<div class=\"plots\">\n");
    for against in &judged {
        let candidate = &comparison.arms[against.arm].name;
        let class = plots::arm_class(against.arm, false);
        out.push_str(&plots::ratios(against.primary(), class, base, candidate));
    }
    let curves: Vec<_> = comparison
        .arms
        .iter()
        .enumerate()
        .map(|(i, arm)| {
            let mut all = Histogram::new();
            for run in comparison.runs(i) {
                all.add(&run.latency());
            }
            ((plots::arm_class(i, arm.control), arm.name.clone()), all)
        })
        .collect();
    out.push_str(&plots::percentiles(&curves));
    out.push_str(&plots::windows(comparison));
    out.push_str("</div>\n");
    judgements_table(&mut out, comparison, &judged);
    (title, out, first)
}

fn comparison_lamps(
    out: &mut String,
    comparison: &Comparison,
    judged: &[judge::Against],
    invalid: &[&Invalid],
) {
    let mut all = Vec::new();
    for why in invalid {
        all.push(lamp("bad", why.name().replace('-', " ")));
    }
    if invalid.is_empty() {
        all.push(lamp(
            "",
            "same error rates, bodies, protocol and keep-alive",
        ));
        all.push(lamp("", "the load tester had room"));
    }
    if let Some(against) = judged.first() {
        let primary = against.primary();
        all.push(match primary.noise_floor {
            Some(floor) => lamp(
                if floor - 1.0 < primary.margin {
                    ""
                } else {
                    "warn"
                },
                format!("A against itself: ±{:.1} %", (floor - 1.0) * 100.0),
            ),
            None => lamp("warn", "no control was run"),
        });
        if !primary.disturbed.is_empty() {
            all.push(lamp(
                "warn",
                format!(
                    "{} far from the others, kept",
                    words::plural(primary.disturbed.len() as u64, "pair", "pairs")
                ),
            ));
        }
    }
    if comparison
        .windows
        .iter()
        .any(|w| w.run.machine.shared_with_server)
    {
        all.push(lamp("warn", "servers and load tester share a machine"));
    }
    lamps(out, &all);
}

fn arms_table(out: &mut String, comparison: &Comparison) {
    out.push_str(
        "<div class=\"scroll\"><table><tr><th></th><th>server</th><th class=\"n\">good/s</th><th class=\"n\">p50</th>\
         <th class=\"n\">p99</th><th class=\"n\">longest</th><th class=\"n\">errors</th></tr>\n",
    );
    for (i, arm) in comparison.arms.iter().enumerate() {
        let runs = comparison.runs(i);
        let rates: Vec<f64> = runs.iter().map(|run| run.good_rate()).collect();
        let errors: u64 = runs.iter().map(|run| run.errors()).sum();
        let ended: u64 = runs.iter().map(|run| run.ended_requests()).sum();
        let longest = runs
            .iter()
            .map(|run| run.latency().max())
            .max()
            .unwrap_or(0);
        let at = |p: f64| {
            judge::merged_percentile(&runs, p).map_or("too few".to_owned(), |ns| {
                format!("{} ms", words::ms(ns as f64))
            })
        };
        let _ = writeln!(
            out,
            "<tr><td><i class=\"{}\"></i>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{} ms</td><td class=\"n\">{}</td></tr>",
            plots::arm_class(i, arm.control),
            escape(&arm.name),
            escape(&arm.url),
            if rates.is_empty() {
                "none".into()
            } else {
                rate(crate::stats::median(&rates))
            },
            at(50.0),
            at(99.0),
            words::ms(longest as f64),
            percent(errors as f64 / ended.max(1) as f64)
        );
    }
    out.push_str("</table></div>\n");
}

fn judgements_table(out: &mut String, comparison: &Comparison, judged: &[judge::Against]) {
    out.push_str(
        "<h2>Every figure that was compared</h2>\n<div class=\"scroll\"><table><tr><th></th><th>figure</th>\
         <th>verdict</th><th>ratio, interval, p</th></tr>\n",
    );
    let base = &comparison.arms[0].name;
    for against in judged {
        let candidate = &comparison.arms[against.arm].name;
        for judgement in &against.figures {
            let _ = writeln!(
                out,
                "<tr><td>{}</td><td>{}{}</td><td>{}</td><td>{}</td></tr>",
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

fn sweep(sweep: &Sweep) -> Page<'_> {
    let first = sweep.points.first().map(|p| &p.run);
    let findings = sweep_findings(sweep);
    let sentences = sweep_sentences(&findings);
    let mut out = String::new();
    if let Some(run) = first {
        kicker(&mut out, "howdah bench --sweep", run);
    }
    let title = match findings.knee {
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
        out.push_str(&plots::sweep(sweep, &findings));
        out.push_str(&plots::sweep_latency(sweep));
        out.push_str("</div>\n");
    }
    (title, out, first)
}

fn search(search: &Search) -> Page<'_> {
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

fn footer(out: &mut String, run: &Run) {
    let machine = &run.machine;
    let _ = writeln!(
        out,
        "<footer><p><code>{}</code></p><p>{} · {}</p><p>{} open files allowed · somaxconn {} · local ports {} · \
         governor {} · load before {:.2}</p></footer>",
        escape(&run.command.join(" ")),
        escape(&run.generator),
        escape(&text::machine(run)),
        machine.open_files,
        machine
            .somaxconn
            .map_or("unknown".into(), |n| n.to_string()),
        machine
            .local_ports
            .map_or("unknown".into(), |(low, high)| format!("{low}–{high}")),
        escape(machine.governor.as_deref().unwrap_or("unknown")),
        machine.load
    );
}

fn capital(sentence: &str) -> String {
    let mut chars = sentence.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}
