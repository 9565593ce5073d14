//! The border between a Swoole script's shim (`shim/swoole_*.c`) and its event loop. `unsafe` for
//! that reason only.
//!
//! Every function here is a leaf: it returns always and calls no PHP. The loop is turned inside
//! out for that: the shim asks for the next event, calls the script under its own `zend_try`, and
//! comes back. So no bailout (a longjmp) ever crosses a Rust frame.

#![allow(unsafe_code)]

mod connection;
mod manager;

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use howdah_http1::date;

use super::crew::Crew;
use super::log;
use super::score::{Counter, Score};
use super::sys;
use super::timers::Timers;
use super::worker::{Config, Worker};

/// The settings of a server; `shim/swoole.h` describes the fields.
#[repr(C)]
pub struct Settings {
    workers: u64,
    max_requests: u64,
    max_body: u64,
    /// Most bytes of a form with files; 0: as of other bodies.
    max_uploads: u64,
    max_output: u64,
    idle_ms: u64,
    max_wait_ms: u64,
    max_connections: u64,
    backlog: c_int,
    tells_connections: bool,
    /// Directory of static files, or NULL.
    document_root: *const c_char,
    /// Path prefixes, each ended by a NUL, the list by an empty one; or NULL.
    locations: *const c_char,
    /// Directory of the files that hold long bodies and answers.
    spill_directory: *const c_char,
    /// The user that workers run as, or NULL: the present one.
    user: *const c_char,
    group: *const c_char,
}

/// The next thing the script has to do; `shim/swoole.h` describes the fields.
#[repr(C)]
pub struct EventOut {
    kind: u32,
    repeats: bool,
    id: u64,
}

/// A span of bytes that the shim reads; `at` is NULL when there is none.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bytes {
    at: *const u8,
    len: usize,
}

impl Bytes {
    const NONE: Bytes = Bytes {
        at: std::ptr::null(),
        len: 0,
    };

    fn of(bytes: &[u8]) -> Bytes {
        Bytes {
            at: bytes.as_ptr(),
            len: bytes.len(),
        }
    }
}

/// As in `shim/swoole.h`: valid until the script's callback has returned.
#[repr(C)]
pub struct RequestOut {
    head: Bytes,
    method: Bytes,
    path: Bytes,
    query: Bytes,
    body: Bytes,
    http11: bool,
    server_port: u16,
    remote_port: u16,
    remote_address: [c_char; 48],
}

/// The counters that `$server->stats()` shows, as `shim/swoole.h` declares them.
#[repr(C)]
pub struct StatsOut {
    connections: u64,
    accepted: u64,
    closed: u64,
    requests: u64,
    refused: u64,
    own_requests: u64,
    own_connections: u64,
    ready: u64,
}

mod kind {
    pub const REQUEST: u32 = 1;
    pub const TIMER: u32 = 2;
    pub const CONNECTED: u32 = 3;
    pub const CLOSED: u32 = 4;
    pub const LEAVE: u32 = 5;
    pub const SPAWN: u32 = 6;
    pub const DONE: u32 = 7;
    pub const RELOADED: u32 = 8;
    pub const STOPPING: u32 = 9;
}

/// The manager's part: before it forks, and in it.
struct Manager {
    crew: Crew,
    epoll: OwnedFd,
    /// Kept open for the signal handler.
    _bell: OwnedFd,
    pid: i32,
}

struct StartedConfig {
    user: Option<String>,
    group: Option<String>,
    score: Score,
}

#[derive(Default)]
struct State {
    bound: Option<OwnedFd>,
    port: u16,
    /// The address as it is logged.
    shown: String,
    /// Makes the configuration of a worker that is being forked.
    next_config: Option<Box<dyn Fn() -> Config>>,
    started: Option<StartedConfig>,
    manager: Option<Manager>,
    worker: Option<Worker>,
    timers: Timers,
    jitter: u64,
}

thread_local! {
    /// A script's process has one thread.
    static STATE: RefCell<State> = RefCell::default();
}

fn with_worker<T>(without: T, f: impl FnOnce(&mut Worker) -> T) -> T {
    STATE.with_borrow_mut(|state| match &mut state.worker {
        Some(worker) => f(worker),
        None => without,
    })
}

