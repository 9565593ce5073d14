//! The embed mode: PHP in forked processes, over shared memory. This is the front's side of a pool.
//!
//! ```text
//! EmbedPool ─ start() → Run        (front threads)      lane → slot → child → slot → lane
//!          └─ Supervisor           (its own thread)     zygote: fork, signal, reap
//! ```
//!
//! - `lane`: a front thread's slots and queue; `in_flight`: one request; `run`: the run that the server polls;
//!   `abandoning_clients`: clients that leave running scripts; `bailouts`: clients whose scripts bail out; `body`:
//!   feeds the request body; `timer`: the deadlines of the queue.
//! - A pool of workers is the same, but its children boot one script (`supervisor/workers`, `file_watcher`, `glob`).
//! - `supervisor`, `children`, `zygote`: the processes; `pm` in `common`: their number, as a pure decision.
//! - `stepped`: a pool for simulations, whose supervisor works when its caller calls it.
//! - `shared`: the state that all of them share; `sys` in `common`: the only module with `unsafe`.

mod abandoning_clients;
pub mod bailouts;
pub(crate) mod body;
mod children;
mod file_watcher;
pub mod glob;
mod in_flight;
mod lane;
#[cfg(test)]
mod lane_tests;
mod memory;
mod pidfd;
mod pool_state;
mod run;
pub(crate) mod shared;
#[cfg(feature = "simulation")]
pub mod stepped;
pub(crate) mod supervisor;
pub(crate) mod timer;
pub(crate) mod zygote;

use std::collections::HashMap;
use std::io::{self, Read, Seek, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use howdah_os::clock;
use howdah_proto::control::ScriptsOperation;
use howdah_proto::shm::ChildId;
use rustix::fs::{MemfdFlags, memfd_create};
use tokio::sync::oneshot;

use bailouts::TooManyBailouts;

use crate::common::condition::PoolCondition;
use crate::common::process::resident_bytes;
use crate::common::refused::RefusedRun;
use crate::common::sys;
use crate::launch::Launcher;
use crate::pool::{PoolFuture, ScriptPool};
use crate::status::{ChildRow, PoolStatus, SharedCacheStatus};
use crate::{
    ExecError, Executor, PoolConfig, ScriptRequest, ScriptRole, ScriptRun, SharedScriptLog,
    front_thread,
};

use body::BodyFeed;
use in_flight::InFlightRequest;
use pool_state::SupervisorMessage;
use run::{EmbedRun, LaneHandle};
use shared::EmbedShared;
use supervisor::Supervisor;

/// The maximum total length of the script paths that are read, in bytes.
const MAX_PATHS_BYTES: u64 = 4 << 20;

/// A pool of PHP processes forked from one zygote (modes `embed` and `worker`).
pub struct EmbedPool {
    shared: Arc<EmbedShared>,
    homes: Vec<Arc<LaneHandle>>,
}

/// How often the exchange had to call the kernel, for measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeCosts {
    /// How often a child was woken from its sleep between requests.
    pub futex_wakes: u64,
    /// How often a front thread announced that it sleeps.
    pub front_sleeps: u64,
    /// How often a child rang the bell of a sleeping front thread.
    pub bells: u64,
}

impl EmbedPool {
    /// Creates the pool's memory and starts its supervisor, which starts the zygote. `fronts` is the number of front
    /// threads (see [`front_thread::attach`]). Returns at once: requests queue until children can be forked.
    /// [`EmbedPool::ready`] then resolves, or returns the reason for a failure.
    ///
    /// # Errors
    /// The pool's memory or thread cannot be created, or `max_children` is out of range.
    pub fn start(
        config: PoolConfig,
        launcher: Arc<dyn Launcher>,
        log: SharedScriptLog,
        fronts: u32,
    ) -> io::Result<Arc<EmbedPool>> {
        EmbedPool::begin(EmbedShared::new(config, log, fronts)?, launcher)
    }

    /// Like [`EmbedPool::start`], but starts no process: the first request starts the zygote. A reason why the zygote
    /// cannot start is found then, or earlier by a trial ([`crate::launch::trial_command`]).
    pub fn start_asleep(
        config: PoolConfig,
        launcher: Arc<dyn Launcher>,
        log: SharedScriptLog,
        fronts: u32,
    ) -> io::Result<Arc<EmbedPool>> {
        let shared = EmbedShared::new(config, log, fronts)?;
        shared.asleep.store(true, Ordering::Release);
        EmbedPool::begin(shared, launcher)
    }

