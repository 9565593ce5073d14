//! What starting a program needs between fork and exec. The only module here with `unsafe`.
#![allow(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// The kernel sends `signal` to the program when the thread that starts it is gone: a program does
/// not outlive its spawner, however that ends. Not inherited by what the program forks, and taken
/// back by the exec of a set-user-ID program (prctl(2)).
///
/// The program starts with no signal blocked: the spawner's own mask is the master's, and std hands it
/// down. A program that blocks SIGTERM could only be killed.
pub(super) fn end_with_parent(command: &mut Command, signal: Signal) {
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec only async-signal-safe calls are allowed: prctl and getppid are
    // plain system calls here, sigemptyset and sigprocmask are on POSIX' list, and nothing is
    // allocated. The set is initialised by sigemptyset before it is read.
    unsafe {
        command.pre_exec(move || {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            set_parent_process_death_signal(Some(signal))?;
            // It may have died before the call.
            if getppid() != Some(parent) {
                return Err(rustix::io::Errno::SRCH.into());
            }
            Ok(())
        });
    }
}
