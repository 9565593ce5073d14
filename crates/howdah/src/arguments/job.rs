//! `howdah job`

use clap::{Args, Subcommand};

use super::Target;

/// `howdah job`
#[derive(Args, Debug)]
pub struct Job {
    /// What to do.
    #[command(subcommand)]
    pub command: JobCommand,
}

/// What `howdah job` can do.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Show each job: its state, its processes, its last end, its next start.
    #[command(after_help = "Example:\n  howdah job list")]
    List(JobList),
    /// Start a job now; of one with a schedule, wait for its end.
    #[command(after_help = "Example:\n  howdah job run nightly-report")]
    Run(JobTarget),
    /// Stop a job after what it has in hand; one that always runs stays stopped until `run` or a restart.
    #[command(after_help = "Example:\n  howdah job stop queue")]
    Stop(JobTarget),
}

/// `howdah job list`
#[derive(Args, Debug)]
pub struct JobList {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: Target,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Which job is meant.
#[derive(Args, Debug)]
pub struct JobTarget {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: Target,
    /// The job's name
    pub name: String,
}
