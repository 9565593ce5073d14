//! Whether a package manager is at work on this machine. While one is, the files of a program and of its extensions may
//! belong to different versions.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The files that package managers lock while they change the machine: apt and dpkg, rpm and dnf, apk.
const LOCKS: [&str; 6] = [
    "var/lib/dpkg/lock-frontend",
    "var/lib/dpkg/lock",
    "var/lib/rpm/.rpm.lock",
    "usr/lib/sysimage/rpm/.rpm.lock",
    "lib/apk/db/lock",
    "usr/lib/apk/db/lock",
];

/// Contains a file while dpkg is between two steps, and after it was interrupted.
const DPKG_UPDATES: &str = "var/lib/dpkg/updates";

/// The system's list of locks (proc_locks(5)), which every user may read.
const LOCK_LIST: &str = "/proc/locks";

/// Returns whether a package manager is at work, as far as this process can tell.
pub fn is_at_work() -> bool {
    is_at_work_below(Path::new("/"))
}

fn is_at_work_below(root: &Path) -> bool {
    let updates = std::fs::read_dir(root.join(DPKG_UPDATES));
    if updates.is_ok_and(|mut entries| entries.next().is_some()) {
        return true;
    }
    let inodes = LOCKS.iter().filter_map(|lock| {
        let file = std::fs::metadata(root.join(lock)).ok()?;
        Some(file.ino())
    });
    let inodes: Vec<u64> = inodes.collect();
    let list = match inodes.is_empty() {
        true => String::new(),
        false => std::fs::read_to_string(LOCK_LIST).unwrap_or_default(),
    };
    list.lines()
        .filter_map(inode_locked_for_writing)
        .any(|inode| inodes.contains(&inode))
}

/// Returns the inode of a line such as `1: POSIX ADVISORY WRITE 123 08:01:4711 0 EOF`. The device before it is ignored,
/// because on btrfs and on overlays it differs from the device that stat(2) reports.
fn inode_locked_for_writing(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace().skip_while(|word| *word != "WRITE");
    words.nth(2)?.rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn package_manager_is_at_work_while_it_holds_its_lock_or_is_between_two_steps() {
        let root = tempfile::tempdir().unwrap();
        assert!(!is_at_work_below(root.path()));
        fs::create_dir_all(root.path().join(DPKG_UPDATES)).unwrap();
        let lock = File::create(root.path().join(LOCKS[0])).unwrap();
        assert!(!is_at_work_below(root.path()));
        lock.lock().unwrap();
        assert!(is_at_work_below(root.path()));
        lock.unlock().unwrap();
        assert!(!is_at_work_below(root.path()));
        lock.lock_shared().unwrap();
        assert!(!is_at_work_below(root.path()), "somebody only reads");
        let step = root.path().join(DPKG_UPDATES).join("0001");
        fs::write(&step, "").unwrap();
        assert!(is_at_work_below(root.path()));
        fs::remove_file(step).unwrap();
        assert!(!is_at_work_below(root.path()));
    }
}
