//! The order of a site's rules. nginx and Apache have phases, and look at a path again after a rewrite;
//! Howdah asks rules once, from top to bottom. So all rules are sorted by phase: what a rewrite leads to
//! still meets all rules that answer.

use crate::target::Table;

/// A phase of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Fields of answers: whatever else happens.
    Fields,
    /// Paths that no client may name, whatever a rewrite does later.
    Inside,
    /// Rewrites and redirects that come before access: the server's, then those of its parts.
    Rewrites,
    /// Access, then what answers.
    Answers,
    /// Where paths of a location lead that name no file.
    Missing,
    /// Where all others lead.
    LastResort,
    /// Pools of the scripts that all this leads to.
    Pools,
}

/// Rules by stage.
#[derive(Clone, Debug, Default)]
pub struct Stages {
    rules: [Vec<Table>; 7],
}

impl Stages {
    /// Adds a rule.
    pub fn push(&mut self, stage: Stage, rule: Table) {
        let rules = &mut self.rules[stage as usize];
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }

    /// How many rules a stage has.
    pub fn len(&self, stage: Stage) -> usize {
        self.rules[stage as usize].len()
    }

    /// The rules of a stage from that number on.
    pub fn since(&self, stage: Stage, number: usize) -> Vec<Table> {
        self.rules[stage as usize][number..].to_vec()
    }

    /// All rules in order.
    pub fn all(self) -> Vec<Table> {
        self.rules.into_iter().flatten().collect()
    }
}
