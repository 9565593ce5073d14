//! The list of what was not carried over: by file and line, with what it would take.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::Request;
use crate::ledger::{Counts, Entry, Fate};

/// Its text.
pub fn list(request: &Request, entries: &[Entry], counts: Counts) -> String {
    let mut out = format!(
        "What `howdah import {}` made of {} directives: {} carried over ({} with a difference),\n\
         {} without a meaning here, {} not carried over.\n",
        request.format.name(),
        counts.total(),
        counts.carried,
        counts.remarks,
        counts.moot,
        counts.listed
    );
    let listed = |protects: bool| {
        let listed = move |entry: &&Entry| {
            entry.outcome.fate() == Fate::Listed && entry.outcome.protects == protects
        };
        entries.iter().filter(listed)
    };
    let needs = |entry: &Entry| entry.outcome.needs.clone();
    chapter(
        &mut out,
        "Not carried over, and it closed or limited something: see to it before you go live",
        listed(true),
        needs,
    );
    chapter(&mut out, "Not carried over", listed(false), needs);
    let different = entries
        .iter()
        .filter(|entry| entry.outcome.fate() == Fate::Different);
    chapter(
        &mut out,
        "Carried over, with a difference",
        different,
        |entry| entry.outcome.remarks.clone(),
    );
    without_meaning(&mut out, entries);
    out
}

fn chapter<'e>(
    out: &mut String,
    title: &str,
    entries: impl Iterator<Item = &'e Entry>,
    texts: impl Fn(&Entry) -> Vec<String>,
) {
    let entries: Vec<&Entry> = entries.collect();
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

/// By reason, since these are many and need nothing.
fn without_meaning(out: &mut String, entries: &[Entry]) {
    let mut reasons: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        if entry.outcome.fate() == Fate::Moot
            && let Some(why) = entry.outcome.moot
        {
            reasons.entry(why).or_default().push(entry);
        }
    }
    if reasons.is_empty() {
        return;
    }
    let all: usize = reasons.values().map(Vec::len).sum();
    let _ = writeln!(out, "\n== Without a meaning here ({all})");
    for (why, entries) in reasons {
        let _ = writeln!(out, "\n{why} ({}):", entries.len());
        for entry in entries {
            let _ = writeln!(out, "    {}: {}", entry.place, entry.text);
        }
    }
}
