//! See `front_checks::whole_front`.
#![no_main]

#[path = "../front_checks/mod.rs"]
mod front_checks;

libfuzzer_sys::fuzz_target!(
    init: {
        // As Rust's own `main` does: sendfile(2) to a client that has left must fail, not end the process.
        // SAFETY: SIG_IGN runs no code, and no other thread has been started.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    },
    |data: &[u8]| front_checks::whole_front(data)
);
