//! The commands that communicate with a running server, `howdah status`, `dashboard` and `stop`, and the options that
//! select the server.

use std::path::PathBuf;

use clap::Args;

/// The server that a command is about.
#[derive(Args, Clone, Debug)]
pub struct ServerTarget {
    /// The server's control socket; needed only if several servers run
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// The server's configuration file, in which the command finds the control socket
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `howdah status`
#[derive(Args, Debug)]
pub struct StatusArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: ServerTarget,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// On a terminal, refresh every second until `q` is pressed
    #[arg(long, conflicts_with = "json")]
    pub watch: bool,
    /// Print one line, and exit with 0 only if scripts can run; for health checks
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    pub quick: bool,
}

/// `howdah dashboard`
#[derive(Args, Debug)]
pub struct DashboardArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: ServerTarget,
    /// Address of the page, on loopback
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: String,
}

/// `howdah stop`
#[derive(Args, Debug)]
pub struct StopArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: ServerTarget,
    /// How long running requests may continue, such as `30s` or `5m` [default: timeouts.drain of the configuration]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
}