    fn begin(shared: EmbedShared, launcher: Arc<dyn Launcher>) -> io::Result<Arc<EmbedPool>> {
        let thread = format!("pool-{}", shared.pool.config.name);
        let shared = Arc::new(shared);
        let supervisor = Supervisor::new(shared.clone(), launcher);
        std::thread::Builder::new()
            .name(thread.chars().take(15).collect())
            .spawn({
                let shared = shared.clone();
                move || {
                    let run = std::panic::AssertUnwindSafe(|| supervisor.run());
                    if std::panic::catch_unwind(run).is_err() {
                        shared.supervisor_panicked();
                    }
                }
            })?;
        Ok(Arc::new(EmbedPool::over(shared)))
    }

    fn over(shared: Arc<EmbedShared>) -> EmbedPool {
        let home = |front| {
            let shared = shared.clone();
            Arc::new(LaneHandle { shared, front })
        };
        let homes = (0..shared.lanes.len() as u32).map(home).collect();
        EmbedPool { shared, homes }
    }

    /// Waits until the zygote is ready, or its first start has failed (further attempts follow all the same).
    pub async fn ready(&self) -> Result<(), ExecError> {
        PoolCondition::wait_until_settled(self.shared.condition.subscribe()).await
    }

    /// Returns whether the pool has had no request yet, and therefore has no process.
    pub fn is_asleep(&self) -> bool {
        self.shared.asleep.load(Ordering::Acquire)
    }

    /// Returns the pool's current condition.
    pub fn condition(&self) -> PoolCondition {
        self.shared.condition.borrow().clone()
    }

    /// Drains the pool: requests that run or wait are finished within `limit` (after it they fail with `Stopping`),
    /// children exit, the zygote exits. Requests that start from now on go to `successor`; without one they are refused
    /// (`Stopping`). Returns at once.
    pub fn drain(&self, successor: Option<Arc<dyn Executor>>, limit: Duration) {
        if let Some(successor) = successor {
            // The successor of the first call remains.
            if self.shared.successor.set(successor.clone()).is_ok() {
                successor.set_predecessor_running(true);
            }
        }
        self.shared.pool.closing.store(true, Ordering::SeqCst);
        self.shared
            .pool
            .send_to_supervisor(SupervisorMessage::Drain(clock::now() + limit));
    }

    /// Waits until all processes of a draining pool have exited.
    pub async fn drained(&self) {
        let mut condition = self.shared.condition.subscribe();
        // An error means that the sender is gone, and the pool with it.
        let _ = condition.wait_for(|c| *c == PoolCondition::Closed).await;
    }

    /// Returns the costs of the exchange since the start.
    pub fn exchange_costs(&self) -> ExchangeCosts {
        // The bells are never read (a read could swallow a ring that epoll has not reported yet), so their counters
        // show how often they were rung.
        let bells = self
            .shared
            .bells
            .iter()
            .map(|b| sys::times_rung(b.as_fd()))
            .sum();
        ExchangeCosts {
            futex_wakes: self.shared.sum(|c| &c.futex_wakes),
            front_sleeps: self.shared.sum(|c| &c.front_sleeps),
            bells,
        }
    }

    fn refuse(&self, error: ExecError) -> Box<dyn ScriptRun> {
        self.shared.count_failure(&error);
        Box::new(RefusedRun(Some(error)))
    }
}

impl Drop for EmbedPool {
    /// A pool that is dropped without a drain ends at once.
    fn drop(&mut self) {
        self.shared.pool.closing.store(true, Ordering::SeqCst);
        self.shared
            .pool
            .send_to_supervisor(SupervisorMessage::Drain(clock::now()));
    }
}

impl Executor for EmbedPool {
    fn max_processes(&self) -> Option<u32> {
        Some(self.shared.pool.config.max_children)
    }

    fn abandons_scripts(&self, client: IpAddr) -> bool {
        self.shared
            .pool
            .abandoning_clients
            .contains(client, sys::now_ns)
    }

    fn too_many_bailouts(&self, client: IpAddr) -> Option<TooManyBailouts> {
        self.shared.pool.bailouts.too_many(client, sys::now_ns)
    }

