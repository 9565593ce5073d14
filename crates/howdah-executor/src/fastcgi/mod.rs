//! The fastcgi mode: PHP in processes that this server does not manage (php-fpm, php-cgi, any FastCGI responder), over
//! unix sockets or TCP.
//!
//! ```text
//! FastCgiPool ─ start() → Run     (front threads)   balance → connection → records → events
//!            └─ health_checker  (its own thread)  probes, idle connections, the end
//! ```
//!
//! - `balance`: which request gets which backend, and the queue; `ticket`: a waiting request; `backend_state`: a
//!   backend's limit and kept connections; `health`: which backends are reachable. These are pure decisions.
//! - `connection`: a socket. `request`, `response`: records in both directions, as bytes. `run`: one request from the
//!   queue to its end, over as many attempts as are safe; `attempt`: one attempt; `run_context`: the data that every
//!   stage of a run needs.
//! - `health_checker`: the work between requests. `shared`: the state that all of them share.
//!
//! Other web servers treat these as errors of a request; this one does not: a full backlog (`EAGAIN` on a unix socket),
//! a backend that restarts (`ECONNREFUSED`, `ENOENT`), and a kept connection that PHP has closed. The request waits in
//! a bounded queue with a deadline. It is refused with a named error only if the queue is full, the deadline has
//! passed, or no backend has been reachable for a while.

mod attempt;
pub(crate) mod backend_state;
pub(crate) mod balance;
pub(crate) mod connection;
mod health;
pub(crate) mod health_checker;
mod request;
mod response;
mod run;
mod run_context;
pub(crate) mod shared;
mod ticket;

use std::io;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::condition::PoolCondition;
use crate::common::refused::RefusedRun;
use crate::config::FastCgiConfig;
use crate::pool::{PoolFuture, ScriptPool};
use crate::status::{BackendRow, PoolStatus};
use crate::{
    ExecError, Executor, ScriptRequest, ScriptRole, ScriptRun, SharedScriptLog, front_thread,
};

use backend_state::BackendHealth;
use balance::BackendAdmission;
use howdah_proto::{backend_address, fastcgi};
use run::FastCgiRun;
use shared::FastCgiShared;

/// A pool of FastCGI backends.
pub struct FastCgiPool {
    pub(crate) shared: Arc<FastCgiShared>,
}

impl FastCgiPool {
    /// Starts to probe the backends. Returns at once.
    ///
    /// # Errors
    /// The health checker's thread cannot be started.
    pub fn start(
        config: FastCgiConfig,
        log: SharedScriptLog,
        fronts: u32,
    ) -> io::Result<Arc<FastCgiPool>> {
        FastCgiPool::begin(config, log, fronts, false)
    }

    /// Like [`FastCgiPool::start`], for a supervisor that starts and ends the programs behind the backends: no backend
    /// gets requests until it is opened ([`balance::Balance::set_supervised`]).
    pub(crate) fn start_supervised(
        config: FastCgiConfig,
        log: SharedScriptLog,
        fronts: u32,
    ) -> io::Result<Arc<FastCgiPool>> {
        FastCgiPool::begin(config, log, fronts, true)
    }

    fn begin(
        config: FastCgiConfig,
        log: SharedScriptLog,
        fronts: u32,
        watched: bool,
    ) -> io::Result<Arc<FastCgiPool>> {
        let name = format!("pool-{}", config.name);
        let fronts = fronts.max(1) as usize;
        let shared = Arc::new(FastCgiShared::new(config, log, fronts, watched));
        std::thread::Builder::new()
            .name(name.chars().take(15).collect())
            .spawn({
                let shared = shared.clone();
                move || {
                    if let Err(error) = health_checker::run(shared.clone()) {
                        let condition = PoolCondition::Down {
                            name: "NoKeeper".to_owned(),
                            message: format!("the pool's thread cannot run: {error}"),
                        };
                        shared.condition.send_replace(condition);
                    }
                }
            })?;
        Ok(Arc::new(FastCgiPool { shared }))
    }

    fn refuse(&self, error: ExecError) -> Box<dyn ScriptRun> {
        self.shared.count_failure(&error);
        Box::new(RefusedRun(Some(error)))
    }
}

