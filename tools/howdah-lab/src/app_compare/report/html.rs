//! The result as one HTML page. The order is: the recommendation, its reliability and its reasons; the configuration;
//! the curves over children and clients; the figures; the arms that were not measured; how to repeat the measurement.

use std::fmt::Write as _;

use howdah_bench::report::columns::{HtmlHead, HtmlRow, ServerColumns, html_table};
use howdah_bench::report::formatting;
use howdah_bench::report::html::shell::{self, Badge, escape};

use super::super::outcome::AppOutcome;
use super::super::rows::{ArmRow, LevelRows};
use super::{heading, text};
use crate::report::plots::{Point, Series, StackColours, curves};

/// Renders the result of a comparison as a page.
pub fn page(outcome: &AppOutcome) -> String {
    let mut out = String::new();
    let title = headline(outcome);
    let kicker = [
        "howdah compare --app",
        &formatting::timestamp(outcome.began),
    ];
    shell::heading(&mut out, &kicker, &title, &outcome.found);
    badges(&mut out, outcome);
    decisions(&mut out, outcome);
    config(&mut out, outcome);
    plots(&mut out, outcome);
    let colours = colours(outcome);
    for level in &outcome.levels {
        figures(&mut out, level, &colours);
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

fn headline(outcome: &AppOutcome) -> String {
    match &outcome.advice {
        _ if outcome.interrupted => "Interrupted, so nothing is recommended yet".to_owned(),
        None => "No mode of Howdah serves these pages correctly".to_owned(),
        Some(advice) => {
            let choice = advice.choice;
            let children = choice.children.map_or(String::new(), |n| {
                format!(", {}", formatting::plural(n.into(), "child", "children"))
            });
            let cache = if choice.cache { "on" } else { "off" };
            let jit = if choice.jit { ", JIT compiler on" } else { "" };
            format!(
                "Mode {}{children}, page cache {cache}{jit}",
                choice.mode.word()
            )
        }
    }
}

fn badges(out: &mut String, outcome: &AppOutcome) {
    let mut badges: Vec<Badge> = vec![(
        "",
        format!(
            "every stack served the same pages as {} before it was measured",
            outcome.reference
        ),
    )];
    if outcome.interrupted {
        badges.push((
            "bad",
            "interrupted: --resume continues the comparison".to_owned(),
        ));
    }
    match outcome.config.as_ref().map(|config| &config.trial) {
        Some(Ok(said)) => badges.push(("", said.clone())),
        Some(Err(_)) => badges.push(("bad", "the configuration failed its trial".to_owned())),
        None => {}
    }
    badges.extend(
        text::warnings(outcome)
            .into_iter()
            .map(|sentence| ("warn", sentence)),
    );
    badges.extend(text::memory_sentence(outcome).map(|sentence| ("", sentence)));
    if !outcome.failed.is_empty() {
        badges.push(("warn", format!("{} not measured", outcome.failed.len())));
    }
    badges.extend(outcome.notes.iter().map(|note| ("warn", note.clone())));
    shell::badges(out, &badges);
}

fn decisions(out: &mut String, outcome: &AppOutcome) {
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
        "<p class=\"sub\">Each challenger was compared with the default in pairs of windows; p is adjusted \
         for the number of questions (Holm).</p></section>\n",
    );
}

fn config(out: &mut String, outcome: &AppOutcome) {
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
            "<p>The configuration failed its trial:</p><pre>{}</pre>",
            escape(why)
        );
    }
    out.push_str("</section>\n");
}

/// Returns the colours of the arms, in the plot over clients and in the tables. The curves over children show something
/// else, so they have other colours.
fn colours(outcome: &AppOutcome) -> StackColours {
    let rows = outcome.levels.iter().flat_map(|level| &level.rows);
    StackColours::of(rows.map(|row| &*row.title))
}

/// The classes of the curves over children, one for each number of clients.
const CHILDREN_CLASSES: [&str; 4] = ["p50", "p99", "found", "pmax"];

