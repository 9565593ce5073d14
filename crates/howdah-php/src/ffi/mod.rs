//! The functions of the C shim (`shim/entry.h`) that this program calls, and the functions that PHP's callbacks call
//! here. [`swoole`] has the ones for `howdah run`. This module uses `unsafe` for that reason only.
//!
//! The functions exported here are leaves: they always return and never call PHP, so a bailout (a longjmp) never
//! unwinds them. A panic in one of them aborts the process (`extern "C"`), which the front sees as a dead child.

#![allow(unsafe_code)]

#[cfg(not(test))]
mod interpose;
mod shared_cache;
mod swoole;
mod text;

use crate::ExitStatus;
use std::ffi::{CStr, CString, OsString, c_char, c_int, c_uint};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;

use howdah_proto::control::StartedPhp;
use howdah_proto::request::RequestFrame;
use howdah_proto::shm::RequestClaim;
use howdah_sql::Dialect;

use text::{Text, bytes};

use crate::command_line::PhpIniSource;
use crate::{current_request, sys, worker, zygote};

// SAFETY: the signatures are those of `shim/entry.h` (a test compares them), against which the C compiler checks the
// definitions; build.rs compiles the definitions into this program. The functions marked `safe` take no pointers and
// touch only the shim's own state, PHP's globals and this process's own children; they run no PHP code. A bailout never
// unwinds into Rust: scripts run inside the `zend_first_try` of `howdah_php_run`, and where no such block is active, as
// at module startup, `_zend_bailout` ends the process instead.
unsafe extern "C" {
    fn howdah_php_startup(
        ini_path: *const c_char,
        no_ini: bool,
        ini_entries: *const c_char,
    ) -> c_int;
    fn howdah_worker_prepare();
    fn howdah_php_check_host() -> *const c_char;
    safe fn howdah_php_has_opcache() -> bool;
    safe fn howdah_php_version() -> *const c_char;
    fn howdah_php_loaded(out: *mut c_char, cap: usize) -> usize;
    fn howdah_php_has_setting(name: *const c_char) -> bool;
    fn howdah_php_enter_child();
    fn howdah_php_run(frame: *const c_char) -> c_int;
    safe fn howdah_opcache_rest();
    safe fn howdah_forks_rest();
    fn howdah_php_run_worker(frame: *const c_char, why: *mut c_char, cap: usize) -> c_int;
    safe fn howdah_php_exit_status() -> c_int;
    fn howdah_run_script(
        ini_path: *const c_char,
        no_ini: bool,
        ini_entries: *const c_char,
        argc: c_int,
        argv: *mut *mut c_char,
    ) -> c_int;
    safe fn howdah_offer_served_functions();
    fn howdah_run_command_line(
        ini_path: *const c_char,
        no_ini: bool,
        ini_entries: *const c_char,
        code: *const c_char,
        reports_effects: bool,
        argc: c_int,
        argv: *mut *mut c_char,
    ) -> c_int;
    fn howdah_php_trace(memory: c_int, out: *mut c_char, cap: usize) -> usize;
    safe fn howdah_scripts_list(to: c_int);
    fn howdah_scripts_compile(paths: *const c_char, len: usize, seconds: u32);
    fn howdah_title_prepare();
    fn howdah_title_set(title: *const c_char);
}

/// Whether a child can continue after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// The child can take the next request.
    Reusable,
    /// PHP bailed out of the request and ended it properly, but the process must still exit.
    BailedOut,
    /// A bailout escaped PHP's own shutdown, so the process must exit.
    Broken,
    /// This process is a fork that the script made, and the script has ended in it. It exits with that exit status.
    ScriptFork(i32),
}

/// Why PHP could not be started.
#[derive(Debug, PartialEq, Eq)]
pub enum PhpStartError {
    /// The PHP program is not one that this library was built for.
    OtherPhp(String),
    /// Module startup failed; PHP has written the reason to stderr.
    ModuleStartup,
}

