//! Operations on processes that all modes use: send a signal, describe an exit, read the memory usage.

use std::io;
use std::os::fd::BorrowedFd;

use howdah_proto::control::Exit;
use rustix::process::Signal;

/// Returns whether a descriptor is readable now.
pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [rustix::event::PollFd::new(
        &fd,
        rustix::event::PollFlags::IN,
    )];
    let zero = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    matches!(rustix::event::poll(&mut fds, Some(&zero)), Ok(n) if n > 0)
}

/// Sends a signal by pidfd. A process that has already exited is not an error.
///
/// # Errors
/// The front has no permission (another user's process).
pub(crate) fn signal(pidfd: BorrowedFd<'_>, signal: Signal) -> io::Result<()> {
    match rustix::process::pidfd_send_signal(pidfd, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Describes an exit for the log.
pub fn exit_text(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit code {code}"),
        Exit::Signal(number) => match signal_name(number) {
            Some(name) => format!("signal {number} ({name})"),
            None => format!("signal {number}"),
        },
        Exit::Unseen => "cause unknown, because its zygote had exited".to_owned(),
    }
}

fn signal_name(number: i32) -> Option<&'static str> {
    Some(match number {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

/// Returns the resident memory of a process in bytes, from `/proc/PID/statm`, or 0 if it is gone.
pub fn resident_bytes(pid: i32) -> u64 {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/statm")) else {
        return 0;
    };
    let pages: u64 = text
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Returns whether a process sleeps (state S of `/proc/PID/stat`): it is not running, not waiting for a core, and not
/// stopped.
pub fn is_sleeping(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // The program's name is in parentheses and may contain any character.
    stat.is_ok_and(|stat| {
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.trim_start().starts_with('S'))
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    #[track_caller]
    fn wait_until(condition: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !condition() {
            assert!(Instant::now() < end);
            std::thread::yield_now();
        }
    }

    #[test]
    fn stopped_or_ended_process_is_not_sleeping() {
        // This process waits for input that never comes.
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id() as i32;
        wait_until(|| is_sleeping(pid));
        kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        wait_until(|| !is_sleeping(pid));
        kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
        wait_until(|| is_sleeping(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_sleeping(pid));
    }
}
