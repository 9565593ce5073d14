//! The functions of the C shim (`shim/howdah.h`) that this program calls, and those that PHP's
//! callbacks call here; [`swoole`] has those of `howdah run`. `unsafe` for that reason only.
//!
//! The functions exported here are leaves: they return always, never call PHP, and so are never
//! unwound by a bailout (a longjmp). A panic in one aborts the process (`extern "C"`), which the
//! front sees as a dead child.

#![allow(unsafe_code)]

mod shared_cache;
mod swoole;
mod text;

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::process::ExitCode;

use howdah_proto::effect;
use howdah_proto::request::RequestFrame;
use howdah_proto::shm::Claim;
use howdah_sql::Dialect;

use text::{Text, bytes};

use crate::arguments::PhpIni;
use crate::{current_request, worker, zygote};

// SAFETY: the signatures are those of `shim/entry.h` (a test compares them), to which the C
// compiler holds the definitions; build.rs compiles these into this very program. Those that are `safe`
// take nothing and touch the shim's own state, globals of PHP and this process's own children; they run
// no code of PHP's. A bailout never
// unwinds into Rust: scripts run inside the `zend_first_try` of `howdah_php_run`, and where none is
// set, as at module startup, `_zend_bailout` ends the process instead.
unsafe extern "C" {
    fn howdah_php_startup(
        ini_path: *const c_char,
        no_ini: bool,
        ini_entries: *const c_char,
        worker: bool,
    ) -> c_int;
    fn howdah_php_check_library() -> *const c_char;
    safe fn howdah_php_has_opcache() -> bool;
    safe fn howdah_php_version() -> *const c_char;
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

/// What becomes of a child after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The child can take the next request.
    Fit,
    /// PHP bailed out of the request and ended it properly: the process must leave all the same.
    BailedOut,
    /// A bailout escaped PHP's own shutdown: the process must leave.
    Broken,
    /// This process is a script's own fork, at its end; it leaves with the script's exit status.
    Copy(i32),
}

/// Why PHP could not be started.
#[derive(Debug, PartialEq, Eq)]
pub enum StartError {
    /// The libphp found at run time is not the one this program was built for.
    OtherPhp(String),
    /// Module startup failed; PHP has said why on stderr.
    ModuleStartup,
}

