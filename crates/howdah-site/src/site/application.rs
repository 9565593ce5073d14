//! The applications whose layout the server knows.

use std::path::Path;

pub use howdah_apps::Application;

/// Returns whether a directory has all of these files.
pub(super) fn exists(directory: &Path, files: &[&str]) -> bool {
    files.iter().all(|file| directory.join(file).exists())
}
