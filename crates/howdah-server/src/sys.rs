//! The only `unsafe` of this crate: handing a descriptor to the runtime's epoll. Everything else
//! the server asks of the kernel goes through rustix.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a non-blocking descriptor, edge-triggered, with the current runtime.
///
/// Errors: what `epoll_ctl(2)` says (`EMFILE`, `ENOMEM`, `ENOSPC`).
pub(crate) fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the AsyncFd takes ownership of the OwnedFd, which is open now and stays open, under
    // the same number, until it is dropped; nobody here replaces it through `get_mut`.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}