/// How the run of a worker script ended.
#[derive(Debug, PartialEq, Eq)]
pub enum WorkerEnd {
    /// By itself, after it had asked for requests.
    ProcessEnd,
    /// By a fatal error, after it had asked.
    Broken,
    /// This process is a script's own fork, at its end; it leaves with the script's exit status.
    Copy(i32),
    /// Before it asked for a request: the name of the failure, and PHP's sentence.
    Failed(&'static str, String),
}

/// PHP's module startup, once in the zygote. `ini_entries` must outlive PHP, hence by value;
/// `worker`: the children will run a worker script.
pub fn php_startup(ini: PhpIni, ini_entries: CString, worker: bool) -> Result<(), StartError> {
    let entries = ini_entries.into_raw();
    let (path, none) = ini_path(ini);
    // SAFETY: called once, before any thread; both strings are leaked on purpose, since PHP keeps
    // the pointers as long as it lives.
    if unsafe { howdah_php_startup(path, none, entries, worker) } != 0 {
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
    howdah_php_has_opcache()
}

/// Whether some part of PHP reads a setting of this name.
pub fn php_has_setting(name: &str) -> bool {
    let Ok(name) = CString::new(name) else {
        return false;
    };
    // SAFETY: PHP is started; the name is NUL-terminated and only read.
    unsafe { howdah_php_has_setting(name.as_ptr()) }
}

/// `PHP_VERSION` of the headers this program was built with.
pub fn php_version() -> String {
    // SAFETY: a static, NUL-terminated string.
    unsafe { CStr::from_ptr(howdah_php_version()) }
        .to_string_lossy()
        .into_owned()
}

/// Prepares PHP in a freshly forked child: signals, random sources.
pub fn php_enter_child() {
    // SAFETY: in the only thread of the child, before its first request.
    unsafe { howdah_php_enter_child() }
}

/// Runs a claimed request: makes it the current one, whose frame PHP reads in place, until the shim
/// hands it back ([`howdah_done`]).
pub fn php_run(claim: Claim) -> Outcome {
    let frame = claim.frame();
    current_request::begin(claim);
    // SAFETY: the frame is valid until the claim is done, which only `howdah_done` below does, when
    // PHP has finished with it. C owns every zend_try, so no bailout reaches this frame.
    match unsafe { howdah_php_run(frame.cast()) } {
        0 => Outcome::Fit,
        2 => Outcome::Copy(howdah_php_exit_status()),
        3 => Outcome::BailedOut,
        _ => Outcome::Broken,
    }
}

/// Lets go, before a sleep between two requests, of what is kept from one to the next: opcache's
/// usage lock, and processes that a script forked.
pub fn php_rest() {
    howdah_opcache_rest();
    howdah_forks_rest();
}

/// Runs a worker script to its end; `boot` is the frame of its boot. Requests come to it by
/// [`crate::worker::next`].
pub fn php_run_worker(boot: &RequestFrame) -> WorkerEnd {
    let mut why = vec![0u8; 4096];
    // SAFETY: the frame outlives the call, and so all of PHP's use of it: the process leaves after
    // it. At most `why.len()` bytes are written, NUL included. C owns every zend_try.
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
        0 => WorkerEnd::ProcessEnd,
        2 => WorkerEnd::Copy(howdah_php_exit_status()),
        3 => WorkerEnd::Failed("WorkerBootFailed", sentence()),
        4 => WorkerEnd::Failed("WorkerNeverAsked", sentence()),
        _ => WorkerEnd::Broken,
    }
}

/// Runs a script as PHP on a command line does, with the classes of a Swoole server; says what it
/// exits with. In a forked worker of the script, never returns.
pub fn run_script(ini: PhpIni, ini_entries: CString, arguments: Vec<CString>) -> ExitCode {
    let (path, none) = ini_path(ini);
    let (argc, mut argv) = leaked(arguments);
    // SAFETY: called once, before any thread; all strings are leaked on purpose, since PHP keeps
    // the pointers as long as it lives; `argv` outlives the call and is ended by NULL. C owns every
    // zend_try, so no bailout reaches this frame.
    let status =
        unsafe { howdah_run_script(path, none, ini_entries.into_raw(), argc, argv.as_mut_ptr()) };
    ExitCode::from((status & 0xff) as u8)
}

/// Runs `code`, or the script that is the first argument, as php on a command line would. `tells`: what it
/// writes to databases is reported ([`current_request::report_effects_to`]).
pub fn run_command_line(
    ini: PhpIni,
    ini_entries: CString,
    code: Option<CString>,
    reports_effects: bool,
    arguments: Vec<CString>,
) -> ExitCode {
    let (path, none) = ini_path(ini);
    let code = code.map_or(std::ptr::null(), |code| code.into_raw().cast_const());
    let (argc, mut argv) = leaked(arguments);
    let entries = ini_entries.into_raw();
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
    ExitCode::from((status & 0xff) as u8)
}

/// A php.ini as the shim takes it: its path, or NULL, and whether there is to be none.
fn ini_path(ini: PhpIni) -> (*const c_char, bool) {
    match ini {
        PhpIni::Search => (std::ptr::null(), false),
        PhpIni::File(path) => (path.into_raw().cast_const(), false),
        PhpIni::Nothing => (std::ptr::null(), true),
    }
}

/// Arguments as C takes them, ended by NULL; the strings live on.
fn leaked(arguments: Vec<CString>) -> (c_int, Vec<*mut c_char>) {
    let argc = c_int::try_from(arguments.len()).unwrap_or(c_int::MAX);
    let mut argv: Vec<*mut c_char> = arguments.into_iter().map(CString::into_raw).collect();
    argv.push(std::ptr::null_mut());
    (argc, argv)
}

/// The PHP stack of the child whose memory that descriptor reads, a line a call, innermost first;
/// empty when it runs no PHP.
pub fn php_trace(memory: BorrowedFd<'_>) -> String {
    let mut buf = vec![0u8; 24 * 1024];
    // SAFETY: writes at most `buf.len()` bytes and returns how many.
    let n = unsafe { howdah_php_trace(memory.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len()) };
    buf.truncate(n);
    String::from_utf8_lossy(&buf).into_owned()
}

/// Writes the paths of the scripts in the opcode cache that have been used, each ended by NUL. The process
/// must leave then.
pub fn list_scripts(to: BorrowedFd<'_>) {
    howdah_scripts_list(to.as_raw_fd());
}

/// Compiles the scripts of these paths, each ended by NUL, into the opcode cache, for so many seconds at most.
/// The process must leave then.
pub fn compile_scripts(paths: &[u8], seconds: u32) {
    // SAFETY: reads `len` bytes at most.
    unsafe { howdah_scripts_compile(paths.as_ptr().cast(), paths.len(), seconds) }
}

/// Makes room for process titles; the arguments must have been read before.
pub fn title_prepare() {
    // SAFETY: called once in a single-threaded process; argv is not used afterwards.
    unsafe { howdah_title_prepare() }
}

/// Sets the title of this process, which `ps` shows.
pub fn title_set(title: &str) {
    let Ok(title) = CString::new(title) else {
        return;
    };
    // SAFETY: a NUL-terminated string that is copied.
    unsafe { howdah_title_set(title.as_ptr()) }
}

/// See `shim/howdah.h`.
///
/// # Safety
/// `bytes` points to `len` readable bytes that nobody changes during the call, not NULL.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_write_body(bytes: *const u8, len: usize) -> bool {
    // SAFETY: as this function demands; the one caller (ub_write) passes PHP's own buffer.
    current_request::write_body(unsafe { std::slice::from_raw_parts(bytes, len) })
}

