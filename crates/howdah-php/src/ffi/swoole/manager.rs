//! The functions that the shim calls in a server's first process: they bind the address, start the server, run the
//! manager's loop, and fork the workers.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use howdah_os::process::is_root;

use super::{
    EventOut, STATE, ServerManager, ServerSettings, StartedConfig, SwooleState, Text, kind,
    write_result,
};
use crate::identity;
use crate::run::counters::{Counter, WorkerCounters};
use crate::run::files::StaticRoot;
use crate::run::sys::EventFlags;
use crate::run::worker::{SwooleWorker, SwooleWorkerConfig};
use crate::run::worker_manager::{ManagerAction, StopEffect, WorkerExit, WorkerManager};
use crate::run::{listener, log, sys};
use crate::sys::{ForkResult, ProcessExit, exit_now, fork, own_pid, reap_child, send_signal};

/// Binds the address that a script names; [`howdah_run_port`] returns its port afterwards. On failure, returns false
/// and writes the reason to `error`.
///
/// # Safety
/// `error` has room for `cap` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_run_bind(
    host: Text<'_>,
    port: u16,
    unix: bool,
    error: *mut c_char,
    cap: usize,
) -> bool {
    let host = host.text().unwrap_or_default();
    let bound = listener::bind(&host, port, unix).map(|(socket, shown)| {
        STATE.with_borrow_mut(|state| {
            state.address_for_log = shown;
            state.port = sys::local_port(socket.as_fd());
            state.listener = Some(socket);
        });
    });
    // SAFETY: as this function demands.
    unsafe { write_result(bound, error, cap) }
}

/// Returns the port that the script's server is bound to; 0 for a unix socket.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_port() -> u16 {
    STATE.with_borrow(|state| state.port)
}

/// Begins to listen and becomes the manager. On failure, returns false and writes the reason to `error`.
///
/// # Safety
/// `settings` is as `shim/swoole/internal.h` describes it; `error` has room for `cap` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_run_start(
    settings: &ServerSettings<'_>,
    error: *mut c_char,
    cap: usize,
) -> bool {
    // SAFETY: as this function demands.
    unsafe { write_result(start(settings), error, cap) }
}

/// # Safety
/// `settings.locations` is as `shim/swoole/internal.h` describes it.
unsafe fn start(settings: &ServerSettings<'_>) -> Result<(), String> {
    let (user, group) = (settings.user.owned(), settings.group.owned());
    let root = settings.document_root.owned();
    let spills = settings.spill_directory.owned();
    let spill_directory = spills.map_or_else(std::env::temp_dir, PathBuf::from);
    // SAFETY: as this function demands.
    let locations = unsafe { settings.locations.list() };
    let files = match root {
        None => None,
        Some(root) => Some(
            StaticRoot::new(Path::new(&root), locations)
                .map_err(|e| format!("BadDocumentRoot: {root}: {e}"))?,
        ),
    };
    STATE.with_borrow_mut(|state| {
        let socket = state
            .listener
            .as_ref()
            .ok_or("NotBound: there is no address to listen on")?;
        rustix::net::listen(socket, settings.backlog).map_err(|e| format!("CannotListen: {e}"))?;
        let counters =
            WorkerCounters::new(settings.workers).map_err(|e| format!("CannotShare: {e}"))?;
        let room = sys::descriptor_limit().saturating_sub(64).max(16);
        let bell = sys::handle_signals(true).map_err(|e| format!("CannotSignal: {e}"))?;
        let epoll = sys::create_epoll().map_err(|e| format!("CannotWait: {e}"))?;
        let events = EventFlags::IN | EventFlags::ET;
        sys::epoll_add(&epoll, bell.as_fd(), events, 0).map_err(|e| format!("CannotWait: {e}"))?;
        let (workers, max_body, port) = (settings.workers, settings.max_body, state.port);
        let max_uploads = settings.max_uploads;
        let (max_output, idle) = (settings.max_output as usize, settings.idle_ms);
        let (max_wait, max_requests) = (settings.max_wait_ms, settings.max_requests);
        // The limit of descriptors applies to each worker.
        let max_connections = settings.max_connections.min(room * workers);
        let reports_connections = settings.reports_connections;
        state.new_worker_config = Some(Box::new(move || SwooleWorkerConfig {
            workers,
            max_body,
            max_uploads,
            max_output,
            spill_directory: spill_directory.clone(),
            idle,
            max_wait,
            max_connections,
            max_requests,
            port,
            reports_connections,
            files: files.clone(),
        }));
        log::info(&format!(
            "listening on {}, {workers} workers",
            state.address_for_log
        ));
        if user.is_none() && is_root() {
            log::warn(
                "RunsAsRoot: the workers run as root; name another user in the setting `user`",
            );
        }
        state.started_config = Some(StartedConfig {
            user,
            group,
            counters,
        });
        state.manager = Some(ServerManager {
            workers: WorkerManager::new(workers, max_wait),
            epoll,
            pid: own_pid(),
        });
        Ok(())
    })
}

