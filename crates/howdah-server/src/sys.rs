//! The only `unsafe` of this crate: handing a descriptor to the runtime's epoll, `sched_setattr`, which
//! rustix lacks, the signal that comes with a descriptor's events, crypt(3), and the allocator that counts, with what its C library offers. Everything else the
//! server asks of the kernel goes through rustix.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::allocated::{count, occupied};

/// Registers a non-blocking descriptor, edge-triggered, with the current runtime.
///
/// Errors: what `epoll_ctl(2)` says (`EMFILE`, `ENOMEM`, `ENOSPC`).
pub(crate) fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the AsyncFd takes ownership of the OwnedFd, which is open now and stays open, under
    // the same number, until it is dropped; nobody here replaces it through `get_mut`.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}

/// Asks the scheduler to give the calling thread slices of this length, `sched_setattr(2)`; its policy
/// and niceness stay.
///
/// Errors: `ENOSYS` or `EPERM` where a filter forbids the call, `EBUSY` where the policy is of real time.
pub(crate) fn set_slice(slice: Duration) -> io::Result<()> {
    let size = size_of::<libc::sched_attr>() as libc::c_uint;
    // SAFETY: sched_attr is plain numbers, for which zeroes are values.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most `size` bytes, which `attributes` has; 0 is the calling thread.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    attributes.size = size;
    attributes.sched_runtime = slice.as_nanos() as u64;
    // SAFETY: the kernel reads `size` bytes of a value that lives until the call is over.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

thread_local! {
    /// Counted by the signal's handler, which runs in this thread.
    static EVENTS: AtomicU32 = const { AtomicU32::new(0) };
}

extern "C" fn count_event(_: c_int) {
    EVENTS.with(|events| events.fetch_add(1, Ordering::Relaxed));
}

/// Has the kernel say when `fd` gets something to read: from then on [`events`] is another number in this
/// thread after any system call that ends later. The descriptor may be closed at any time.
///
/// The signal is `SIGIO`, the one for `O_ASYNC` of fcntl(2), sent to the calling thread alone. It ends
/// the waits of this thread that end with `EINTR`, and restarts other calls.
///
/// Errors: what `fcntl(2)` says.
pub(crate) fn signal_events(fd: BorrowedFd<'_>) -> io::Result<()> {
    let check = |done: c_int| match done {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    let handler: extern "C" fn(c_int) = count_event;
    // SAFETY: sigaction is plain numbers and no handler, for which zeroes are values.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler changes a number that needs no initialisation and is never dropped, which a
    // handler may do; the set is written before it is read.
    unsafe {
        check(libc::sigaction(
            libc::SIGIO,
            &raw const action,
            std::ptr::null_mut(),
        ))?;
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGIO);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
    let owner = OwnerOfSignals {
        kind: F_OWNER_TID,
        // SAFETY: it only says the thread's number.
        thread: unsafe { libc::gettid() },
    };
    // SAFETY: `fd` is open while it is borrowed; the kernel reads `owner` during the call.
    unsafe {
        check(libc::fcntl(fd.as_raw_fd(), F_SETOWN_EX, &raw const owner))?;
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        check(flags)?;
        check(libc::fcntl(
            fd.as_raw_fd(),
            libc::F_SETFL,
            flags | libc::O_ASYNC,
        ))
    }
}

/// How often the signal of [`signal_events`] has come to this thread.
pub(crate) fn events() -> u32 {
    EVENTS.with(|events| events.load(Ordering::Relaxed))
}

/// `F_SETOWN_EX` of the kernel's asm-generic/fcntl.h.
const F_SETOWN_EX: c_int = 15;
const F_OWNER_TID: c_int = 0;

/// `struct f_owner_ex` of the same file.
#[repr(C)]
struct OwnerOfSignals {
    kind: c_int,
    thread: libc::pid_t,
}

/// `struct crypt_data` of libxcrypt's crypt.h.
const CRYPT_DATA: usize = 32768;

#[link(name = "crypt")]
unsafe extern "C" {
    fn crypt_rn(
        phrase: *const c_char,
        setting: *const c_char,
        data: *mut c_void,
        size: c_int,
    ) -> *mut c_char;
}

/// Hashes a password as `setting` says, crypt_rn(3). None: it says nothing that libcrypt knows, or the
/// password is longer than that takes.
pub(crate) fn crypt(phrase: &CStr, setting: &CStr) -> Option<Vec<u8>> {
    // Numbers of sixteen bytes: aligned for whatever the library keeps in it.
    let mut data = vec![0u128; CRYPT_DATA / size_of::<u128>()];
    let (at, size) = (data.as_mut_ptr().cast(), CRYPT_DATA as c_int);
    // SAFETY: both texts end with NUL and are only read; the library writes at most `size` bytes, which
    // `data` has.
    let hashed = unsafe { crypt_rn(phrase.as_ptr(), setting.as_ptr(), at, size) };
    if hashed.is_null() {
        return None;
    }
    // SAFETY: not null, so a text with its NUL within `data`, which lives on.
    let hashed = unsafe { CStr::from_ptr(hashed) }.to_bytes();
    Some(hashed.to_vec())
}

/// The system's allocator, counting; see [`crate::memory`].
pub struct Counting;

// SAFETY: every call is the system allocator's with what we were given; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the same.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            count(occupied(layout.size()));
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            count(occupied(layout.size()));
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-occupied(layout.size()));
        // SAFETY: as above; the block came from `System`.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; the block came from `System`.
        let moved = unsafe { System.realloc(block, layout, size) };
        if !moved.is_null() {
            count(occupied(size) - occupied(layout.size()));
        }
        moved
    }
}

/// Gives pages that hold nothing any more back to the system, where the C library can.
pub(crate) fn give_back_free_pages() {
    #[cfg(target_env = "gnu")]
    // SAFETY: glibc's malloc_trim may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Has the C library allocate from one arena, whatever the thread, where it knows arenas.
pub(crate) fn one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: glibc's mallopt takes any two numbers; the caller has started no thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_can_be_asked_for_and_niceness_stays() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let before = nice();
        set_slice(Duration::from_micros(500)).unwrap();
        assert_eq!(nice(), before);
    }
}
