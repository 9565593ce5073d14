//! Checks whether a pidfd that a zygote has sent belongs to a process that the zygote has forked.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Which process forked the process of a pidfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PidfdOrigin {
    /// The zygote forked it; or it has exited and been reaped, and a signal to it has no effect.
    Zygote,
    /// The descriptor belongs to another process, or is not a pidfd.
    Other,
    /// It is not known: /proc is missing, or hides other users' processes (`hidepid`).
    Unknown,
}

/// Checks whether a descriptor is a pidfd of process `pid`, and whether `zygote` forked that process, if that is known.
pub fn origin(pidfd: BorrowedFd<'_>, pid: i32, zygote: Option<i32>) -> PidfdOrigin {
    let look = || {
        check_pidfd(pidfd, pid)?;
        let found = forked_by(pid, zygote);
        // Checked again: the process has not been reaped, so its id was not reused while its parent was read.
        check_pidfd(pidfd, pid).map(|()| found)
    };
    look().unwrap_or_else(|otherwise| otherwise)
}

/// Checks whether a process is the zygote's child (proc_pid_stat(5)).
///
/// A zygote leads a process group, into which its children are born and no other process can be put. The group shows
/// the origin even if the zygote has exited before its report is read.
fn forked_by(pid: i32, zygote: Option<i32>) -> PidfdOrigin {
    let is_zygote = |id: i32| zygote == Some(id);
    let id = rustix::process::Pid::from_raw(pid);
    let group = id.and_then(|id| rustix::process::getpgid(Some(id)).ok());
    if group.is_some_and(|group| is_zygote(group.as_raw_nonzero().get())) {
        return PidfdOrigin::Zygote;
    }
    match parent_pid(pid) {
        Some(parent) if is_zygote(parent) => PidfdOrigin::Zygote,
        Some(_) => PidfdOrigin::Other,
        None => PidfdOrigin::Unknown,
    }
}

/// Checks whether the descriptor is a pidfd of that process and the process has not been reaped (proc_pid_fdinfo(5)).
/// Otherwise returns the result of [`origin`] as the error.
fn check_pidfd(pidfd: BorrowedFd<'_>, pid: i32) -> Result<(), PidfdOrigin> {
    let path = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let text = std::fs::read_to_string(path).map_err(|_| PidfdOrigin::Unknown)?;
    let found = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    match found.and_then(|found| found.trim().parse::<i32>().ok()) {
        Some(-1) => Err(PidfdOrigin::Zygote),
        Some(found) if found == pid && pid > 0 => Ok(()),
        // `None` means that it is not a pidfd.
        _ => Err(PidfdOrigin::Other),
    }
}

fn parent_pid(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may itself contain blanks and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    fields.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;
    use crate::common::sys::create_bell;

    #[test]
    fn pidfd_origin_distinguishes_the_zygotes_child() {
        let us = std::process::id() as i32;
        let mut child = Command::new("sleep")
            .arg("600")
            .process_group(0)
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        let open = |pid| {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap()
        };
        let origin = |fd: &OwnedFd, pid, zygote| origin(fd.as_fd(), pid, zygote);
        let (fd, own) = (open(pid), open(us));
        for (fd, named, zygote, expected, why) in [
            (&fd, pid, Some(us), PidfdOrigin::Zygote, "by its parent"),
            (&fd, pid, Some(pid), PidfdOrigin::Zygote, "by its group"),
            (&fd, pid, Some(1), PidfdOrigin::Other, "of another zygote"),
            (
                &fd,
                pid,
                None,
                PidfdOrigin::Other,
                "of no zygote that is known",
            ),
            (
                &fd,
                us,
                Some(us),
                PidfdOrigin::Other,
                "of another than said",
            ),
            (&own, us, Some(pid), PidfdOrigin::Other, "of ourselves"),
            (
                &create_bell().unwrap(),
                pid,
                Some(us),
                PidfdOrigin::Other,
                "no pidfd",
            ),
        ] {
            assert_eq!(origin(fd, named, zygote), expected, "{why}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let reaped = origin(&fd, pid, Some(us));
        assert_eq!(reaped, PidfdOrigin::Zygote, "reaped: harmless");
    }
}
