//! The columns that the tables of all comparisons share, on a terminal, in Markdown and on a page.

use std::fmt::Write as _;

use super::figures::Figures;
use super::formatting;
use super::html::shell::escape;

/// The meaning of the two figures in the column `tester`.
pub const TESTER_COLUMN_MEANING: &str = "the share of a core that the load tester's busiest thread used / the \
                                         measured rate as a share of the load tester's own maximum";

/// The columns about the servers beside the responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerColumns {
    /// CPU time and memory, because the programs run on this machine and are known.
    Usage,
    /// The slowest response, because the programs are not known.
    Unknown,
}

/// The formatted values of a row.
struct FormattedFigures {
    good: String,
    interval: Option<String>,
    error_share: String,
    p50: String,
    p99: String,
    cpu: String,
    memory: String,
    slowest: String,
}

/// Formats the values of a row; `none` is written for unknown values, and `rate` formats rates.
fn values(figures: &Figures, none: &str, rate: fn(f64) -> String) -> FormattedFigures {
    let time = |seconds: Option<f64>| seconds.map_or(none.to_owned(), formatting::duration);
    FormattedFigures {
        good: rate(figures.good),
        interval: figures
            .interval
            .as_ref()
            .map(|i| format!("[{}, {}]", rate(i.low), rate(i.high))),
        error_share: formatting::percent(figures.error_share()),
        p50: time(figures.p50),
        p99: time(figures.p99),
        cpu: time(figures.cpu),
        memory: match figures.memory {
            0 => none.to_owned(),
            bytes => formatting::bytes(bytes as f64),
        },
        slowest: formatting::duration(figures.slowest),
    }
}

/// Returns the errors by their outcomes: `12 5xx, 3 timeouts`; empty if there were none.
fn errors(figures: &Figures) -> String {
    let errors = figures.errors.iter();
    let errors: Vec<String> = errors
        .map(|(outcome, count)| format!("{} {}", formatting::count(*count), outcome.description()))
        .collect();
    errors.join(", ")
}

/// Returns the header line of [`text_columns`].
pub fn text_head(server: ServerColumns) -> String {
    let of_server: &[&str] = match server {
        ServerColumns::Usage => &["CPU/req", "memory"],
        ServerColumns::Unknown => &["max"],
    };
    text(
        ["good/s", "95 %", "errors", "p50", "p99"],
        of_server,
        "tester",
    )
}

/// Returns the shared columns of a row on a terminal.
pub fn text_columns(figures: &Figures, server: ServerColumns) -> String {
    let values = values(figures, "-", formatting::rate);
    let of_server: &[&str] = match server {
        ServerColumns::Usage => &[&values.cpu, &values.memory],
        ServerColumns::Unknown => &[&values.slowest],
    };
    text(
        [
            &values.good,
            &values.interval.unwrap_or_default(),
            &values.error_share,
            &values.p50,
            &values.p99,
        ],
        of_server,
        &tester(figures),
    )
}

/// Returns the shared columns of a row in a Markdown table.
pub fn markdown_columns(figures: &Figures) -> String {
    let values = values(figures, "–", formatting::rate);
    let interval = values.interval.map(|interval| format!(" {interval}"));
    let columns = [
        format!("**{}**{}", values.good, interval.unwrap_or_default()),
        values.error_share,
        values.p50,
        values.p99,
        values.cpu,
        values.memory,
        tester(figures),
    ];
    columns.join(" | ")
}

/// Returns how close the load tester was to its own limit: `41 % / 23 %`.
fn tester(figures: &Figures) -> String {
    let generator = &figures.generator;
    let ceiling = generator
        .of_ceiling
        .map_or("-".to_owned(), formatting::percent);
    format!("{} / {ceiling}", formatting::percent(generator.cpu))
}

fn text([good, interval, errors, p50, p99]: [&str; 5], of_server: &[&str], tester: &str) -> String {
    let of_server: String = of_server
        .iter()
        .map(|value| format!(" {value:>9}"))
        .collect();
    format!("{good:>9}  {interval:<19} {errors:>7} {p50:>9} {p99:>9}{of_server} {tester:>13}")
}

