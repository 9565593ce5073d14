//! Checks the application guides: every snippet is read as a configuration, and every line of the table below it is
//! routed in a tree of the files that the page names.

use std::fs;
use std::path::Path;

use howdah_site::site::Site;
use howdah_site::site::description::build_request;

use super::{ConfigSource, Validation, load};
use crate::arguments::ServeArguments;

/// One snippet with its files and its table.
struct GuideExample<'a> {
    toml: String,
    files: Vec<&'a str>,
    table: Vec<(&'a str, &'a str)>,
}

fn examples(guide: &str) -> Vec<GuideExample<'_>> {
    let mut examples: Vec<GuideExample<'_>> = Vec::new();
    let mut lines = guide.lines();
    while let Some(line) = lines.next() {
        if line == "```toml" {
            let toml: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            examples.push(GuideExample {
                toml: toml.join("\n"),
                files: Vec::new(),
                table: Vec::new(),
            });
        } else if let Some(files) = line.strip_prefix("<!-- files: ") {
            let example = examples.last_mut().expect("a snippet before its files");
            example.files = files.trim_end_matches(" -->").split(' ').collect();
        } else if let Some(row) = line.strip_prefix("| `") {
            let (target, expected) = row.split_once("` | ").expect("two columns");
            let example = examples.last_mut().expect("a snippet before its table");
            example
                .table
                .push((target, expected.trim_end_matches(" |")));
        }
    }
    examples
}

/// Converts the server's explanation of a route to the words that the guide uses.
fn guide_description(explained: &str, root: &str) -> String {
    if explained.starts_with(&format!("file {root}/")) {
        return "the file".to_owned();
    }
    let explained = explained.split(" (").next().unwrap_or_default();
    if let Some((_, name)) = explained.split_once(", SCRIPT_NAME ") {
        return match name.split_once(", PATH_INFO ") {
            Some((name, info)) => format!("`{name}`, PATH_INFO `{info}`"),
            None => format!("`{name}`"),
        };
    }
    match explained.split_once(" to ") {
        Some((status, location)) => format!("{status} `{location}`"),
        None => {
            let (status, refusal) = explained.split_once(' ').expect("a status and a name");
            format!("{status} `{refusal}`")
        }
    }
}

fn check(guide: &str, at_least: usize) {
    let examples = examples(guide);
    assert_eq!(examples.len(), at_least, "snippets found");
    for example in examples {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        // The page's directories are moved below the test's own directory.
        let own = base.display().to_string();
        let toml = example.toml.replace("\"/srv/", &format!("\"{own}/srv/"));
        let roots = toml.lines().filter_map(|line| line.strip_prefix("root = "));
        let roots: Vec<&str> = roots.map(|root| root.trim_matches('"')).collect();
        let directories = toml.lines().filter_map(|line| {
            let (key, value) = line.split_once(" = ")?;
            let is_directory = key == "root" || key.starts_with("\"/");
            is_directory.then(|| value.trim_matches('"'))
        });
        for directory in directories {
            fs::create_dir_all(directory).unwrap();
        }
        for file in &example.files {
            let path = Path::new(roots[0]).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let source = ConfigSource::from_text(
            format!("{own}/howdah.toml"),
            format!("listen = [\"127.0.0.1:0\"]\n{toml}"),
        );
        // The test must pass on a machine without PHP.
        let validation = Validation::Trusted;
        let settings = load(&ServeArguments::default(), Some(&source), validation).settings;
        let settings = settings.unwrap_or_else(|mistakes| panic!("{}", mistakes.join("\n")));
        let site = Site::new(settings.sites[0].clone(), 0).unwrap();
        assert!(!example.table.is_empty(), "a table below every snippet");
        for (target, expected) in example.table {
            let head = build_request("GET", "host.example", target).unwrap();
            let explained = site.route(&head).action.to_string();
            assert_eq!(
                guide_description(&explained, roots[0]),
                expected,
                "{target}"
            );
        }
    }
}

#[test]
fn wordpress() {
    check(include_str!("../../../docs/guides/wordpress.md"), 2);
}

#[test]
fn mediawiki() {
    check(include_str!("../../../docs/guides/mediawiki.md"), 1);
}

#[test]
fn laravel() {
    check(include_str!("../../../docs/guides/laravel.md"), 3);
}

#[test]
fn symfony() {
    check(include_str!("../../../docs/guides/symfony.md"), 2);
}
