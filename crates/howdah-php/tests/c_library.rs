//! The library loads on every system that Howdah supports. RHEL 9 has the oldest C library of these.

#![cfg(target_env = "gnu")]

use std::process::Command;

use howdah_test_support::php::php_library;

/// The newest version of glibc's symbols that the library may need.
const MAX_GLIBC: (u32, u32) = (2, 34);

#[test]
fn library_needs_no_newer_glibc_than_that_of_rhel_9() {
    let output = Command::new("objdump")
        .arg("-T")
        .arg(php_library())
        .output()
        .expect("objdump of binutils, which a build needs for its linker");
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8_lossy(&output.stdout);
    let versioned: Vec<(&str, (u32, u32))> = table
        .lines()
        .filter_map(|line| Some((line, glibc_version(line)?)))
        .collect();
    assert!(!versioned.is_empty(), "no versioned symbols in:\n{table}");
    let newer: Vec<&str> = versioned
        .iter()
        .filter(|(_, version)| *version > MAX_GLIBC)
        .map(|(line, _)| *line)
        .collect();
    assert!(
        newer.is_empty(),
        "these symbols are newer:\n{}",
        newer.join("\n")
    );
}

/// Returns the version of glibc that a line of `objdump -T` names, such as 2.34 of `(GLIBC_2.34)`.
fn glibc_version(line: &str) -> Option<(u32, u32)> {
    let (_, rest) = line.split_once("GLIBC_")?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}
