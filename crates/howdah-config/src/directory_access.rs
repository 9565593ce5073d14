//! Finds the directory that keeps a user from a path, and says how to mend it. A path can be opened only if the user
//! may enter every directory above it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use howdah_os::account::{self, Account};
use howdah_os::shell::shell_quoted;
use rustix::fs::{Access, access};

/// Returns the directories that a process must enter to open files of `directory`: those above it, from the root
/// downwards, and itself. If links are on the way, the directories that they lead to follow.
pub fn directories_to_enter(directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let written = std::path::absolute(directory).ok();
    let real = directory.canonicalize().ok();
    for path in [written, real].into_iter().flatten() {
        let above: Vec<&Path> = path.ancestors().collect();
        for directory in above.into_iter().rev() {
            if !found.iter().any(|known| known == directory) {
                found.push(directory.to_owned());
            }
        }
    }
    found
}

/// Returns the first directory that keeps this process from the files of `directory`.
pub fn closed_directory(directory: &Path) -> Option<PathBuf> {
    directories_to_enter(directory)
        .into_iter()
        .find(|above| above.is_dir() && access(above, Access::EXEC_OK).is_err())
}

/// Describes the first directory that keeps this process from the files of `directory`; see [`describe_closed`].
pub fn closed_to_this_process(directory: &Path) -> Option<String> {
    let closed = closed_directory(directory)?;
    let name = name_of(&account::effective_account());
    Some(describe_closed(&name, &closed))
}

/// Describes a directory that a user cannot enter: its permissions, and the command that mends them. The failure is
/// called `DirectoryUnreadable`.
pub fn describe_closed(user: &str, directory: &Path) -> String {
    let path = directory.display().to_string();
    let quoted = shell_quoted(&path);
    let permissions = directory.metadata().ok();
    let permissions = permissions.map_or_else(String::new, |meta| {
        format!(" ({})", describe_permissions(&meta))
    });
    format!(
        "the user `{user}` cannot enter {path}{permissions}; run: chmod o+x {quoted}, or for a group of that user: chgrp GROUP {quoted} && chmod g+x {quoted}"
    )
}

/// Describes permissions as `ls -l` does: `drwxr-x--- root www-data`.
fn describe_permissions(meta: &Metadata) -> String {
    let mode = meta.mode();
    let letters = [(0o400, 'r'), (0o200, 'w'), (0o100, 'x')];
    let bits = [0, 3, 6].into_iter().flat_map(|shift| {
        letters.map(|(bit, letter)| {
            if mode & (bit >> shift) != 0 {
                letter
            } else {
                '-'
            }
        })
    });
    let kind = if meta.is_dir() { 'd' } else { '-' };
    let bits: String = [kind].into_iter().chain(bits).collect();
    let owner = name_of(&account::account_of_uid(meta.uid()));
    let group = account::group_name(meta.gid()).unwrap_or_else(|| meta.gid().to_string());
    format!("{bits} {owner} {group}")
}

/// Returns the name of a user, or its number if it has no name.
fn name_of(account: &Account) -> String {
    let name = account.name.as_ref().and_then(|name| name.to_str().ok());
    name.map_or_else(|| account.uid.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn directories_of_a_path_are_those_of_its_links_too() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("real/site")).unwrap();
        symlink("real", base.join("link")).unwrap();
        let found = directories_to_enter(&base.join("link/site"));
        for part in ["", "link", "link/site", "real", "real/site"] {
            assert!(found.contains(&base.join(part)), "{part}: {found:?}");
        }
        assert_eq!(found[0], Path::new("/"));
        assert_eq!(closed_directory(&base.join("link/site")), None);
    }

    #[test]
    fn closed_directory_is_described_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o750)).unwrap();
        let said = describe_closed("www-data", path);
        let start = format!(
            "the user `www-data` cannot enter {} (drwxr-x--- ",
            path.display()
        );
        assert!(said.starts_with(&start), "{said}");
        assert!(
            said.contains(&format!("chmod o+x {}", path.display())),
            "{said}"
        );
    }
}
