//! The settings that the master sends to the process that runs jobs. The master has read and checked them.

use std::path::PathBuf;

use howdah_config::job_settings::{InvalidatedPages, JobProgram, JobSettings};
use howdah_log::log::LogTarget;
use howdah_server::cache::admin::AdminCommand;
use serde::{Deserialize, Serialize};

use super::run_claims::FleetSettings;
use crate::effects::EffectsReport;

/// All settings of that process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRunnerSettings {
    /// `[[job]]`
    pub jobs: Vec<JobSettings>,
    /// The log for the output and the problems of jobs.
    pub log: LogTarget,
    /// The least important level that is logged (syslog's numbers).
    pub level: u8,
    /// The file that stores when schedules last ran.
    pub state: PathBuf,
    /// The fleet whose members share scheduled jobs.
    pub fleet: Option<FleetSettings>,
}

/// A command of an administrator for a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobControlCommand {
    /// Start it now.
    Run {
        /// The job's name.
        job: String,
    },
    /// Ask the processes to end. A job that always runs is not started again.
    Stop {
        /// The job's name.
        job: String,
    },
}

impl JobControlCommand {
    /// Returns the name of the job.
    pub fn job(&self) -> &str {
        match self {
            JobControlCommand::Run { job } | JobControlCommand::Stop { job } => job,
        }
    }
}

/// Returns the reports to the page cache about the writes and purges of a process of this job.
pub fn reports(job: &JobSettings, wrote: EffectsReport) -> Vec<AdminCommand> {
    match &job.program {
        JobProgram::Php {
            pages: InvalidatedPages::All,
            ..
        } => vec![wrote.command_for(None)],
        JobProgram::Php {
            pages: InvalidatedPages::Of(sites),
            ..
        } => sites
            .iter()
            .map(|site| wrote.command_for(Some(site)))
            .collect(),
        JobProgram::Other { .. } => Vec::new(),
    }
}
