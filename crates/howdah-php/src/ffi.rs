//! The border to the C shim (`shim/howdah.h`): the functions PHP's callbacks call, and the few
//! calls this program makes into PHP. `unsafe` for that reason only.
//!
//! The functions exported here are leaves: they return always, never call PHP, and so are never
//! unwound by a bailout (a longjmp). A panic in one aborts the process (`extern "C"`), which the
//! front sees as a dead child.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint};

use crate::arguments::PhpIni;
use crate::exchange;

// SAFETY: the signatures are those of the definitions in `shim/{run,trace,title}.c`, which
// build.rs compiles into this very program. A bailout never unwinds into Rust: scripts run inside
// the `zend_first_try` of `howdah_php_run`, and where none is set, as at module startup,
// `_zend_bailout` ends the process instead.
unsafe extern "C" {
    fn howdah_php_startup(
        ini_path: *const c_char,
        no_ini: bool,
        ini_entries: *const c_char,
    ) -> c_int;
    fn howdah_php_check_library() -> *const c_char;
    fn howdah_php_has_opcache() -> bool;
    fn howdah_php_version() -> *const c_char;
    fn howdah_php_enter_child();
    fn howdah_php_run(frame: *const u8) -> c_int;
    fn howdah_php_exit_status() -> c_int;
    fn howdah_php_trace(pid: c_int, out: *mut c_char, cap: usize) -> usize;
    fn howdah_title_prepare();
    fn howdah_title_set(title: *const c_char);
}

/// What becomes of a child after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Fit for the next request.
    Fit,
    /// A bailout escaped PHP's own shutdown: the process must leave.
    Broken,
    /// This process is a script's own fork, at its end; it leaves with the script's exit status.
    Copy(i32),
}

/// Why PHP did not start.
#[derive(Debug, PartialEq, Eq)]
pub enum StartError {
    /// The libphp found at run time is not the one this program was built for.
    OtherPhp(String),
    /// Module startup failed; PHP has said why on stderr.
    ModuleStartup,
}

/// PHP's module startup, once in the zygote. `ini_entries` must outlive PHP, hence by value.
pub fn php_startup(ini: PhpIni, ini_entries: CString) -> Result<(), StartError> {
    let entries = ini_entries.into_raw();
    let (path, none) = match ini {
        PhpIni::Search => (std::ptr::null(), false),
        PhpIni::File(path) => (path.into_raw().cast_const(), false),
        PhpIni::Nothing => (std::ptr::null(), true),
    };
    // SAFETY: called once, before any thread; both strings are leaked on purpose, since PHP keeps
    // the pointers as long as it lives.
    if unsafe { howdah_php_startup(path, none, entries) } != 0 {
        return Err(StartError::ModuleStartup);
    }
    // SAFETY: returns NULL or a static string; PHP is started.
    let mismatch = unsafe { howdah_php_check_library() };
    if !mismatch.is_null() {
        // SAFETY: not NULL, so a NUL-terminated static string.
        let text = unsafe { CStr::from_ptr(mismatch) };
        return Err(StartError::OtherPhp(text.to_string_lossy().into_owned()));
    }
    Ok(())
}

/// Whether opcache works for this SAPI.
pub fn php_has_opcache() -> bool {
    // SAFETY: reads globals of a started PHP.
    unsafe { howdah_php_has_opcache() }
}

/// `PHP_VERSION` of the headers this program was built with.
pub fn php_version() -> String {
    // SAFETY: a static string.
    unsafe { CStr::from_ptr(howdah_php_version()) }
        .to_string_lossy()
        .into_owned()
}

/// Prepares PHP in a freshly forked child: signals, random sources.
pub fn php_enter_child() {
    // SAFETY: in the only thread of the child, before its first request.
    unsafe { howdah_php_enter_child() }
}

/// Runs the request whose frame is at `frame`, already made current by [`exchange::begin`].
pub fn php_run(frame: *const u8) -> Outcome {
    // SAFETY: the frame is valid until the claim is done, which only `howdah_done` below does;
    // C owns every zend_try, so no bailout reaches this frame.
    match unsafe { howdah_php_run(frame) } {
        0 => Outcome::Fit,
        // SAFETY: reads a global.
        2 => Outcome::Copy(unsafe { howdah_php_exit_status() }),
        _ => Outcome::Broken,
    }
}

/// The PHP stack of a child, a line a call, innermost first; empty when it runs no PHP.
pub fn php_trace(pid: i32) -> String {
    let mut buf = vec![0u8; 24 * 1024];
    // SAFETY: writes at most `buf.len()` bytes and returns how many.
    let n = unsafe { howdah_php_trace(pid, buf.as_mut_ptr().cast(), buf.len()) };
    buf.truncate(n);
    String::from_utf8_lossy(&buf).into_owned()
}

/// Makes room for process titles; the arguments must have been read before.
pub fn title_prepare() {
    // SAFETY: called once in a single-threaded process; argv is not used afterwards.
    unsafe { howdah_title_prepare() }
}

/// Sets the title `ps` shows.
pub fn title_set(title: &str) {
    let Ok(title) = CString::new(title) else {
        return;
    };
    // SAFETY: a NUL-terminated string that is copied.
    unsafe { howdah_title_set(title.as_ptr()) }
}

/// See `shim/howdah.h`.
#[unsafe(no_mangle)]
extern "C" fn howdah_write_body(bytes: *const u8, len: usize) -> bool {
    // SAFETY: the caller passes `len` readable bytes that nobody changes during the call.
    exchange::write_body(unsafe { std::slice::from_raw_parts(bytes, len) })
}

/// See `shim/howdah.h`.
#[unsafe(no_mangle)]
extern "C" fn howdah_write_frame(kind: u32, payload: *const u8, len: usize) -> bool {
    let bytes = if len == 0 {
        &[]
    } else {
        // SAFETY: as in `howdah_write_body`; `payload` may be NULL only with length 0.
        unsafe { std::slice::from_raw_parts(payload, len) }
    };
    exchange::write_frame(kind, bytes)
}

/// See `shim/howdah.h`.
#[unsafe(no_mangle)]
extern "C" fn howdah_publish() -> bool {
    exchange::publish()
}

/// See `shim/howdah.h`.
#[unsafe(no_mangle)]
extern "C" fn howdah_read_body(out: *mut u8, len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    // SAFETY: the caller passes `len` writable bytes of its own.
    exchange::read_body(unsafe { std::slice::from_raw_parts_mut(out, len) })
}

/// See `shim/howdah.h`.
#[unsafe(no_mangle)]
extern "C" fn howdah_done() {
    exchange::done();
}

/// `extern "C"` unsigned type used by the shim; keeps the border's integer widths honest.
const _: () = assert!(size_of::<c_uint>() == 4 && size_of::<c_int>() == 4);
