//! `howdah job`

use clap::{Args, Subcommand};

use super::ServerTarget;

/// `howdah job`
#[derive(Args, Debug)]
pub struct JobArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: JobCommand,
}

/// The commands of `howdah job`.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Show each job: its state, its processes, its last result and its next start.
    #[command(after_help = "Example:\n  howdah job list")]
    List(JobListArguments),
    /// Start a job now; if it has a schedule, wait until the run has ended.
    #[command(after_help = "Example:\n  howdah job run nightly-report")]
    Run(JobTarget),
    /// Stop a job after its current work; a job without a schedule stays stopped until `run` or a restart.
    #[command(after_help = "Example:\n  howdah job stop queue")]
    Stop(JobTarget),
}

/// `howdah job list`
#[derive(Args, Debug)]
pub struct JobListArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: ServerTarget,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The job that a command is about.
#[derive(Args, Debug)]
pub struct JobTarget {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: ServerTarget,
    /// The job's name
    pub name: String,
}
