//! The files in the application's directory, so a run can report changes that happened meanwhile. The lab writes
//! nothing into the directory; PHP may, as it does for every visitor: caches, counters, logs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The maximum number of files that are watched; if there are more, the report says so.
const MAX_FILES: usize = 200_000;

/// The files of a directory, by relative path: length, and modification time in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTree {
    files: BTreeMap<PathBuf, (u64, i128)>,
    /// True if there were more files than are watched.
    pub is_truncated: bool,
}

/// The changes in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChanges {
    /// Files that were changed, added or removed.
    pub files: Vec<PathBuf>,
    /// True if some files were not watched.
    pub cut: bool,
}

impl FileTree {
    /// Reads the directory recursively, without following symbolic links. A directory or file that cannot be read is
    /// omitted.
    pub fn read(directory: &Path) -> FileTree {
        use std::os::unix::fs::MetadataExt;
        let mut tree = FileTree::default();
        let mut open = vec![directory.to_owned()];
        while let Some(at) = open.pop() {
            for entry in fs::read_dir(&at).into_iter().flatten().flatten() {
                let path = entry.path();
                let Ok(meta) = entry.metadata() else { continue };
                if meta.is_dir() {
                    open.push(path);
                    continue;
                }
                if tree.files.len() >= MAX_FILES {
                    tree.is_truncated = true;
                    return tree;
                }
                let below = path.strip_prefix(directory).unwrap_or(&path).to_owned();
                let time = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
                tree.files.insert(below, (meta.len(), time));
            }
        }
        tree
    }

    /// Returns whether any of the files is a PHP script.
    pub fn has_scripts(&self) -> bool {
        let mut files = self.files.keys();
        files.any(|path| path.extension().is_some_and(|e| e == "php"))
    }

    /// Returns the differences between this tree and `now`.
    pub fn changes(&self, now: &FileTree) -> FileChanges {
        let mut files: Vec<PathBuf> = Vec::new();
        for (path, state) in &now.files {
            if self.files.get(path) != Some(state) {
                files.push(path.clone());
            }
        }
        let gone = self.files.keys().filter(|p| !now.files.contains_key(*p));
        files.extend(gone.cloned());
        files.sort();
        FileChanges {
            files,
            cut: self.is_truncated || now.is_truncated,
        }
    }
}

impl FileChanges {
    /// Returns the scripts that changed: from then on a different application is measured.
    pub fn scripts(&self) -> Vec<&Path> {
        let scripts = self.files.iter().map(PathBuf::as_path);
        scripts
            .filter(|path| path.extension().is_some_and(|e| e == "php"))
            .collect()
    }

    /// Returns the changes as a sentence, or `None` if nothing changed.
    pub fn sentence(&self) -> Option<String> {
        let named: Vec<String> = self
            .files
            .iter()
            .take(5)
            .map(|p| p.display().to_string())
            .collect();
        let more = match self.files.len().saturating_sub(named.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!named.is_empty()).then(|| {
            format!(
                "the application's own PHP wrote into its directory, as it does for visitors: {}{more}",
                named.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_tree_reports_changed_new_and_removed_files() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        for name in ["a.php", "sub/b", "c"] {
            fs::write(at(name), "1").unwrap();
        }
        let before = FileTree::read(directory.path());
        assert!(before.has_scripts());
        assert_eq!(
            before.changes(&FileTree::read(directory.path())).sentence(),
            None
        );
        fs::write(at("sub/b"), "longer").unwrap();
        fs::write(at("new.php"), "1").unwrap();
        fs::remove_file(at("c")).unwrap();
        let changes = before.changes(&FileTree::read(directory.path()));
        let expected: Vec<PathBuf> = ["c", "new.php", "sub/b"].map(PathBuf::from).to_vec();
        assert_eq!(changes.files, expected);
        assert_eq!(changes.scripts(), [Path::new("new.php")]);
        assert!(changes.sentence().unwrap().ends_with("c, new.php, sub/b"));
    }
}
