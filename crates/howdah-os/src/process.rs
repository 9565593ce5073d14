//! The rights that this process has, the rights that it gives up, and what it denies to other processes.

use std::io;

use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
};

/// Returns whether this process runs as root.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Returns whether this process may become another user: as root, or by the capabilities that a service manager has
/// given it.
pub fn may_change_user() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    is_root() || capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Returns whether this process may give files to other users, still use those files, and become those users. In a
/// container, root may lack these capabilities.
pub fn may_change_file_owner() -> bool {
    let needed = CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::SETUID
        | CapabilitySet::SETGID;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Gives up all capabilities permanently, unless this process runs as root. Neither a change from one non-root user to
/// another nor an exec drops them (capabilities(7), ambient set). This affects only the calling thread, so call it
/// before other threads are started.
///
/// # Errors
/// The error of the kernel.
pub fn drop_capabilities() -> io::Result<()> {
    if is_root() {
        return Ok(());
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    // Fails on a kernel, or in a sandbox, that has no ambient set. Then there is nothing to clear.
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

/// Prevents this process and the processes that it starts from gaining privileges by an exec.
pub fn forbid_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Returns the number of threads of this process, or 1 if /proc is not available.
pub fn thread_count() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}
