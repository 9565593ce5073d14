//! Finds the files that a pattern of a configuration names, as glob(3) does.

use std::fs;
use std::path::{Component, Path, PathBuf};

use globset::GlobBuilder;

/// If a component of a pattern has matched more files than this, no further directories are searched for it.
const MAX_FOUND_FILES: usize = 20_000;

/// Returns whether a path is a pattern for several files.
pub fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// Returns the files that match a pattern, sorted, as glob(3) finds them: `*` matches neither a slash nor a leading
/// dot.
pub fn glob_files(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let Component::Normal(name) = component else {
            for path in &mut found {
                path.push(component);
            }
            continue;
        };
        let name = name.to_string_lossy();
        if !is_pattern(&name) {
            for path in &mut found {
                path.push(&*name);
            }
            found.retain(|path| fs::symlink_metadata(path).is_ok());
            continue;
        }
        let glob = GlobBuilder::new(&name).literal_separator(true).build();
        let Ok(glob) = glob.map(|glob| glob.compile_matcher()) else {
            return Vec::new();
        };
        let dots = name.starts_with('.');
        let mut next = Vec::new();
        for directory in found {
            let here = match directory.as_os_str().is_empty() {
                true => Path::new("."),
                false => &directory,
            };
            let entries = fs::read_dir(here).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name());
            let fitting = names.filter(|name| {
                let hidden = name.as_encoded_bytes().starts_with(b".");
                (dots || !hidden) && glob.is_match(name)
            });
            next.extend(fitting.map(|name| directory.join(name)));
            if next.len() > MAX_FOUND_FILES {
                break;
            }
        }
        next.sort();
        found = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glob_matches_as_the_shell_does() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b.conf", "a.conf", ".c.conf", "d.txt"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let names = |pattern: &str| {
            let found = glob_files(&directory.path().join(pattern)).into_iter();
            let names = found.map(|p| p.file_name().unwrap().to_string_lossy().into_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(names("*.conf"), ["a.conf", "b.conf"]);
        assert_eq!(names("[bd].*"), ["b.conf", "d.txt"]);
        assert!(names("no/*.conf").is_empty());
    }
}
