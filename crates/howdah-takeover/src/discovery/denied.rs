//! Paths that the old server denies, for `try`, which asks both servers for each of them. The list may contain a path
//! that is not denied after all: `try` compares what the servers say. It is bounded, and it prefers paths of files that
//! exist.

mod patterns;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use howdah_import::directive::Directive;

use self::patterns::{apache_patterns, nginx_patterns};
use super::servers::FoundServer;
use crate::plan::ServerKind;

/// The maximum number of paths of a site.
const MAX_PATHS: usize = 200;
/// The maximum number of paths of a site that one directive of the old configuration adds.
const MAX_PATHS_OF_A_PATTERN: usize = 20;
/// The maximum number of files of one site that are considered.
const MAX_FILES: usize = 20_000;
/// The maximum number of files of all sites that are considered.
const MAX_FILES_OF_ALL_SITES: usize = 1_000_000;
/// The maximum depth of the directories that are searched.
const MAX_DEPTH: usize = 6;

/// The files of the roots that have been searched. Several sites may have one root.
#[derive(Debug, Default)]
pub struct DeniedPaths {
    roots: HashMap<PathBuf, Rc<Vec<String>>>,
    found: usize,
}

impl DeniedPaths {
    fn files(&mut self, root: &Path) -> Rc<Vec<String>> {
        if let Some(known) = self.roots.get(root) {
            return known.clone();
        }
        let rest = MAX_FILES_OF_ALL_SITES.saturating_sub(self.found);
        let mut files = Vec::new();
        list_files(root, MAX_FILES.min(rest), &mut files);
        self.found += files.len();
        let files = Rc::new(files);
        self.roots.insert(root.to_owned(), files.clone());
        files
    }
}

/// Lists the files below a directory as URL paths, those near the root first. Symbolic links to directories are not
/// followed.
fn list_files(root: &Path, most: usize, files: &mut Vec<String>) {
    let mut level = vec![(root.to_owned(), String::new())];
    for _ in 0..MAX_DEPTH {
        let mut next = Vec::new();
        for (directory, url) in level {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            for entry in entries {
                if files.len() >= most {
                    return;
                }
                let name = entry.file_name();
                let Some(name) = name.to_str().filter(|name| is_url_text(name)) else {
                    continue;
                };
                let url = format!("{url}/{name}");
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => next.push((entry.path(), url)),
                    Ok(_) => files.push(url),
                    Err(_) => {}
                }
            }
        }
        level = next;
    }
}

/// Returns whether a name can be part of a request line as it is.
fn is_url_text(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=@".contains(c);
    name.chars().all(plain)
}

/// Returns the paths of a site that the old configuration denies, and those of files that no server should send.
pub fn denied_paths(
    root: &Path,
    block: Option<&Directive>,
    server: &FoundServer,
    tree: &[Directive],
    files: &mut DeniedPaths,
) -> Vec<String> {
    let files = files.files(root);
    let patterns = match (server.server.kind, block) {
        (ServerKind::Nginx, Some(block)) => nginx_patterns(block),
        (ServerKind::Apache, block) => apache_patterns(root, block, tree, &files),
        _ => Vec::new(),
    };
    let mut paths: Vec<String> = Vec::new();
    let mut add = |path: &str| {
        if paths.len() < MAX_PATHS && !paths.iter().any(|known| known == path) {
            paths.push(path.to_owned());
        }
    };
    for pattern in &patterns {
        if let Some(path) = pattern.literal() {
            add(path);
        }
        let matching = files.iter().filter(|file| pattern.matches(file));
        matching
            .take(MAX_PATHS_OF_A_PATTERN)
            .for_each(|file| add(file));
    }
    let suspects = files.iter().filter(|file| is_suspect(file));
    suspects.for_each(|file| add(file));
    paths
}

/// Returns whether a file usually contains what no visitor should see.
fn is_suspect(path: &str) -> bool {
    const NAMES: &[&str] = &[
        "wp-config.php",
        "composer.json",
        "composer.lock",
        "package.json",
        "auth.json",
        "config.inc.php",
        "configuration.php",
        "LocalSettings.php",
        "settings.php",
        "Dockerfile",
        "docker-compose.yml",
    ];
    const ENDINGS: &[&str] = &[
        ".sql", ".sql.gz", ".bak", ".old", ".orig", ".save", ".swp", "~", ".log", ".ini", ".pem",
        ".key",
    ];
    // Of a repository, one file tells as much as thousands.
    let in_repository =
        path.contains("/.git/") || path.contains("/.svn/") || path.contains("/.hg/");
    if in_repository {
        return path.ends_with("/.git/config")
            || path.ends_with("/.svn/entries")
            || path.ends_with("/.hg/hgrc");
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_hidden = path
        .split('/')
        .any(|part| part.starts_with('.') && part != ".well-known");
    is_hidden || NAMES.contains(&name) || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspects_are_known_by_name() {
        for path in [
            "/.env",
            "/.git/config",
            "/a/dump.sql",
            "/x.php~",
            "/a/.htaccess",
        ] {
            assert!(is_suspect(path), "{path}");
        }
        for path in [
            "/index.php",
            "/.git/objects/aa/bb",
            "/.well-known/security.txt",
        ] {
            assert!(!is_suspect(path), "{path}");
        }
    }

    #[test]
    fn files_are_listed_near_the_root_first_and_bounded() {
        let scratch = howdah_test_support::scratch::Scratch::new("denied");
        scratch.write("deep/er/a.sql", "");
        scratch.write("b.sql", "");
        scratch.write("not a url.sql", "");
        let mut files = Vec::new();
        list_files(scratch.path(), 10, &mut files);
        assert_eq!(files, ["/b.sql", "/deep/er/a.sql"]);
        files.clear();
        list_files(scratch.path(), 1, &mut files);
        assert_eq!(files.len(), 1);
    }
}
