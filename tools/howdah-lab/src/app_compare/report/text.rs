//! The report for a terminal: the recommendation and its reasons, then the figures, then the arms that were not
//! measured.

use std::fmt::Write as _;

use howdah_bench::report::columns::{
    ServerColumns, TESTER_COLUMN_MEANING, text_columns, text_errors, text_head,
};
use howdah_bench::report::formatting;

use super::super::outcome::AppOutcome;
use super::super::rows::{ArmRow, LevelRows};
use crate::versions;

/// Renders the result of a comparison for a terminal.
pub fn render(outcome: &AppOutcome) -> String {
    let mut out = String::new();
    head(&mut out, outcome);
    advice(&mut out, outcome);
    for level in &outcome.levels {
        write_level(&mut out, level);
    }
    if !outcome.levels.is_empty() {
        let _ = writeln!(out, "\n  tester: {TESTER_COLUMN_MEANING}");
    }
    if !outcome.failed.is_empty() {
        let _ = writeln!(out, "\n  Not measured:");
        for failed in &outcome.failed {
            let _ = writeln!(out, "    {}: {}", failed.title, failed.message);
        }
    }
    if !outcome.notes.is_empty() {
        let _ = writeln!(out, "\n  Notes:");
        for note in &outcome.notes {
            let _ = writeln!(out, "    - {note}");
        }
    }
    if let Some(config) = &outcome.config {
        let path = config.path.display();
        let _ = writeln!(out, "\n{}", config.text);
        let _ = match &config.trial {
            Ok(said) => writeln!(out, "  {path}: {said}"),
            Err(why) => writeln!(out, "  {path} failed its trial: {why}"),
        };
    }
    let _ = writeln!(out, "  To measure again: {}", outcome.command);
    out
}

/// Writes the application, its pages and the conditions of the comparison.
fn head(out: &mut String, outcome: &AppOutcome) {
    let _ = writeln!(out, "{}", outcome.found);
    for page in &outcome.pages {
        let kept = match page.kept_by_cache {
            true => ", stored by the page cache",
            false => "",
        };
        let _ = writeln!(
            out,
            "  {}  {}, {}, {} without load, {} % of the text constant{kept}",
            page.url,
            page.media_type,
            formatting::bytes(page.bytes as f64),
            formatting::duration(page.service),
            page.constant
        );
    }
    let machine = outcome.machine.iter();
    let machine: Vec<String> = machine
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let _ = writeln!(out, "  {}", machine.join(" · "));
    let _ = writeln!(out, "  {}", outcome.effort);
    let _ = writeln!(
        out,
        "  The reference for the pages is {}; all stacks below serve the same pages.",
        outcome.reference
    );
    if outcome.interrupted {
        let _ = writeln!(
            out,
            "  The comparison was interrupted, so nothing is recommended; --resume continues it."
        );
    }
    for sentence in warnings(outcome) {
        let _ = writeln!(out, "  {sentence}");
    }
}

/// Writes the recommendation and its reasons.
fn advice(out: &mut String, outcome: &AppOutcome) {
    let Some(advice) = &outcome.advice else {
        let _ = writeln!(
            out,
            "\n  No mode of Howdah serves these pages correctly; the reasons are below."
        );
        return;
    };
    out.push('\n');
    for decision in &advice.decisions {
        let heading = super::heading(decision.question);
        let _ = writeln!(out, "  {heading}: {}", decision.therefore);
        let _ = writeln!(out, "      {}", decision.evidence);
    }
    if let Some(sentence) = memory_sentence(outcome) {
        let _ = writeln!(out, "  {sentence}");
    }
}

/// Returns what makes all figures doubtful: a `howdah` without optimisation, and other programs that used the processor.
pub fn warnings(outcome: &AppOutcome) -> Vec<String> {
    let cores = outcome.machine.iter().find(|(name, _)| name == "cores");
    let cores: f64 = cores.and_then(|(_, n)| n.parse().ok()).unwrap_or(1.0);
    let busy = (outcome.load > cores * 0.5).then(|| {
        format!(
            "The machine was busy before the comparison began (load {:.1} on {cores} cores): expect wide intervals.",
            outcome.load
        )
    });
    let unoptimised = versions::unoptimised_warning(&outcome.versions);
    unoptimised.into_iter().chain(busy).collect()
}

/// Returns how much memory a child takes, as a sentence, or `None` if that is not known.
pub fn memory_sentence(outcome: &AppOutcome) -> Option<String> {
    let advice = outcome.advice.as_ref()?;
    let bytes = formatting::bytes(advice.memory_per_child?);
    Some(format!(
        "Each further child takes about {bytes} of memory; {} fit into 60 % of this machine's memory.",
        match advice.children_that_fit? {
            1000.. => "1000 children (the most that may be configured)".to_owned(),
            some => format!("{some} children"),
        }
    ))
}

fn write_level(out: &mut String, level: &LevelRows) {
    let clients = formatting::plural(level.concurrency.into(), "client", "clients");
    let _ = writeln!(out, "\n  {clients:<50} {}", text_head(ServerColumns::Usage));
    for row in &level.rows {
        write_row(out, row);
    }
}

fn write_row(out: &mut String, row: &ArmRow) {
    let figures = &row.figures;
    let _ = writeln!(
        out,
        "    {:<48} {}",
        row.title,
        text_columns(figures, ServerColumns::Usage)
    );
    if let Some(why) = &figures.generator_bound {
        let _ = writeln!(
            out,
            "      ! the load tester was the bottleneck ({why}), so this rate is a lower bound"
        );
    }
    text_errors(out, figures);
}
