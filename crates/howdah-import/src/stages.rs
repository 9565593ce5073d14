//! The order of a site's rules. nginx and Apache process a request in phases, and match a path again after a rewrite;
//! Howdah evaluates the rules once, from top to bottom. All rules are therefore sorted by phase, so the target of a
//! rewrite is still checked against all rules that produce a response.

use crate::target::TomlTable;

/// A phase of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleStage {
    /// Response headers, which apply whatever else happens.
    Headers,
    /// Paths that no client may request, whatever a later rewrite does.
    InternalPaths,
    /// Rewrites and redirects that precede access checks: those of the server, then those of its locations.
    Rewrites,
    /// Access checks, then the rules that produce the response.
    Responses,
    /// The fallback of a location for paths without a file.
    MissingFiles,
    /// The fallback of all other paths.
    LastResort,
    /// The pools that run the resulting scripts.
    Pools,
}

/// Rules by stage.
#[derive(Clone, Debug, Default)]
pub struct StagedRules {
    rules: [Vec<TomlTable>; 7],
}

impl StagedRules {
    /// Adds a rule, unless the stage has it already.
    pub fn push(&mut self, stage: RuleStage, rule: TomlTable) {
        let rules = &mut self.rules[stage as usize];
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }

    /// Returns the number of rules in a stage.
    pub fn len(&self, stage: RuleStage) -> usize {
        self.rules[stage as usize].len()
    }

    /// Returns the rules of a stage from that index on.
    pub fn since(&self, stage: RuleStage, number: usize) -> Vec<TomlTable> {
        self.rules[stage as usize][number..].to_vec()
    }

    /// Returns all rules in order.
    pub fn all(self) -> Vec<TomlTable> {
        self.rules.into_iter().flatten().collect()
    }
}
