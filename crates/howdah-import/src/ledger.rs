//! What became of each directive. Every directive is entered when it is read, and the list has each that
//! is without an outcome in the end: none is dropped in silence.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::directive::Place;

/// A directive's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(usize);

/// What became of a directive, the weightiest last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// It has no meaning here, and why.
    pub moot: Option<&'static str>,
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
pub enum Fate {
    /// The written configuration says the same.
    Carried,
    /// In the configuration, and differs from what it was.
    Different,
    /// Not in the configuration.
    Listed,
    /// Without a meaning here.
    Moot,
}

impl Outcome {
    /// What is missing weighs more than what is there.
    pub fn fate(&self) -> Fate {
        match self {
            Outcome { needs, .. } if !needs.is_empty() => Fate::Listed,
            Outcome { remarks, .. } if !remarks.is_empty() => Fate::Different,
            Outcome { carried: true, .. } => Fate::Carried,
            _ => Fate::Moot,
        }
    }
}

/// A directive with its outcome.
#[derive(Clone, Debug)]
pub struct Entry {
    /// File and line of the directive.
    pub place: Place,
    /// Its words, shortened.
    pub text: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// How many lines went where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How many the written configuration says as well.
    pub carried: usize,
    /// Without a meaning here.
    pub moot: usize,
    /// On the list.
    pub listed: usize,
    /// On the list, and closed or limited something.
    pub protecting: usize,
    /// In the configuration with a difference.
    pub remarks: usize,
}

impl Counts {
    /// How many lines there are in all.
    pub fn total(&self) -> usize {
        self.carried + self.moot + self.listed
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: RefCell<Vec<Entry>>,
}

/// What the list says of a directive without an outcome.
pub const UNKNOWN: &str = "this importer does not know it";

impl Ledger {
    /// Enters a directive.
    pub fn enter(&self, place: Place, text: String) -> Id {
        let mut entries = self.entries.borrow_mut();
        entries.push(Entry {
            place,
            text,
            outcome: Outcome::default(),
        });
        Id(entries.len() - 1)
    }

    fn change(&self, id: Id, change: impl FnOnce(&mut Outcome)) {
        change(&mut self.entries.borrow_mut()[id.0].outcome);
    }

    /// It is in the configuration.
    pub fn carried(&self, id: Id) {
        self.change(id, |outcome| outcome.carried = true);
    }

    /// It is in the configuration, with a difference.
    pub fn remark(&self, id: Id, remark: impl Into<String>) {
        let remark = remark.into();
        self.change(id, |outcome| {
            outcome.carried = true;
            push_new(&mut outcome.remarks, remark);
        });
    }

    /// It has no meaning here.
    pub fn moot(&self, id: Id, why: &'static str) {
        self.change(id, |outcome| outcome.moot = outcome.moot.or(Some(why)));
    }

    /// It is not carried over.
    pub fn list(&self, id: Id, need: impl Into<String>) {
        let need = need.into();
        self.change(id, |outcome| push_new(&mut outcome.needs, need));
    }

    /// It is not carried over, and closed or limited something.
    pub fn list_protection(&self, id: Id, need: impl Into<String>) {
        self.list(id, need);
        self.change(id, |outcome| outcome.protects = true);
    }

    /// Whether it has an outcome.
    pub fn is_settled(&self, id: Id) -> bool {
        let outcome = &self.entries.borrow()[id.0].outcome;
        outcome.moot.is_some() || outcome.carried || !outcome.needs.is_empty()
    }

    /// All entries by place. A file that is included several times is there once, with the weightiest of
    /// what became of its lines.
    pub fn entries(&self) -> Vec<Entry> {
        let mut merged: BTreeMap<(Place, String), Outcome> = BTreeMap::new();
        for entry in self.entries.borrow().iter() {
            let mut outcome = entry.outcome.clone();
            if outcome == Outcome::default() {
                outcome.needs.push(UNKNOWN.to_owned());
            }
            let into = merged
                .entry((entry.place.clone(), entry.text.clone()))
                .or_default();
            into.moot = into.moot.or(outcome.moot);
            into.carried |= outcome.carried;
            into.protects |= outcome.protects;
            for remark in outcome.remarks {
                push_new(&mut into.remarks, remark);
            }
            for need in outcome.needs {
                push_new(&mut into.needs, need);
            }
        }
        let entry = |((place, text), outcome)| Entry {
            place,
            text,
            outcome,
        };
        merged.into_iter().map(entry).collect()
    }
}

/// How many went where.
pub fn counts(entries: &[Entry]) -> Counts {
    let mut counts = Counts::default();
    for Entry { outcome, .. } in entries {
        match outcome.fate() {
            Fate::Listed => {
                counts.listed += 1;
                counts.protecting += usize::from(outcome.protects);
            }
            Fate::Different => {
                counts.carried += 1;
                counts.remarks += 1;
            }
            Fate::Carried => counts.carried += 1,
            Fate::Moot => counts.moot += 1,
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
    fn what_has_no_outcome_is_on_the_list() {
        let ledger = Ledger::default();
        let at = |line| Place {
            file: "x".into(),
            line,
        };
        ledger.enter(at(2), "forgotten".into());
        let moot = ledger.enter(at(1), "twice".into());
        let carried = ledger.enter(at(1), "twice".into());
        ledger.moot(moot, "here it has none");
        ledger.carried(carried);
        let counts = counts(&ledger.entries());
        assert_eq!((counts.carried, counts.moot, counts.listed), (1, 0, 1));
        assert_eq!(ledger.entries()[1].outcome.needs, [UNKNOWN]);
    }
}