    fn start(&self, request: ScriptRequest) -> Box<dyn ScriptRun> {
        let shared = &self.shared;
        let Some(front) = front_thread::index().filter(|i| (*i as usize) < shared.lanes.len())
        else {
            return self.refuse(ExecError::PoolDown {
                name: "NotAFrontThread".to_owned(),
                message: "a run must be started on one of the pool's front threads".to_owned(),
            });
        };
        match shared.admit(front, request.client) {
            Ok(()) => {}
            Err(ExecError::Stopping) if let Some(next) = shared.successor.get() => {
                return next.start(request);
            }
            Err(error) => return self.refuse(error),
        }
        if request.role != ScriptRole::Responder {
            shared.pool.record_finished();
            return self.refuse(request.role.unsupported());
        }
        let lane = &shared.lanes[front as usize];
        if !lane.is_registered() {
            if let Err(error) = front_thread::register(shared) {
                shared.pool.record_finished();
                return self.refuse(ExecError::PoolDown {
                    name: "NoBell".to_owned(),
                    message: format!("cannot watch the pool's eventfd: {error}"),
                });
            }
            lane.set_registered();
        }
        let body = BodyFeed::new(request.body);
        let in_flight = InFlightRequest::new(
            request.id,
            request.frame,
            sys::now_ns(),
            body.is_complete(),
            request.client,
            request.effects,
            request.drop_at_end,
        );
        let in_flight = Arc::new(in_flight.with_bailouts(&shared.pool.bailouts));
        lane.submit(&shared.pool, in_flight.clone());
        let home = self.homes[front as usize].clone();
        Box::new(EmbedRun::new(home, in_flight, body))
    }

    fn invalidate_shared_cache(&self) {
        self.shared.pool.port.invalidate_shared_cache();
    }

    fn set_predecessor_running(&self, beside: bool) {
        self.shared.pool.port.set_shared_cache_open(!beside);
        // This includes values that were stored before the predecessor was known.
        self.shared.pool.port.invalidate_shared_cache();
        if !beside && self.condition() == PoolCondition::Closed {
            self.shared.notify_successor();
        }
    }

    fn mode(&self) -> &'static str {
        match self.shared.pool.config.worker {
            Some(_) => "worker",
            None => "embed",
        }
    }

    fn queue_length(&self) -> u32 {
        self.shared.queue_len()
    }

    fn status(&self) -> PoolStatus {
        let shared = &self.shared;
        let counters = &shared.counters;
        let (php, opcache) = shared.php.lock().unwrap_or_else(|e| e.into_inner()).clone();
        let mut status = PoolStatus {
            pool: shared.pool.config.name.clone(),
            process_manager: shared.pool.config.pm.word().to_owned(),
            state: match self.is_asleep() {
                true => "Asleep".to_owned(),
                false => shared.condition.borrow().to_string(),
            },
            php,
            opcache,
            php_update: shared
                .php_update
                .lock()
                .unwrap_or_else(|e| e.into_inner())
                .clone(),
            uptime: clock::now().duration_since(shared.started).as_secs(),
            accepted_requests: shared.sum(|c| &c.accepted),
            queue: shared.queue_len(),
            max_queue: counters.max_queue.load(Ordering::Relaxed),
            queue_size: shared.pool.config.queue_size,
            max_active_processes: counters.max_active.load(Ordering::Relaxed),
            max_children_reached: shared.sum(|c| &c.max_children_reached),
            slow_requests: counters.slow.load(Ordering::Relaxed),
            bailouts: counters.bailouts.load(Ordering::Relaxed),
            slow: Vec::from(
                shared
                    .slow
                    .lock()
                    .unwrap_or_else(|e| e.into_inner())
                    .clone(),
            ),
            failures: crate::status::failures(&counters.failures),
            shared_cache: self.shared_cache(),
            ..PoolStatus::default()
        };
        self.fill_scoreboard(&mut status);
        status
    }
}

