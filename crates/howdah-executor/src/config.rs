//! The configuration of a pool, after the config reader has checked it. Names are php-fpm's where php-fpm has one.

use std::path::PathBuf;
use std::time::Duration;

use strum::IntoStaticStr;

use howdah_proto::backend_address::FastCgiBackend;

use crate::PhpProgram;

/// The maximum number of children that a pool can be configured with. The scoreboard has 1024 rows, and some must be
/// left for replacements.
pub const MAX_CHILDREN: u32 = 1000;

/// How many children a pool runs (php-fpm's `pm`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum ProcessManager {
    /// The pool always runs `max_children` children.
    #[default]
    Static,
    /// The number of idle children stays between the two spare limits, and the total never exceeds `max_children`.
    Dynamic {
        /// The number of children forked when the pool starts.
        start_servers: u32,
        /// The pool forks children when fewer than this are idle.
        min_spare_servers: u32,
        /// The pool retires children when more than this are idle.
        max_spare_servers: u32,
    },
    /// The pool runs no idle children and forks children as requests arrive.
    Ondemand,
}

impl ProcessManager {
    /// Returns the word that selects it in the configuration, which the status also shows.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// A pool's configuration by the mode that runs its scripts. The mode is chosen by one word in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// PHP in processes that this server forks. It is mode `worker` if [`PoolConfig::worker`] is set.
    Embed(PoolConfig),
    /// FastCGI backends: php-fpm, php-cgi, any responder.
    FastCgi(FastCgiConfig),
    /// A process for each request.
    Cgi(CgiConfig),
    /// FastCGI programs that this server starts and supervises.
    Pool(ProgramPoolConfig),
}

impl PoolMode {
    /// Returns the word that selects this mode in the configuration.
    pub fn word(&self) -> &'static str {
        match self {
            PoolMode::Embed(config) if config.worker.is_some() => "worker",
            PoolMode::Embed(_) => "embed",
            PoolMode::FastCgi(_) => "fastcgi",
            PoolMode::Cgi(_) => "cgi",
            PoolMode::Pool(_) => "pool",
        }
    }

    /// Returns the pool's name in logs and status.
    pub fn name(&self) -> &str {
        match self {
            PoolMode::Embed(config) => &config.name,
            PoolMode::FastCgi(config) => &config.name,
            PoolMode::Cgi(config) => &config.name,
            PoolMode::Pool(config) => &config.name,
        }
    }

    /// Returns the user that PHP runs as. `None` means the server's user, or in mode `fastcgi` the backend's.
    pub fn user(&self) -> Option<&str> {
        match self {
            PoolMode::Embed(config) => config.user.as_deref(),
            PoolMode::Cgi(config) => config.identity.user.as_deref(),
            PoolMode::Pool(config) => config.identity.user.as_deref(),
            PoolMode::FastCgi(_) => None,
        }
    }

    /// Returns the PHP program that hosts the pool, for modes that need one.
    pub fn php_program(&self) -> Option<&PhpProgram> {
        match self {
            PoolMode::Embed(config) => Some(&config.program),
            PoolMode::FastCgi(_) | PoolMode::Cgi(_) | PoolMode::Pool(_) => None,
        }
    }
}

/// The part of the configuration that only a pool of workers has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerConfig {
    /// Absolute path of the script that each child boots.
    pub script: PathBuf,
}

/// How long a pool's processes may take to start, to fork and to exit. The values of `Default` are placeholders, which
/// the options replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTimeouts {
    /// The maximum time for PHP's module startup including preloading. After it the zygote is killed: `StartTimeout`.
    pub start: Duration,
    /// The maximum time from a fork command to its reply. After it the zygote is killed: `ZygoteStuck`.
    pub fork: Duration,
    /// The maximum time for children to finish their requests when the front is gone. After it they are killed.
    pub shutdown: Duration,
}

impl ProcessTimeouts {
    /// Returns values for tests, benchmarks and examples, which have no options.
    #[doc(hidden)]
    pub fn for_tests() -> ProcessTimeouts {
        ProcessTimeouts {
            start: Duration::from_secs(60),
            fork: Duration::from_secs(10),
            shutdown: Duration::from_secs(60),
        }
    }
}

