//! Directories outside of a site's root: a link below it makes them part of it, and the list asks for one.

use std::path::Path;

use crate::directive::shell_quoted;

/// A link that is not there.
#[derive(Debug)]
pub struct MissingLink {
    /// The command that makes it.
    pub command: String,
    /// Something lies in its place, which the old server did not show: it has to be closed.
    pub is_occupied: bool,
}

/// The link that shows a directory at a path of the site; none if the same is there already.
pub fn missing_link(root: &str, path: &str, target: &str) -> Option<MissingLink> {
    let link = format!("{root}{path}");
    let real = |path: &str| Path::new(path).canonicalize().ok();
    if link == target || real(&link).is_some_and(|one| real(target) == Some(one)) {
        return None;
    }
    let hides = !Path::new(root).is_dir() || Path::new(&link).symlink_metadata().is_ok();
    let then = match hides {
        true => ", then remove the rule that closes it here",
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
