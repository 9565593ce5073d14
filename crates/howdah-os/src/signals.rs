//! Signals as a descriptor, for processes that wait for several kinds of events at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// A descriptor that is readable while one of its signals is pending. The signals stay blocked after it is closed.
#[derive(Debug)]
pub struct SignalDescriptor(SignalFd);

impl SignalDescriptor {
    /// Blocks these signals for this thread and for the threads that it starts. Processes started by
    /// `std::process::Command` inherit the mask unless [`exit_with_parent`](crate::descriptors::exit_with_parent)
    /// clears it.
    pub fn new(signals: &[libc::c_int]) -> io::Result<SignalDescriptor> {
        let mut set = SigSet::empty();
        for signal in signals {
            set.add(Signal::try_from(*signal)?);
        }
        // Not `pthread_sigmask`: `howdah-php` replaces `sigprocmask` by a function that keeps track of the mask.
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(SignalDescriptor(SignalFd::with_flags(&set, flags)?))
    }

    /// Takes the pending signals off the queue and returns them.
    pub fn take_pending(&self) -> Vec<libc::c_int> {
        let next = || self.0.read_signal().ok().flatten();
        std::iter::from_fn(next)
            .map(|info| info.ssi_signo as libc::c_int)
            .collect()
    }
}

impl AsFd for SignalDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