/// An embed pool: one zygote, one user, one php.ini. The values of `Default` are placeholders, which the options
/// replace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolConfig {
    /// The pool's name in logs and status.
    pub name: String,
    /// The PHP program that hosts the pool.
    pub program: PhpProgram,
    /// How many children the pool runs.
    pub pm: ProcessManager,
    /// The maximum number of children that serve at once (`auto`: [`crate::auto_children`]; at most [`MAX_CHILDREN`]).
    /// During a replacement one more may live briefly.
    pub max_children: u32,
    /// An idle child above the spares exits after this time (`ondemand`, `dynamic`).
    pub process_idle_timeout: Duration,
    /// A child is replaced after this many requests. 0 means never. A worker child asks for its replacement up to 10 %
    /// earlier, since its script has to boot.
    pub max_requests: u64,
    /// A child whose resident memory exceeds this many bytes is replaced between requests.
    pub max_memory: Option<u64>,
    /// The size in bytes of the cache that the pool's PHP processes share (`howdah_cache_set()`), or `None` if there is
    /// no such cache.
    pub shared_cache: Option<u64>,
    /// The maximum number of requests that wait for a child. Further requests are refused with 503 `QueueFull`.
    pub queue_size: u32,
    /// The maximum wait for a child. After it, the response is 503 `QueueTimeout`.
    pub queue_timeout: Duration,
    /// The maximum wall-clock time of a request, from the moment a child claims it. After it, the child is killed, and
    /// the response is 504 `TerminateTimeout`.
    pub request_terminate_timeout: Option<Duration>,
    /// Whether `request_terminate_timeout` also applies to the script's work after its response is complete: after
    /// `fastcgi_finish_request()`, in shutdown functions and destructors. Otherwise the limit applies to that work only
    /// once the child has been asked to exit.
    pub track_finished: bool,
    /// The PHP stack of a request that runs longer than this is written to the slow log.
    pub request_slowlog_timeout: Option<Duration>,
    /// The php.ini to read. `None` means that PHP searches for one itself.
    pub php_ini: Option<PathBuf>,
    /// Settings in the order in which they are given, like `-d name=value` on PHP's command line.
    pub defines: Vec<(String, String)>,
    /// Whether `defines` leave opcache on. If they turn it off, the log needs no warning that opcache is off.
    pub opcache: bool,
    /// The user to run the children as (needs a master with that privilege).
    pub user: Option<String>,
    /// The group to run the children as. `None` means the user's own group.
    pub group: Option<String>,
    /// The environment of the processes, added to the server's (or, with `clear_env`, replacing it).
    pub environment: Vec<(String, String)>,
    /// php-fpm's `clear_env`: start from an empty environment, in which only PATH, PHPRC and PHP_INI_SCAN_DIR are kept.
    pub clear_env: bool,
    /// Patterns of files to watch. When a file changes, a zygote with a fresh opcache is started, and its children
    /// replace all present ones. Relative patterns count from the worker script's directory; without a worker script,
    /// patterns are absolute.
    pub watch: Vec<String>,
    /// The worker script that each child boots once for many requests. `None` means that each request names its own
    /// script.
    pub worker: Option<WorkerConfig>,
    /// How long the pool's processes may take to start, to fork and to exit.
    pub timeouts: ProcessTimeouts,
}

/// A FastCGI pool. Its backends are not started or stopped by this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCgiConfig {
    /// The pool's name in logs and status.
    pub name: String,
    /// The addresses on which the backends listen; at least one.
    pub backends: Vec<FastCgiBackend>,
    /// The maximum number of connections to each backend: the number of requests it can run at once (php-fpm's
    /// `pm.max_children`). `None` means that the backend is asked, or that the limit is found by trial; connections are
    /// then kept open only if the backend has stated its limit.
    pub max_connections: Option<u32>,
    /// Whether to keep connections open for further requests, where the limit is known.
    pub keep_connections: bool,
    /// How long a connection is kept open without a request. Each one occupies a PHP process.
    pub keep_timeout: Duration,
    /// The maximum number of waiting requests. Further requests are refused with 503 `QueueFull`.
    pub queue_size: u32,
    /// The maximum wait for a backend. After it, the response is 503 `QueueTimeout` or `BackendDown`.
    pub queue_timeout: Duration,
    /// The maximum time of a request on its backend. After it, the connection is closed, and the response is 504
    /// `TerminateTimeout`.
    pub request_terminate_timeout: Option<Duration>,
    /// The maximum time of an attempt to connect.
    pub connect_timeout: Duration,
    /// The maximum time without progress while a request is sent. After it, the response is 504 `BackendTimeout`.
    pub send_timeout: Duration,
    /// The maximum time without output from the backend. After it, the response is 504 `BackendTimeout`.
    pub read_timeout: Option<Duration>,
    /// How long all backends may be away, for example during a restart, before requests are refused at once.
    pub restart_time: Duration,
    /// Pairs of a directory here and its path where the scripts run.
    pub script_root: Vec<(String, String)>,
}

