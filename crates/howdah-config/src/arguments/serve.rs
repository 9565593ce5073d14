//! `howdah serve`, and the processes of the server, which the master starts by executing the same program with other
//! commands.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

/// `howdah serve`. The master also passes this to the front, so both read the configuration in the same way.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServeArguments {
    /// Directory to serve [default: .]
    pub dir: Option<PathBuf>,
    /// Address to listen on: HOST:PORT, :PORT, PORT or unix:PATH; may be repeated [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<String>,
    /// Host name to serve with HTTPS, with a certificate that Howdah orders and renews; may be repeated. Listens on
    /// ports 443 and 80 unless --listen is given. For `localhost`, a local authority issues the certificate
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub domain: Vec<String>,
    /// How every pool runs PHP: `embed`, `worker`, `fastcgi`, `pool` or `cgi`; see `howdah modes` [default: embed]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// FastCGI backends of every pool: unix:PATH, HOST:PORT, HOST:FIRST-LAST; separated by commas. Implies
    /// `--mode fastcgi`
    #[arg(long, value_name = "ADDRESSES")]
    pub fastcgi: Option<String>,
    /// Script that each PHP process starts once; it then handles requests with frankenphp_handle_request(). Implies
    /// `--mode worker`
    #[arg(long, value_name = "SCRIPT")]
    pub worker: Option<PathBuf>,
    /// Number of PHP processes of every pool (in mode fastcgi: of each backend), or `auto`
    #[arg(long, value_name = "N")]
    pub children: Option<String>,
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Page cache of sites that do not set it themselves: `on`, `off`, `rfc` or `dry-run` [default: off]
    #[arg(long, value_name = "WORD")]
    pub cache: Option<String>,
    /// php.ini to use instead of the one that PHP would find
    #[arg(long, value_name = "FILE")]
    pub php_ini: Option<PathBuf>,
    /// PHP setting, like php's own -d; may be repeated
    #[arg(short = 'd', value_name = "NAME=VALUE")]
    pub define: Vec<String>,
    /// Environment variable for PHP in every pool; NAME alone passes on the server's own value; may be repeated
    #[arg(long, value_name = "NAME[=VALUE]")]
    #[serde(default)]
    pub env: Vec<String>,
    /// User that serves HTTP and runs PHP, when started as root
    #[arg(long, value_name = "USER[:GROUP]")]
    pub user: Option<String>,
    /// Only check the configuration, for a running server that is about to be replaced by this program
    /// (`master::upgrade`)
    #[arg(long, hide = true, value_name = "FORMAT")]
    #[serde(skip)]
    pub takes_over: Option<u32>,
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

/// `howdah front`
#[derive(Args, Debug)]
pub struct ChildArguments {
    /// The socket to the master
    #[arg(long)]
    pub link: i32,
}

/// `howdah spawner`; `howdah_executor::launch::spawner_command` creates this command line.
#[derive(Args, Debug)]
pub struct SpawnerArguments {
    /// The pool
    #[arg(long)]
    pub pool: String,
    /// The socket to the front
    #[arg(long)]
    pub control_fd: i32,
    /// The protocol of the programs
    #[arg(long, value_parser = ["cgi", "fastcgi"])]
    pub protocol: String,
    /// php.ini to use instead of the one that PHP would find
    #[arg(long)]
    pub php_ini: Option<PathBuf>,
    /// PHP settings are read from standard input: NAME=VALUE, each ended by NUL
    #[arg(long)]
    pub define_stdin: bool,
    /// User of the programs
    #[arg(long)]
    pub user: Option<String>,
    /// Group to use instead of the user's own
    #[arg(long)]
    pub group: Option<String>,
    /// The configured program and its arguments
    #[arg(last = true)]
    pub command: Vec<std::ffi::OsString>,
}
