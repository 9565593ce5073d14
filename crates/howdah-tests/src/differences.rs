//! Reads the accepted differences from the tables of `docs/differences.md` and `tests/http/modes.md`, so the page that
//! people read is the same list that the tests enforce. This module does not decide by itself whether a difference is
//! acceptable.
//!
//! Such a table begins with `| Probes | Facts | … | Why |`; a row is `| probes | facts | against | why |`. Probes and
//! facts are names separated by blanks, in which `*` matches any text. "Against" names the servers or modes that behave
//! differently: one or more of the names that the page is about, or `all`, which may also be written `both`. If it begins
//! with `older`, newer versions of these servers no longer differ, so the difference may be absent.

use crate::oracle::Disagreement;

/// One accepted difference.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The line of the page, for messages.
    pub line: usize,
    probes: Vec<String>,
    facts: Vec<String>,
    /// The names that this difference is against.
    pub against: Vec<String>,
    /// Whether only older versions differ.
    only_older: bool,
}

impl Difference {
    /// Returns whether one of the row's probes belongs to this group: its name is `GROUP` or begins with `GROUP.`.
    pub fn is_about(&self, group: &str) -> bool {
        let first = |probe: &String| probe.split('.').next().is_some_and(|name| name == group);
        self.probes.iter().any(first)
    }

    /// Returns whether this row accepts the disagreement `found` with `other`.
    pub fn accepts(&self, other: &str, found: &Disagreement) -> bool {
        let any = |patterns: &[String], text: &str| patterns.iter().any(|p| matches(p, text));
        self.against.iter().any(|name| name == other)
            && any(&self.probes, &found.probe)
            && any(&self.facts, &found.fact)
    }
}

/// Reads every row of the page's tables of differences; `known` contains the names that may appear under "Against".
///
/// # Errors
/// Every row that does not have the form described above, with its line number.
pub fn parse(page: &str, known: &[&str]) -> Result<Vec<Difference>, Vec<String>> {
    let (mut rows, mut mistakes) = (Vec::new(), Vec::new());
    let mut inside = false;
    for (index, text) in page.lines().enumerate() {
        let line = index + 1;
        let Some(inner) = text
            .trim()
            .strip_prefix('|')
            .and_then(|text| text.strip_suffix('|'))
        else {
            inside = false;
            continue;
        };
        let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
        if cells.first() == Some(&"Probes") {
            inside = true;
            continue;
        }
        let rule = |cell: &&str| cell.chars().all(|c| matches!(c, '-' | ':'));
        if !inside || cells.iter().all(rule) {
            continue;
        }
        let [probes, facts, against, why] = cells.as_slice() else {
            mistakes.push(format!(
                "line {line}: {} cells, expected probes, facts, against, why",
                cells.len()
            ));
            continue;
        };
        let older = against.strip_prefix("older ");
        let against = match older.unwrap_or(against) {
            "all" | "both" => known.iter().map(ToString::to_string).collect(),
            listed => names(listed),
        };
        let unknown = |name: &&String| !known.contains(&name.as_str());
        if against.is_empty() || against.iter().any(|name| unknown(&name)) {
            mistakes.push(format!(
                "line {line}: against {against:?}, expected some of {known:?}, or `all`"
            ));
            continue;
        }
        if why.len() < 20 {
            mistakes.push(format!(
                "line {line}: a difference needs a reason, not {why:?}"
            ));
        }
        rows.push(Difference {
            line,
            probes: names(probes),
            facts: names(facts),
            against,
            only_older: older.is_some(),
        });
    }
    if mistakes.is_empty() {
        Ok(rows)
    } else {
        Err(mistakes)
    }
}

/// Finds the disagreements that no row accepts, and the rows that no longer accept anything.
#[derive(Debug)]
pub struct Ledger {
    accepted: Vec<Difference>,
    used: Vec<Vec<String>>,
    unlisted: Vec<String>,
}

