//! The columns that the tables of all comparisons share, on a terminal, in Markdown and on a page.

use std::fmt::Write as _;

use super::figures::Figures;
use super::html::shell::escape;
use super::words;

/// What the two figures of the column `tester` mean.
pub const TESTER: &str = "the share of a core that the load tester's busiest thread used / its rate as a share of what it \
     reaches against a server that does nothing";

/// What a table shows of the servers beside the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerColumns {
    /// CPU time and memory: the programs run on this machine and are known.
    Usage,
    /// The slowest answer, because the programs are not known.
    Unknown,
}

/// The values of a row.
struct Values {
    good: String,
    interval: Option<String>,
    error_share: String,
    p50: String,
    p99: String,
    cpu: String,
    memory: String,
    slowest: String,
}

/// The values of a row; `none` stands for what is not known.
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
        slowest: words::duration(figures.slowest),
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

/// The shared columns of a row on a terminal.
pub fn text_columns(figures: &Figures, server: ServerColumns) -> String {
    let values = values(figures, "-");
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

fn text([good, interval, errors, p50, p99]: [&str; 5], of_server: &[&str], tester: &str) -> String {
    let of_server: String = of_server
        .iter()
        .map(|value| format!(" {value:>9}"))
        .collect();
    format!("{good:>9}  {interval:<19} {errors:>7} {p50:>9} {p99:>9}{of_server} {tester:>13}")
}

/// The line below a row that had errors.
pub fn text_errors(out: &mut String, figures: &Figures) {
    let errors = errors(figures);
    if !errors.is_empty() {
        let _ = writeln!(out, "      errors: {errors}");
    }
}

/// The shape of a table of figures on a page.
pub struct HtmlHead<'a> {
    /// What a row stands for: `stack`, `server`.
    pub row: &'a str,
    /// The columns before the shared ones.
    pub before: &'a [&'a str],
    /// What the table shows of the servers.
    pub server: ServerColumns,
    /// The columns behind the shared ones.
    pub after: &'a [&'a str],
}

/// A row of a table of figures on a page. Notes and values are markup.
pub struct HtmlRow<'a> {
    /// The colour class of the row in the plots beside the table; empty: none.
    pub colour: &'a str,
    /// The server's name for readers.
    pub title: &'a str,
    /// Whether it is Howdah and not a rival.
    pub ours: bool,
    /// Whether it stands for a trap and is in no ranking.
    pub trap: bool,
    /// Notes below the title.
    pub notes: Vec<String>,
    /// Values before the shared columns: of [`HtmlHead::before`].
    pub before: Vec<String>,
    /// What was measured, as the table shows it.
    pub figures: &'a Figures,
    /// Values behind the shared columns: of [`HtmlHead::after`].
    pub after: Vec<String>,
}

/// A table of figures.
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
            format!("the load tester was the bottleneck, this is a lower bound: {why}")
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
    let values = values(figures, "–");
    let with = |value: String, detail: Option<String>| match detail {
        Some(detail) => format!("{value}<br><small>{detail}</small>"),
        None => value,
    };
    let errors = errors(figures);
    let generator = &figures.generator;
    let ceiling = generator.of_ceiling;
    let ceiling = ceiling.map(|share| format!("{} of its ceiling", words::percent(share)));
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
    columns.push(with(words::percent(generator.cpu), ceiling));
    columns
}
