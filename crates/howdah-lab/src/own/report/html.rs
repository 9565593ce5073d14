//! The result as one page. Order: what to choose, whether it may be believed, why; the configuration; the
//! curves over children and clients; the figures; who was not measured; how to measure it again.

use std::fmt::Write as _;

use howdah_bench::report::html::shell::{self, Key, Lamp, escape, figure};
use howdah_bench::report::html::svg::{Plot, Scale};
use howdah_bench::report::words;

use super::super::rows::{Level, Row};
use super::super::study::Outcome;
use super::{heading, text};
use crate::report::html::tester;
use crate::report::plots::colour;

/// Renders the result of a comparison as a page.
pub fn page(outcome: &Outcome) -> String {
    let mut out = String::new();
    let title = headline(outcome);
    let kicker = ["howdah compare --app", &words::timestamp(outcome.began)];
    shell::heading(&mut out, &kicker, &title, &outcome.found);
    lamps(&mut out, outcome);
    decisions(&mut out, outcome);
    config(&mut out, outcome);
    plots(&mut out, outcome);
    for level in &outcome.levels {
        figures(&mut out, level);
    }
    pages(&mut out, outcome);
    let failed = outcome.failed.iter();
    shell::not_measured(
        &mut out,
        failed.map(|f| (f.title.clone(), f.message.clone())),
    );
    shell::as_text(&mut out, &text::render(outcome));
    footer(&mut out, outcome);
    shell::document(&title, &out)
}

fn headline(outcome: &Outcome) -> String {
    match &outcome.advice {
        _ if outcome.interrupted => "Interrupted: nothing is recommended yet".to_owned(),
        None => "No mode of Howdah gives these pages".to_owned(),
        Some(advice) => {
            let choice = advice.choice;
            let children = choice.children.map_or(String::new(), |n| {
                format!(", {}", words::plural(n.into(), "child", "children"))
            });
            let cache = if choice.cache { "on" } else { "off" };
            format!("Mode {}{children}, page cache {cache}", choice.mode.word())
        }
    }
}

fn lamps(out: &mut String, outcome: &Outcome) {
    let mut lamps: Vec<Lamp> = vec![(
        "",
        format!(
            "every stack gave the pages of {} before it was measured",
            outcome.reference
        ),
    )];
    if outcome.interrupted {
        lamps.push(("bad", "interrupted: --resume goes on".to_owned()));
    }
    match outcome.config.as_ref().map(|config| &config.trial) {
        Some(Ok(said)) => lamps.push(("", said.clone())),
        Some(Err(_)) => lamps.push(("bad", "the configuration was tried and failed".to_owned())),
        None => {}
    }
    lamps.extend(text::busy(outcome).map(|sentence| ("warn", sentence)));
    lamps.extend(text::memory(outcome).map(|sentence| ("", sentence)));
    if !outcome.failed.is_empty() {
        lamps.push(("warn", format!("{} not measured", outcome.failed.len())));
    }
    lamps.extend(outcome.notes.iter().map(|note| ("warn", note.clone())));
    shell::lamps(out, &lamps);
}

fn decisions(out: &mut String, outcome: &Outcome) {
    let Some(advice) = &outcome.advice else {
        return;
    };
    out.push_str("<section><h2>Why</h2>");
    for decision in &advice.decisions {
        let _ = write!(
            out,
            "<h3>{}: {}</h3><p>{}</p>",
            heading(decision.question),
            escape(&decision.therefore),
            escape(&decision.evidence)
        );
    }
    out.push_str(
        "<p class=\"sub\">Each was compared with the default in pairs of windows, by itself; p is adjusted \
         for the number of questions (Holm).</p></section>\n",
    );
}

fn config(out: &mut String, outcome: &Outcome) {
    let Some(config) = &outcome.config else {
        return;
    };
    let _ = write!(
        out,
        "<section><h2>howdah.toml</h2><pre>{}</pre>",
        escape(&config.text)
    );
    if let Err(why) = &config.trial {
        let _ = write!(
            out,
            "<p>It was tried and failed:</p><pre>{}</pre>",
            escape(why)
        );
    }
    out.push_str("</section>\n");
}

type Points = Vec<(f64, f64, String)>;

fn plots(out: &mut String, outcome: &Outcome) {
    let by_children: Vec<(String, Points)> = outcome
        .levels
        .iter()
        .map(|level| {
            let rows = level.rows.iter();
            let points = rows.filter_map(|row| Some((f64::from(row.children?), row.good, row)));
            let points = points.map(|(n, good, row)| (n, good, label(row, level)));
            let clients = words::plural(level.concurrency.into(), "client", "clients");
            (clients, points.collect())
        })
        .collect();
    let children = curves(
        "Over the number of children",
        "Mode embed, as many children as said.",
        "children",
        &by_children,
    );
    let mut by_clients: Vec<(String, Points)> = Vec::new();
    for level in &outcome.levels {
        // Numbers of children have their own plot.
        for row in level.rows.iter().filter(|row| row.children.is_none()) {
            let point = (f64::from(level.concurrency), row.good, label(row, level));
            match by_clients.iter_mut().find(|(title, _)| *title == row.title) {
                Some((_, points)) => points.push(point),
                None => by_clients.push((row.title.clone(), vec![point])),
            }
        }
    }
    // The cache would press all others to the ground; its figures are in the tables.
    by_clients.retain(|(title, _)| !title.ends_with("page cache"));
    let clients = curves(
        "Over the number of clients",
        "Good answers only. The page cache is left out for the scale's sake.",
        "clients",
        &by_clients,
    );
    shell::plots(out, &[children, clients]);
}

