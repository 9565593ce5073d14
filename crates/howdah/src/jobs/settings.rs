//! What the process that runs jobs is given by the master, which has read and checked it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use howdah_server::cache::admin::AdminCommand;
use howdah_server::log::LogTarget;
use serde::{Deserialize, Serialize};

use super::turns::FleetSettings;
use crate::effects::Wrote;

/// Everything that process needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// `[[job]]`
    pub jobs: Vec<Job>,
    /// Where jobs' output and problems are logged.
    pub log: LogTarget,
    /// The least important level written (syslog's numbers).
    pub level: u8,
    /// The file that keeps when schedules last ran.
    pub state: PathBuf,
    /// The fleet whose members share scheduled jobs.
    pub fleet: Option<FleetSettings>,
}

/// `[[job]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its name in log, status and metrics.
    pub name: String,
    /// What is run.
    pub program: Program,
    /// Where.
    pub directory: PathBuf,
    /// As which user; none: as the server.
    pub user: Option<String>,
    /// As which group; none: the user's own.
    pub group: Option<String>,
    /// Variables of its environment.
    pub environment: BTreeMap<String, String>,
    /// Of the server's own environment it gets what it needs alone.
    pub clear_env: bool,
    /// Resident memory of one process, in bytes, above which it is replaced.
    pub max_memory: Option<u64>,
    /// How long one process may run.
    pub timeout: Option<Duration>,
    /// How long a process that is asked to end may take.
    pub stop_timeout: Duration,
    /// When it runs.
    pub when: When,
}

impl Job {
    /// What the page cache is told, of what a process of this job has written and purges.
    pub fn reports(&self, wrote: Wrote) -> Vec<AdminCommand> {
        match &self.program {
            Program::Php {
                pages: Pages::All, ..
            } => vec![wrote.of(None)],
            Program::Php {
                pages: Pages::Of(sites),
                ..
            } => sites.iter().map(|site| wrote.of(Some(site))).collect(),
            Program::Other { .. } => Vec::new(),
        }
    }
}

/// What a job runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// PHP, as `howdah php` runs it: its writes to databases reach the page cache.
    Php {
        /// The path of `howdah-php`.
        program: PathBuf,
        /// Its arguments behind `php`.
        arguments: Vec<OsString>,
        /// Whose pages show what it writes, and may be purged by it.
        pages: Pages,
    },
    /// Any other program.
    Other {
        /// Its path.
        program: PathBuf,
        /// Its arguments.
        arguments: Vec<String>,
    },
}

/// Sites whose pages a job makes old.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pages {
    /// Those of all sites: the job runs as a user who can do as much in any other way.
    All,
    /// Those of these sites.
    Of(Vec<String>),
}

/// When a job runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    /// Always, in so many processes.
    Always {
        /// How many processes run at once.
        processes: u32,
    },
    /// By a schedule.
    Schedule {
        /// The cron expression.
        expression: String,
        /// The time zone's name; none: the server's own.
        time_zone: Option<String>,
        /// It starts up to so much later, by chance.
        jitter: Duration,
        /// In a fleet it runs on each member, not on one.
        on_each: bool,
    },
}

/// What a person asks of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobCommand {
    /// Start it now.
    Run {
        /// The job's name.
        job: String,
    },
    /// Ask its processes to end; one that always runs is not started again.
    Stop {
        /// The job's name.
        job: String,
    },
}

impl JobCommand {
    /// The name of the job.
    pub fn job(&self) -> &str {
        match self {
            JobCommand::Run { job } | JobCommand::Stop { job } => job,
        }
    }
}
