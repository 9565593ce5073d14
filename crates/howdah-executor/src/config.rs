//! The configuration of a pool, checked by the config reader. Names are php-fpm's where it has one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use strum::IntoStaticStr;

use crate::fastcgi::address::Backend;

/// Most children a pool can be configured with: the scoreboard has 1024 rows, and some must be
/// left for replacements.
pub const MAX_CHILDREN: u32 = 1000;

/// How many children a pool keeps (php-fpm's `pm`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum ProcessManager {
    /// The pool always keeps `max_children` children.
    #[default]
    Static,
    /// Between spares, never above `max_children`.
    Dynamic {
        /// Children forked when the pool starts.
        start_servers: u32,
        /// The pool forks children when fewer than this are idle.
        min_spare_servers: u32,
        /// The pool retires children when more than this are idle.
        max_spare_servers: u32,
    },
    /// The pool keeps no children at rest and forks them as requests come.
    Ondemand,
}

impl ProcessManager {
    /// The word that selects it in the configuration, and names it in the status.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// A pool by the mode that runs its scripts: the one word of configuration that is switched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// PHP in forked processes of our own; mode `worker` where [`PoolConfig::worker`] is set.
    Embed(PoolConfig),
    /// FastCGI backends: php-fpm, php-cgi, any responder.
    FastCgi(FastCgiConfig),
    /// A process for each request.
    Cgi(CgiConfig),
    /// FastCGI programs that are started and watched here.
    Pool(ProgramPoolConfig),
}

impl Mode {
    /// The word that selects this mode in the configuration.
    pub fn word(&self) -> &'static str {
        match self {
            Mode::Embed(config) if config.worker.is_some() => "worker",
            Mode::Embed(_) => "embed",
            Mode::FastCgi(_) => "fastcgi",
            Mode::Cgi(_) => "cgi",
            Mode::Pool(_) => "pool",
        }
    }

    /// The pool's name in logs and status.
    pub fn name(&self) -> &str {
        match self {
            Mode::Embed(config) => &config.name,
            Mode::FastCgi(config) => &config.name,
            Mode::Cgi(config) => &config.name,
            Mode::Pool(config) => &config.name,
        }
    }

    /// The user that PHP runs as; none: the server's, or in mode `fastcgi` the backend's.
    pub fn user(&self) -> Option<&str> {
        match self {
            Mode::Embed(config) => config.user.as_deref(),
            Mode::Cgi(config) => config.identity.user.as_deref(),
            Mode::Pool(config) => config.identity.user.as_deref(),
            Mode::FastCgi(_) => None,
        }
    }

    /// The `howdah-php` program, for modes that need it.
    pub fn howdah_php(&self) -> Option<&Path> {
        match self {
            Mode::Embed(config) => Some(&config.program),
            Mode::FastCgi(_) | Mode::Cgi(_) | Mode::Pool(_) => None,
        }
    }
}

/// What a pool of workers is configured with beyond other pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerConfig {
    /// The script each child boots, absolute.
    pub script: PathBuf,
}

/// How long a pool's processes may take to start, to fork and to end. `Default` is a blank form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTimeouts {
    /// For PHP's module startup, preloading included; then the zygote is killed: `StartTimeout`.
    pub start: Duration,
    /// From a fork command to its answer; then the zygote is killed: `ZygoteStuck`.
    pub fork: Duration,
    /// For children to finish their requests when the front is gone; then they are killed.
    pub shutdown: Duration,
}

impl ProcessTimeouts {
    /// Values for tests, benchmarks and examples, which have no options.
    #[doc(hidden)]
    pub fn for_tests() -> ProcessTimeouts {
        ProcessTimeouts {
            start: Duration::from_secs(60),
            fork: Duration::from_secs(10),
            shutdown: Duration::from_secs(60),
        }
    }
}

