//! What the names of failures and of cache reasons mean, for the people who find them on the dashboard. The texts are
//! those of the documentation, which is compiled into the program: a name is explained with one text everywhere.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::LazyLock;

use howdah_cache::Pass;
use serde::Serialize;

/// The pages of the documentation with tables of names. The first page that explains a name is used.
const PAGES: [&str; 7] = [
    include_str!("../../../../docs/failures.md"),
    include_str!("../../../../docs/pools.md"),
    include_str!("../../../../docs/jobs.md"),
    include_str!("../../../../docs/https.md"),
    include_str!("../../../../docs/certificates.md"),
    include_str!("../../../../docs/cache.md"),
    include_str!("../../../../docs/operations.md"),
];

/// The columns of these tables that do not explain a name.
const OTHER_COLUMNS: [&str; 2] = ["status", "where"];

/// The meanings of all names.
#[derive(Serialize)]
pub(super) struct NameTexts {
    /// Failures, events of pools and jobs, and faults of the cache's disk.
    failures: BTreeMap<String, String>,
    /// Why a response did not come from the page cache.
    reasons: BTreeMap<&'static str, String>,
}

/// The meanings of this program's names.
static NAMES: LazyLock<NameTexts> = LazyLock::new(|| {
    let mut failures = BTreeMap::new();
    for page in PAGES {
        read_tables(page, &mut failures);
    }
    let reasons = Pass::ALL
        .iter()
        .map(|pass| (pass.name(), plain(pass.meaning())));
    NameTexts {
        failures,
        reasons: reasons.collect(),
    }
});

/// Returns the names as JSON: `failures` and `reasons`, each with a text by name.
pub(super) fn json() -> String {
    // This cannot fail: all keys are strings.
    serde_json::to_string(&*NAMES).unwrap_or_default()
}

/// Returns a page with all names and their meanings. Each has an anchor of its own: `#QueueFull`, `#reason-SetCookie`.
pub(super) fn page() -> String {
    let mut rows = String::new();
    let mut list = |title: &str, prefix: &str, names: &mut dyn Iterator<Item = (&str, &String)>| {
        // Writing to a string cannot fail.
        let _ = write!(rows, "<section>\n<h2>{title}</h2>\n<dl>\n");
        for (name, text) in names {
            let text = escape(text);
            let _ = writeln!(rows, "<dt id=\"{prefix}{name}\">{name}</dt><dd>{text}</dd>");
        }
        rows.push_str("</dl>\n</section>\n");
    };
    list(
        "Failures and events",
        "",
        &mut NAMES.failures.iter().map(|(name, text)| (&**name, text)),
    );
    list(
        "Why a response does not come from the page cache",
        "reason-",
        &mut NAMES.reasons.iter().map(|(name, text)| (*name, text)),
    );
    include_str!("page/names.html").replace("<!-- names -->", &rows)
}

/// Adds the names of a page's tables. A table explains names if its first column is called `name`, or its second
/// `name and meaning`.
fn read_tables(page: &str, texts: &mut BTreeMap<String, String>) {
    let mut columns: Vec<String> = Vec::new();
    for line in page.lines() {
        let Some(row) = line.strip_prefix('|') else {
            columns.clear();
            continue;
        };
        let cells = cells(row);
        if columns.is_empty() {
            columns = cells;
            continue;
        }
        let column = |name: &str| columns.iter().position(|column| column == name);
        let (names, text) = if let Some(place) = column("name and meaning") {
            let Some(cell) = cells.get(place) else {
                continue;
            };
            (cell.clone(), cell.clone())
        } else if column("name") == Some(0) {
            let text = columns.iter().zip(&cells).skip(1);
            let text = text.filter(|(column, _)| !OTHER_COLUMNS.contains(&&***column));
            let text: Vec<&str> = text.map(|(_, cell)| &**cell).collect();
            (cells[0].clone(), text.join(" "))
        } else {
            continue;
        };
        for name in names
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| is_name(name))
        {
            texts
                .entry(name.to_owned())
                .or_insert_with(|| plain(text.trim()));
        }
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase()) && text.chars().all(char::is_alphanumeric)
}

/// Returns the cells of a row, whose first `|` has been removed.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim().strip_suffix('|').unwrap_or(row);
    let row = row.replace("\\|", "\0");
    row.split('|')
        .map(|cell| cell.trim().replace('\0', "|"))
        .collect()
}

/// Returns Markdown as plain text: without the marks of code, and with the text of a link instead of the link.
fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once('[') {
        text.push_str(before);
        let link = after.split_once("](").and_then(|(label, after)| {
            let (_, after) = after.split_once(')')?;
            Some((label, after))
        });
        match link {
            Some((label, after)) => {
                text.push_str(label);
                rest = after;
            }
            None => {
                text.push('[');
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text.replace('`', "")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use howdah_site::refusal::Refusal;

    use super::*;

    #[test]
    fn names_have_the_text_of_the_documentation_without_marks() {
        let failure = |name: &str| &*NAMES.failures[name];
        assert_eq!(
            failure("QueueFull"),
            "The pool's queue is full. Add children, or find out what occupies them (howdah status, slow log)."
        );
        assert!(
            failure("PurgeDenied").contains("Set cache_purge_from or cache_purge_token, or use")
        );
        assert!(failure("RapidReset").contains("Howdah has disconnected a client."));
        assert!(failure("JobTimeout").contains("exceeded timeout"));
        assert!(failure("DiskFull").contains("no room"));
        // Both pages have this name; the failure of a request is meant.
        assert!(failure("ChildDied").contains("during this request"));
        assert_eq!(NAMES.reasons["SetCookie"], "The response sets a cookie.");
        for refusal in Refusal::ALL {
            assert!(NAMES.failures.contains_key(refusal.name()), "{refusal:?}");
        }
    }

    #[test]
    fn page_of_names_has_an_anchor_for_each() {
        let page = page();
        for anchor in ["id=\"QueueFull\"", "id=\"reason-SetCookie\""] {
            assert_eq!(page.matches(anchor).count(), 1, "{anchor}");
        }
        assert!(!page.contains("<!-- names -->"));
    }
}
