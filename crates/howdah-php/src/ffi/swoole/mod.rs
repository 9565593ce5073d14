//! The functions that the shim of a Swoole script (`shim/swoole/*.c`) calls: its event loop ([`crate::run`]) as C sees
//! it.
//!
//! Every function here is a leaf: it always returns and calls no PHP. For that reason the control flow of the loop is
//! inverted: the shim asks for the next event, calls the script under its own `zend_try`, and asks again. So no bailout
//! (a longjmp) ever crosses a Rust frame.

mod manager;
mod worker;

use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use howdah_http1::date;

use super::text::{Text, bytes, write_message};
use crate::run::counters::{Counter, WorkerCounters};
use crate::run::log;
use crate::run::sys;
use crate::run::timers::Timers;
use crate::run::worker::{SwooleWorker, SwooleWorkerConfig};
use crate::run::worker_manager::WorkerManager;

/// The settings of a server; `shim/swoole/internal.h` describes the fields.
#[repr(C)]
pub struct ServerSettings<'a> {
    workers: u64,
    max_requests: u64,
    max_body: u64,
    /// Maximum size of a form with files in bytes; 0 applies the limit for other bodies.
    max_uploads: u64,
    max_output: u64,
    idle_ms: u64,
    max_wait_ms: u64,
    max_connections: u64,
    backlog: c_int,
    reports_connections: bool,
    /// Directory of static files, or NULL.
    document_root: Text<'a>,
    /// Path prefixes, each terminated by a NUL and the list by an empty string; or NULL.
    locations: Text<'a>,
    /// Directory of the files that hold long bodies and responses.
    spill_directory: Text<'a>,
    /// The user that the workers run as, or NULL for the current user.
    user: Text<'a>,
    group: Text<'a>,
}

/// The next event for the script; `shim/swoole/internal.h` describes the fields.
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

/// A request as declared in `shim/swoole/internal.h`; valid until the script's callback has returned.
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

/// The counters that `$server->stats()` shows, as `shim/swoole/internal.h` declares them.
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

/// The state of the manager, from the start of the server.
struct ServerManager {
    workers: WorkerManager,
    epoll: OwnedFd,
    pid: i32,
}

struct StartedConfig {
    user: Option<String>,
    group: Option<String>,
    counters: WorkerCounters,
}

#[derive(Default)]
struct SwooleState {
    listener: Option<OwnedFd>,
    port: u16,
    /// The address as it appears in the log.
    address_for_log: String,
    /// Builds the configuration of a worker that is being forked.
    new_worker_config: Option<Box<dyn Fn() -> SwooleWorkerConfig>>,
    started_config: Option<StartedConfig>,
    manager: Option<ServerManager>,
    worker: Option<SwooleWorker>,
    timers: Timers,
    max_request_grace: u64,
}

thread_local! {
    /// A script's process has one thread.
    static STATE: RefCell<SwooleState> = RefCell::default();
}

fn with_worker<T>(without: T, f: impl FnOnce(&mut SwooleWorker) -> T) -> T {
    STATE.with_borrow_mut(|state| match &mut state.worker {
        Some(worker) => f(worker),
        None => without,
    })
}

/// Returns whether `result` is a success, and otherwise writes the error to `error`.
///
/// # Safety
/// `error` has room for `cap` bytes.
unsafe fn write_result(result: Result<(), String>, error: *mut c_char, cap: usize) -> bool {
    if let Err(why) = &result {
        // SAFETY: as this function demands.
        unsafe { write_message(error, cap, why) };
    }
    result.is_ok()
}

/// Sets a timer that is due in `ms` and returns its id.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_timer(ms: u64, repeats: bool) -> u64 {
    STATE.with_borrow_mut(|state| state.timers.add(sys::now_ms(), ms, repeats))
}

/// Returns when a timer is due, in ms since the first timer was created; 0 if the timer does not exist.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_timer_due(id: u64) -> u64 {
    STATE.with_borrow(|state| state.timers.due_at(id).unwrap_or(0))
}

/// Waits for the next timer in a process without a server and returns it, or returns DONE if there is none.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_next_timer(out: &mut MaybeUninit<EventOut>) {
    let (kind, id, repeats) = STATE.with_borrow_mut(|state| {
        loop {
            let now = sys::now_ms();
            if let Some((id, repeats)) = state.timers.take_due(now) {
                return (kind::TIMER, id, repeats);
            }
            let Some(wait) = state.timers.until_next(now) else {
                return (kind::DONE, 0, false);
            };
            std::thread::sleep(Duration::from_millis(wait));
        }
    });
    out.write(EventOut { kind, repeats, id });
}

/// Removes a timer of this process. Returns false if there is none with this id.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_timer_clear(id: u64) -> bool {
    STATE.with_borrow_mut(|state| state.timers.remove(id))
}

/// Reads the server's counters. Returns false before the server is started.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_stats(out: &mut MaybeUninit<StatsOut>) -> bool {
    STATE.with_borrow(|state| {
        let (counters, own) = match (&state.worker, &state.started_config) {
            (Some(worker), _) => (*worker.counters(), true),
            (None, Some(started)) => (started.counters, false),
            (None, None) => return false,
        };
        let own = |counter| if own { counters.get(counter) } else { 0 };
        let stats = StatsOut {
            connections: counters.sum(Counter::Connections),
            accepted: counters.sum(Counter::Accepted),
            closed: counters.sum(Counter::Closed),
            requests: counters.sum(Counter::Requests),
            refused: counters.sum(Counter::Refused),
            own_requests: own(Counter::Requests),
            own_connections: own(Counter::Connections),
            ready: counters.sum(Counter::Ready),
        };
        out.write(stats);
        true
    })
}

/// Writes the value of the `Date` header.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_date(out: &mut [u8; 29]) {
    *out = date::imf_fixdate(sys::wall_seconds());
}

/// Returns the seconds since 1970, from the coarse clock.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_seconds() -> i64 {
    sys::wall_seconds()
}

/// Writes a line to the log.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_log(warns: bool, line: Text<'_>) {
    let line = line.text().unwrap_or_default();
    if warns {
        log::warn(&line);
    } else {
        log::info(&line);
    }
}

/// Redirects the log to a file. On failure, returns false and writes the reason to `error`.
///
/// # Safety
/// `error` has room for `cap` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_run_log_file(path: Text<'_>, error: *mut c_char, cap: usize) -> bool {
    let opened = log::open_file(path.path());
    let why = |e| format!("log_file {}: {e}", path.path().display());
    // SAFETY: as this function demands.
    unsafe { write_result(opened.map_err(why), error, cap) }
}

/// Sets whether informational messages are logged in addition to warnings.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_log_talks(talks: bool) {
    log::set_logs_info(talks);
}