/// Waits for the manager's next task and returns it.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_manage(out: &mut MaybeUninit<EventOut>) {
    let event = STATE.with_borrow_mut(|state| {
        let SwooleState {
            manager, timers, ..
        } = state;
        let Some(manager) = manager else {
            return (kind::DONE, 0, false);
        };
        let mut events = Vec::with_capacity(4);
        loop {
            let asked = sys::take_signal_requests();
            let now = sys::now_ms();
            if asked & sys::CHILD != 0 {
                reap_workers(&mut manager.workers, now);
            }
            if asked & sys::STOP != 0 {
                match manager.workers.stop(now) {
                    StopEffect::Begun => {
                        log::info("stopping");
                        return (kind::STOPPING, 0, false);
                    }
                    StopEffect::Unchanged => {}
                    StopEffect::Immediate => log::info("stopping at once"),
                }
            } else if asked & sys::RELOAD != 0 {
                log::info("reloading the workers");
                manager.workers.reload(now);
                return (kind::RELOADED, 0, false);
            }
            let until = match manager.workers.next_action(now) {
                ManagerAction::Spawn(number) => return (kind::SPAWN, number, false),
                ManagerAction::Done => return (kind::DONE, 0, false),
                ManagerAction::Signal(pid, signal) => {
                    send_signal(pid, signal);
                    continue;
                }
                ManagerAction::Wait(until) => until.map(|at| at.saturating_sub(now)),
            };
            if let Some((id, repeats)) = timers.take_due(now) {
                return (kind::TIMER, id, repeats);
            }
            let wait = until.into_iter().chain(timers.until_next(now)).min();
            sys::wait(&manager.epoll, &mut events, wait);
        }
    });
    let (kind, id, repeats) = event;
    out.write(EventOut { kind, repeats, id });
}

fn reap_workers(workers: &mut WorkerManager, now: u64) {
    for pid in workers.pids() {
        let Some(end) = reap_child(pid) else {
            continue;
        };
        let how = match end {
            ProcessExit::Signal(signal) => format!("was killed by signal {signal}"),
            ProcessExit::Code(code) => format!("exited with code {code}"),
        };
        match workers.process_exited(pid, end == ProcessExit::Code(0), now) {
            Some(WorkerExit::Died(number, 0)) => log::warn(&format!(
                "WorkerDied: worker {number} (pid {pid}) {how}; another one starts"
            )),
            Some(WorkerExit::Died(number, wait)) => log::warn(&format!(
                "WorkerDied: worker {number} (pid {pid}) {how} soon after its start; another one starts in {wait} ms"
            )),
            Some(WorkerExit::Killed(number)) => log::warn(&format!(
                "WorkerKilled: worker {number} (pid {pid}) did not exit within max_wait_time and was killed"
            )),
            Some(WorkerExit::Left(_)) | None => {}
        }
    }
}

/// Forks worker `number`. Returns 0 in the worker, the worker's pid in the manager, and -1 on failure.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_fork(number: u64) -> c_int {
    STATE.with_borrow_mut(|state| {
        let Some(manager) = &mut state.manager else {
            return -1;
        };
        let parent = manager.pid;
        // Signals stay blocked until the worker has its own handlers: a SIGTERM that arrived earlier would be lost.
        let _held = sys::block_signals();
        match fork(log::warn) {
            Ok(ForkResult::Parent(pid)) => {
                manager.workers.spawned(number, pid, sys::now_ms());
                pid
            }
            Err(e) => {
                log::warn(&format!("CannotFork: {e}"));
                manager.workers.spawn_failed(number, sys::now_ms());
                -1
            }
            Ok(ForkResult::Child) => {
                if let Err(why) = become_worker(state, number, parent) {
                    log::warn(&why);
                    exit_now(78);
                }
                0
            }
        }
    })
}

fn become_worker(state: &mut SwooleState, number: u64, parent: i32) -> Result<(), String> {
    let say = |what: &str| {
        let what = what.to_owned();
        move |e: std::io::Error| format!("{what}: {e}")
    };
    let bell = sys::handle_signals(false).map_err(say("CannotSignal"))?;
    let started = state.started_config.take().ok_or("NotStarted")?;
    identity::assume_identity(started.user.as_deref(), started.group.as_deref())
        .map_err(|e| format!("{}: {e}", e.name()))?;
    // Called after the change of user, which clears the parent-death signal.
    if !sys::terminate_with_parent(parent) {
        exit_now(0);
    }
    state.manager = None;
    state.timers.clear_all();
    let mut config = state.new_worker_config.take().ok_or("NotStarted")?();
    if config.max_requests > 0 {
        // Staggered, so the workers are not all replaced at the same moment.
        config.max_requests += number * state.max_request_grace / config.workers;
    }
    let counters = started.counters.for_worker(number);
    for counter in [Counter::Connections, Counter::Ready] {
        counters.set(counter, 0);
    }
    let listener = state.listener.take().ok_or("NotBound")?;
    let worker =
        SwooleWorker::new(config, number, counters, listener, bell).map_err(say("CannotWait"))?;
    state.worker = Some(worker);
    Ok(())
}

/// Sets `max_request_grace`: how many more requests one worker may serve than another.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_jitter(requests: u64) {
    STATE.with_borrow_mut(|state| state.max_request_grace = requests);
}
