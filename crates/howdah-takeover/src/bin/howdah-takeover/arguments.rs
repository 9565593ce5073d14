//! The arguments of `howdah takeover`. The program `howdah` compiles this file as well: it prints the help and the
//! messages about mistakes, and has the command in its completions and manual pages.

use std::path::PathBuf;
use std::time::Duration;

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
    #[command(
        after_help = "Examples:\n  howdah takeover plan\n  howdah takeover plan --server 1234 --dir /root/takeover"
    )]
    Plan(PlanArguments),
    /// Start Howdah on preview ports, and compare its responses with those of the old servers.
    #[command(after_help = "Example:\n  howdah takeover try")]
    Try(TryArguments),
    /// Take over the ports without refusing a connection, watch, and roll back if anything is worse than before.
    #[command(
        after_help = "Examples:\n  howdah takeover switch\n  howdah takeover switch --watch 1h"
    )]
    Switch(SwitchArguments),
    /// Return to the old servers.
    #[command(after_help = "Example:\n  howdah takeover rollback")]
    Rollback(RollbackArguments),
    /// Show which servers serve the machine, and how far the takeover is.
    #[command(after_help = "Example:\n  howdah takeover status")]
    Status(StatusArguments),
    /// Continue a switch that was interrupted, and serve after a complete one; for the init system.
    #[command(hide = true)]
    Resume(ResumeArguments),
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
    /// How long Howdah is compared with the old servers before the switch is complete: a number with s, m or h
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_watch_time)]
    pub watch: Duration,
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

/// `howdah takeover resume`
#[derive(Args, Debug)]
pub struct ResumeArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub directory: TakeoverDirectory,
}

/// Parses the time of `--watch`, from 1 s to 24 h.
fn parse_watch_time(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("m", 60), ("h", 3600)];
    let seconds = units.iter().find_map(|(unit, factor)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*factor)
    });
    let seconds = seconds.filter(|seconds| (1..=24 * 3600).contains(seconds));
    let seconds = seconds.ok_or("write a number with a unit, such as 10m, from 1s to 24h")?;
    Ok(Duration::from_secs(seconds))
}
