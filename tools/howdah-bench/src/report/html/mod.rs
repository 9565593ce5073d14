//! The report as one page. Order: the verdict, whether it is reliable, the figures, the plots, what ab would have
//! printed, the text report, how to repeat the measurement.
//!
//! - [`shell`]: the parts that all pages share, including those of comparisons; [`svg`], [`scale`]: drawing.
//! - [`run`], [`comparison`], [`levels`]: the load tester's pages; [`plots`]: their plots.

mod comparison;
mod levels;
pub mod plots;
mod run;
pub mod scale;
pub mod shell;
pub mod svg;

use std::fmt::Write;

use crate::experiment::SavedDocument;
use crate::run::Run;

use super::formatting;
use super::text;
use shell::escape;

type PageParts<'a> = (String, String, Option<&'a Run>);

/// Returns the page of any document. `text` is the report as on the terminal.
pub fn page(document: &SavedDocument, text: &str) -> String {
    let (title, mut body, run) = match document {
        SavedDocument::Run(run) => (run::headline(run), run::run(run), Some(run)),
        SavedDocument::Comparison(comparison) => comparison::comparison(comparison),
        SavedDocument::Sweep(sweep) => levels::sweep(sweep),
        SavedDocument::Search(search) => levels::search(search),
    };
    shell::as_text(&mut body, text);
    if let Some(run) = run {
        footer(&mut body, run);
    }
    shell::document(&title, &body)
}

fn heading(out: &mut String, what: &str, run: Option<&Run>, conclusion: &str, about: &str) {
    match run {
        Some(run) => {
            let target = run.plan.targets[0].text();
            let kicker = [what, target, &formatting::timestamp(run.started)];
            shell::heading(out, &kicker, conclusion, about);
        }
        None => shell::heading(out, &[what], conclusion, about),
    }
}

fn rate(value: f64) -> String {
    formatting::grouped_rate(value)
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