/// How the run of a worker script ended.
#[derive(Debug, PartialEq, Eq)]
pub enum WorkerEnd {
    /// The script ended by itself after it had asked for requests.
    Finished,
    /// A fatal error ended the script after it had asked for requests.
    Broken,
    /// This process is a fork that the script made, and the script has ended in it. It exits with that exit status.
    ScriptFork(i32),
    /// The script ended before it asked for a request. The fields are the name of the failure and PHP's message.
    Failed(&'static str, String),
}

/// Performs PHP's module startup, once, in the zygote. `ini_entries` is taken by value because it must outlive PHP.
/// `worker` says whether the children will run a worker script.
pub fn php_startup(
    ini: PhpIniSource,
    ini_entries: CString,
    worker: bool,
) -> Result<(), PhpStartError> {
    let entries = ini_entries.into_raw();
    let (path, none) = raw_ini_path(ini);
    // SAFETY: called once, before any thread exists. Both strings are leaked on purpose, since PHP keeps the pointers
    // until the process exits.
    if unsafe { howdah_php_startup(path, none, entries) } != 0 {
        return Err(PhpStartError::ModuleStartup);
    }
    // SAFETY: PHP is started; the function returns NULL or a NUL-terminated static string.
    let mismatch = unsafe {
        let text = howdah_php_check_host();
        (!text.is_null()).then(|| CStr::from_ptr(text))
    };
    if let Some(text) = mismatch {
        return Err(PhpStartError::OtherPhp(text.to_string_lossy().into_owned()));
    }
    if worker {
        // SAFETY: called once, after PHP's start and before the first fork.
        unsafe { howdah_worker_prepare() }
    }
    Ok(())
}

/// Returns whether PHP or one of its extensions has registered a setting of this name.
pub fn php_has_setting(name: &str) -> bool {
    let Ok(name) = CString::new(name) else {
        return false;
    };
    // SAFETY: PHP is started; the name is NUL-terminated and only read.
    unsafe { howdah_php_has_setting(name.as_ptr()) }
}

/// Returns what is known of the PHP that has started.
pub fn started_php() -> StartedPhp {
    // SAFETY: PHP is started; the function returns a NUL-terminated string that lives as long as PHP.
    let version = unsafe { CStr::from_ptr(howdah_php_version()) };
    let mut php = StartedPhp {
        version: version.to_string_lossy().into_owned(),
        opcache: howdah_php_has_opcache(),
        ..StartedPhp::default()
    };
    let mut lines = vec![0u8; 16 * 1024];
    // SAFETY: PHP is started; at most `lines.len()` bytes are written, and their number is returned.
    let n = unsafe { howdah_php_loaded(lines.as_mut_ptr().cast(), lines.len()) };
    lines.truncate(n);
    php.add_lines(&String::from_utf8_lossy(&lines));
    php
}

/// Prepares PHP in a freshly forked child: its timer, its signals, and its record of the processes that scripts fork.
pub fn php_enter_child() {
    // SAFETY: called in the only thread of the child, before its first request.
    unsafe { howdah_php_enter_child() }
}

/// Runs a claimed request. Makes it the current one until the shim returns it ([`howdah_done`]); PHP reads its frame in
/// place.
pub fn php_run(claim: RequestClaim) -> RunOutcome {
    let frame = claim.frame();
    current_request::begin(claim);
    // SAFETY: the frame is valid until the claim is done, and only `howdah_done` below ends the claim, after PHP has
    // finished with the frame. C contains every zend_try, so no bailout reaches this Rust frame.
    match unsafe { howdah_php_run(frame.cast()) } {
        0 => RunOutcome::Reusable,
        2 => RunOutcome::ScriptFork(howdah_php_exit_status()),
        3 => RunOutcome::BailedOut,
        _ => RunOutcome::Broken,
    }
}

/// Releases, before a sleep between two requests, what a child keeps from one request to the next: opcache's usage
/// lock, and processes that a script forked.
pub fn php_release_before_sleep() {
    howdah_opcache_rest();
    howdah_forks_rest();
}

/// Runs a worker script to its end. `boot` is the frame for the script's boot. The script receives requests through
/// [`crate::worker::next_request`].
pub fn php_run_worker(boot: &RequestFrame) -> WorkerEnd {
    let mut why = vec![0u8; 4096];
    // SAFETY: the frame outlives the call, and PHP uses it only during the call because the process exits afterwards.
    // At most `why.len()` bytes are written, including the NUL. C contains every zend_try.
    let end = unsafe {
        howdah_php_run_worker(
            boot.as_bytes().as_ptr().cast(),
            why.as_mut_ptr().cast(),
            why.len(),
        )
    };
    let sentence = || {
        let text = why.split(|b| *b == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    };
    match end {
        0 => WorkerEnd::Finished,
        2 => WorkerEnd::ScriptFork(howdah_php_exit_status()),
        3 => WorkerEnd::Failed("WorkerBootFailed", sentence()),
        4 => WorkerEnd::Failed("WorkerNeverAsked", sentence()),
        _ => WorkerEnd::Broken,
    }
}

/// Runs a script as PHP on a command line does, with the classes of a Swoole server. Returns the script's exit code; in
/// a worker that the script's server forked, never returns.
pub fn run_script(ini: PhpIniSource, ini_entries: CString, arguments: Vec<CString>) -> ExitStatus {
    let (path, none) = raw_ini_path(ini);
    let (argc, mut argv) = leak_arguments(arguments);
    // SAFETY: called once, before any thread exists. All strings are leaked on purpose, since PHP keeps the pointers
    // until the process exits; `argv` outlives the call and is terminated by NULL. C contains every zend_try, so no
    // bailout reaches this Rust frame.
    let status =
        unsafe { howdah_run_script(path, none, ini_entries.into_raw(), argc, argv.as_mut_ptr()) };
    (status & 0xff) as u8
}

/// Runs `code`, or the script named by the first argument, as php on a command line would. With `reports_effects`,
/// writes to databases are reported ([`current_request::report_effects_to`]). With `as_served`, the script has the
/// functions of requests.
pub fn run_command_line(
    ini: PhpIniSource,
    ini_entries: CString,
    code: Option<CString>,
    reports_effects: bool,
    as_served: bool,
    arguments: Vec<CString>,
) -> ExitStatus {
    let (path, none) = raw_ini_path(ini);
    let code = code.map_or(std::ptr::null(), |code| code.into_raw().cast_const());
    let (argc, mut argv) = leak_arguments(arguments);
    let entries = ini_entries.into_raw();
    if as_served {
        howdah_offer_served_functions();
    }
    // SAFETY: as in `run_script`; `code` is NULL or leaked.
    let status = unsafe {
        howdah_run_command_line(
            path,
            none,
            entries,
            code,
            reports_effects,
            argc,
            argv.as_mut_ptr(),
        )
    };
    (status & 0xff) as u8
}

/// Converts the choice of php.ini to the shim's form: a path or NULL, and whether PHP must read no php.ini.
fn raw_ini_path(ini: PhpIniSource) -> (*const c_char, bool) {
    match ini {
        PhpIniSource::Search => (std::ptr::null(), false),
        PhpIniSource::File(path) => (path.into_raw().cast_const(), false),
        PhpIniSource::Disabled => (std::ptr::null(), true),
    }
}

/// Converts arguments to C's form, terminated by NULL. The strings are leaked.
fn leak_arguments(arguments: Vec<CString>) -> (c_int, Vec<*mut c_char>) {
    let argc = c_int::try_from(arguments.len()).unwrap_or(c_int::MAX);
    let mut argv: Vec<*mut c_char> = arguments.into_iter().map(CString::into_raw).collect();
    argv.push(std::ptr::null_mut());
    (argc, argv)
}

/// Returns the PHP stack of the child whose memory the descriptor reads: one line per call, innermost first. Empty when
/// the child runs no PHP.
pub fn php_trace(memory: BorrowedFd<'_>) -> String {
    let mut buf = vec![0u8; 24 * 1024];
    // SAFETY: the function writes at most `buf.len()` bytes and returns how many.
    let n = unsafe { howdah_php_trace(memory.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len()) };
    buf.truncate(n);
    String::from_utf8_lossy(&buf).into_owned()
}

/// Writes the paths of the scripts in the opcode cache that have been used, each terminated by NUL. The process must
/// exit afterwards.
pub fn list_scripts(to: BorrowedFd<'_>) {
    howdah_scripts_list(to.as_raw_fd());
}

/// Compiles the scripts at these paths, each terminated by NUL, into the opcode cache, for at most `seconds` seconds.
/// The process must exit afterwards.
pub fn compile_scripts(paths: &[u8], seconds: u32) {
    // SAFETY: the function reads at most `len` bytes.
    unsafe { howdah_scripts_compile(paths.as_ptr().cast(), paths.len(), seconds) }
}

/// Makes room for process titles. The arguments must have been read before.
pub fn prepare_title() {
    // SAFETY: called once in a single-threaded process; argv is not used afterwards.
    unsafe { howdah_title_prepare() }
}

/// Sets the title of this process, which `ps` shows.
pub fn set_title(title: &str) {
    let Ok(title) = CString::new(title) else {
        return;
    };
    // SAFETY: the string is NUL-terminated, and the function copies it.
    unsafe { howdah_title_set(title.as_ptr()) }
}

/// See `shim/core/internal.h`.
///
/// # Safety
/// `bytes` is not NULL and points to `len` readable bytes that nothing changes during the call.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_write_body(bytes: *const u8, len: usize) -> bool {
    // SAFETY: as this function demands; its only caller (ub_write) passes PHP's own buffer.
    current_request::write_body(unsafe { std::slice::from_raw_parts(bytes, len) })
}

/// See `shim/core/core.h`.
///
/// # Safety
/// The requirements of [`bytes`].
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_write_frame(kind: u32, payload: *const u8, len: usize) -> bool {
    // SAFETY: as this function demands.
    current_request::write_frame(kind, unsafe { bytes(payload, len) })
}

/// Publishes what has been written and wakes the front. Returns false when the client is gone.
#[unsafe(no_mangle)]
extern "C" fn howdah_publish() -> bool {
    current_request::publish()
}

/// Makes what has been written visible to the front when it next checks, without waking it.
#[unsafe(no_mangle)]
extern "C" fn howdah_show() {
    current_request::make_visible();
}

/// See `shim/effects/internal.h`.
///
/// # Safety
/// `sql` and `len` meet the requirements of [`bytes`]; `out` has room for `cap` bytes and belongs to the caller.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_describe(
    dialect: u32,
    sql: *const u8,
    len: usize,
    out: *mut u8,
    cap: usize,
    used: &mut usize,
) -> u32 {
    // SAFETY: as this function demands.
    let text = unsafe { bytes(sql, len) };
    let verdict = howdah_sql::classify(Dialect::from_number(dialect), text);
    let described = verdict.description();
    let fits = described.len().min(cap);
    // SAFETY: as this function demands; `fits` is at most `cap`.
    unsafe { std::ptr::copy_nonoverlapping(described.as_ptr(), out, fits) };
    *used = fits;
    verdict.kind as u32
}

