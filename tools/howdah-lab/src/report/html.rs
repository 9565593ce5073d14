//! The result as one HTML page. The order is: the questions and the answers; how reliable they are; then for each page
//! curves or bars, the figures beside those of the post, ratios, percentiles; what the figures of the post hid; what
//! was not measured; how to repeat the measurement. [`super::plots`] draws the plots.

use std::fmt::Write as _;

use howdah_bench::report::columns::{
    HtmlHead, HtmlRow, ServerColumns, TESTER_COLUMN_MEANING, html_table,
};
use howdah_bench::report::formatting;
use howdah_bench::report::html::shell::{self, Badge, escape};

use super::plots::StackColours;
use super::{plots, text};
use crate::answer::sentence;
use crate::table::{ResultTable, StackRow, TableCell};

/// Renders a benchmark's result as a page.
pub fn page(table: &ResultTable) -> String {
    let suite = &table.suite;
    let mut out = String::new();
    let kicker = format!("howdah compare {}", suite.name);
    let kicker = [kicker.as_str(), &formatting::timestamp(table.started)];
    shell::heading(&mut out, &kicker, &suite.question, &suite.title);
    answers(&mut out, table);
    badges(&mut out, table);
    let _ = writeln!(
        out,
        "<p class=\"notes\">{} Load tester: {}.</p>",
        escape(&table.effort.join(" ")),
        escape(TESTER_COLUMN_MEANING)
    );
    let rows = table.cells.iter().flat_map(|cell| &cell.rows);
    let colours = StackColours::of(rows.map(|line| &*line.stack));
    for page in &suite.pages {
        let cells: Vec<&TableCell> = table.cells.iter().filter(|c| c.page == page.name).collect();
        if cells.is_empty() {
            continue;
        }
        let _ = writeln!(
            out,
            "<section><h2>{} <small>{}</small></h2>",
            escape(&page.name),
            escape(&page.path)
        );
        if cells.len() > 1 {
            let mut figures = plots::error_stacks(&cells, &colours);
            let no_errors = figures.is_empty();
            figures.insert(0, plots::over_clients(&cells, &colours));
            shell::plots(&mut out, &figures);
            if no_errors {
                out.push_str(
                    "<p class=\"notes below\">No stack had errors at any number of clients.</p>\n",
                );
            }
        }
        let last = cells.len() - 1;
        for (at, cell) in cells.into_iter().enumerate() {
            // If there are many levels, only the first and the last are shown open; the others are folded.
            let folded = last > 2 && at != 0 && at != last;
            figures(&mut out, table, cell, &colours, folded);
        }
        out.push_str("</section>\n");
    }
    write_hidden_problems(&mut out, table);
    let missing = table.missing.iter();
    let missing = missing.map(|m| (format!("{}{}", m.title, m.location()), m.message.clone()));
    shell::not_measured(&mut out, missing);
    shell::as_text(&mut out, &text::render(table));
    footer(&mut out, table);
    shell::document(&suite.title, &out)
}

/// Writes the questions, and each answer as a sentence.
fn answers(out: &mut String, table: &ResultTable) {
    out.push_str("<ul class=\"answers\">");
    for said in sentence::verdict(table) {
        // The words before the first colon name the subject of the figures.
        let _ = match said.split_once(": ") {
            Some((what, rest)) => write!(
                out,
                "<li><strong>{}</strong> {}</li>",
                escape(what),
                escape(rest)
            ),
            None => write!(out, "<li>{}</li>", escape(&said)),
        };
    }
    out.push_str("</ul>\n");
}

