//! Processes that are identified by their id and the time of their start, so a reused id is never mistaken for them.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::RawFd;

use howdah_os::shared_ports::HeldProcess;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::proc::{ProcessStat, socket_descriptors};

/// A process, identified beyond the reuse of its id.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct ProcessIdentity {
    /// The id of the process.
    pub pid: u32,
    /// When it started, in clock ticks since the machine did (field 22 of `/proc/PID/stat`).
    pub started: u64,
}

impl ProcessIdentity {
    /// Returns the process that has this id now. Returns `None` if it has exited, even if its parent has not reaped it.
    pub fn of(pid: u32) -> Option<ProcessIdentity> {
        let stat = ProcessStat::read(pid).ok()?;
        let started = stat.started;
        (!matches!(stat.state, b'Z' | b'X')).then_some(ProcessIdentity { pid, started })
    }

    /// Returns whether the process still runs.
    pub fn is_alive(self) -> bool {
        ProcessIdentity::of(self.pid) == Some(self)
    }

    /// Returns an identity with this id that no running process can have, because no process starts so late.
    pub fn exited(self) -> ProcessIdentity {
        ProcessIdentity {
            started: u64::MAX,
            ..self
        }
    }

    /// Opens the process.
    ///
    /// # Errors
    /// `NotFound` if it has exited; otherwise the error of `pidfd_open(2)`.
    pub fn hold(self) -> io::Result<HeldProcess> {
        let held = HeldProcess::open(self.pid)?;
        // Checked after opening, so the descriptor cannot belong to a later process with this id.
        match self.is_alive() {
            true => Ok(held),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Sends a signal to the process, if it still runs.
    pub fn signal(self, signal: Signal) {
        // A process that has exited meanwhile needs no signal.
        let _ = self.hold().and_then(|held| held.signal(signal));
    }

    /// Returns the descriptors of the process that are sockets, by inode.
    ///
    /// # Errors
    /// The error of reading `/proc/PID/fd`: without root's rights, the directories of other users cannot be read.
    pub fn sockets(self) -> io::Result<HashMap<u64, RawFd>> {
        socket_descriptors(self.pid)
    }

    /// Returns whether the process is in the network namespace of this one.
    pub fn shares_network(self) -> bool {
        let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        namespace(&self.pid.to_string()) == namespace("self")
    }
}

/// Returns an identifier of this start of the machine.
pub fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::Command;

    use rustix::fs::fstat;

    use super::*;

    #[test]
    fn process_is_identified_by_its_start_as_well() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = ProcessIdentity::of(child.id()).unwrap();
        let reused = ProcessIdentity {
            started: process.started - 1,
            ..process
        };
        assert!(process.is_alive() && !reused.is_alive());
        assert_eq!(reused.hold().unwrap_err().kind(), io::ErrorKind::NotFound);
        reused.signal(Signal::KILL);
        assert!(process.is_alive());
        process.signal(Signal::KILL);
        rustix::process::waitid(
            rustix::process::WaitId::Pid(rustix::process::Pid::from_child(&child)),
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT,
        )
        .unwrap();
        assert!(!process.is_alive(), "it has exited but is not reaped");
        child.wait().unwrap();
    }

    #[test]
    fn sockets_are_found_by_inode() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = ProcessIdentity::of(std::process::id()).unwrap();
        let inode = fstat(&listener).unwrap().st_ino;
        use std::os::fd::AsRawFd;
        assert_eq!(
            own.sockets().unwrap().get(&inode),
            Some(&listener.as_raw_fd())
        );
        assert!(own.shares_network());
    }
}
