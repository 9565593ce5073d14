//! The only `unsafe` code of this crate: registering a descriptor with the runtime's epoll, `sched_setattr`, which
//! rustix lacks, and the counting allocator with functions of its C library. All other system calls of the crate go
//! through rustix.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::allocated::{allocation_size, count};

/// Registers a non-blocking descriptor, edge-triggered, with the current runtime.
///
/// Errors: those of `epoll_ctl(2)` (`EMFILE`, `ENOMEM`, `ENOSPC`).
pub(crate) fn register_descriptor(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the AsyncFd takes ownership of the OwnedFd, which is open now and stays open under the same number until
    // it is dropped; no code here replaces it through `get_mut`.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}

/// Asks the scheduler to give the calling thread time slices of this length (`sched_setattr(2)`). Its policy and
/// niceness are unchanged.
///
/// Errors: `ENOSYS` or `EPERM` if a filter forbids the call, `EBUSY` if the policy is a real-time one.
pub(crate) fn set_time_slice(slice: Duration) -> io::Result<()> {
    let size = size_of::<libc::sched_attr>() as libc::c_uint;
    // SAFETY: sched_attr consists of plain numbers, for which zero is a valid value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most `size` bytes, the size of `attributes`; 0 means the calling thread.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    attributes.size = size;
    attributes.sched_runtime = slice.as_nanos() as u64;
    // SAFETY: the kernel reads `size` bytes of a value that lives until the call returns.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The system's allocator with a count of the bytes in use; see [`crate::memory`].
pub struct CountingAllocator;

// SAFETY: every call passes the arguments unchanged to the system allocator; counting does not allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees the same conditions.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            count(allocation_size(layout.size()));
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            count(allocation_size(layout.size()));
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-allocation_size(layout.size()));
        // SAFETY: as above; the block came from `System`.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; the block came from `System`.
        let moved = unsafe { System.realloc(block, layout, size) };
        if !moved.is_null() {
            count(allocation_size(size) - allocation_size(layout.size()));
        }
        moved
    }
}

/// Returns free pages to the system if the C library supports it.
pub(crate) fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: glibc's malloc_trim may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Makes the C library allocate from one arena for all threads, if it has arenas.
pub(crate) fn use_single_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: glibc's mallopt accepts any two numbers; the caller has started no threads.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_time_slice_keeps_niceness() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let before = nice();
        set_time_slice(Duration::from_micros(500)).unwrap();
        assert_eq!(nice(), before);
    }
}
