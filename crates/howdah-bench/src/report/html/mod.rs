//! The report as one page: complete in itself (no script, no network), dark and light, readable on a
//! phone and on paper. Order: the verdict, whether to believe it, the figures, the plots, what ab would
//! have printed, the text report, how to repeat the measurement.
//!
//! - [`run`], [`comparison`], [`levels`]: the pages; here is what they share.
//! - [`plots`]: the plots; [`svg`]: drawing.

mod comparison;
mod levels;
mod plots;
mod run;
pub mod svg;

use std::fmt::Write;

use crate::experiment::Document;
use crate::run::Run;

use super::text;
use super::words::{self, grouped};
use svg::escape;

/// The style sheet, for pages of the same look.
pub const STYLE: &str = include_str!("style.css");

type Page<'a> = (String, String, Option<&'a Run>);

/// The page of anything measured or saved; `text` is the report as on the terminal.
pub fn page(document: &Document, text: &str) -> String {
    let (title, body, run) = match document {
        Document::Run(run) => (run::headline(run), run::run(run), Some(run)),
        Document::Comparison(comparison) => comparison::comparison(comparison),
        Document::Sweep(sweep) => levels::sweep(sweep),
        Document::Search(search) => levels::search(search),
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

fn rate(value: f64) -> String {
    if value < 9999.5 {
        words::rate(value)
    } else {
        grouped(value.round() as u64)
    }
}

/// A condition of the measurement, shown as a coloured lamp.
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

fn number(out: &mut String, class: &str, name: &str, value: &str, unit: &str) {
    let _ = write!(
        out,
        "<div class=\"{class}\"><dt>{}</dt><dd>{}<small>{}</small></dd></div>",
        escape(name),
        escape(value),
        escape(unit)
    );
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