fn badges(out: &mut String, table: &ResultTable) {
    let mut badges: Vec<Badge> = Vec::new();
    let lines = || table.cells.iter().flat_map(|cell| &cell.rows);
    badges.push((
        "",
        "every page was checked before it was measured".to_owned(),
    ));
    if table.interrupted {
        badges.push((
            "bad",
            "interrupted: the figures cover the time until then".into(),
        ));
    }
    badges.extend(
        text::warnings(table)
            .into_iter()
            .map(|sentence| ("warn", sentence)),
    );
    badges.extend(
        table
            .left_out
            .iter()
            .map(|sentence| ("warn", sentence.clone())),
    );
    let bound = lines()
        .filter(|line| line.figures.generator_bound.is_some())
        .count();
    if bound > 0 {
        badges.push((
            "warn",
            format!(
                "in {} the load tester was the bottleneck, so these rates are lower bounds",
                formatting::plural(bound as u64, "row", "rows")
            ),
        ));
    }
    let floors = || table.cells.iter().filter_map(|cell| cell.noise_floor);
    if let (Some(least), Some(most)) = (
        floors().min_by(f64::total_cmp),
        floors().max_by(f64::total_cmp),
    ) {
        let percent = |floor: f64| format!("±{:.0} %", (floor - 1.0) * 100.0);
        let span = match (percent(least), percent(most)) {
            (least, most) if least == most => format!("{most}; smaller differences prove nothing"),
            (least, most) => {
                format!("{least} to {most}; smaller differences prove nothing")
            }
        };
        badges.push((
            if most > 1.1 { "warn" } else { "" },
            format!("a stack against itself: {span}"),
        ));
    }
    if !table.missing.is_empty() {
        badges.push(("warn", format!("{} not measured", table.missing.len())));
    }
    shell::badges(out, &badges);
}

fn figures(
    out: &mut String,
    table: &ResultTable,
    cell: &TableCell,
    colours: &StackColours,
    folded: bool,
) {
    let clients = formatting::plural(u64::from(cell.concurrency), "client", "clients");
    let _ = match folded {
        true => writeln!(out, "<details class=\"cell\"><summary>{clients}</summary>"),
        false => writeln!(out, "<h3>{clients}</h3>"),
    };
    bars(out, cell, colours);
    let rows = cell.rows.iter().map(|line| row(line, colours));
    let rows: Vec<HtmlRow<'_>> = rows.collect();
    let head = HtmlHead {
        row: "stack",
        before: &["as ab"],
        server: ServerColumns::Usage,
        after: &["the post"],
    };
    html_table(out, &head, &rows);
    shell::plots(
        out,
        &[
            plots::ratios(cell, colours),
            plots::percentiles(cell, colours),
        ],
    );
    out.push_str("<details><summary>Commands that measure one row again</summary><pre>");
    for line in &cell.rows {
        let _ = writeln!(out, "{}", escape(&table.repeat_command(cell, line)));
    }
    out.push_str("</pre></details>\n");
    if folded {
        out.push_str("</details>\n");
    }
}

fn is_ours(line: &StackRow) -> bool {
    line.stack.starts_with("howdah-")
}

/// Draws good responses as a bar for each stack, with errors stacked behind them in red.
fn bars(out: &mut String, cell: &TableCell, colours: &StackColours) {
    let most = cell
        .rows
        .iter()
        .map(|line| line.as_ab.max(line.figures.good));
    let most = most.fold(1e-9, f64::max);
    out.push_str("<table class=\"bars\">");
    for line in &cell.rows {
        let width = |rate: f64| rate / most * 62.0;
        let errors =
            line.figures.good / (1.0 - line.figures.error_share()).max(1e-9) - line.figures.good;
        let errors = if line.figures.good > 0.0 {
            errors
        } else {
            line.as_ab
        };
        let _ = write!(
            out,
            "<tr class=\"{}\"><td class=\"stack\">{}</td><td><div class=\"track\">\
             <b class=\"{}\" style=\"width:{:.2}%\"></b>",
            if is_ours(line) { "ours" } else { "theirs" },
            escape(&line.title),
            colours.class(&line.stack),
            width(line.figures.good)
        );
        if line.figures.error_share() > 0.0 {
            let width = width(errors.min(most - line.figures.good).max(0.0));
            let _ = write!(out, "<b class=\"error\" style=\"width:{width:.2}%\"></b>");
        }
        let mut label = formatting::grouped_rate(line.figures.good);
        if line.figures.error_share() > 0.0 {
            let _ = write!(
                label,
                " good, {} errors",
                formatting::percent(line.figures.error_share())
            );
        }
        let _ = write!(out, "<span>{}</span></div></td></tr>", escape(&label));
    }
    out.push_str("</table>\n");
}