/// Copies a string that the shim passes; `None` for NULL.
///
/// # Safety
/// `text` is NULL or NUL-terminated, and stays so for the call.
unsafe fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// # Safety
/// `at` is NULL with `len` 0, or points to `len` readable bytes that nobody changes meanwhile.
unsafe fn bytes<'a>(at: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(at, len) }
}

/// Writes a message for the shim, cut to fit, NUL-terminated.
///
/// # Safety
/// `out` points to `cap` > 0 writable bytes.
unsafe fn tell(out: *mut c_char, cap: usize, message: &str) {
    let len = message.len().min(cap - 1);
    // SAFETY: `len` + 1 <= `cap`.
    unsafe {
        std::ptr::copy_nonoverlapping(message.as_ptr(), out.cast(), len);
        out.add(len).write(0);
    }
}

/// Sets a timer that is due in `ms` and returns its id.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_timer(ms: u64, repeats: bool) -> u64 {
    STATE.with_borrow_mut(|state| state.timers.add(sys::now_ms(), ms, repeats))
}

/// When a timer is due, in ms since the first one was made; 0: there is none.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_timer_due(id: u64) -> u64 {
    STATE.with_borrow(|state| state.timers.due_at(id).unwrap_or(0))
}

/// Without a server: the next timer, waited for; or that there is none.
///
/// # Safety
/// `out` is writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_run_next_timer(out: *mut EventOut) {
    let (kind, id, repeats) = STATE.with_borrow_mut(|state| {
        loop {
            let now = sys::now_ms();
            if let Some((id, repeats)) = state.timers.due(now) {
                return (kind::TIMER, id, repeats);
            }
            let Some(wait) = state.timers.wait(now) else {
                return (kind::DONE, 0, false);
            };
            std::thread::sleep(Duration::from_millis(wait));
        }
    });
    // SAFETY: as this function demands.
    unsafe { out.write(EventOut { kind, repeats, id }) };
}

/// Ends a timer of this process; false if there is none with this id.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_timer_clear(id: u64) -> bool {
    STATE.with_borrow_mut(|state| state.timers.clear(id))
}

/// The server's counters.
///
/// # Safety
/// `out` is writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_run_stats(out: *mut StatsOut) -> bool {
    STATE.with_borrow(|state| {
        let (score, own) = match (&state.worker, &state.started) {
            (Some(worker), _) => (*worker.score(), true),
            (None, Some(started)) => (started.score, false),
            (None, None) => return false,
        };
        let own = |counter| if own { score.get(counter) } else { 0 };
        let stats = StatsOut {
            connections: score.sum(Counter::Connections),
            accepted: score.sum(Counter::Accepted),
            closed: score.sum(Counter::Closed),
            requests: score.sum(Counter::Requests),
            refused: score.sum(Counter::Refused),
            own_requests: own(Counter::Requests),
            own_connections: own(Counter::Connections),
            ready: score.sum(Counter::Ready),
        };
        // SAFETY: as this function demands.
        unsafe { out.write(stats) };
        true
    })
}

/// Writes `Date`'s value: 29 bytes.
///
/// # Safety
/// `out` has room for them.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_run_date(out: *mut u8) {
    let text = date::imf_fixdate(sys::wall_seconds());
    // SAFETY: as this function demands.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), out, text.len()) };
}

/// Seconds since 1970, from the coarse clock.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_seconds() -> i64 {
    sys::wall_seconds()
}

/// Writes a line to the log.
///
/// # Safety
/// `line` is NUL-terminated.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_run_log(warns: bool, line: *const c_char) {
    // SAFETY: as this function demands.
    let line = unsafe { text(line) }.unwrap_or_default();
    if warns {
        log::warn(&line);
    } else {
        log::info(&line);
    }
}

/// Sends the log to a file; false if that fails, with the reason in `error`.
///
/// # Safety
/// `path` is NUL-terminated, `error` has room for `cap` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_run_log_file(
    path: *const c_char,
    error: *mut c_char,
    cap: usize,
) -> bool {
    // SAFETY: as this function demands.
    let path = unsafe { text(path) }.unwrap_or_default();
    match log::open(Path::new(&path)) {
        Ok(()) => true,
        Err(e) => {
            // SAFETY: as this function demands.
            unsafe { tell(error, cap, &format!("log_file {path}: {e}")) };
            false
        }
    }
}

/// Whether information is logged, besides warnings.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_log_talks(talks: bool) {
    log::set_talks(talks);
}