impl Default for FastCgiConfig {
    /// Defaults for the values that rarely need to be set; the options fill in the others. An idle connection is kept
    /// open for one second, since php-fpm counts its process as active meanwhile. Sending may pause for as long as
    /// nginx's `fastcgi_send_timeout`. php-fpm restarts within a few seconds.
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

/// The user, group and environment with which the programs of a pool run (modes `cgi` and `pool`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramIdentity {
    /// The user to run the programs as (needs a master with that privilege).
    pub user: Option<String>,
    /// The group to run the programs as. `None` means the user's own group.
    pub group: Option<String>,
    /// The environment of the programs, added to the server's (or, with `clear_env`, replacing it).
    pub environment: Vec<(String, String)>,
    /// Start from an empty environment, in which only PATH, PHPRC and PHP_INI_SCAN_DIR are kept.
    pub clear_env: bool,
}

/// PHP settings for a PHP that is started as a program, not linked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramIni {
    /// The php.ini to use instead of the one that PHP would find.
    pub php_ini: Option<PathBuf>,
    /// `name = value` settings in order, like `-d` on PHP's command line.
    pub defines: Vec<(String, String)>,
}

/// A pool of mode `cgi`: one process for each request. The values of `Default` are placeholders, which the options
/// replace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgiConfig {
    /// The pool's name in logs and status.
    pub name: String,
    /// The program that runs the site's PHP scripts, and its arguments.
    pub command: Vec<String>,
    /// The user, group and environment the programs run with.
    pub identity: ProgramIdentity,
    /// php.ini and settings of the PHP that the programs run.
    pub ini: ProgramIni,
    /// The maximum number of programs at once (at most [`MAX_CHILDREN`]).
    pub max_children: u32,
    /// The maximum number of waiting requests. Further requests are refused with 503 `QueueFull`.
    pub queue_size: u32,
    /// The maximum wait for a program. After it, the response is 503 `QueueTimeout`.
    pub queue_timeout: Duration,
    /// The maximum wall-clock time of a program. After it, the program's process group is terminated, and the response
    /// is 504 `TerminateTimeout`.
    pub request_terminate_timeout: Option<Duration>,
    /// The maximum time without a response from the spawner. After it, the spawner is killed (`SpawnerStuck`).
    pub spawner_timeout: Duration,
}

/// How the requests of a pool of FastCGI programs are distributed over processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processes {
    /// One program, which forks `max_children` children itself (`PHP_FCGI_CHILDREN`). The children share one opcache.
    /// They cannot be distinguished from outside, so the program is replaced as a whole.
    #[default]
    Shared,
    /// Up to `max_children` programs, each with an opcache of its own.
    Independent {
        /// The maximum number of requests that a program gets at once (php-cgi takes 1).
        connections: u32,
    },
}

/// A pool of mode `pool`: FastCGI programs that this server starts and supervises. The values of `Default` are
/// placeholders, which the options replace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramPoolConfig {
    /// The pool's name in logs and status.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Whether one program serves all requests, or several programs share them.
    pub processes: Processes,
    /// The user, group and environment the programs run with.
    pub identity: ProgramIdentity,
    /// php.ini and settings of the PHP that the programs run.
    pub ini: ProgramIni,
    /// How many programs run ([`Processes::Independent`]).
    pub pm: ProcessManager,
    /// The maximum number of programs, or of children of the one program.
    pub max_children: u32,
    /// An idle program above the spares exits after this time.
    pub process_idle_timeout: Duration,
    /// A program is replaced after this many requests; the replacement starts first. 0 means never. With
    /// [`Processes::Shared`], PHP counts for each child (`PHP_FCGI_MAX_REQUESTS`).
    pub max_requests: u64,
    /// A program whose resident memory exceeds this many bytes is replaced between requests.
    pub max_memory: Option<u64>,
    /// The maximum time without a response from the spawner. After it, the spawner is killed (`SpawnerStuck`).
    pub spawner_timeout: Duration,
    /// How the front connects to the programs: queue and timeouts as in mode `fastcgi`. It contains no addresses.
    pub client: FastCgiConfig,
}
