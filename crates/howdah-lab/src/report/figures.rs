//! The figures of a row in words: the columns that the reports of all comparisons share, on a terminal and
//! on a page.

use std::fmt::Write as _;

use howdah_bench::report::html::shell::escape;
use howdah_bench::report::words;

use crate::figures::Figures;

/// What the two figures of the column `tester` mean.
pub const TESTER: &str = "of a core, what the load tester's busiest thread used / of what it reaches against a server that does nothing, what it reached";

/// The value of a column; `none` stands for what is not known.
struct Values {
    good: String,
    interval: Option<String>,
    error_share: String,
    p50: String,
    p99: String,
    cpu: String,
    memory: String,
}

fn values(figures: &Figures, none: &str) -> Values {
    let time = |seconds: Option<f64>| seconds.map_or(none.to_owned(), words::duration);
    Values {
        good: words::rate(figures.good),
        interval: figures
            .interval
            .as_ref()
            .map(|i| format!("[{}, {}]", words::rate(i.low), words::rate(i.high))),
        error_share: words::percent(figures.error_share()),
        p50: time(figures.p50),
        p99: time(figures.p99),
        cpu: time(figures.cpu),
        memory: match figures.memory {
            0 => none.to_owned(),
            bytes => words::bytes(bytes as f64),
        },
    }
}

/// The errors by their outcomes: `12 5xx, 3 timeouts`; empty if there were none.
fn errors(figures: &Figures) -> String {
    let errors = figures.errors.iter();
    let errors: Vec<String> = errors
        .map(|(outcome, count)| format!("{} {}", words::count(*count), outcome.words()))
        .collect();
    errors.join(", ")
}

/// The head of [`text_columns`].
pub fn text_head() -> String {
    text([
        "good/s", "95 %", "errors", "p50", "p99", "CPU/req", "memory", "tester",
    ])
}

/// The shared columns of a row on a terminal.
pub fn text_columns(figures: &Figures) -> String {
    let values = values(figures, "-");
    text([
        &values.good,
        &values.interval.unwrap_or_default(),
        &values.error_share,
        &values.p50,
        &values.p99,
        &values.cpu,
        &values.memory,
        &tester(figures),
    ])
}

/// The shared columns of a row in a Markdown table.
pub fn markdown_columns(figures: &Figures) -> String {
    let values = values(figures, "–");
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

/// How near the load tester was to its own limit: `41 % / 23 %`.
fn tester(figures: &Figures) -> String {
    let generator = &figures.generator;
    let ceiling = generator.of_ceiling.map_or("-".to_owned(), words::percent);
    format!("{} / {ceiling}", words::percent(generator.cpu))
}

fn text([good, interval, errors, p50, p99, cpu, memory, tester]: [&str; 8]) -> String {
    format!(
        "{good:>9}  {interval:<19} {errors:>7} {p50:>9} {p99:>9} {cpu:>9} {memory:>9} {tester:>13}"
    )
}

/// The line below a row that had errors.
pub fn text_errors(out: &mut String, figures: &Figures) {
    let errors = errors(figures);
    if !errors.is_empty() {
        let _ = writeln!(out, "      errors: {errors}");
    }
}

/// A row of a table of figures on a page. Notes and values are markup.
pub struct HtmlRow<'a> {
    /// The stack's name for readers.
    pub title: &'a str,
    /// Whether it is Howdah and not a rival.
    pub ours: bool,
    /// Whether it stands for a trap and is in no ranking.
    pub trap: bool,
    /// Notes below the title.
    pub notes: Vec<String>,
    /// Values before the shared columns: of the columns `before` in [`html_table`].
    pub before: Vec<String>,
    /// What was measured, as the table shows it.
    pub figures: &'a Figures,
    /// Values behind the shared columns: of the columns `after` in [`html_table`].
    pub after: Vec<String>,
}

/// A table of figures; `before` and `after` name the columns around the shared ones.
pub fn html_table(out: &mut String, before: &[&str], after: &[&str], rows: &[HtmlRow<'_>]) {
    const SHARED: [&str; 7] = [
        "good per second",
        "errors",
        "p50",
        "p99",
        "CPU per request",
        "memory",
        "load tester",
    ];
    let names: Vec<&str> = [before, &SHARED, after].concat();
    out.push_str("<div class=\"scroll\"><table class=\"figures\"><tr><th>stack</th>");
    for name in &names {
        let _ = write!(out, "<th class=\"n\">{name}</th>");
    }
    out.push_str("</tr>\n");
    for row in rows {
        let _ = write!(
            out,
            "<tr class=\"{}\"><td class=\"stack{}\">{}",
            if row.ours { "ours" } else { "theirs" },
            if row.trap { " trap" } else { "" },
            escape(row.title),
        );
        let bound = row.figures.generator_bound.as_ref();
        let bound = bound.map(|why| {
            let why = escape(why);
            format!("the load tester was the bottleneck, this is a lower bound: {why}")
        });
        for note in row.notes.iter().chain(&bound) {
            let _ = write!(out, "<small>{note}</small>");
        }
        out.push_str("</td>");
        let values = [&row.before[..], &html_columns(row.figures), &row.after].concat();
        // On a phone a row is a card, and each value stands beside its name.
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

fn html_columns(figures: &Figures) -> Vec<String> {
    let values = values(figures, "–");
    let with = |value: String, detail: Option<String>| match detail {
        Some(detail) => format!("{value}<br><small>{detail}</small>"),
        None => value,
    };
    let errors = errors(figures);
    let generator = &figures.generator;
    let ceiling = generator.of_ceiling;
    let ceiling = ceiling.map(|share| format!("{} of its ceiling", words::percent(share)));
    vec![
        with(values.good, values.interval),
        match errors.is_empty() {
            true => "none".to_owned(),
            false => with(values.error_share, Some(escape(&errors))),
        },
        values.p50,
        values.p99,
        values.cpu,
        values.memory,
        with(words::percent(generator.cpu), ceiling),
    ]
}
