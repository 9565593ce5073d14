//! The only `unsafe` code of this crate: the signal for a descriptor's events, and crypt(3). All other system calls go
//! through rustix.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    /// Incremented by the signal's handler, which runs in this thread.
    static EVENTS: AtomicU32 = const { AtomicU32::new(0) };
}

extern "C" fn count_event(_: c_int) {
    EVENTS.with(|events| events.fetch_add(1, Ordering::Relaxed));
}

/// Makes the kernel signal when `fd` has something to read: from then on, [`event_count`] returns another number in
/// this thread after any system call that ends later. The descriptor may be closed at any time.
///
/// The signal is `SIGIO`, the one for `O_ASYNC` of fcntl(2), sent to the calling thread alone. It interrupts those
/// waits of this thread that end with `EINTR`, and other calls are restarted.
///
/// # Errors
/// The error of sigaction(2) or fcntl(2).
pub(crate) fn enable_event_signal(fd: BorrowedFd<'_>) -> io::Result<()> {
    let check = |done: c_int| match done {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    let handler: extern "C" fn(c_int) = count_event;
    // SAFETY: sigaction consists of plain numbers and an optional handler, for which zeroes are valid values.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler changes a number that needs no initialisation and is never dropped, which a handler may do;
    // the set is written before it is read.
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
        // SAFETY: the call only returns the thread's number.
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

/// Returns how often the signal of [`enable_event_signal`] has been delivered to this thread.
pub(crate) fn event_count() -> u32 {
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

/// Hashes a password with `setting`, crypt_rn(3). Returns `None` if libcrypt does not support the setting, or if the
/// password is too long for it.
pub(crate) fn crypt(phrase: &CStr, setting: &CStr) -> Option<Vec<u8>> {
    // Numbers of sixteen bytes are aligned for anything that the library stores in them.
    let mut data = vec![0u128; CRYPT_DATA / size_of::<u128>()];
    let (at, size) = (data.as_mut_ptr().cast(), CRYPT_DATA as c_int);
    // SAFETY: both strings end with NUL and are only read; the library writes at most `size` bytes, which is the size
    // of `data`.
    let hashed = unsafe { crypt_rn(phrase.as_ptr(), setting.as_ptr(), at, size) };
    if hashed.is_null() {
        return None;
    }
    // SAFETY: the pointer is not null, so it points to a string that ends with NUL within `data`, which is still alive.
    let hashed = unsafe { CStr::from_ptr(hashed) }.to_bytes();
    Some(hashed.to_vec())
}
