//! What this process denies to others.

use std::io;

use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};

/// Whether we may do what only root may.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Sets whether other processes of the same user can trace this one and read its memory, and whether it
/// leaves a core file.
pub fn set_dumpable(dumpable: bool) -> io::Result<()> {
    let behavior = match dumpable {
        true => DumpableBehavior::Dumpable,
        false => DumpableBehavior::NotDumpable,
    };
    Ok(set_dumpable_behavior(behavior)?)
}

/// Neither this process nor what it starts gains rights by an exec.
pub fn no_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// How many threads this process has; 1 where /proc is not there.
pub fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}
