//! The functions of the C library that this library replaces for PHP and its extensions. A library in LD_PRELOAD comes
//! before the C library in the search for a symbol, so PHP's calls arrive here.
//!
//! The replacements are in C (`shim/core`: host.c, cwd.c, timers.c, timer_signals.c, forks.c, opcache.c). rustc exports
//! only symbols that are defined in Rust, so each name is a jump to the C function, which leaves the arguments where
//! the caller put them.

macro_rules! interpose {
    ($($name:ident => $replacement:ident,)*) => {
        // SAFETY: the functions are defined in the shim. They are declared without their arguments, because nothing
        // here calls them: only their addresses are used.
        unsafe extern "C" {
            $(fn $replacement();)*
        }
        $(
            // SAFETY: a function of this name is expected to replace the C library's, and its replacement has the same
            // signature. The body is one jump, which changes no register and no stack, so the replacement finds the
            // arguments and the return address of the caller.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                core::arch::naked_asm!("jmp {}", sym $replacement);
                #[cfg(target_arch = "aarch64")]
                core::arch::naked_asm!("b {}", sym $replacement);
            }
        )*
    };
}

interpose! {
    __libc_start_main => howdah_libc_start_main,
    chdir => howdah_chdir,
    fchdir => howdah_fchdir,
    stat => howdah_stat,
    setitimer => howdah_setitimer,
    timer_create => howdah_timer_create,
    timer_settime => howdah_timer_settime,
    timer_delete => howdah_timer_delete,
    getpid => howdah_getpid,
    sigaction => howdah_sigaction,
    sigprocmask => howdah_sigprocmask,
    dlopen => howdah_dlopen,
    access => howdah_access,
    fcntl => howdah_fcntl,
}
