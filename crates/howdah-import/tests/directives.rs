//! Checks that the table of Apache's directives says correctly which of them the importer translates.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use howdah_htaccess::directives::{self, ImportRole};
use howdah_import::{ConfigFormat, import_text, ledger};

/// Directives whose names are also names of something else, which the translators compare with.
const OTHER_MEANINGS: &[&str] = &["error", "warning"];

/// Returns all texts between quotation marks in the translators' code that may be names of directives.
fn quoted_names() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/apache");
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // This module is for directives that take no part in a translation.
        if path.ends_with("known.rs") {
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let lines = code.lines().filter(|line| !line.trim().starts_with("//"));
        for line in lines {
            names.extend(line.split('"').skip(1).step_by(2).map(str::to_owned));
        }
    }
    for list in [
        directives::REQUIRE_DIRECTIVES,
        directives::LEGACY_DIRECTIVES,
    ] {
        names.extend(list.iter().map(|name| (*name).to_owned()));
    }
    names
}

#[test]
fn directives_that_are_translated_are_those_that_the_translators_name() {
    let names = quoted_names();
    for directive in directives::all() {
        let is_named = names.contains(directive.name) && !OTHER_MEANINGS.contains(&directive.name);
        assert_eq!(directive.is_translated, is_named, "{directive:?}");
    }
}

/// Each directive that the importer knows has an outcome other than that of an unknown directive.
#[test]
fn directives_of_the_table_are_known_to_the_import() {
    for directive in directives::all() {
        let text = format!("Listen 80\n{} x\n", directive.name);
        let Ok(import) = import_text(ConfigFormat::Apache, &text) else {
            // Lines such as `Include x` and `Use x` name a file or macro that does not exist.
            assert!(directive.is_translated, "{directive:?}");
            continue;
        };
        let entry = import.entries.iter().find(|entry| entry.place.line == 2);
        let outcome = &entry.unwrap().outcome;
        let is_unknown = outcome.needs == [ledger::UNKNOWN_DIRECTIVE];
        match directive.import {
            ImportRole::Unknown if directive.is_translated => {}
            ImportRole::Unknown => assert!(is_unknown, "{directive:?}: {outcome:?}"),
            ImportRole::Irrelevant(_) | ImportRole::Missing(_) => {
                assert!(!is_unknown, "{directive:?}: {outcome:?}")
            }
        }
    }
}
