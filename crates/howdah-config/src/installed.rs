//! The locations of the programs that belong to this one: `howdah-php`, `howdah-bench`, `howdah-import`.

use std::path::{Path, PathBuf};

/// Returns the directory of this program.
pub fn own_directory() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.parent().unwrap_or(Path::new("")).to_owned()
}

/// Returns the paths at which a program of this name is searched: beside this program, as it is built, and in
/// `../libexec` and `../lib/howdah`, as packages install it.
pub fn candidate_paths(name: &str) -> Vec<PathBuf> {
    let directory = own_directory();
    let above = directory.parent().unwrap_or(Path::new(""));
    vec![
        directory.join(name),
        above.join("libexec").join(name),
        above.join("lib/howdah").join(name),
    ]
}