fn row<'a>(line: &'a StackRow, colours: &StackColours) -> HtmlRow<'a> {
    let stands_for = line.stands_for.as_ref();
    let stands_for = stands_for.map(|what| format!("in the post: {}", escape(what)));
    let trap = line.trap.as_ref();
    let trap = trap.map(|trap| format!("trap: {}", escape(trap)));
    let loads = line.page_loads.as_ref().map(text::page_loads_text);
    let reported = line.reported.as_ref().map_or("–".to_owned(), |figure| {
        let good = figure.good.map_or(String::new(), |good| {
            format!("<br><small>{} good</small>", formatting::grouped_rate(good))
        });
        format!("{}{good}", formatting::grouped_rate(figure.rate))
    });
    HtmlRow {
        colour: colours.class(&line.stack),
        title: &line.title,
        ours: is_ours(line),
        trap: line.trap.is_some(),
        notes: stands_for.into_iter().chain(trap).chain(loads).collect(),
        before: vec![formatting::grouped_rate(line.as_ab)],
        figures: &line.figures,
        after: vec![reported],
    }
}

fn write_hidden_problems(out: &mut String, table: &ResultTable) {
    let suite = &table.suite;
    let Some(post) = &suite.post else {
        return;
    };
    let _ = write!(
        out,
        "<section><h2>What the post’s figures hid</h2><p class=\"sub\">{}</p><ul class=\"hid\">",
        escape(post)
    );
    for sentence in &suite.hid {
        let _ = write!(out, "<li>{}</li>", escape(sentence));
    }
    out.push_str("</ul>");
    if !suite.reported.is_empty() {
        out.push_str("<details open><summary>The post’s own table</summary><div class=\"scroll\"><table class=\"figures\"><tr><th>page</th><th>set-up</th><th class=\"n\">clients</th><th class=\"n\">reported per second</th><th class=\"n\">good per second</th><th class=\"n\">errors</th></tr>");
        for figure in &suite.reported {
            let clients = figure
                .concurrency
                .or(match suite.load.concurrency.as_slice() {
                    [only] => Some(*only),
                    _ => None,
                });
            let some = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
            let _ = write!(
                out,
                "<tr><td class=\"stack\">{}</td><td data-is=\"set-up\"><span class=\"value\">{}</span></td>\
                 <td class=\"n\" data-is=\"clients\">{}</td><td class=\"n\" data-is=\"reported per second\">{}</td>\
                 <td class=\"n\" data-is=\"good per second\">{}</td><td class=\"n\" data-is=\"errors\">{}</td></tr>",
                escape(&figure.page),
                escape(&figure.what),
                some(clients.map(|n| n.to_string())),
                formatting::grouped_rate(figure.rate),
                some(figure.good.map(formatting::grouped_rate)),
                some(figure.errors.map(formatting::grouped)),
            );
        }
        out.push_str("</table></div></details>");
    }
    out.push_str("</section>\n");
}

fn footer(out: &mut String, table: &ResultTable) {
    let machine = &table.machine;
    let _ = write!(
        out,
        "<footer><p>{} · {} cores, {} · {} of memory · {}</p>",
        escape(&machine.host),
        machine.cores,
        escape(&machine.cpu),
        formatting::bytes(machine.memory as f64),
        escape(&machine.kernel)
    );
    for version in &table.versions {
        let _ = write!(out, "<p>{}</p>", escape(version));
    }
    let _ = writeln!(
        out,
        "<p>Measured in {}. To measure again: <code>{}</code></p><p>The generated configuration of every stack is \
         in the same directory as this page.</p></footer>",
        formatting::duration(table.took),
        escape(&table.command)
    );
}
