//! Writes the parts of `docs/coming-from.md` that name the directives without a meaning in Howdah, and checks that the
//! page names every directive that the importer knows.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use howdah_htaccess::directives::{self, ImportRole};

use crate::apache;
use crate::directive::{Directive, SourceLine};
use crate::ledger::ImportLedger;
use crate::nginx::known::IRRELEVANT_DIRECTIVES;

const BLESS_HINT: &str = "HOWDAH_BLESS=1 cargo test -p howdah-import coming_from writes it";

#[test]
fn coming_from_names_every_directive_of_nginx_and_apache() {
    check_nginx();
    check_apache();
}

fn check_nginx() {
    check("nginx", |page| {
        let unnamed = |names: &[&'static str]| -> Vec<&'static str> {
            let names = names.iter().copied();
            names.filter(|name| !names_directive(page, name)).collect()
        };
        let lists = IRRELEVANT_DIRECTIVES
            .iter()
            .map(|(why, names)| (*why, unnamed(names)));
        lists.collect()
    });
}

fn check_apache() {
    check("apache", |page| {
        let mut lists = BTreeMap::new();
        for row in directives::all() {
            if names_directive(&page.to_lowercase(), row.name) {
                continue;
            }
            assert!(
                !row.is_translated,
                "the import translates {}: write a line for it",
                row.name
            );
            let remark = match row.import {
                ImportRole::Unknown => None,
                _ => apache_remark(row.name),
            };
            if let Some(why) = remark {
                lists.entry(why).or_insert_with(Vec::new).push(row.name);
            }
        }
        lists.into_iter().collect()
    });
}

/// Returns what the import says about a directive that takes no part in a translation.
fn apache_remark(name: &str) -> Option<&'static str> {
    let place = SourceLine {
        file: "apache2.conf".into(),
        line: 1,
    };
    let directive = Directive {
        name: name.to_owned(),
        args: Vec::new(),
        block: None,
        id: ImportLedger::default().enter(place.clone(), name.to_owned()),
        place,
    };
    let irrelevant = apache::known::irrelevant_reason(&directive);
    irrelevant.or_else(|| apache::known::missing_remark(&directive).map(|(need, _)| need))
}

/// Returns whether the hand-written part of the page names a directive, perhaps with arguments or angle brackets.
fn names_directive(page: &str, name: &str) -> bool {
    let mut quoted = page.split('`').skip(1).step_by(2);
    quoted.any(|text| {
        let first = text.trim_start_matches('<').split([' ', '>']).next();
        first == Some(name)
    })
}

/// Checks the part of the page that begins with the marker of this server, or writes it.
fn check(server: &str, lists_of: impl Fn(&str) -> Vec<(&'static str, Vec<&'static str>)>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/coming-from.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = (
        format!("<!-- begin: {server}; "),
        format!("<!-- end: {server} -->"),
    );
    let start = page.find(&begin).unwrap();
    let start = start + page[start..].find('\n').unwrap() + 1;
    let stop = page.find(&end).unwrap();
    let written_by_hand = format!("{}{}", &page[..start], &page[stop..]);
    let section = written_by_hand
        .split("\n## ")
        .find(|section| section.contains(&begin))
        .unwrap();
    let mut part = String::from(
        "\nThe remaining directives either have no meaning in Howdah, or need what the table says:\n\n| directives | in Howdah |\n|---|---|\n",
    );
    for (why, names) in lists_of(section) {
        if !names.is_empty() {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            let _ = writeln!(part, "| {} | {why} |", names.join(", "));
        }
    }
    part.push('\n');
    if std::env::var_os("HOWDAH_BLESS").is_some() {
        let text = format!("{}{part}{}", &page[..start], &page[stop..]);
        std::fs::write(&path, text).unwrap();
        return;
    }
    assert!(
        page[start..stop] == part,
        "docs/coming-from.md: {BLESS_HINT}:\n{part}"
    );
}