impl ScriptPool for EmbedPool {
    fn ready(&self) -> PoolFuture<'_, Result<(), ExecError>> {
        Box::pin(EmbedPool::ready(self))
    }

    fn drain(&self, successor: Option<Arc<dyn Executor>>, limit: Duration) {
        EmbedPool::drain(self, successor, limit);
    }

    fn drained(&self) -> PoolFuture<'_, ()> {
        Box::pin(EmbedPool::drained(self))
    }

    fn is_asleep(&self) -> bool {
        EmbedPool::is_asleep(self)
    }

    fn cached_scripts(&self) -> PoolFuture<'_, Vec<u8>> {
        Box::pin(async move {
            let mut paths = Vec::new();
            if let Some(file) = self
                .run_scripts_operation(ScriptsOperation::List, &[])
                .await
            {
                let _ = file.take(MAX_PATHS_BYTES).read_to_end(&mut paths);
            }
            paths
        })
    }

    fn compile_scripts<'p>(&'p self, scripts: &'p [u8]) -> PoolFuture<'p, ()> {
        Box::pin(async move {
            if !scripts.is_empty() {
                self.run_scripts_operation(ScriptsOperation::Compile, scripts)
                    .await;
            }
        })
    }
}

impl EmbedPool {
    /// Makes the zygote list or compile the scripts in a file with this content. Returns the file, rewound to its
    /// beginning, or `None` if the zygote cannot do it. Workers return `None`, since they have loaded all their code
    /// when they have booted.
    async fn run_scripts_operation(
        &self,
        work: ScriptsOperation,
        content: &[u8],
    ) -> Option<std::fs::File> {
        let config = &self.shared.pool.config;
        if config.worker.is_some() || !config.opcache || self.is_asleep() {
            return None;
        }
        let file = memfd_create("howdah-scripts", MemfdFlags::CLOEXEC).ok()?;
        let mut ours = std::fs::File::from(file.try_clone().ok()?);
        ours.write_all(content).ok()?;
        let (done, over) = oneshot::channel();
        self.shared
            .pool
            .send_to_supervisor(SupervisorMessage::Scripts(work, file, done));
        over.await.ok()?;
        ours.rewind().ok()?;
        Some(ours)
    }

    fn shared_cache(&self) -> Option<SharedCacheStatus> {
        let port = &self.shared.pool.port;
        let info = port.shared_cache_info()?;
        Some(SharedCacheStatus {
            open: port.shared_cache_is_open(),
            size: info.size,
            used: info.used,
            values: info.values,
            hits: info.hits,
            misses: info.misses,
            evicted: info.evicted,
        })
    }

    fn fill_scoreboard(&self, status: &mut PoolStatus) {
        let shared = &self.shared;
        let running: HashMap<ChildId, Arc<InFlightRequest>> = shared
            .lanes
            .iter()
            .flat_map(|lane| lane.claimed())
            .map(|(child, in_flight, _)| (child, in_flight))
            .collect();
        let board = shared
            .board
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .clone();
        let now_ns = sys::now_ns();
        for row in board {
            let child = shared.pool.port.child_status(row.id.index);
            let in_flight = running.get(&row.id);
            let busy = in_flight.is_some() || child.busy_since.is_some();
            // A child may serve for a moment before its supervisor learns that it was forked.
            let life = match row.state {
                "Starting" | "Booting" if child.live => "Serving",
                life => life,
            };
            if life == "Serving" || life == "Retiring" {
                if busy {
                    status.active_processes += 1;
                } else {
                    status.idle_processes += 1;
                }
            }
            let state = match (life, busy, in_flight) {
                ("Serving", false, _) => "Idle",
                ("Serving", true, Some(e)) if !e.lock().ended => "Busy",
                ("Serving", true, _) => "Finishing",
                (other, ..) => other,
            };
            let text = |name: &str| {
                in_flight
                    .and_then(|e| e.frame.variable(name))
                    .map(|v| String::from_utf8_lossy(v).into_owned())
                    .unwrap_or_default()
            };
            let since = match child.busy_since {
                Some(ns) => now_ns.saturating_sub(ns) as f64 / 1e9,
                None => clock::now().duration_since(row.since).as_secs_f64(),
            };
            status.children.push(ChildRow {
                index: row.id.index,
                pid: row.pid,
                state: state.to_owned(),
                since,
                requests: child.requests,
                method: text("REQUEST_METHOD"),
                uri: text("REQUEST_URI"),
                script: text("SCRIPT_FILENAME"),
                memory: resident_bytes(row.pid),
            });
        }
    }
}