fn plots(out: &mut String, outcome: &AppOutcome) {
    let colours = colours(outcome);
    let (mut by_children, mut by_clients): (Vec<Series<'_>>, Vec<Series<'_>>) = Default::default();
    for (at, level) in outcome.levels.iter().enumerate() {
        let clients = formatting::plural(level.concurrency.into(), "client", "clients");
        let point = |row, x| point(row, x, &clients);
        let children = level.rows.iter();
        let children = children.filter_map(|row| Some(point(row, row.children?)));
        by_children.push(Series {
            class: CHILDREN_CLASSES[at % CHILDREN_CLASSES.len()],
            name: clients.clone(),
            points: children.collect(),
        });
        // Numbers of children have their own plot. The page cache is so much faster that it would flatten all other
        // curves; its figures are in the tables.
        let rows = level.rows.iter();
        let rows = rows.filter(|row| row.children.is_none() && !row.title.ends_with("page cache"));
        for row in rows {
            let point = point(row, level.concurrency);
            match by_clients
                .iter_mut()
                .find(|series| series.name == row.title)
            {
                Some(series) => series.points.push(point),
                None => by_clients.push(Series {
                    class: colours.class(&row.title),
                    name: row.title.clone(),
                    points: vec![point],
                }),
            }
        }
    }
    let children = curves(
        "Responses per second by number of children",
        "Mode embed with this number of children.",
        "children",
        &by_children,
    );
    let clients = curves(
        "Responses per second by number of clients",
        "Good responses only. The page cache is not shown, because its rates are much higher.",
        "clients",
        &by_clients,
    );
    shell::plots(out, &[children, clients]);
}

fn point<'a>(row: &'a ArmRow, x: u32, clients: &str) -> Point<'a> {
    Point {
        x: f64::from(x),
        figures: &row.figures,
        what: format!("{}, {clients}", row.title),
    }
}

fn figures(out: &mut String, level: &LevelRows, colours: &StackColours) {
    let clients = formatting::plural(level.concurrency.into(), "client", "clients");
    let _ = write!(out, "<section><h2>{clients}</h2>");
    let rows: Vec<HtmlRow<'_>> = level
        .rows
        .iter()
        .map(|row| HtmlRow {
            colour: colours.class(&row.title),
            title: &row.title,
            ours: row.ours,
            trap: false,
            notes: Vec::new(),
            before: Vec::new(),
            figures: &row.figures,
            after: vec![row.windows.to_string()],
        })
        .collect();
    let head = HtmlHead {
        row: "stack",
        before: &[],
        server: ServerColumns::Usage,
        after: &["windows"],
    };
    html_table(out, &head, &rows);
    out.push_str("</section>\n");
}

fn pages(out: &mut String, outcome: &AppOutcome) {
    out.push_str(
        "<section><h2>The pages</h2><div class=\"scroll\"><table class=\"figures\"><tr><th>page</th><th>type</th>\
         <th class=\"n\">length</th><th class=\"n\">alone</th><th class=\"n\">constant</th>\
         <th>page cache</th></tr>\n",
    );
    for page in &outcome.pages {
        let _ = writeln!(
            out,
            "<tr><td class=\"stack\">{}</td><td data-is=\"type\"><span class=\"value\">{}</span></td>\
             <td class=\"n\" data-is=\"length\">{}</td><td class=\"n\" data-is=\"alone\">{}</td>\
             <td class=\"n\" data-is=\"constant\">{} %</td><td data-is=\"page cache\">{}</td></tr>",
            escape(&page.url),
            escape(&page.media_type),
            formatting::bytes(page.bytes as f64),
            formatting::duration(page.service),
            page.constant,
            if page.kept_by_cache {
                "stores it"
            } else {
                "does not store it"
            }
        );
    }
    out.push_str("</table></div></section>\n");
}

fn footer(out: &mut String, outcome: &AppOutcome) {
    out.push_str("<footer>");
    for (name, value) in &outcome.machine {
        let _ = write!(out, "<p>{}: {}</p>", escape(name), escape(value));
    }
    for version in &outcome.versions {
        let _ = write!(out, "<p>{}</p>", escape(version));
    }
    let _ = writeln!(
        out,
        "<p>{}.</p><p>Measured in {}. To measure again: <code>{}</code></p><p>The generated configuration of every \
         stack is in the same directory as this page.</p></footer>",
        escape(&outcome.effort),
        formatting::duration(outcome.took),
        escape(&outcome.command)
    );
}