/// An embed pool: one zygote, one user, one php.ini. `Default` is the blank form that the options fill in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolConfig {
    /// Its name in logs and status.
    pub name: String,
    /// Path of the `howdah-php` program.
    pub program: PathBuf,
    /// How many children the pool keeps.
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
    /// Bytes of the cache that the pool's PHP shares (`howdah_cache_set()`); none: there is none.
    pub shared_cache: Option<u64>,
    /// Most requests waiting for a child; beyond it: 503 `QueueFull`.
    pub queue_size: u32,
    /// Longest wait for a child; after it: 503 `QueueTimeout`.
    pub queue_timeout: Duration,
    /// Longest wall-clock time of a request, from its claim; then the child is killed: 504
    /// `TerminateTimeout`.
    pub request_terminate_timeout: Option<Duration>,
    /// The limit also holds for what a script does once its response is complete: after
    /// `fastcgi_finish_request()`, in shutdown functions and destructors. Otherwise it holds for that only
    /// from when the child is to leave.
    pub track_finished: bool,
    /// A request running longer than this has its PHP stack written to the slow log.
    pub request_slowlog_timeout: Option<Duration>,
    /// The php.ini to read; `None`: the one that PHP finds by its own search.
    pub php_ini: Option<PathBuf>,
    /// Settings in the order they are given, as `-d name=value` on PHP's command line.
    pub defines: Vec<(String, String)>,
    /// Whether `defines` leave opcache on: where they do not, nobody needs a warning that it is off.
    pub opcache: bool,
    /// Run the children as this user (needs a master that may).
    pub user: Option<String>,
    /// … and this group; the user's own if absent.
    pub group: Option<String>,
    /// Environment of the processes, on top of (or, with `clear_env`, instead of) the server's.
    pub environment: Vec<(String, String)>,
    /// php-fpm's `clear_env`: start from an empty environment (PATH is kept).
    pub clear_env: bool,
    /// Patterns of files; when one changes a zygote with a fresh opcache is started and all children
    /// are replaced by its. Relative ones count from the worker script's directory; without a worker
    /// script they are absolute.
    pub watch: Vec<String>,
    /// The worker script that each child boots once for many requests; none: each request names
    /// its own script.
    pub worker: Option<WorkerConfig>,
    /// How long its processes may take to start, to fork and to end.
    pub timeouts: ProcessTimeouts,
}

/// A FastCGI pool: its backends are started and stopped by others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCgiConfig {
    /// Its name in logs and status.
    pub name: String,
    /// Where they listen; at least one.
    pub backends: Vec<Backend>,
    /// Most connections to each backend: what it can run at once (php-fpm's `pm.max_children`).
    /// `None`: the backend is asked, or the limit is found by trial; unless the backend says it, no
    /// connection is kept.
    pub max_connections: Option<u32>,
    /// Keep connections for further requests, where the limit is known.
    pub keep_connections: bool,
    /// How long a connection is kept without a request: each holds a PHP process.
    pub keep_timeout: Duration,
    /// Most requests waiting; beyond it: 503 `QueueFull`.
    pub queue_size: u32,
    /// Longest wait for a backend; after it: 503 `QueueTimeout`, or `BackendDown`.
    pub queue_timeout: Duration,
    /// Longest time of a request on its backend; then the connection is closed: 504
    /// `TerminateTimeout`.
    pub request_terminate_timeout: Option<Duration>,
    /// Longest time an attempt to connect may take.
    pub connect_timeout: Duration,
    /// Longest time without progress in sending a request: 504 `BackendTimeout`.
    pub send_timeout: Duration,
    /// Longest silence of the backend: 504 `BackendTimeout`.
    pub read_timeout: Option<Duration>,
    /// How long all backends may be away, as in a restart, before requests are refused at once.
    pub restart_time: Duration,
    /// Directories here, and what they are called where the scripts run.
    pub script_root: Vec<(String, String)>,
}

