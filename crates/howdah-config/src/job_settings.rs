//! `[[job]]`: a background job, as configured.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use howdah_executor::PhpProgram;
use serde::{Deserialize, Serialize};

/// `[[job]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSettings {
    /// The job's name in log, status and metrics.
    pub name: String,
    /// The program to run.
    pub program: JobProgram,
    /// The working directory.
    pub directory: PathBuf,
    /// The user that the job runs as; `None` for the server's user.
    pub user: Option<String>,
    /// The group that the job runs as; `None` for the user's own group.
    pub group: Option<String>,
    /// The variables of the job's environment.
    pub environment: BTreeMap<String, String>,
    /// Whether the job gets only the necessary variables of the server's own environment.
    pub clear_env: bool,
    /// The resident memory above which a process is replaced, in bytes.
    pub max_memory: Option<u64>,
    /// How long a process may run.
    pub timeout: Option<Duration>,
    /// How long a process may take to end after it was asked to.
    pub stop_timeout: Duration,
    /// When it runs.
    pub when: JobTiming,
}

/// The program that a job runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobProgram {
    /// PHP, run as by `howdah php`: its writes to databases are reported to the page cache.
    Php {
        /// The PHP program that hosts it.
        program: PhpProgram,
        /// The arguments after `php`.
        arguments: Vec<OsString>,
        /// The sites whose pages depend on its writes and may be purged by it.
        pages: InvalidatedPages,
    },
    /// Any other program.
    Other {
        /// The path of the program.
        program: PathBuf,
        /// The arguments of the program.
        arguments: Vec<String>,
    },
}

/// The sites whose pages a job invalidates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InvalidatedPages {
    /// The pages of all sites: the user of the job could invalidate them in other ways, too.
    All,
    /// The pages of these sites.
    Of(Vec<String>),
}

/// When a job runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobTiming {
    /// Always, in this many processes.
    Always {
        /// The number of processes that run at the same time.
        processes: u32,
    },
    /// By a schedule.
    Schedule {
        /// The cron expression.
        expression: String,
        /// The name of the time zone; `None` for the server's own.
        time_zone: Option<String>,
        /// The maximum random delay of a start.
        jitter: Duration,
        /// Whether, in a fleet, the job runs on each member instead of on one.
        on_each: bool,
    },
}
