//! The list of directives that were not carried over, by file and line, with what would be needed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::ImportRequest;
use crate::ledger::{LedgerEntry, OutcomeCounts, OutcomeKind};

/// Returns the text of the list.
pub fn format_list(
    request: &ImportRequest,
    entries: &[LedgerEntry],
    counts: OutcomeCounts,
) -> String {
    let mut out = format!(
        "What `howdah import {}` made of {} directives: {} carried over ({} with a difference),\n\
         {} without a meaning in Howdah, {} not carried over.\n",
        request.format.name(),
        counts.total(),
        counts.carried,
        counts.different,
        counts.irrelevant,
        counts.missing
    );
    let listed = |protects: bool| {
        let listed = move |entry: &&LedgerEntry| {
            entry.outcome.kind() == OutcomeKind::Missing && entry.outcome.protects == protects
        };
        entries.iter().filter(listed)
    };
    let needs = |entry: &LedgerEntry| entry.outcome.needs.clone();
    write_chapter(
        &mut out,
        "Not carried over, although it denied or limited access: replace it before you go live",
        listed(true),
        needs,
    );
    write_chapter(&mut out, "Not carried over", listed(false), needs);
    let different = entries
        .iter()
        .filter(|entry| entry.outcome.kind() == OutcomeKind::Different);
    write_chapter(
        &mut out,
        "Carried over, with a difference",
        different,
        |entry| entry.outcome.remarks.clone(),
    );
    write_irrelevant(&mut out, entries);
    out
}

fn write_chapter<'e>(
    out: &mut String,
    title: &str,
    entries: impl Iterator<Item = &'e LedgerEntry>,
    texts: impl Fn(&LedgerEntry) -> Vec<String>,
) {
    let entries: Vec<&LedgerEntry> = entries.collect();
    if entries.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n== {title} ({})", entries.len());
    for entry in entries {
        let _ = writeln!(out, "\n{}: {}", entry.place, entry.text);
        for text in texts(entry) {
            let _ = writeln!(out, "    {text}");
        }
    }
}

/// Writes the directives without a meaning in Howdah, grouped by reason because there are many of them and they need no
/// action.
fn write_irrelevant(out: &mut String, entries: &[LedgerEntry]) {
    let mut reasons: BTreeMap<&str, Vec<&LedgerEntry>> = BTreeMap::new();
    for entry in entries {
        if entry.outcome.kind() == OutcomeKind::Irrelevant
            && let Some(why) = entry.outcome.irrelevant
        {
            reasons.entry(why).or_default().push(entry);
        }
    }
    if reasons.is_empty() {
        return;
    }
    let all: usize = reasons.values().map(Vec::len).sum();
    let _ = writeln!(out, "\n== Without a meaning in Howdah ({all})");
    for (why, entries) in reasons {
        let _ = writeln!(out, "\n{why} ({}):", entries.len());
        for entry in entries {
            let _ = writeln!(out, "    {}: {}", entry.place, entry.text);
        }
    }
}
