//! Processes that the master starts by executing this program again: the front, and the one that orders
//! certificates. Here is what both do: the master's side of the start, and the process's own.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::link::Link;
use crate::sys;

/// Executes this program with `word` as its command; its process id, and the line to it.
/// `/proc/self/exe` is the very file that we run, also after an upgrade has replaced it: both always
/// speak the same language.
///
/// # Errors
/// What the system says.
pub fn execute(word: &str) -> io::Result<(i32, Link)> {
    let (link, theirs) = Link::pair()?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("howdah")
        .arg(word)
        .arg("--link")
        .arg(theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        // The terminal's Ctrl-C is for the master, which then stops its children.
        .process_group(0);
    sys::inherit(&mut command, vec![theirs]);
    let child = command.spawn()?;
    Ok((child.id() as i32, link))
}

/// The process's line to the master, and the signals that are blocked as long as it lives. Closes its
/// memory to others: PHP may run as the same user, always so without root, and keys and requests of
/// other sites are not for its scripts.
///
/// # Errors
/// Why it cannot go on, for the one who started it.
pub fn prepare(link: i32) -> Result<(Link, sys::SignalDescriptor), String> {
    let link = sys::inherited(link)
        .map_err(|error| format!("no line to a master ({error}); start `howdah serve` instead"))?;
    sys::set_dumpable(false).map_err(|error| format!("cannot close our memory: {error}"))?;
    // The master decides: a service manager that signals the whole group stops nothing half-way.
    let blocked = sys::SignalDescriptor::new(&[
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGHUP,
        libc::SIGUSR1,
        libc::SIGUSR2,
    ]);
    let blocked = blocked.map_err(|error| format!("cannot block signals: {error}"))?;
    Ok((Link::new(link), blocked))
}
