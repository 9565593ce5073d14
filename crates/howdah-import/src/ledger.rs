//! Records the outcome of each directive. Every directive is entered when it is read, and a directive that has no
//! outcome in the end is put on the list, so no directive is dropped silently.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::directive::SourceLine;

/// Identifies a directive's entry in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId(usize);

/// What became of a directive. The fields are in ascending order of weight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectiveOutcome {
    /// The reason why the directive has no meaning in Howdah, if it has none.
    pub irrelevant: Option<&'static str>,
    /// Whether the directive is in the configuration.
    pub carried: bool,
    /// The directive is in the configuration, with these differences from the original.
    pub remarks: Vec<String>,
    /// The directive is not in the configuration; these texts say what would be needed.
    pub needs: Vec<String>,
    /// True if a directive that denied or limited access is not carried over.
    pub protects: bool,
}

/// The kind of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeKind {
    /// The written configuration has the same effect.
    Carried,
    /// In the configuration, with a difference from the original.
    Different,
    /// Not in the configuration.
    Missing,
    /// Without a meaning in Howdah.
    Irrelevant,
}

impl DirectiveOutcome {
    /// Returns the kind of the outcome. A missing part outweighs the parts that are carried over.
    pub fn kind(&self) -> OutcomeKind {
        match self {
            DirectiveOutcome { needs, .. } if !needs.is_empty() => OutcomeKind::Missing,
            DirectiveOutcome { remarks, .. } if !remarks.is_empty() => OutcomeKind::Different,
            DirectiveOutcome { carried: true, .. } => OutcomeKind::Carried,
            _ => OutcomeKind::Irrelevant,
        }
    }
}

/// A directive with its outcome.
#[derive(Clone, Debug)]
pub struct LedgerEntry {
    /// File and line of the directive.
    pub place: SourceLine,
    /// The directive's text, shortened.
    pub text: String,
    /// The outcome of the directive.
    pub outcome: DirectiveOutcome,
}

/// How many directives had each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    /// Directives in the written configuration, with or without a difference.
    pub carried: usize,
    /// Directives without a meaning in Howdah.
    pub irrelevant: usize,
    /// Directives that are not carried over.
    pub missing: usize,
    /// Directives that denied or limited access and are not carried over.
    pub missing_protections: usize,
    /// Directives in the configuration with a difference.
    pub different: usize,
}

impl OutcomeCounts {
    /// Returns the number of all directives.
    pub fn total(&self) -> usize {
        self.carried + self.irrelevant + self.missing
    }
}

/// The outcomes of all directives; see the module.
#[derive(Debug, Default)]
pub struct ImportLedger {
    entries: RefCell<Vec<LedgerEntry>>,
    files: RefCell<BTreeSet<PathBuf>>,
}

/// The remark in the list for a directive without an outcome.
pub const UNKNOWN_DIRECTIVE: &str = "this importer does not know this directive";

impl ImportLedger {
    /// Enters a directive.
    pub fn enter(&self, place: SourceLine, text: String) -> EntryId {
        let mut entries = self.entries.borrow_mut();
        entries.push(LedgerEntry {
            place,
            text,
            outcome: DirectiveOutcome::default(),
        });
        EntryId(entries.len() - 1)
    }

    /// Records that a file has been read.
    pub fn record_file(&self, path: &Path) {
        self.files.borrow_mut().insert(path.to_owned());
    }

    /// Returns the files that have been read, each once.
    pub fn files(&self) -> Vec<PathBuf> {
        self.files.borrow().iter().cloned().collect()
    }

    fn change(&self, id: EntryId, change: impl FnOnce(&mut DirectiveOutcome)) {
        change(&mut self.entries.borrow_mut()[id.0].outcome);
    }

    /// Records that the directive is in the configuration.
    pub fn mark_carried(&self, id: EntryId) {
        self.change(id, |outcome| outcome.carried = true);
    }

