//! The command line. Says what was typed, not whether it makes sense: values are checked with the
//! configuration, by the same code and with the same words.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use serde::{Deserialize, Serialize};

/// Serves PHP applications: static files, and PHP in isolated processes.
#[derive(Debug, Parser)]
#[command(
    name = "howdah",
    version,
    disable_version_flag = true,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 failed, 2 command line, 3 configuration, 4 PHP missing or unfit, \
                  5 address in use or not ours to take, 6 no server to talk to"
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a directory, or what a configuration file says.
    Serve(Box<Serve>),
    /// Check a configuration file: all mistakes at once.
    Check(Check),
    /// Show what the server and its PHP processes are doing.
    Status(Status),
    /// Take new code, php.ini and configuration, without dropping a request.
    Reload(Target),
    /// Stop the server: running requests are finished first.
    Stop(Stop),
    /// Print the versions of Howdah and of PHP.
    Version,
    /// The process that speaks HTTP; started by the master.
    #[command(name = "front", hide = true)]
    Front(Front),
}

/// `howdah serve`. Also what the master tells the front, so that both read the configuration with
/// the same eyes.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serve {
    /// Directory to serve [default: .]
    pub dir: Option<PathBuf>,
    /// Address to listen on: HOST:PORT, :PORT or unix:PATH; may be repeated [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<String>,
    /// How PHP is run; this version has `embed`
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// PHP processes of every pool: a number or `auto`
    #[arg(long, value_name = "N")]
    pub children: Option<String>,
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// php.ini in place of the one PHP would find
    #[arg(long, value_name = "FILE")]
    pub php_ini: Option<PathBuf>,
    /// PHP setting, as php's own -d; may be repeated
    #[arg(short = 'd', value_name = "NAME=VALUE")]
    pub define: Vec<String>,
    /// User that serves HTTP and runs PHP (when started as root)
    #[arg(long)]
    pub user: Option<String>,
    /// Group in place of the user's own
    #[arg(long)]
    pub group: Option<String>,
    /// Access log: a file, `stdout`, `stderr` or `off` [default: off]
    #[arg(long, value_name = "PATH")]
    pub access_log: Option<String>,
    /// Format of the access log: common, combined, extended or json [default: combined]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// File to write the process id to
    #[arg(long, value_name = "FILE")]
    pub pid: Option<PathBuf>,
    /// Control socket for `howdah status`, `reload` and `stop`
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

/// `howdah check`
#[derive(Args, Debug)]
pub struct Check {
    /// Configuration file [default: howdah.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Explain a key (`pool.*.queue_size`, or any part of one) and leave
    #[arg(long, value_name = "KEY")]
    pub explain: Option<String>,
    /// Say where a request goes (`/path?query`, `http://host/path`, `POST /path`) and leave;
    /// without a configuration file, in the application found here
    #[arg(long, value_name = "REQUEST")]
    pub route: Option<String>,
}

/// Which server is meant.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// Its control socket; not needed while a single server runs
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Its configuration file, to find the control socket
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `howdah status`
#[derive(Args, Debug)]
pub struct Status {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: Target,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `howdah stop`
#[derive(Args, Debug)]
pub struct Stop {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: Target,
    /// How long running requests may take, as `30s` [default: the configuration's timeouts.drain]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
}

/// `howdah front`
#[derive(Args, Debug)]
pub struct Front {
    /// The socket to the master
    #[arg(long)]
    pub link: i32,
}
