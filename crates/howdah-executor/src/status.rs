//! The scoreboard and the counters of a pool, as data for the status page, `howdah status` and
//! metrics. Field names follow php-fpm's status page where it has one.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ExecError;
use serde::{Deserialize, Serialize};

/// The scoreboard and counters of one pool at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolStatus {
    /// The pool's name.
    pub pool: String,
    /// `static`, `dynamic` or `ondemand`.
    pub process_manager: String,
    /// `Starting`, `Ready`, `Down` with its reason, `Draining`.
    pub state: String,
    /// PHP's version; empty until it is known.
    pub php: String,
    /// Whether PHP runs with opcache.
    pub opcache: bool,
    /// Seconds since the pool started.
    pub uptime: u64,
    /// Requests taken by a child since the start.
    pub accepted_requests: u64,
    /// Requests waiting for a child now.
    pub queue: u32,
    /// Most requests that ever waited at once.
    pub max_queue: u32,
    /// The configured limit of `queue`.
    pub queue_size: u32,
    /// Most requests that run at once; 0: not known.
    pub max_children: u32,
    /// Children that wait for a request.
    pub idle_processes: u32,
    /// Children that run a request.
    pub active_processes: u32,
    /// Most that were ever active at once.
    pub max_active_processes: u32,
    /// How often a request had to wait because `max_children` were busy.
    pub max_children_reached: u64,
    /// Requests beyond `request_slowlog_timeout`.
    pub slow_requests: u64,
    /// Children that left because PHP had bailed out of a request: a fatal error.
    pub bailouts: u64,
    /// The slow requests that came last, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slow: Vec<SlowRow>,
    /// Number of failures since the start, by their one name.
    pub failures: Vec<(String, u64)>,
    /// What its PHP shares; none without `shared_cache`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_cache: Option<SharedCacheStatus>,
    /// One row for each child.
    pub children: Vec<ChildRow>,
    /// One row for each backend (mode `fastcgi`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendRow>,
}

impl PoolStatus {
    /// Whether the pool can run scripts: it does, or starts PHP for the first request.
    pub fn is_up(&self) -> bool {
        matches!(self.state.as_str(), "Ready" | "Asleep")
    }
}

/// The shared cache of a pool.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedCacheStatus {
    /// Whether it is used: not while the pool before a reload finishes its requests.
    pub open: bool,
    /// Bytes for values.
    pub size: u64,
    /// Of them, in use.
    pub used: u64,
    /// Values, also such as have expired and made no room yet.
    pub values: u64,
    /// Questions that were answered with a value.
    pub hits: u64,
    /// Questions that were not.
    pub misses: u64,
    /// Values that made room for others before they expired.
    pub evicted: u64,
}

/// One child of the scoreboard.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChildRow {
    /// Index of the child's row in the scoreboard.
    pub index: u16,
    /// The child's process id.
    pub pid: i32,
    /// `Starting`, `Booting` (a worker script before its first request), `Idle`, `Busy`, `Finishing` (after `fastcgi_finish_request()`), `Retiring`,
    /// `Terminating`.
    pub state: String,
    /// Seconds the child has been in this state.
    pub since: f64,
    /// Requests done by this process.
    pub requests: u64,
    /// Method, URI and script of the present request.
    pub method: String,
    /// URI of the present request.
    pub uri: String,
    /// Script of the present request.
    pub script: String,
    /// Resident memory in bytes at the last look.
    pub memory: u64,
}

/// A request beyond `request_slowlog_timeout`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowRow {
    /// When its stack was read: seconds since 1970.
    pub at: u64,
    /// Seconds that it had run by then.
    pub seconds: f64,
    /// The method of its request.
    pub method: String,
    /// Its URI.
    pub uri: String,
    /// The script that ran.
    pub script: String,
    /// PHP's stack, a line for each call.
    pub stack: String,
}

impl SlowRow {
    /// How many a pool keeps.
    pub(crate) const KEPT: usize = 10;
    /// The longest stack that is kept, in bytes.
    pub(crate) const LONGEST_STACK: usize = 4096;
}

/// One backend of a FastCGI pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BackendRow {
    /// The backend's address, as it is configured.
    pub address: String,
    /// Its share of the requests, relative to the other backends.
    pub weight: u32,
    /// `Up` or `Down`.
    pub state: String,
    /// Seconds it has been down; 0 when it is up.
    pub since: f64,
    /// Why it is down; empty when it is up.
    pub why: String,
    /// Requests it runs now.
    pub busy: u32,
    /// Connections kept open without a request.
    pub kept: u32,
    /// Most requests it is given at once, now.
    pub limit: u32,
    /// Requests it has answered since the start.
    pub requests: u64,
    /// Connections made to it since the start.
    pub connects: u64,
    /// Attempts that failed: it could not be reached, broke off, or made no sense.
    pub failures: u64,
    /// Times the backend's backlog was full.
    pub overflows: u64,
}

/// Counters of failures, in the order of [`ExecError::index`], with their names.
pub(crate) fn failures(counters: &[AtomicU64; ExecError::NAMES.len()]) -> Vec<(String, u64)> {
    let named = ExecError::NAMES.iter().zip(counters);
    named
        .map(|(name, count)| ((*name).to_owned(), count.load(Ordering::Relaxed)))
        .collect()
}
