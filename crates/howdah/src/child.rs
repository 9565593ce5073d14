//! Processes that the master starts by executing this program again: the front, the process that orders certificates,
//! and the process that runs jobs. This module has the code that they share: the master's side of the start, and the
//! process's own side.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::process_channel::ProcessChannel;
use crate::sys;

/// Executes this program with `word` as its command. Returns its process id and the channel to it. `/proc/self/exe` is
/// the very file that we run, even after an upgrade has replaced it, so both processes always use the same messages.
///
/// # Errors
/// Fails with the error of the operating system.
pub fn execute(word: &str) -> io::Result<(i32, ProcessChannel)> {
    let (link, theirs) = ProcessChannel::pair()?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("howdah")
        .arg(word)
        .arg("--link")
        .arg(theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        // The terminal's Ctrl-C is meant for the master, which then stops its children.
        .process_group(0);
    sys::inherit(&mut command, vec![theirs]);
    let child = command.spawn()?;
    Ok((child.id() as i32, link))
}

/// Returns the channel to the master, and the signals that are blocked while the process runs. Protects the memory of
/// this process: PHP may run as the same user, and always does without root, and its scripts must not read keys and
/// requests of other sites.
///
/// # Errors
/// Fails with the reason why the process cannot continue, for the person who started it.
pub fn prepare(link: i32) -> Result<(ProcessChannel, sys::SignalDescriptor), String> {
    let link = sys::take_inherited(link).map_err(|error| {
        format!(
            "this process has no connection to a master ({error}); start `howdah serve` instead"
        )
    })?;
    sys::set_dumpable(false)
        .map_err(|error| format!("cannot protect the memory of this process: {error}"))?;
    // The master decides when to stop, so a service manager that signals the whole group does not stop single
    // processes.
    let blocked = sys::SignalDescriptor::new(&[
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGHUP,
        libc::SIGUSR1,
        libc::SIGUSR2,
    ]);
    let blocked = blocked.map_err(|error| format!("cannot block signals: {error}"))?;
    Ok((ProcessChannel::new(link), blocked))
}
