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
        after_help = "Examples:\n  howdah takeover plan\n  howdah takeover plan --server 1234 --dir /srv/takeover"
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
    /// Show which servers are serving, and how far the takeover is.
    #[command(after_help = "Example:\n  howdah takeover status")]
    Status(StatusArguments),
    /// Continue an interrupted switch, or start Howdah after a complete one; for the init system.
    #[command(hide = true)]
    Resume(ResumeArguments),
}

/// Where the takeover keeps its files.
#[derive(Args, Debug)]
pub struct TakeoverDirectory {
    // Not below /var/lib/howdah: the user howdah owns that directory, and could replace what root starts with.
    /// Directory of the takeover: its plan, Howdah's configuration, and the reports
    #[arg(long, value_name = "DIR", default_value = "/var/lib/howdah-takeover")]
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
    /// Plan only for the server whose main process has this id; may be repeated [default: all servers that root has
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
    /// Compare at most this many pages and files of a site; denied paths are always requested
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub most: usize,
    /// Pause before each request, such as 100ms; a site gets one request at a time
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = parse_time)]
    pub pause: Duration,
    /// Compare a site for at most this time, such as 90s or 5m
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = parse_time)]
    pub time_limit: Duration,
    /// First port of the preview on 127.0.0.1; it needs as many ports as the configuration has addresses [default: free
    /// ports]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub first_port: Option<u16>,
}

/// `howdah takeover switch`
#[derive(Args, Debug)]
pub struct SwitchArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub directory: TakeoverDirectory,
    /// How long Howdah is compared with the old servers before the switch is complete, such as 10m
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

/// Parses the time of `--watch`: at least a second.
fn parse_watch_time(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    match time < Duration::from_secs(1) {
        true => Err("write at least 1s".to_owned()),
        false => Ok(time),
    }
}

/// Parses a time with its unit: `250ms`, `10s`, `5m`.
fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: Option<u64> = digits.parse().ok();
    let milliseconds = match &text[digits.len()..] {
        "ms" => number,
        "s" => number.and_then(|number| number.checked_mul(1000)),
        "m" => number.and_then(|number| number.checked_mul(60_000)),
        "h" => number.and_then(|number| number.checked_mul(3_600_000)),
        _ => None,
    };
    // A day is longer than any trial, and long enough for a watch.
    let time = milliseconds.filter(|time| *time <= 86_400_000);
    time.map(Duration::from_millis)
        .ok_or_else(|| "write a time with its unit, such as 250ms, 10s or 5m".to_owned())
}
