//! Eventfds, futexes, the clock by which the children record their jobs, and descriptors that a runtime watches. It
//! makes no decisions.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use howdah_proto::shm::FutexWake;
use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::futex;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Creates an eventfd that never blocks its writer.
pub fn create_bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Registers a bell, edge-triggered, with the runtime of this thread.
pub fn register_bell(bell: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    register(bell, Interest::READABLE)
}

/// Registers a descriptor, edge-triggered, with the runtime of this thread.
///
/// # Errors
/// The errors of `epoll_ctl(2)` (`EMFILE`, `ENOMEM`, `ENOSPC`).
pub fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the AsyncFd owns the descriptor, whose number an OwnedFd never changes, until it
    // deregisters it when dropped.
    let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
    watched.map_err(io::Error::from)
}

/// Writes an eventfd. If its counter is full (`EAGAIN`), it is readable anyway.
pub fn ring(fd: BorrowedFd<'_>) {
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

/// Empties an eventfd. Do not use it for bells: the read could swallow a ring that a front thread's epoll has not
/// reported yet.
pub fn drain_bell(fd: BorrowedFd<'_>) {
    let mut count = [0u8; 8];
    let _ = rustix::io::read(fd, &mut count);
}

/// Returns an eventfd's counter without reading the eventfd (proc_pid_fdinfo(5)), or 0 if /proc is not available.
pub fn times_rung(fd: BorrowedFd<'_>) -> u64 {
    let path = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("eventfd-count:"))
        .and_then(|n| u64::from_str_radix(n.trim(), 16).ok())
        .unwrap_or(0)
}

/// Performs the futex wake that the exchange returned. Returns whether there was one.
pub fn wake(wake: FutexWake<'_>) -> bool {
    let Some(word) = wake.0 else {
        return false;
    };
    // No PRIVATE flag, since the sleeper is another process. The call fails only for a bad address.
    let _ = futex::wake(word, futex::Flags::empty(), 1);
    true
}

pub use howdah_os::clock::monotonic_ns as now_ns;
