//! Checks the table of the crates in ARCHITECTURE.md: the edges are exactly those named there, and only `howdah-php` is
//! compiled against PHP.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

/// Crates that are needed to link PHP or to build C code that uses it.
const PHP_BUILD_CRATES: &[&str] = &["cc", "bindgen"];

/// Crates that only measure or import, or are needed only for measuring. They must not be part of a program that starts
/// as root.
const NOT_IN_THE_SERVER: &[&str] = &[
    "howdah-bench",
    "howdah-import",
    "howdah-lab",
    "ring",
    "hdrhistogram",
];

fn cargo(arguments: &[&str]) -> Vec<u8> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(arguments)
        .arg("--offline")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// The packages of the server's workspace and of the tools'.
fn packages() -> Vec<Value> {
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/Cargo.toml");
    let arguments = ["metadata", "--format-version=1", "--no-deps"];
    [
        &arguments[..],
        &[&arguments[..], &["--manifest-path", tools]].concat(),
    ]
    .into_iter()
    .flat_map(|arguments| {
        let metadata: Value = serde_json::from_slice(&cargo(arguments)).unwrap();
        metadata["packages"].as_array().unwrap().clone()
    })
    .collect()
}

/// Returns the edges between our crates in the table of ARCHITECTURE.md. The crate of the tests may use what it drives.
fn drawn_edges() -> BTreeSet<(String, String)> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md");
    let text = std::fs::read_to_string(file).expect("ARCHITECTURE.md is there");
    let mut edges = BTreeSet::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", from, _, uses, ""] = cells[..] else {
            continue;
        };
        let name = |text: &str| Some(text.strip_prefix('`')?.strip_suffix('`')?.to_owned());
        let Some(from) = name(from).filter(|from| from.starts_with("howdah")) else {
            continue;
        };
        edges.extend(
            uses.split(", ")
                .filter_map(name)
                .map(|to| (from.clone(), to)),
        );
    }
    edges
}

#[test]
fn crates_use_what_the_table_says() {
    let packages = packages();
    let ours: BTreeSet<&str> = packages
        .iter()
        .map(|p| p["name"].as_str().unwrap())
        .collect();
    let mut edges = BTreeSet::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let to = dependency["name"].as_str().unwrap();
            // Tests may use what the product must not.
            if dependency["kind"] == "dev" || name == "howdah-tests" {
                continue;
            }
            if ours.contains(to) {
                edges.insert((name.to_owned(), to.to_owned()));
            }
            assert!(
                !PHP_BUILD_CRATES.contains(&to) || name == "howdah-php",
                "only howdah-php compiles against PHP, {name} names {to}"
            );
        }
    }
    let drawn = drawn_edges();
    let added: Vec<_> = edges.difference(&drawn).collect();
    let gone: Vec<_> = drawn.difference(&edges).collect();
    assert!(
        added.is_empty() && gone.is_empty(),
        "missing in ARCHITECTURE.md: {added:?}; only there: {gone:?}"
    );
}

#[test]
fn server_links_neither_load_tester_nor_lab_nor_importer() {
    let tree = ["tree", "--package=howdah", "--edges=normal"];
    let tree = cargo(&[&tree[..], &["--prefix=none", "--format={p}"]].concat());
    let tree = String::from_utf8(tree).unwrap();
    let linked: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(linked.contains("howdah-server"), "{linked:?}");
    for name in NOT_IN_THE_SERVER {
        assert!(!linked.contains(name), "howdah links {name}");
    }
}

#[test]
fn front_contains_no_php_symbol() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_howdah")).unwrap();
    let text = String::from_utf8_lossy(&program);
    for symbol in [
        "php_request_startup",
        "zend_execute_scripts",
        // A name in the table of libraries to load. Apache's module is named only by its path.
        "\0libphp",
    ] {
        let found = text.contains(symbol);
        assert!(!found, "the program names {symbol:?}");
    }
}
