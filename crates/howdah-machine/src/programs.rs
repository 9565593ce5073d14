//! Programs that may or may not be installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Returns the path of a program or file: `place` itself if it is an absolute path that exists, else the first
/// executable file of this name in the directories of `PATH` and then in the `sbin` directories, which are missing from
/// the `PATH` of ordinary users.
pub fn find(place: &str) -> Option<PathBuf> {
    if place.starts_with('/') {
        return Some(PathBuf::from(place)).filter(|path| path.exists());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(sbin)
        .map(|directory: PathBuf| directory.join(place))
        .find(|candidate| is_program(candidate))
}

/// Returns whether the path is a file with an execute bit.
pub fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_path_and_by_absolute_path() {
        let shell = find("sh").expect("every machine has a shell");
        assert!(is_program(&shell));
        assert_eq!(find("/bin/sh").unwrap(), Path::new("/bin/sh"));
        assert_eq!(find("no-such-shell"), None);
        assert_eq!(find("/no/such/shell"), None);
    }
}