/// See `shim/core/internal.h`.
///
/// # Safety
/// `out` points to `len` initialised bytes that belong to the caller; it may be NULL only if `len` is 0.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_read_body(out: *mut u8, len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    // SAFETY: as this function demands.
    current_request::read_body(unsafe { std::slice::from_raw_parts_mut(out, len) })
}

/// Hands the request back to the front.
#[unsafe(no_mangle)]
extern "C" fn howdah_done() {
    current_request::release();
}

/// Waits for a worker's next request. Returns NULL when there will be none.
#[unsafe(no_mangle)]
extern "C" fn howdah_next_request() -> *const u8 {
    worker::next_request()
}

/// Asks the front to replace the pool's workers by newly booted ones.
#[unsafe(no_mangle)]
extern "C" fn howdah_ask_for_restart() {
    worker::request_restart();
}

/// See `shim/core/internal.h`.
#[unsafe(no_mangle)]
extern "C" fn howdah_cannot_start(name: Text<'_>, sentence: Text<'_>) -> ! {
    let name = name.text().unwrap_or_default();
    zygote::fail_startup(&name, sentence.owned().unwrap_or_default())
}

/// The integer widths that the boundary to C relies on.
const _: () = assert!(size_of::<c_uint>() == 4 && size_of::<c_int>() == 4);

#[cfg(test)]
mod tests;

/// Runs this program with the arguments of the PHP program that hosts it (`__libc_start_main` in
/// `shim/core/host.c`). Does what Rust does before the `main` of a program: a write to a closed connection is an error
/// and not a signal.
#[unsafe(no_mangle)]
extern "C" fn howdah_main(argc: c_int, argv: *mut *mut c_char) -> c_int {
    let count = usize::try_from(argc).unwrap_or(0);
    let argument = |index: usize| {
        // SAFETY: the C library passes `argc` pointers to NUL-terminated strings that live as long as the process.
        let text = unsafe { CStr::from_ptr(*argv.add(index)) };
        OsString::from_vec(text.to_bytes().to_vec())
    };
    let arguments = (0..count).map(argument).collect();
    sys::ignore_broken_pipes();
    c_int::from(crate::main(arguments))
}