impl Default for FastCgiConfig {
    /// The blank form that the options fill in, with what nobody needs to set: an idle connection is kept
    /// for one second, since php-fpm counts its process as active meanwhile; sending may pause for as
    /// long as nginx' `fastcgi_send_timeout`; and php-fpm restarts within a few seconds.
    fn default() -> FastCgiConfig {
        FastCgiConfig {
            name: String::new(),
            backends: Vec::new(),
            max_connections: None,
            keep_connections: false,
            keep_timeout: Duration::from_secs(1),
            queue_size: 0,
            queue_timeout: Duration::ZERO,
            request_terminate_timeout: None,
            connect_timeout: Duration::from_secs(5),
            send_timeout: Duration::from_secs(60),
            read_timeout: None,
            restart_time: Duration::from_secs(10),
            script_root: Vec::new(),
        }
    }
}

/// The user, group and environment that the programs of a pool run with (modes `cgi` and `pool`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramIdentity {
    /// Run the programs as this user (needs a master that may).
    pub user: Option<String>,
    /// … and this group; the user's own if absent.
    pub group: Option<String>,
    /// Their environment, on top of (or, with `clear_env`, instead of) the server's.
    pub environment: Vec<(String, String)>,
    /// Start from an empty environment (PATH is kept).
    pub clear_env: bool,
}

/// PHP's settings for a PHP that is started, rather than linked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramIni {
    /// php.ini in place of the one PHP would find.
    pub php_ini: Option<PathBuf>,
    /// `name = value`, as on PHP's command line (`-d`), in order.
    pub defines: Vec<(String, String)>,
}

/// A pool of mode `cgi`: a process for each request. `Default` is the blank form that the options fill in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgiConfig {
    /// Its name in logs and status.
    pub name: String,
    /// The program that runs the site's PHP scripts, and its arguments.
    pub command: Vec<String>,
    /// The user, group and environment the programs run with.
    pub identity: ProgramIdentity,
    /// php.ini and settings of the PHP that the programs run.
    pub ini: ProgramIni,
    /// Most programs at once (at most [`MAX_CHILDREN`]).
    pub max_children: u32,
    /// Most requests waiting; beyond it: 503 `QueueFull`.
    pub queue_size: u32,
    /// Longest wait; after it: 503 `QueueTimeout`.
    pub queue_timeout: Duration,
    /// Longest wall-clock time of a program; then its process group is ended: 504
    /// `TerminateTimeout`.
    pub request_terminate_timeout: Option<Duration>,
    /// How long the spawner may not answer; then it is killed: `SpawnerStuck`.
    pub spawner_timeout: Duration,
}

/// How the requests of a pool of FastCGI programs are spread over processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processes {
    /// One program, which forks `max_children` children itself (`PHP_FCGI_CHILDREN`): they share
    /// one opcache. Its children cannot be distinguished from outside, so the program is replaced
    /// as a whole.
    #[default]
    Shared,
    /// Up to `max_children` programs, each with an opcache of its own.
    Independent {
        /// Most requests a program is given at once (php-cgi takes 1).
        connections: u32,
    },
}

/// A pool of mode `pool`: FastCGI programs that are started and watched here. `Default` is the blank form
/// that the options fill in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramPoolConfig {
    /// Its name in logs and status.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Whether one program serves all requests, or each of several its share.
    pub processes: Processes,
    /// The user, group and environment the programs run with.
    pub identity: ProgramIdentity,
    /// php.ini and settings of the PHP that the programs run.
    pub ini: ProgramIni,
    /// How many programs ([`Processes::Independent`]).
    pub pm: ProcessManager,
    /// Most programs, or children of the one program.
    pub max_children: u32,
    /// An idle program above the spares leaves after this long.
    pub process_idle_timeout: Duration,
    /// A program is replaced after this many requests, its replacement first; 0: never. For
    /// [`Processes::Shared`] PHP counts, child by child (`PHP_FCGI_MAX_REQUESTS`).
    pub max_requests: u64,
    /// A program with more resident memory is replaced between requests.
    pub max_memory: Option<u64>,
    /// How long the spawner may not answer; then it is killed: `SpawnerStuck`.
    pub spawner_timeout: Duration,
    /// How the front connects to the programs: queue and time-outs as in mode `fastcgi`. It has no
    /// addresses.
    pub client: FastCgiConfig,
}
