//! Reads the accepted differences from the tables of `docs/differences.md`: the page
//! people read is the list the test obeys. Judges nothing by itself.
//!
//! A row is `| probes | facts | against | why |`. Probes and facts are names separated
//! by blanks, `*` standing for any text; against is `nginx-fpm`, `mod-php` or `both`.

use crate::oracle::Disagreement;
use crate::rig::Kind;

/// One accepted difference.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Line of the page, for messages.
    pub line: usize,
    probes: Vec<String>,
    facts: Vec<String>,
    /// The rivals it differs from.
    pub against: Vec<Kind>,
}

impl Difference {
    /// Whether this row accepts that disagreement with that rival.
    pub fn accepts(&self, rival: Kind, found: &Disagreement) -> bool {
        self.against.contains(&rival)
            && self
                .probes
                .iter()
                .any(|pattern| matches(pattern, &found.probe))
            && self
                .facts
                .iter()
                .any(|pattern| matches(pattern, &found.fact))
    }
}

/// Reads every table row of the page that has four cells, but for headings.
///
/// # Errors
/// Every row that says something else than the above, with its line.
pub fn parse(page: &str) -> Result<Vec<Difference>, Vec<String>> {
    let (mut rows, mut mistakes) = (Vec::new(), Vec::new());
    for (index, text) in page.lines().enumerate() {
        let line = index + 1;
        let Some(inner) = text
            .trim()
            .strip_prefix('|')
            .and_then(|text| text.strip_suffix('|'))
        else {
            continue;
        };
        let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
        if cells
            .iter()
            .all(|cell| cell.chars().all(|c| matches!(c, '-' | ':')))
            || cells.first() == Some(&"Probes")
        {
            continue;
        }
        let [probes, facts, against, why] = cells.as_slice() else {
            mistakes.push(format!(
                "line {line}: {} cells, expected probes, facts, against, why",
                cells.len()
            ));
            continue;
        };
        let against = match *against {
            "nginx-fpm" => vec![Kind::NginxFpm],
            "mod-php" => vec![Kind::ModPhp],
            "both" => vec![Kind::NginxFpm, Kind::ModPhp],
            other => {
                mistakes.push(format!(
                    "line {line}: against {other:?}, expected nginx-fpm, mod-php or both"
                ));
                continue;
            }
        };
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
        });
    }
    if mistakes.is_empty() {
        Ok(rows)
    } else {
        Err(mistakes)
    }
}

fn names(cell: &str) -> Vec<String> {
    cell.split_whitespace()
        .map(|name| name.trim_matches('`').to_owned())
        .collect()
}

/// Whether `text` is `pattern`, where `*` stands for any text, also none.
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
    fn a_row_names_probes_facts_rivals_and_a_reason() {
        let page = "| Probes | Facts | Against | Why |\n|---|---|---|---|\n| `a.*` b | `server.X` | mod-php | because it is better this way |\n";
        let rows = parse(page).expect("a good page");
        let found = |probe: &str, fact: &str| Disagreement {
            probe: probe.into(),
            fact: fact.into(),
            ours: None,
            theirs: None,
        };
        assert!(rows[0].accepts(Kind::ModPhp, &found("a.anything", "server.X")));
        assert!(!rows[0].accepts(Kind::NginxFpm, &found("a.anything", "server.X")));
        assert!(!rows[0].accepts(Kind::ModPhp, &found("c", "server.X")));
    }

    #[test]
    fn every_bad_row_is_reported_with_its_line() {
        let page = "| a | b | c |\n| a | b | everyone | because it is better this way |\n| a | b | both | no |\n";
        let mistakes = parse(page).expect_err("three mistakes");
        assert_eq!(mistakes.len(), 3, "{mistakes:?}");
        assert!(mistakes[1].starts_with("line 2"), "{mistakes:?}");
    }
}