/// See `shim/howdah.h`.
///
/// # Safety
/// As of [`bytes`].
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_write_frame(kind: u32, payload: *const u8, len: usize) -> bool {
    // SAFETY: as this function demands.
    current_request::write_frame(kind, unsafe { bytes(payload, len) })
}

/// Shows the front what has been written; false when the client is gone.
#[unsafe(no_mangle)]
extern "C" fn howdah_publish() -> bool {
    current_request::publish()
}

/// Lets the front see what has been written when it looks next, without waking it.
#[unsafe(no_mangle)]
extern "C" fn howdah_show() {
    current_request::show();
}

/// See `shim/howdah.h`.
///
/// # Safety
/// `sql` and `len` as of [`bytes`]; `out` has room for `cap` bytes, the caller's own.
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
    let (kind, described) = effect::describe(Dialect::from_number(dialect), text);
    let fits = described.len().min(cap);
    // SAFETY: as this function demands; `fits` is at most `cap`.
    unsafe { std::ptr::copy_nonoverlapping(described.as_ptr(), out, fits) };
    *used = fits;
    kind as u32
}

/// See `shim/howdah.h`.
///
/// # Safety
/// `out` has room for `len` initialised bytes of the caller's own; NULL only with length 0.
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
    current_request::done();
}

/// Waits for a worker's next request; NULL when none is to come.
#[unsafe(no_mangle)]
extern "C" fn howdah_next_request() -> *const u8 {
    worker::next()
}

/// Asks the front to replace the pool's workers by newly booted ones.
#[unsafe(no_mangle)]
extern "C" fn howdah_ask_for_restart() {
    worker::ask_for_restart();
}

/// See `shim/howdah.h`.
#[unsafe(no_mangle)]
extern "C" fn howdah_cannot_start(name: Text<'_>, sentence: Text<'_>) -> ! {
    let name = name.text().unwrap_or_default();
    zygote::cannot_start(&name, sentence.owned().unwrap_or_default())
}

/// `extern "C"` unsigned type used by the shim; keeps the border's integer widths honest.
const _: () = assert!(size_of::<c_uint>() == 4 && size_of::<c_int>() == 4);

#[cfg(test)]
mod tests;
