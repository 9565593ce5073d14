//! Directories outside a site's root. A symbolic link in the root makes such a directory part of the site, and the list
//! asks for the link.

use std::path::Path;

use howdah_os::shell::shell_quoted;

/// A symbolic link that does not exist.
#[derive(Debug)]
pub struct MissingLink {
    /// The command that creates the link.
    pub command: String,
    /// True if a file or directory is already at the link's path, or the root cannot be read. The old server did not
    /// show what is at that path, so access to it must be denied.
    pub is_occupied: bool,
}

/// Returns the link that makes a directory available at a path of the site, or `None` if that path already resolves to
/// the directory.
pub fn missing_link(root: &str, path: &str, target: &str) -> Option<MissingLink> {
    let link = format!("{root}{path}");
    let real = |path: &str| Path::new(path).canonicalize().ok();
    if link == target || real(&link).is_some_and(|one| real(target) == Some(one)) {
        return None;
    }
    let hides = !Path::new(root).is_dir() || Path::new(&link).symlink_metadata().is_ok();
    let then = match hides {
        true => ", then remove the rule that denies access to it",
        false => "",
    };
    let need = format!(
        "ln -s {} {}{then}",
        shell_quoted(target),
        shell_quoted(&link)
    );
    Some(MissingLink {
        command: need,
        is_occupied: hides,
    })
}
