//! The scoreboard and the counters of a pool, as data for the status page, `howdah status` and
//! metrics. Field names follow php-fpm's status page where it has one.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ExecError;
use serde::{Deserialize, Serialize};

/// A pool at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolStatus {
    /// Its name.
    pub pool: String,
    /// `static`, `dynamic` or `ondemand`.
    pub process_manager: String,
    /// `Starting`, `Ready`, `Down` with its reason, `Draining`.
    pub state: String,
    /// PHP's version, once known.
    pub php: String,
    /// Whether opcache is on.
    pub opcache: bool,
    /// Seconds since the pool started.
    pub uptime: u64,
    /// Requests taken by a child since the start.
    pub accepted_requests: u64,
    /// Requests waiting for a child now.
    pub queue: u32,
    /// Most that ever waited.
    pub max_queue: u32,
    /// Configured limit.
    pub queue_size: u32,
    /// Children between requests.
    pub idle_processes: u32,
    /// Children running one.
    pub active_processes: u32,
    /// Most that were ever active at once.
    pub max_active_processes: u32,
    /// How often a request had to wait because `max_children` were busy.
    pub max_children_reached: u64,
    /// Requests beyond `request_slowlog_timeout`.
    pub slow_requests: u64,
    /// Failures by their one name.
    pub failures: Vec<(String, u64)>,
    /// A row a child.
    pub children: Vec<ChildRow>,
    /// A row a backend (mode `fastcgi`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendRow>,
}

/// One child of the scoreboard.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChildRow {
    /// Row number.
    pub index: u16,
    /// Process id.
    pub pid: i32,
    /// `Starting`, `Booting` (a worker script before its first request), `Idle`, `Busy`, `Finishing` (after `fastcgi_finish_request()`), `Retiring`,
    /// `Terminating`.
    pub state: String,
    /// Seconds in this state.
    pub since: f64,
    /// Requests done by this process.
    pub requests: u64,
    /// Method, URI and script of the present request.
    pub method: String,
    /// See `method`.
    pub uri: String,
    /// See `method`.
    pub script: String,
    /// Resident memory in bytes at the last look.
    pub memory: u64,
}

/// One backend of a FastCGI pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BackendRow {
    /// As it is configured.
    pub address: String,
    /// Its share of the requests.
    pub weight: u32,
    /// `Up`, `Down`.
    pub state: String,
    /// Seconds it has been down.
    pub since: f64,
    /// Why it is down.
    pub why: String,
    /// Requests it has now.
    pub busy: u32,
    /// Connections kept open without a request.
    pub kept: u32,
    /// Most requests it is given at once, now.
    pub limit: u32,
    /// Requests it has answered.
    pub requests: u64,
    /// Connections made to it.
    pub connects: u64,
    /// Attempts that failed: it could not be reached, broke off, or made no sense.
    pub failures: u64,
    /// Times its backlog was full.
    pub overflows: u64,
}

/// Counters of failures, in the order of [`ExecError::index`], with their names.
pub(crate) fn failures(counters: &[AtomicU64; ExecError::NAMES.len()]) -> Vec<(String, u64)> {
    let named = ExecError::NAMES.iter().zip(counters);
    named
        .map(|(name, count)| ((*name).to_owned(), count.load(Ordering::Relaxed)))
        .collect()
}
