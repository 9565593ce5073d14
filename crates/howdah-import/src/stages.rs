//! The order of a site's rules. nginx and Apache have phases, and look at a path again after a rewrite;
//! Howdah asks rules once, from top to bottom. So all rules are sorted by phase: what a rewrite leads to
//! still meets all rules that answer.

use crate::target::TomlTable;

/// A phase of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleStage {
    /// Fields of answers: whatever else happens.
    Headers,
    /// Paths that no client may name, whatever a rewrite does later.
    InternalPaths,
    /// Rewrites and redirects that come before access: the server's, then those of its parts.
    Rewrites,
    /// Access, then what answers.
    Responses,
    /// Where paths of a location lead that name no file.
    MissingFiles,
    /// Where all others lead.
    LastResort,
    /// Pools of the scripts that all this leads to.
    Pools,
}

/// Rules by stage.
#[derive(Clone, Debug, Default)]
pub struct StagedRules {
    rules: [Vec<TomlTable>; 7],
}

impl StagedRules {
    /// Adds a rule.
    pub fn push(&mut self, stage: RuleStage, rule: TomlTable) {
        let rules = &mut self.rules[stage as usize];
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }

    /// How many rules a stage has.
    pub fn len(&self, stage: RuleStage) -> usize {
        self.rules[stage as usize].len()
    }

    /// The rules of a stage from that number on.
    pub fn since(&self, stage: RuleStage, number: usize) -> Vec<TomlTable> {
        self.rules[stage as usize][number..].to_vec()
    }

    /// All rules in order.
    pub fn all(self) -> Vec<TomlTable> {
        self.rules.into_iter().flatten().collect()
    }
}