    /// Records that the directive is in the configuration, with a difference.
    pub fn mark_different(&self, id: EntryId, remark: impl Into<String>) {
        let remark = remark.into();
        self.change(id, |outcome| {
            outcome.carried = true;
            push_new(&mut outcome.remarks, remark);
        });
    }

    /// Records that the directive has no meaning in Howdah. The first reason is retained.
    pub fn mark_irrelevant(&self, id: EntryId, why: &'static str) {
        self.change(id, |outcome| {
            outcome.irrelevant = outcome.irrelevant.or(Some(why))
        });
    }

    /// Records that the directive is not carried over, and what would be needed.
    pub fn mark_missing(&self, id: EntryId, need: impl Into<String>) {
        let need = need.into();
        self.change(id, |outcome| push_new(&mut outcome.needs, need));
    }

    /// Records that a directive which denied or limited access is not carried over.
    pub fn mark_missing_protection(&self, id: EntryId, need: impl Into<String>) {
        self.mark_missing(id, need);
        self.change(id, |outcome| outcome.protects = true);
    }

    /// Returns whether the directive has an outcome.
    pub fn has_outcome(&self, id: EntryId) -> bool {
        let outcome = &self.entries.borrow()[id.0].outcome;
        outcome.irrelevant.is_some() || outcome.carried || !outcome.needs.is_empty()
    }

    /// Returns all entries, sorted by file and line. A file that is included several times appears once, with the
    /// outcomes of all its inclusions merged.
    pub fn entries(&self) -> Vec<LedgerEntry> {
        let mut merged: BTreeMap<(SourceLine, String), DirectiveOutcome> = BTreeMap::new();
        for entry in self.entries.borrow().iter() {
            let mut outcome = entry.outcome.clone();
            if outcome == DirectiveOutcome::default() {
                outcome.needs.push(UNKNOWN_DIRECTIVE.to_owned());
            }
            let into = merged
                .entry((entry.place.clone(), entry.text.clone()))
                .or_default();
            into.irrelevant = into.irrelevant.or(outcome.irrelevant);
            into.carried |= outcome.carried;
            into.protects |= outcome.protects;
            for remark in outcome.remarks {
                push_new(&mut into.remarks, remark);
            }
            for need in outcome.needs {
                push_new(&mut into.needs, need);
            }
        }
        let entry = |((place, text), outcome)| LedgerEntry {
            place,
            text,
            outcome,
        };
        merged.into_iter().map(entry).collect()
    }
}

/// Counts the entries by outcome.
pub fn counts(entries: &[LedgerEntry]) -> OutcomeCounts {
    let mut counts = OutcomeCounts::default();
    for LedgerEntry { outcome, .. } in entries {
        match outcome.kind() {
            OutcomeKind::Missing => {
                counts.missing += 1;
                counts.missing_protections += usize::from(outcome.protects);
            }
            OutcomeKind::Different => {
                counts.carried += 1;
                counts.different += 1;
            }
            OutcomeKind::Carried => counts.carried += 1,
            OutcomeKind::Irrelevant => counts.irrelevant += 1,
        }
    }
    counts
}

fn push_new(texts: &mut Vec<String>, text: String) {
    if !texts.contains(&text) {
        texts.push(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_without_outcome_is_listed() {
        let ledger = ImportLedger::default();
        let at = |line| SourceLine {
            file: "x".into(),
            line,
        };
        ledger.enter(at(2), "forgotten".into());
        let moot = ledger.enter(at(1), "twice".into());
        let carried = ledger.enter(at(1), "twice".into());
        ledger.mark_irrelevant(moot, "here it has none");
        ledger.mark_carried(carried);
        let counts = counts(&ledger.entries());
        assert_eq!(
            (counts.carried, counts.irrelevant, counts.missing),
            (1, 0, 1)
        );
        assert_eq!(ledger.entries()[1].outcome.needs, [UNKNOWN_DIRECTIVE]);
    }
}
