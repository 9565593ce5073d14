//! The locations of the files that belong to this program: `howdah-bench`, `howdah-import`, and the libraries for PHP
//! (`howdah-php-….so`).

use std::path::{Path, PathBuf};

/// Returns the directory of this program.
pub fn own_directory() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.parent().unwrap_or(Path::new("")).to_owned()
}

/// Returns the paths at which a file of this name is searched: beside this program, as it is built, and in
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
