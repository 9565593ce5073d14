//! Finds the PHP programs of this machine.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use howdah_executor::php_host::PhpHost;

use super::PhpUse;

/// The kinds of PHP programs.
const KINDS: [&str; 3] = ["php-fpm", "php-cgi", "php"];

/// Where programs are, besides the directories of `PATH`.
const DIRECTORIES: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/opt/php/sbin",
    "/opt/php/bin",
];

/// The directory below which Remi's packages for RHEL put each series (`php84/root/usr/sbin/php-fpm`).
const REMI: &str = "/opt/remi";

/// Returns the PHP programs of this machine, the preferred one first, and among programs of a kind the newest version.
/// The files of a kind are read only when the iterator reaches them.
pub fn programs(purpose: PhpUse) -> impl Iterator<Item = (PathBuf, PhpHost)> {
    let first = match purpose {
        PhpUse::Serve => 0,
        PhpUse::CommandLine => KINDS.len() - 1,
    };
    let mut by_kind = paths_by_kind();
    by_kind.rotate_left(first);
    by_kind.into_iter().flat_map(|paths| {
        let hosts = paths
            .into_iter()
            .filter_map(|path| PhpHost::read(&path).ok().map(|host| (path, host)));
        let mut hosts: Vec<_> = hosts.collect();
        hosts.sort_by_key(|(_, host)| Reverse(host.numbers()));
        hosts
    })
}

/// Returns the files whose names are those of PHP programs, for each of [`KINDS`].
fn paths_by_kind() -> [Vec<PathBuf>; KINDS.len()] {
    let mut by_kind = [const { Vec::new() }; KINDS.len()];
    let mut seen = BTreeSet::new();
    for directory in directories() {
        let entries = std::fs::read_dir(&directory).into_iter().flatten();
        let mut names: Vec<_> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter_map(|name| Some((kind(&name)?, name)))
            .collect();
        names.sort();
        for (kind, name) in names {
            let path = directory.join(name);
            // Alternatives are links to a program that is found under its own name, too.
            let file = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
            if seen.insert(file) {
                by_kind[kind].push(path);
            }
        }
    }
    by_kind
}

/// Returns the directories to search, each once.
pub fn directories() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let listed = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    let usual = DIRECTORIES.iter().map(PathBuf::from);
    let remi = std::fs::read_dir(REMI).into_iter().flatten().flatten();
    let remi = remi.flat_map(|series| {
        ["root/usr/sbin", "root/usr/bin"].map(|below| series.path().join(below))
    });
    let mut directories: Vec<PathBuf> = Vec::new();
    for directory in listed.chain(usual).chain(remi) {
        if !directories.contains(&directory) {
            directories.push(directory);
        }
    }
    directories
}

/// Returns the index in [`KINDS`] of the kind of program that a name stands for: `php-fpm`, `php-fpm8.2` (Debian),
/// `php-fpm84` (Alpine).
fn kind(name: &str) -> Option<usize> {
    KINDS.iter().position(|kind| {
        let version = name.strip_prefix(kind);
        version.is_some_and(|version| version.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
    })
}

/// Returns whether a file is a program that may be run.
pub fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_program_says_its_kind() {
        for (name, kind_of_name) in [
            ("php-fpm", Some(0)),
            ("php-fpm8.2", Some(0)),
            ("php-fpm84", Some(0)),
            ("php-cgi8.4", Some(1)),
            ("php", Some(2)),
            ("php8.2", Some(2)),
            ("php-config", None),
            ("php-config8.2", None),
            ("phpize8.2", None),
            ("phpunit", None),
        ] {
            assert_eq!(kind(name), kind_of_name, "{name}");
        }
    }
}
