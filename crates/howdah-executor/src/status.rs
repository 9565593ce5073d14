//! The scoreboard and the counters of a pool, as data for the status page, `howdah status` and metrics. Field names
//! follow php-fpm's status page where it has one.

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
    /// `Starting`, `Ready`, `Asleep`, `Down` with its reason, `Draining`, `Closed`.
    pub state: String,
    /// PHP's version; empty until it is known.
    pub php: String,
    /// Whether PHP runs with opcache.
    pub opcache: bool,
    /// Another PHP on disk, which the pool has not taken yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub php_update: Option<PhpUpdateStatus>,
    /// Seconds since the pool started.
    pub uptime: u64,
    /// Requests that children have claimed since the start.
    pub accepted_requests: u64,
    /// Requests that wait for a child now.
    pub queue: u32,
    /// The highest number of requests that have waited at once.
    pub max_queue: u32,
    /// The configured limit of `queue`.
    pub queue_size: u32,
    /// The maximum number of requests that run at once; 0 if it is not known.
    pub max_children: u32,
    /// Children that are waiting for a request.
    pub idle_processes: u32,
    /// Children that are running a request.
    pub active_processes: u32,
    /// The highest number of children that were active at once.
    pub max_active_processes: u32,
    /// How often a request had to wait because `max_children` were busy.
    pub max_children_reached: u64,
    /// Requests that exceeded `request_slowlog_timeout`.
    pub slow_requests: u64,
    /// Children that exited because PHP had bailed out of a request: a fatal error.
    pub bailouts: u64,
    /// The most recent slow requests, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slow: Vec<SlowRow>,
    /// The number of failures since the start, by name.
    pub failures: Vec<(String, u64)>,
    /// The cache that the pool's PHP processes share; `None` without `shared_cache`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_cache: Option<SharedCacheStatus>,
    /// One row for each child.
    pub children: Vec<ChildRow>,
    /// One row for each backend (mode `fastcgi`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendRow>,
}

impl PoolStatus {
    /// Returns whether the pool can run scripts: it is ready, or it will start PHP for the first request.
    pub fn is_up(&self) -> bool {
        matches!(self.state.as_str(), "Ready" | "Asleep")
    }
}

/// A PHP on disk that differs from the one in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhpUpdateStatus {
    /// The version of the program on disk.
    pub version: String,
    /// When the PHP on disk will be used, or why it was not.
    pub state: String,
}

impl PhpUpdateStatus {
    /// Returns the versions in memory and on disk, in words.
    pub fn both_versions(in_memory: &str, on_disk: &str) -> String {
        match in_memory == on_disk {
            true => format!("PHP {in_memory} in memory, changed files on disk"),
            false => format!("PHP {in_memory} in memory, {on_disk} on disk"),
        }
    }
}

/// The shared cache of a pool.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedCacheStatus {
    /// Whether the cache is in use. It is closed while the pool from before a reload finishes its requests.
    pub open: bool,
    /// Capacity for values, in bytes.
    pub size: u64,
    /// The part of `size` that is in use, in bytes.
    pub used: u64,
    /// The number of values, including expired ones whose memory has not been reused yet.
    pub values: u64,
    /// The number of lookups that found a value.
    pub hits: u64,
    /// The number of lookups that found no value.
    pub misses: u64,
    /// The number of values that were evicted before they expired.
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
    /// `Starting`, `Booting` (a worker script before its first request), `Idle`, `Busy`, `Finishing` (after
    /// `fastcgi_finish_request()`), `Retiring`, `Terminating`.
    pub state: String,
    /// Seconds the child has been in this state.
    pub since: f64,
    /// The number of requests that this process has finished.
    pub requests: u64,
    /// Method of the current request.
    pub method: String,
    /// URI of the current request.
    pub uri: String,
    /// Script of the current request.
    pub script: String,
    /// Resident memory in bytes when it was last measured.
    pub memory: u64,
}

/// A request that exceeded `request_slowlog_timeout`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowRow {
    /// When the request's stack was read, in seconds since 1970.
    pub at: u64,
    /// How long the request had run when its stack was read, in seconds.
    pub seconds: f64,
    /// The method of the request.
    pub method: String,
    /// The URI of the request.
    pub uri: String,
    /// The script that ran.
    pub script: String,
    /// PHP's stack, one line for each call.
    pub stack: String,
}

impl SlowRow {
    /// How many slow requests a pool keeps.
    pub(crate) const MAX_ROWS: usize = 10;
    /// The maximum length of a stored stack in bytes.
    pub(crate) const MAX_STACK_BYTES: usize = 4096;
}

/// One backend of a FastCGI pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BackendRow {
    /// The backend's address, as it is configured.
    pub address: String,
    /// The backend's share of the requests, relative to the other backends.
    pub weight: u32,
    /// `Up` or `Down`.
    pub state: String,
    /// How long it has been down, in seconds; 0 when it is up.
    pub since: f64,
    /// Why it is down; empty when it is up.
    pub why: String,
    /// The number of requests that it runs now.
    pub busy: u32,
    /// The number of connections that are kept open without a request.
    pub kept: u32,
    /// The maximum number of requests that it currently receives at once.
    pub limit: u32,
    /// The number of requests that it has served since the start.
    pub requests: u64,
    /// The number of connections made to it since the start.
    pub connects: u64,
    /// The number of failed attempts: it was unreachable, broke off, or sent invalid data.
    pub failures: u64,
    /// How often the backend's backlog was full.
    pub overflows: u64,
}

/// Pairs each counter, in the order of [`ExecError::index`], with the name of its failure.
pub(crate) fn failures(counters: &[AtomicU64; ExecError::NAMES.len()]) -> Vec<(String, u64)> {
    let named = ExecError::NAMES.iter().zip(counters);
    named
        .map(|(name, count)| ((*name).to_owned(), count.load(Ordering::Relaxed)))
        .collect()
}
