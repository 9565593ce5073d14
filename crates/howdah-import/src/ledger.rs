//! What became of each directive. Every directive is entered when it is read, and the list has each that
//! is without an outcome in the end: none is dropped in silence.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::directive::SourceLine;

/// A directive's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId(usize);

/// What became of a directive, the weightiest last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectiveOutcome {
    /// It has no meaning here, and why.
    pub irrelevant: Option<&'static str>,
    /// It is in the configuration.
    pub carried: bool,
    /// It is in the configuration, and differs from what it was: how.
    pub remarks: Vec<String>,
    /// It is not in the configuration: what it would take.
    pub needs: Vec<String>,
    /// What is missing closed or limited something.
    pub protects: bool,
}

/// An outcome in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeKind {
    /// The written configuration says the same.
    Carried,
    /// In the configuration, and differs from what it was.
    Different,
    /// Not in the configuration.
    Missing,
    /// Without a meaning here.
    Irrelevant,
}

impl DirectiveOutcome {
    /// What is missing weighs more than what is there.
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
    /// Its words, shortened.
    pub text: String,
    /// What became of it.
    pub outcome: DirectiveOutcome,
}

/// How many lines went where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    /// How many the written configuration says as well.
    pub carried: usize,
    /// Without a meaning here.
    pub irrelevant: usize,
    /// On the list.
    pub missing: usize,
    /// On the list, and closed or limited something.
    pub missing_protections: usize,
    /// In the configuration with a difference.
    pub different: usize,
}

impl OutcomeCounts {
    /// How many lines there are in all.
    pub fn total(&self) -> usize {
        self.carried + self.irrelevant + self.missing
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct ImportLedger {
    entries: RefCell<Vec<LedgerEntry>>,
}

/// What the list says of a directive without an outcome.
pub const UNKNOWN_DIRECTIVE: &str = "this importer does not know it";

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

    fn change(&self, id: EntryId, change: impl FnOnce(&mut DirectiveOutcome)) {
        change(&mut self.entries.borrow_mut()[id.0].outcome);
    }

    /// It is in the configuration.
    pub fn mark_carried(&self, id: EntryId) {
        self.change(id, |outcome| outcome.carried = true);
    }

    /// It is in the configuration, with a difference.
    pub fn mark_different(&self, id: EntryId, remark: impl Into<String>) {
        let remark = remark.into();
        self.change(id, |outcome| {
            outcome.carried = true;
            push_new(&mut outcome.remarks, remark);
        });
    }

    /// It has no meaning here.
    pub fn mark_irrelevant(&self, id: EntryId, why: &'static str) {
        self.change(id, |outcome| {
            outcome.irrelevant = outcome.irrelevant.or(Some(why))
        });
    }

    /// It is not carried over.
    pub fn mark_missing(&self, id: EntryId, need: impl Into<String>) {
        let need = need.into();
        self.change(id, |outcome| push_new(&mut outcome.needs, need));
    }

    /// It is not carried over, and closed or limited something.
    pub fn mark_missing_protection(&self, id: EntryId, need: impl Into<String>) {
        self.mark_missing(id, need);
        self.change(id, |outcome| outcome.protects = true);
    }

    /// Whether it has an outcome.
    pub fn has_outcome(&self, id: EntryId) -> bool {
        let outcome = &self.entries.borrow()[id.0].outcome;
        outcome.irrelevant.is_some() || outcome.carried || !outcome.needs.is_empty()
    }

    /// All entries by place. A file that is included several times is there once, with the weightiest of
    /// what became of its lines.
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

/// How many went where.
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
