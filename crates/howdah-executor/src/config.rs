//! What a pool is configured with. Made by the config reader, which has checked it; the words are
//! php-fpm's where php-fpm has one.

use std::path::PathBuf;
use std::time::Duration;

/// Most children a pool can be configured with: the scoreboard has 1024 rows, and some must be
/// left for replacements.
pub const MAX_CHILDREN: u32 = 1000;

/// How many children a pool keeps (php-fpm's `pm`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessManager {
    /// Always `max_children`.
    Static,
    /// Between spares, never above `max_children`.
    Dynamic {
        /// Children at start.
        start_servers: u32,
        /// Fork when fewer are idle.
        min_spare_servers: u32,
        /// Retire when more are idle.
        max_spare_servers: u32,
    },
    /// None at rest; forked as requests come.
    Ondemand,
}

/// A pool: one zygote, one user, one php.ini.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Its name in logs and status.
    pub name: String,
    /// The `howdah-php` binary.
    pub program: PathBuf,
    /// How many children.
    pub pm: ProcessManager,
    /// Most children serving at once (`auto`: [`crate::auto_children`]; at most
    /// [`MAX_CHILDREN`]). During a replacement one more may live for a moment.
    pub max_children: u32,
    /// An idle child above the spares leaves after this long (`ondemand`, `dynamic`).
    pub process_idle_timeout: Duration,
    /// A child is replaced after this many requests, give or take 10 % so that not all leave at
    /// once; 0: never.
    pub max_requests: u64,
    /// A child whose resident memory exceeds this many bytes is replaced between requests.
    pub max_memory: Option<u64>,
    /// Most requests waiting for a child; beyond it: 503 `QueueFull`.
    pub queue_size: u32,
    /// Longest wait for a child; after it: 503 `QueueTimeout`.
    pub queue_timeout: Duration,
    /// Longest wall-clock time of a request, from its claim; then the child is killed: 504
    /// `TerminateTimeout`.
    pub request_terminate_timeout: Option<Duration>,
    /// A request running longer than this has its PHP stack written to the slow log.
    pub request_slowlog_timeout: Option<Duration>,
    /// `--php-ini`; `None`: PHP's own search.
    pub php_ini: Option<PathBuf>,
    /// `-d name=value`, in order.
    pub defines: Vec<(String, String)>,
    /// `opcache = on | off`
    pub opcache: bool,
    /// Run the children as this user (needs a master that may).
    pub user: Option<String>,
    /// … and this group; the user's own if absent.
    pub group: Option<String>,
    /// Environment of the processes, on top of (or, with `clear_env`, instead of) the server's.
    pub environment: Vec<(String, String)>,
    /// php-fpm's `clear_env`: start from an empty environment (PATH is kept).
    pub clear_env: bool,
}
