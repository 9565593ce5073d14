//! Checks the documents as text: their links lead to existing targets. Other tests compare their content with the
//! program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use howdah_tests::scratch::repository;

#[test]
fn links_and_anchors_lead_somewhere() {
    let mut broken = Vec::new();
    for (name, text) in documents() {
        let directory = repository().join(&name);
        let directory = directory.parent().expect("a document is in a directory");
        for (number, line) in text_of(&text) {
            for target in links(line).filter(|target| !target.contains("://")) {
                if !leads_somewhere(&repository().join(&name), directory, target) {
                    broken.push(format!("{name}:{number}: {target}"));
                }
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

/// Returns the documents for readers, each with its path in the repository and its text.
fn documents() -> Vec<(String, String)> {
    let mut names: Vec<String> = ["README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG"]
        .iter()
        .map(|name| format!("{name}.md"))
        .collect();
    for directory in ["docs", "docs/guides", "docs/recipes"] {
        let entries = std::fs::read_dir(repository().join(directory)).expect("a directory");
        for entry in entries {
            let name = entry.expect("a directory entry").file_name();
            let name = name.to_str().expect("a name of ASCII letters").to_owned();
            if name.ends_with(".md") {
                names.push(format!("{directory}/{name}"));
            }
        }
    }
    names.sort();
    let read = |name: String| {
        let text = std::fs::read_to_string(repository().join(&name)).expect("a document is text");
        (name, text)
    };
    names.into_iter().map(read).collect()
}

/// Returns the lines outside of code blocks, each with its number.
fn text_of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        (!code && !fence).then_some((index + 1, line))
    })
}

/// Returns the targets of a line's links.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

/// Returns whether a relative link of `document` names an existing file, and an existing heading in it.
fn leads_somewhere(document: &Path, directory: &Path, target: &str) -> bool {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file: PathBuf = match path {
        "" => document.to_owned(),
        path => directory.join(path),
    };
    if anchor.is_empty() {
        return file.exists();
    }
    std::fs::read_to_string(&file).is_ok_and(|text| anchors(&text).contains(anchor))
}

/// Returns the anchors of a document's headings, as GitHub generates them.
fn anchors(text: &str) -> BTreeSet<String> {
    text_of(text)
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

#[test]
fn anchor_is_its_heading_without_punctuation() {
    let anchors = anchors("# A\n## `worker`: an application, kept\n```\n# no heading\n```\n");
    let expected = ["a", "worker-an-application-kept"];
    assert_eq!(anchors, expected.map(str::to_owned).into());
}
