//! What the owner of the machine should know before the switch, collected while the plan is made.
//!
//! - [`certificates`], [`roots`], [`backends`], [`addresses`]: what the sites need and what is there.
//! - [`directives`], [`changes`]: what was not carried over, and files that the running server has not loaded.
//! - [`tools`]: programs around the servers, such as certbot, logrotate and fail2ban.

pub mod addresses;
pub mod backends;
pub mod certificates;
pub mod changes;
pub mod directives;
pub mod roots;
pub mod tools;

use std::collections::HashSet;

use crate::plan::{Finding, Severity};

/// The maximum number of findings. A configuration with more of them has one problem many times.
const MAX_FINDINGS: usize = 10_000;

/// Findings in the order in which they were made, each once.
#[derive(Debug, Default)]
pub struct Findings {
    all: Vec<Finding>,
    known: HashSet<(String, Option<String>, Option<String>, String)>,
    omitted: usize,
}

impl Findings {
    /// Adds a finding about the machine or a server.
    pub fn add(&mut self, severity: Severity, name: &str, message: String, remedy: &str) {
        self.push(finding(severity, name, message, remedy));
    }

    /// Adds a finding, unless it is known.
    pub fn push(&mut self, finding: Finding) {
        let key = (
            finding.name.clone(),
            finding.site.clone(),
            finding.place.clone(),
            finding.message.clone(),
        );
        if !self.known.insert(key) {
            return;
        }
        // A finding that prevents the switch is never omitted.
        match self.all.len() < MAX_FINDINGS || finding.severity == Severity::Blocks {
            true => self.all.push(finding),
            false => self.omitted += 1,
        }
    }

    /// Returns all findings, the most severe first.
    pub fn into_sorted(mut self) -> Vec<Finding> {
        if self.omitted > 0 {
            let message = format!("{} more findings are not listed", self.omitted);
            let remedy =
                "Remove the cause of the findings that are listed, then make the plan again.";
            self.all
                .push(finding(Severity::Risk, "TooManyFindings", message, remedy));
        }
        self.all.sort_by_key(|finding| finding.severity);
        self.all
    }
}

/// Creates a finding that concerns neither a site nor a file.
pub fn finding(severity: Severity, name: &str, message: String, remedy: &str) -> Finding {
    Finding {
        severity,
        name: name.to_owned(),
        site: None,
        place: None,
        message,
        remedy: remedy.to_owned(),
    }
}

impl Finding {
    /// Sets the site that the finding concerns.
    pub fn of_site(mut self, site: &str) -> Finding {
        self.site = Some(site.to_owned());
        self
    }

    /// Sets where it was found.
    pub fn at(mut self, place: impl ToString) -> Finding {
        self.place = Some(place.to_string());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_bounded_but_none_that_blocks_is_omitted() {
        let mut findings = Findings::default();
        for number in 0..MAX_FINDINGS + 5 {
            findings.add(Severity::Note, "A", number.to_string(), "");
        }
        findings.add(Severity::Note, "A", "1".to_owned(), "");
        findings.add(Severity::Blocks, "B", "x".to_owned(), "");
        let all = findings.into_sorted();
        assert_eq!(all.len(), MAX_FINDINGS + 2);
        assert_eq!(
            (all[0].name.as_str(), all[1].name.as_str()),
            ("B", "TooManyFindings")
        );
        assert!(all[1].message.starts_with("5 more"), "{:?}", all[1]);
    }
}
