//! The arguments of `howdah takeover`. The program `howdah` compiles this file as well: it prints the help and the
//! messages about mistakes, and has the command in its completions and manual pages.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `howdah takeover`
#[derive(Args, Debug)]
pub struct TakeoverArguments {
    /// The step of the takeover.
    #[command(subcommand)]
    pub command: TakeoverCommand,
}

/// The steps of a takeover.
#[derive(Debug, Subcommand)]
pub enum TakeoverCommand {
    /// Find what serves this machine now, and write Howdah's configuration for it; nothing else is changed.
    #[command(after_help = "Examples:\n  howdah takeover plan\n  howdah takeover plan --server 1234 --dir /root/takeover")]
    Plan(PlanArguments),
    /// Start Howdah on preview ports, and compare its responses with those of the old servers.
    #[command(after_help = "Example:\n  howdah takeover try")]
    Try(TryArguments),
    /// Take over the ports without refusing a connection, watch, and roll back if anything is worse than before.
    #[command(after_help = "Example:\n  howdah takeover switch")]
    Switch(SwitchArguments),
    /// Return to the old servers.
    #[command(after_help = "Example:\n  howdah takeover rollback")]
    Rollback(RollbackArguments),
    /// Show which servers serve the machine, and how far the takeover is.
    #[command(after_help = "Example:\n  howdah takeover status")]
    Status(StatusArguments),
}

/// Where the takeover keeps its files.
#[derive(Args, Debug)]
pub struct TakeoverDirectory {
    /// Directory of the takeover: its plan, Howdah's configuration, and the reports
    #[arg(long, value_name = "DIR", default_value = "/var/lib/howdah/takeover")]
    pub dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `howdah takeover plan`
#[derive(Args, Debug)]
pub struct PlanArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub directory: TakeoverDirectory,
    /// Plan only for the server whose first process has this id; may be repeated [default: all servers that root has
    /// started]
    #[arg(long, value_name = "PID")]
    pub server: Vec<u32>,
}

/// `howdah takeover try`
#[derive(Args, Debug)]
pub struct TryArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub directory: TakeoverDirectory,
}

/// `howdah takeover switch`
#[derive(Args, Debug)]
pub struct SwitchArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub directory: TakeoverDirectory,
}

/// `howdah takeover rollback`
#[derive(Args, Debug)]
pub struct RollbackArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub directory: TakeoverDirectory,
}

/// `howdah takeover status`
#[derive(Args, Debug)]
pub struct StatusArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub directory: TakeoverDirectory,
}