fn label(row: &Row, level: &Level) -> String {
    format!(
        "{}, {}: {} good a second, {} errors",
        row.title,
        words::plural(level.concurrency.into(), "client", "clients"),
        words::rate(row.good),
        words::percent(row.error_share())
    )
}

/// A curve for each series that has at least two points; nothing if there is none.
fn curves(title: &str, how: &str, axis: &str, series: &[(String, Points)]) -> String {
    let series: Vec<&(String, Points)> = series.iter().filter(|s| s.1.len() > 1).collect();
    if series.is_empty() {
        return String::new();
    }
    let points = || series.iter().flat_map(|(_, points)| points);
    let mut plot = Plot::new(
        Scale::from_zero(points().map(|p| p.0)),
        Scale::from_zero(points().map(|p| p.1)),
        &format!("Good answers per second over the number of {axis}"),
    );
    plot.y_axis("good answers per second", words::rate);
    plot.x_axis(axis, |n| format!("{n:.0}"));
    for (at, (_, points)) in series.iter().enumerate() {
        let line: Vec<(f64, f64)> = points.iter().map(|p| (p.0, p.1)).collect();
        plot.line(colour(at), &line);
        for (x, y, label) in points {
            plot.dot(colour(at), *x, *y, label);
        }
    }
    let keys: Vec<Key> = series
        .iter()
        .enumerate()
        .map(|(at, (name, _))| (colour(at), name.clone()))
        .collect();
    figure(title, how, &keys, &plot.finish())
}

fn figures(out: &mut String, level: &Level) {
    let clients = words::plural(level.concurrency.into(), "client", "clients");
    let _ = write!(out, "<section><h2>{clients}</h2>");
    out.push_str(
        "<div class=\"scroll\"><table class=\"figures\"><tr><th>stack</th><th class=\"n\">good per second</th>\
         <th class=\"n\">errors</th><th class=\"n\">p50</th><th class=\"n\">p99</th>\
         <th class=\"n\">CPU per request</th><th class=\"n\">memory</th><th class=\"n\">load tester</th>\
         <th class=\"n\">windows</th></tr>\n",
    );
    for row in &level.rows {
        table_row(out, row);
    }
    out.push_str("</table></div></section>\n");
}

fn table_row(out: &mut String, row: &Row) {
    let interval = row.interval.as_ref().map_or(String::new(), |interval| {
        format!(
            "<br><small>[{}, {}]</small>",
            words::rate(interval.low),
            words::rate(interval.high)
        )
    });
    let time = |seconds: Option<f64>| seconds.map_or("–".to_owned(), words::duration);
    let classes = row.errors.iter();
    let classes: Vec<String> = classes
        .map(|(outcome, count)| format!("{} {}", words::count(*count), outcome.words()))
        .collect();
    let errors = match classes.is_empty() {
        true => "none".to_owned(),
        false => format!(
            "{}<br><small>{}</small>",
            words::percent(row.error_share()),
            escape(&classes.join(", "))
        ),
    };
    let bound = row.generator_bound.as_ref().map_or(String::new(), |why| {
        format!(
            "<small>the load tester was the bottleneck, this is a lower bound: {}</small>",
            escape(why)
        )
    });
    let _ = write!(
        out,
        "<tr class=\"{}\"><td class=\"stack\">{}{bound}</td>",
        if row.ours { "ours" } else { "theirs" },
        escape(&row.title)
    );
    let memory = match row.memory {
        0 => "–".to_owned(),
        bytes => words::bytes(bytes as f64),
    };
    // On a phone a row is a card, and each figure says what it is.
    for (is, value) in [
        (
            "good per second",
            format!("{}{interval}", words::rate(row.good)),
        ),
        ("errors", errors),
        ("p50", time(row.p50)),
        ("p99", time(row.p99)),
        ("CPU per request", words::duration(row.cpu)),
        ("memory", memory),
        ("load tester", tester(&row.generator)),
        ("windows", row.windows.to_string()),
    ] {
        let _ = write!(
            out,
            "<td class=\"n\" data-is=\"{is}\"><span class=\"value\">{value}</span></td>"
        );
    }
    out.push_str("</tr>\n");
}

fn pages(out: &mut String, outcome: &Outcome) {
    out.push_str(
        "<section><h2>The pages</h2><div class=\"scroll\"><table><tr><th>page</th><th>type</th>\
         <th class=\"n\">length</th><th class=\"n\">alone</th><th class=\"n\">constant</th>\
         <th>page cache</th></tr>\n",
    );
    for page in &outcome.pages {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{} %</td><td>{}</td></tr>",
            escape(&page.url),
            escape(&page.media_type),
            words::bytes(page.bytes as f64),
            words::duration(page.service),
            page.constant,
            if page.kept_by_cache {
                "keeps it"
            } else {
                "does not keep it"
            }
        );
    }
    out.push_str("</table></div></section>\n");
}

fn footer(out: &mut String, outcome: &Outcome) {
    out.push_str("<footer>");
    for (name, value) in &outcome.machine {
        let _ = write!(out, "<p>{}: {}</p>", escape(name), escape(value));
    }
    for version in &outcome.versions {
        let _ = write!(out, "<p>{}</p>", escape(version));
    }
    let _ = writeln!(
        out,
        "<p>{}.</p><p>Measured in {}. Again: <code>{}</code></p><p>The generated configuration of \
         every stack lies beside this page.</p></footer>",
        escape(&outcome.effort),
        words::duration(outcome.took),
        escape(&outcome.command)
    );
}
