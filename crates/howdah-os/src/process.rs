//! What this process may do, what it gives up, and what it denies to others.

use std::io;

use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
};

/// Whether we may do what only root may.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Whether we may become other users: as root, or by the capabilities that a service manager has given us.
pub fn may_change_user() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    is_root() || capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Whether we may give files to other users, use them all the same, and become those users: root may not in
/// a container without these capabilities.
pub fn may_give_files_away() -> bool {
    let needed = CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::SETUID
        | CapabilitySet::SETGID;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Gives up all capabilities, for good, unless we are root: a change from one user to another keeps them,
/// and so does an exec (capabilities(7), ambient set). Of this thread alone: to be called before others are
/// started.
///
/// # Errors
/// What the kernel says.
pub fn give_up_capabilities() -> io::Result<()> {
    if is_root() {
        return Ok(());
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    // A kernel, or a sandbox, without the ambient set has nothing in it.
    let _ = clear_ambient_capability_set();
    Ok(set_capabilities(None, none)?)
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
