//! Descriptors that survive an exec, and other settings that a program gets between fork and exec.

#![allow(unsafe_code)]

use std::ffi::{CString, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::{Gid, Uid, execve, getgrouplist, setgid, setgroups, setuid};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_getfd, fcntl_setfd, retry_on_intr};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use crate::account::Account;
use crate::process::drop_capabilities;

/// The number of the first socket that a service manager passes (sd_listen_fds(3)).
const FIRST_LISTENING_SOCKET: RawFd = 3;

/// Creates two connected unix sockets that preserve message boundaries. An exec closes them.
///
/// # Errors
/// The error of `socketpair(2)`.
pub fn packet_socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let pair = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    );
    Ok(pair?)
}

/// Sends one packet with up to four descriptors. Sending to a socket whose peer is closed raises no signal.
///
/// # Errors
/// The error of `sendmsg(2)`; `TOOMANYREFS` for more than four descriptors.
pub fn send_packet(
    socket: BorrowedFd<'_>,
    packet: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(rustix::io::Errno::TOOMANYREFS);
    }
    let pieces = [io::IoSlice::new(packet)];
    let flags = flags | SendFlags::NOSIGNAL;
    retry_on_intr(|| sendmsg(socket, &pieces, &mut ancillary, flags))?;
    Ok(())
}

/// Makes a program inherit `fds` under their current numbers. This process closes them when the command is dropped.
pub fn inherit(command: &mut Command, fds: Vec<OwnedFd>) {
    // SAFETY: only async-signal-safe calls are allowed between fork and exec. fcntl is one, and nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            for fd in &fds {
                fcntl_setfd(fd, FdFlags::empty())?;
            }
            Ok(())
        });
    }
}