impl Executor for FastCgiPool {
    fn start(&self, request: ScriptRequest) -> Box<dyn ScriptRun> {
        let shared = &self.shared;
        let front = match front_thread::index() {
            Some(index) if (index as usize) < shared.fronts => index as usize,
            _ => {
                return self.refuse(ExecError::PoolDown {
                    name: "NotAFrontThread".to_owned(),
                    message: "a run must be started on one of the pool's front threads".to_owned(),
                });
            }
        };
        if shared.closing.load(Ordering::SeqCst) {
            return match shared.successor.get() {
                Some(next) => next.start(request),
                None => self.refuse(ExecError::Stopping),
            };
        }
        let role = match request.role {
            ScriptRole::Responder => fastcgi::FastCgiRole::Responder,
            ScriptRole::Authorizer => fastcgi::FastCgiRole::Authorizer,
            ScriptRole::Program => return self.refuse(request.role.unsupported()),
        };
        if let Some(refusal) = shared.refusal() {
            return self.refuse(refusal);
        }
        let fresh = !request::is_idempotent(&request.frame);
        let size = shared.config.queue_size;
        let now = Instant::now();
        let whose = (front, request.client);
        let entry =
            shared.with_balance(|balance, wake| balance.admit(whose, fresh, size, now, wake));
        if !matches!(entry, BackendAdmission::Granted(_)) {
            shared.demand.notify_one();
        }
        if matches!(entry, BackendAdmission::Full) {
            let down = shared.unreachable_error(now, true);
            return self.refuse(down.unwrap_or(ExecError::QueueFull));
        }
        let shared = shared.clone();
        Box::new(FastCgiRun::new(shared, front, role, request, entry, now))
    }

    fn mode(&self) -> &'static str {
        "fastcgi"
    }

    fn accepts_unknown_length(&self) -> bool {
        false
    }

    fn reports_effects(&self) -> bool {
        false
    }

    fn status(&self) -> PoolStatus {
        let shared = &self.shared;
        let now = Instant::now();
        let balance = shared.balance();
        let condition = shared.condition.borrow().clone();
        let state = match (&condition, balance.all_down()) {
            (PoolCondition::Ready, Some((_, why))) => format!("Down (BackendDown): {why}"),
            (condition, _) => condition.to_string(),
        };
        let rows = shared.config.backends.iter().zip(&balance.backends);
        let row = |(backend, member): (
            &backend_address::FastCgiBackend,
            &backend_state::BackendState<_>,
        )| {
            let (state, since, why) = match &member.health {
                BackendHealth::Up => ("Up", None, ""),
                BackendHealth::Down { since, why, .. } => {
                    let since = now.saturating_duration_since(*since);
                    ("Down", Some(since.as_secs_f64()), why.as_str())
                }
            };
            BackendRow {
                address: backend.address.to_string(),
                weight: backend.weight,
                state: state.to_owned(),
                since: since.unwrap_or_default(),
                why: why.to_owned(),
                busy: member.busy,
                kept: member.kept_count,
                limit: member.limit.now,
                requests: member.served,
                connects: member.connects,
                failures: member.failures,
                overflows: member.overflows,
            }
        };
        PoolStatus {
            pool: shared.config.name.clone(),
            process_manager: "fastcgi".to_owned(),
            state,
            uptime: shared.started.elapsed().as_secs(),
            accepted_requests: balance.backends.iter().map(|m| m.served).sum(),
            queue: balance.queued(),
            max_queue: balance.max_queued,
            queue_size: shared.config.queue_size,
            active_processes: balance.busy(),
            max_active_processes: balance.max_busy,
            max_children_reached: balance.total_waited,
            failures: crate::status::failures(&shared.failures),
            backends: rows.map(row).collect(),
            ..PoolStatus::default()
        }
    }
}

impl ScriptPool for FastCgiPool {
    /// Resolves once every backend has been tried. A pool starts even if backends are unreachable: they may come up
    /// later, and the log reports them.
    fn ready(&self) -> PoolFuture<'_, Result<(), ExecError>> {
        Box::pin(async {
            PoolCondition::wait_until_settled(self.shared.condition.subscribe()).await
        })
    }

    fn drain(&self, successor: Option<Arc<dyn Executor>>, limit: Duration) {
        let shared = &self.shared;
        if let Some(successor) = successor {
            // The successor of the first call remains.
            let _ = shared.successor.set(successor);
        }
        let at = Instant::now() + limit;
        {
            let mut limit = shared
                .drain_deadline
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *limit = Some(limit.map_or(at, |before| before.min(at)));
        }
        shared.closing.store(true, Ordering::SeqCst);
        shared.condition.send_if_modified(|condition| {
            let open = !matches!(condition, PoolCondition::Draining | PoolCondition::Closed);
            if open {
                *condition = PoolCondition::Draining;
            }
            open
        });
        shared.changed.notify_one();
    }

    fn drained(&self) -> PoolFuture<'_, ()> {
        Box::pin(async {
            let mut condition = self.shared.condition.subscribe();
            // An error means that the sender is gone, and the pool with it.
            let _ = condition.wait_for(|c| *c == PoolCondition::Closed).await;
        })
    }
}

impl Drop for FastCgiPool {
    /// A pool that is dropped without a drain ends at once.
    fn drop(&mut self) {
        self.drain(None, Duration::ZERO);
    }
}

/// Checks whether a backend is reachable, for `howdah check`. `Err` is a sentence.
///
/// # Errors
/// The backend is not reachable, or its response is not FastCGI.
pub fn check(address: &backend_address::BackendAddress) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let found = runtime.block_on(health_checker::probe(address));
    found.map(drop).map_err(|error| error.to_string())
}