impl Ledger {
    /// Creates a ledger with the rows of a page.
    pub fn new(accepted: Vec<Difference>) -> Ledger {
        let used = vec![Vec::new(); accepted.len()];
        Ledger {
            accepted,
            used,
            unlisted: Vec::new(),
        }
    }

    /// Records a disagreement between `ours` and `theirs` (both are names).
    pub fn enter(&mut self, ours: &str, theirs: &str, found: &Disagreement) {
        let mut listed = false;
        for (row, used) in self.accepted.iter().zip(&mut self.used) {
            if row.accepts(theirs, found) {
                listed = true;
                used.push(theirs.to_owned());
            }
        }
        if listed {
            return;
        }
        let show = |value: &Option<String>| value.clone().unwrap_or_else(|| "(absent)".into());
        self.unlisted.push(format!(
            "{} {}\n    {ours:9} {}\n    {theirs:9} {}",
            found.probe,
            found.fact,
            show(&found.ours),
            show(&found.theirs)
        ));
    }

    /// Checks the ledger after all comparisons. `asked` contains the names that were compared.
    ///
    /// # Panics
    /// If a disagreement is not listed, or the difference of a row no longer occurs. The message lists all such
    /// disagreements and rows.
    pub fn close(self, page: &str, asked: &[&str]) {
        let mut stale = Vec::new();
        let required = self.accepted.iter().zip(&self.used);
        for (row, used) in required.filter(|(row, _)| !row.only_older) {
            for name in &row.against {
                if asked.contains(&name.as_str()) && !used.contains(name) {
                    stale.push(format!(
                        "line {}: no such difference from {name} any more",
                        row.line
                    ));
                }
            }
        }
        assert!(
            self.unlisted.is_empty() && stale.is_empty(),
            "{} differences are not in {page}:\n{}\n{} rows there no longer differ:\n{}",
            self.unlisted.len(),
            self.unlisted.join("\n"),
            stale.len(),
            stale.join("\n")
        );
    }
}

fn names(cell: &str) -> Vec<String> {
    cell.split_whitespace()
        .map(|name| name.trim_matches('`').to_owned())
        .collect()
}

/// Returns whether `text` matches `pattern`, in which `*` matches any text, including the empty text.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices()
                .map(|(at, _)| at)
                .chain([rest.len()])
                .any(|at| matches(after, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_names_probes_facts_rivals_and_a_reason() {
        let page = "| Probes | Facts | Against | Why |\n|---|---|---|---|\n| `a.*` b | `server.X` | mod-php | because it is better this way |\n";
        let rows = parse(page, &["nginx-fpm", "mod-php"]).expect("a good page");
        let found = |probe: &str, fact: &str| Disagreement {
            probe: probe.into(),
            fact: fact.into(),
            ours: None,
            theirs: None,
        };
        assert!(rows[0].accepts("mod-php", &found("a.anything", "server.X")));
        assert!(!rows[0].accepts("nginx-fpm", &found("a.anything", "server.X")));
        assert!(!rows[0].accepts("mod-php", &found("c", "server.X")));
    }

    #[test]
    fn other_tables_of_the_page_are_left_alone() {
        let page = "| Mode | What |\n|---|---|\n| cgi | slow |\n\n| Probes | Facts | Mode | Why |\n|---|---|---|---|\n| a | b | cgi pool | because it is better this way |\n\n| x | y | z | 1 |\n";
        let rows = parse(page, &["cgi", "pool"]).expect("a good page");
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].against, ["cgi", "pool"]);
    }

    #[test]
    fn every_bad_row_is_reported_with_its_line() {
        let page = "| Probes | x | y | z |\n| a | b | c |\n| a | b | everyone | because it is better this way |\n| a | b | both | no |\n";
        let mistakes = parse(page, &["one", "two"]).expect_err("three mistakes");
        assert_eq!(mistakes.len(), 3, "{mistakes:?}");
        assert!(mistakes[1].starts_with("line 3"), "{mistakes:?}");
    }
}