/// Makes a program inherit `sockets` under the numbers 3, 4 and so on, as sd_listen_fds(3) expects them. This process
/// closes them when the command is dropped. The caller sets the variables `LISTEN_FDS` and `LISTEN_PID`.
///
/// # Errors
/// The error of `fcntl(2)`; too many files are open.
pub fn pass_listening_sockets(command: &mut Command, sockets: Vec<OwnedFd>) -> io::Result<()> {
    let above = FIRST_LISTENING_SOCKET + sockets.len() as RawFd;
    // While all of these numbers are in use here, neither the copies nor the pipe through which std reports a failed
    // exec can have one of them.
    let mut reserved = Vec::new();
    if let Some(any) = sockets.first() {
        loop {
            let copy = fcntl_dupfd_cloexec(any, FIRST_LISTENING_SOCKET)?;
            let is_above = copy.as_raw_fd() >= above;
            reserved.push(copy);
            if is_above {
                break;
            }
        }
    }
    let copies: Vec<OwnedFd> = sockets
        .iter()
        .map(|socket| fcntl_dupfd_cloexec(socket, above))
        .collect::<Result<_, _>>()?;
    // SAFETY: only async-signal-safe calls are allowed between fork and exec. dup2 is one, and nothing is allocated. It
    // replaces descriptors only in the new process, which uses none of them before its exec: this process holds all of
    // these numbers in `reserved` or by files of its own.
    unsafe {
        command.pre_exec(move || {
            let _ = &reserved;
            for (number, copy) in (FIRST_LISTENING_SOCKET..).zip(&copies) {
                if libc::dup2(copy.as_raw_fd(), number) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    Ok(())
}

/// Replaces this program with another one, with `kept` open under their current numbers. Unlike `exec` of std, this
/// leaves the signal mask as it is: a signal that arrives meanwhile stays pending for the new program. Returns only on
/// failure, with the error.
pub fn execute_in_place(
    program: &Path,
    arguments: &[OsString],
    variables: &[(OsString, OsString)],
    kept: &[BorrowedFd<'_>],
) -> io::Error {
    let text = |bytes: Vec<u8>| CString::new(bytes).map_err(io::Error::other);
    let variable = |(name, value): &(OsString, OsString)| {
        text([name.as_bytes(), b"=", value.as_bytes()].concat())
    };
    let execute = || -> io::Result<()> {
        let program = text(program.as_os_str().as_bytes().to_vec())?;
        let arguments: Vec<CString> = arguments
            .iter()
            .map(|argument| text(argument.as_bytes().to_vec()))
            .collect::<io::Result<_>>()?;
        let variables: Vec<CString> = variables.iter().map(variable).collect::<io::Result<_>>()?;
        for fd in kept {
            fcntl_setfd(fd, FdFlags::empty())?;
        }
        let failed = execve(&program, &arguments, &variables);
        for fd in kept {
            fcntl_setfd(fd, FdFlags::CLOEXEC)?;
        }
        failed.map(|_| ()).map_err(io::Error::from)
    };
    match execute() {
        Ok(()) => io::Error::other("execve returned"),
        Err(error) => error,
    }
}

/// Takes ownership of a descriptor that was inherited through exec under the given number. This works once per
/// descriptor: an inherited descriptor lacks the close-on-exec flag until this function sets it. Every descriptor that
/// this process opens itself has the flag from the start.
///
/// # Errors
/// No descriptor with this number was inherited, or it has already been taken.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    let not_ours = || io::Error::other("not a descriptor handed down to us");
    if number < 3 {
        return Err(not_ours());
    }
    // SAFETY: only its flags are read and set; a number that is not open gives an error.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    if fcntl_getfd(fd)?.contains(FdFlags::CLOEXEC) {
        return Err(not_ours());
    }
    fcntl_setfd(fd, FdFlags::CLOEXEC)?;
    // SAFETY: the descriptor is open. The flag was not set before, so this process did not open it; the flag is set
    // now, so it is owned only once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Sets close-on-exec on all descriptors beyond the first three that this process inherited from its parent, so that
/// its own child processes do not get them.
pub fn close_inherited_on_exec() {
    let cloexec = libc::CLOSE_RANGE_CLOEXEC;
    // musl has no function for this system call.
    // SAFETY: the call takes no pointers and closes no descriptor; it only sets a flag.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, cloexec) } == 0 {
        return;
    }
    // A kernel before 5.11 lacks this flag.
    let open = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    for number in numbers.filter(|number| *number > 2) {
        // SAFETY: only its flag is set. A number that is no longer open (the directory's own) gives an error.
        let _ = fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC);
    }
}

/// Makes a program run as `account` with group `gid` and the account's supplementary groups, or as the current user if
/// `account` is `None`. In both cases the program loses this process's capabilities unless it runs as root. Call this
/// before [`exit_with_parent`], because a change of user clears the setting of the latter (prctl(2)).
///
/// # Errors
/// The account's groups cannot be looked up.
pub fn run_as(command: &mut Command, account: Option<(&Account, u32)>) -> io::Result<()> {
    let identity = match account {
        Some((account, gid)) => {
            let gid = Gid::from_raw(gid);
            let groups = match &account.name {
                Some(name) => getgrouplist(name, gid)?,
                None => vec![gid],
            };
            Some((Uid::from_raw(account.uid), gid, groups))
        }
        None => None,
    };
    // SAFETY: only async-signal-safe calls are allowed between fork and exec. These are system calls, as std makes them
    // there for `CommandExt::uid`, and nothing is allocated or looked up.
    unsafe {
        command.pre_exec(move || {
            if let Some((uid, gid, groups)) = &identity {
                setgroups(groups)?;
                setgid(*gid)?;
                setuid(*uid)?;
            }
            drop_capabilities()
        });
    }
    Ok(())
}

/// Makes a program start with no signal blocked. Without this, std would pass on the mask of the calling thread, which
/// [`SignalDescriptor`](crate::signals::SignalDescriptor) changes.
pub fn start_with_no_signal_blocked(command: &mut Command) {
    let none = SigSet::empty();
    // SAFETY: only async-signal-safe calls are allowed between fork and exec. sigprocmask is one, and nothing is
    // allocated.
    unsafe {
        command.pre_exec(move || Ok(sigprocmask(SigmaskHow::SIG_SETMASK, Some(&none), None)?));
    }
}

/// Makes the kernel send `signal` to the program when the thread that starts it exits. A program therefore does not
/// outlive its spawner, however the spawner ends. The setting is not inherited by processes that the program forks, and
/// the exec of a set-user-ID program clears it (prctl(2)).
///
/// The program starts with no signal blocked. Without this, std would pass on the spawner's mask, which the spawner has
/// from the master. A program that blocks SIGTERM could only be ended by SIGKILL.
pub fn exit_with_parent(command: &mut Command, signal: Signal) {
    let parent = getpid();
    let none = SigSet::empty();
    // SAFETY: only async-signal-safe calls are allowed between fork and exec. prctl and getppid are plain system calls
    // here, sigprocmask is on POSIX's list, and nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&none), None)?;
            set_parent_process_death_signal(Some(signal))?;
            // The parent may have exited before the call.
            if getppid() != Some(parent) {
                return Err(rustix::io::Errno::SRCH.into());
            }
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::IntoRawFd;

    use super::*;

    #[test]
    fn own_descriptor_is_not_taken_as_inherited() {
        let file = tempfile::tempfile().unwrap();
        assert!(take_inherited(file.as_raw_fd()).is_err(), "opened by us");
        let handed_down = OwnedFd::from(file);
        fcntl_setfd(&handed_down, FdFlags::empty()).unwrap();
        let number = handed_down.into_raw_fd();
        let taken = take_inherited(number).unwrap();
        assert!(fcntl_getfd(&taken).unwrap().contains(FdFlags::CLOEXEC));
        assert!(take_inherited(number).is_err(), "a second time");
        assert!(take_inherited(1).is_err() && take_inherited(9999).is_err());
    }

    #[test]
    fn inherited_descriptor_keeps_its_number() {
        let (read, write) = std::io::pipe().unwrap();
        let write = OwnedFd::from(write);
        let number = write.as_raw_fd();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("echo hello >&{number}")]);
        inherit(&mut command, vec![write]);
        assert!(command.status().unwrap().success());
        drop(command);
        assert_eq!(std::io::read_to_string(read).unwrap(), "hello\n");
    }

    #[test]
    fn listening_sockets_are_passed_under_the_numbers_of_a_service_manager() {
        let sockets: Vec<TcpListener> = (0..7)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let inode = |listener: &TcpListener| rustix::fs::fstat(listener).unwrap().st_ino;
        let expected: Vec<String> = sockets
            .iter()
            .map(|listener| format!("socket:[{}]", inode(listener)))
            .collect();
        let mut command = Command::new("sh");
        command.args(["-c", "readlink $(seq -f /proc/$$/fd/%g 3 9)"]);
        let sockets = sockets.into_iter().map(OwnedFd::from).collect();
        pass_listening_sockets(&mut command, sockets).unwrap();
        let output = command.output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed.lines().collect::<Vec<_>>(), expected);

        let mut missing = Command::new("/nonexistent/program");
        let one = TcpListener::bind("127.0.0.1:0").unwrap();
        pass_listening_sockets(&mut missing, vec![one.into()]).unwrap();
        assert_eq!(missing.spawn().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
