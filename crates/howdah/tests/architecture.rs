//! Checks the picture of the crates in ARCHITECTURE.md: no edges exist but those drawn there, and PHP is linked only
//! into `howdah-php`.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

/// All edges between our crates that are allowed. The crate of the tests may use what it drives.
const ALLOWED_EDGES: &[(&str, &str)] = &[
    ("howdah", "howdah-server"),
    ("howdah", "howdah-http"),
    ("howdah", "howdah-acme"),
    ("howdah", "howdah-executor"),
    ("howdah", "howdah-import"),
    ("howdah", "howdah-proto"),
    ("howdah-http", "howdah-http1"),
    ("howdah-http", "howdah-os"),
    ("howdah-server", "howdah-http"),
    ("howdah-server", "howdah-executor"),
    ("howdah-server", "howdah-proto"),
    ("howdah-server", "howdah-http1"),
    ("howdah-server", "howdah-htaccess"),
    // The parser of lines and words of Apache's files.
    ("howdah-import", "howdah-htaccess"),
    ("howdah-server", "howdah-os"),
    ("howdah-php", "howdah-http1"),
    ("howdah-executor", "howdah-proto"),
    ("howdah-acme", "howdah-os"),
    ("howdah-executor", "howdah-os"),
    ("howdah-proto", "howdah-os"),
    ("howdah-php", "howdah-os"),
    ("howdah", "howdah-os"),
    ("howdah-php", "howdah-proto"),
    ("howdah-proto", "howdah-sql"),
    ("howdah-php", "howdah-sql"),
    ("howdah-lab", "howdah-bench"),
    ("howdah-server", "howdah-cache"),
    ("howdah-server", "howdah-fleet"),
    ("howdah", "howdah-fleet"),
];

/// Crates that are needed to link PHP or to build C code that uses it.
const PHP_BUILD_CRATES: &[&str] = &["cc", "bindgen"];

/// Crates that only measure, or are needed only for measuring. They must not be part of a program that starts as root.
const NOT_IN_THE_SERVER: &[&str] = &["howdah-bench", "howdah-lab", "ring", "hdrhistogram"];

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

fn metadata() -> Value {
    serde_json::from_slice(&cargo(&["metadata", "--format-version=1", "--no-deps"])).unwrap()
}

#[test]
fn crates_depend_only_on_what_the_picture_shows() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let ours: BTreeSet<&str> = packages
        .iter()
        .map(|p| p["name"].as_str().unwrap())
        .collect();
    assert!(ours.contains("howdah-proto"), "{ours:?}");
    for package in packages {
        let name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let to = dependency["name"].as_str().unwrap();
            // Tests may use crates that the product must not.
            if dependency["kind"] == "dev" || name == "howdah-tests" {
                continue;
            }
            if ours.contains(to) {
                assert!(
                    ALLOWED_EDGES.contains(&(name, to)),
                    "{name} must not name {to}"
                );
            }
            assert!(
                !PHP_BUILD_CRATES.contains(&to) || name == "howdah-php",
                "only howdah-php compiles against PHP, {name} names {to}"
            );
        }
    }
}

#[test]
fn server_links_neither_load_tester_nor_lab() {
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
