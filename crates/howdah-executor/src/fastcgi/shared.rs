//! The state that the front threads and the health checker of a pool share: the balance, the pool's condition,
//! counters.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Instant;

use tokio::sync::{Notify, watch};

use super::balance::Balance;
use super::connection::BackendConnection;
use crate::common::condition::PoolCondition;
use crate::config::FastCgiConfig;
use crate::{ExecError, Executor, SharedScriptLog};
use howdah_proto::level::LogLevel;

/// The state that the front threads and the health checker of a pool share.
pub struct FastCgiShared {
    pub config: FastCgiConfig,
    pub log: SharedScriptLog,
    pub started: Instant,
    balance: Mutex<Balance<BackendConnection>>,
    pub condition: watch::Sender<PoolCondition>,
    /// Notified of a change that the health checker may have to act on.
    pub changed: Notify,
    pub closing: AtomicBool,
    /// The deadline by which a draining pool ends its requests.
    pub drain_deadline: Mutex<Option<Instant>>,
    pub successor: OnceLock<Arc<dyn Executor>>,
    pub failures: [AtomicU64; ExecError::NAMES.len()],
    pub fronts: usize,
    /// Whether a supervisor starts and ends the programs: see [`Balance::set_supervised`].
    pub supervised: bool,
    /// Notified when a request has to wait or breaks off, for the supervisor of the programs.
    pub demand: Notify,
    /// Why the supervisor of the programs cannot start any; `None` when it can.
    pub refusal: Mutex<Option<ExecError>>,
}

impl FastCgiShared {
    pub fn new(
        config: FastCgiConfig,
        log: SharedScriptLog,
        fronts: usize,
        watched: bool,
    ) -> FastCgiShared {
        let weights: Vec<u32> = config.backends.iter().map(|b| b.weight).collect();
        let mut balance = Balance::new(
            &weights,
            config.max_connections,
            config.keep_connections,
            fronts,
        );
        if watched {
            balance.set_supervised();
        }
        FastCgiShared {
            supervised: watched,
            config,
            log,
            started: Instant::now(),
            balance: Mutex::new(balance),
            condition: watch::Sender::new(PoolCondition::Starting),
            changed: Notify::new(),
            closing: AtomicBool::new(false),
            drain_deadline: Mutex::new(None),
            successor: OnceLock::new(),
            failures: [const { AtomicU64::new(0) }; ExecError::NAMES.len()],
            fronts,
            demand: Notify::new(),
            refusal: Mutex::default(),
        }
    }

    pub fn balance(&self) -> MutexGuard<'_, Balance<BackendConnection>> {
        self.balance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the balance, and then calls the wakers that the change has added. A woken task runs on its own thread at
    /// once and must not find the lock taken.
    pub fn with_balance<T>(
        &self,
        change: impl FnOnce(&mut Balance<BackendConnection>, &mut Vec<Waker>) -> T,
    ) -> T {
        let mut wake = Vec::new();
        let result = change(&mut self.balance(), &mut wake);
        wake.into_iter().for_each(Waker::wake);
        if self.closing.load(Ordering::Relaxed) {
            self.changed.notify_one();
        }
        result
    }

    pub fn count_failure(&self, error: &ExecError) {
        self.failures[error.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether the deadline of a draining pool has passed.
    pub fn is_past_drain_deadline(&self, now: Instant) -> bool {
        self.closing.load(Ordering::Relaxed)
            && self
                .drain_deadline
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_some_and(|limit| limit <= now)
    }

    /// Returns the error for a request that no backend can take. With `patience`, backends may be down for
    /// `restart_time` before there is an error.
    pub fn unreachable_error(&self, now: Instant, patience: bool) -> Option<ExecError> {
        if let Some(refusal) = self.refusal() {
            return Some(refusal);
        }
        let balance = self.balance();
        let (since, why) = balance.all_down()?;
        let long = now.saturating_duration_since(since) >= self.config.restart_time;
        (long || !patience).then(|| ExecError::BackendDown {
            message: why.to_owned(),
        })
    }

    /// Returns why no program can be started, or `None` if programs can be.
    pub fn refusal(&self) -> Option<ExecError> {
        let refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        refusal.clone()
    }

    /// Sets the error with which requests are refused from now on, or clears it.
    pub fn set_refusal(&self, refusal: Option<ExecError>) {
        let some = refusal.is_some();
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
        if some {
            self.with_balance(|balance, wake| balance.wake_all(wake));
        }
    }

    /// Logs that a backend is not reachable or sends invalid responses.
    pub fn log_backend_down(&self, backend: usize, why: &str) {
        let address = &self.config.backends[backend].address;
        self.log.pool(
            &self.config.name,
            LogLevel::Warning,
            "BackendDown",
            &format!("{address}: {why}; the backend gets no requests until it responds again"),
        );
        self.changed.notify_one();
    }
}