/// Writes the line below a row that had errors.
pub fn text_errors(out: &mut String, figures: &Figures) {
    let errors = errors(figures);
    if !errors.is_empty() {
        let _ = writeln!(out, "      errors: {errors}");
    }
}

/// The layout of a table of figures on a page.
pub struct HtmlHead<'a> {
    /// What each row represents: `stack`, `server`.
    pub row: &'a str,
    /// The columns before the shared ones.
    pub before: &'a [&'a str],
    /// The columns about the servers.
    pub server: ServerColumns,
    /// The columns after the shared ones.
    pub after: &'a [&'a str],
}

/// A row of a table of figures on a page. Notes and values are markup.
pub struct HtmlRow<'a> {
    /// The colour class of the row in the plots beside the table; empty if it has none.
    pub colour: &'a str,
    /// The display name of the server.
    pub title: &'a str,
    /// Whether the row is Howdah and not a competitor.
    pub ours: bool,
    /// Whether the row shows a trap, and is excluded from rankings.
    pub trap: bool,
    /// Notes below the title.
    pub notes: Vec<String>,
    /// Values of the columns [`HtmlHead::before`].
    pub before: Vec<String>,
    /// The measured figures, as the table shows them.
    pub figures: &'a Figures,
    /// Values of the columns [`HtmlHead::after`].
    pub after: Vec<String>,
}

/// Writes a table of figures.
pub fn html_table(out: &mut String, head: &HtmlHead<'_>, rows: &[HtmlRow<'_>]) {
    const SHARED: [&str; 4] = ["good per second", "errors", "p50", "p99"];
    let of_server: &[&str] = match head.server {
        ServerColumns::Usage => &["CPU per request", "memory"],
        ServerColumns::Unknown => &["longest"],
    };
    let names: Vec<&str> = [
        head.before,
        &SHARED,
        of_server,
        &["load tester"],
        head.after,
    ]
    .concat();
    let _ = write!(
        out,
        "<div class=\"scroll\"><table class=\"figures\"><tr><th>{}</th>",
        head.row
    );
    for name in &names {
        let _ = write!(out, "<th class=\"n\">{name}</th>");
    }
    out.push_str("</tr>\n");
    for row in rows {
        let _ = write!(
            out,
            "<tr class=\"{}\"><td class=\"stack{}\">{}{}",
            if row.ours { "ours" } else { "theirs" },
            if row.trap { " trap" } else { "" },
            match row.colour {
                "" => String::new(),
                colour => format!("<i class=\"{colour}\"></i>"),
            },
            escape(row.title),
        );
        let bound = row.figures.generator_bound.as_ref();
        let bound = bound.map(|why| {
            let why = escape(why);
            format!("the load tester was the bottleneck, so this rate is a lower bound: {why}")
        });
        for note in row.notes.iter().chain(&bound) {
            let _ = write!(out, "<small>{note}</small>");
        }
        out.push_str("</td>");
        let shared = html_columns(row.figures, head.server);
        let values = [&row.before[..], &shared, &row.after].concat();
        // On a phone a row is a card, with each value beside its name.
        for (name, value) in names.iter().zip(values) {
            let _ = write!(
                out,
                "<td class=\"n\" data-is=\"{name}\"><span class=\"value\">{value}</span></td>"
            );
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
}

fn html_columns(figures: &Figures, server: ServerColumns) -> Vec<String> {
    let values = values(figures, "–", formatting::grouped_rate);
    let with = |value: String, detail: Option<String>| match detail {
        Some(detail) => format!("{value}<br><small>{detail}</small>"),
        None => value,
    };
    let errors = errors(figures);
    let generator = &figures.generator;
    let ceiling = generator.of_ceiling;
    let ceiling = ceiling.map(|share| format!("{} of its maximum", formatting::percent(share)));
    let mut columns = vec![
        with(values.good, values.interval),
        match errors.is_empty() {
            true => "none".to_owned(),
            false => with(values.error_share, Some(escape(&errors))),
        },
        values.p50,
        values.p99,
    ];
    columns.extend(match server {
        ServerColumns::Usage => vec![values.cpu, values.memory],
        ServerColumns::Unknown => vec![values.slowest],
    });
    columns.push(with(formatting::percent(generator.cpu), ceiling));
    columns
}
