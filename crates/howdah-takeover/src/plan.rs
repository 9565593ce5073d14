//! The plan of a takeover, which `howdah takeover plan` writes as `plan.json` and the other commands read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The name of the file in the directory of the takeover.
pub const PLAN_FILE: &str = "plan.json";

/// The name of Howdah's configuration in the directory of the takeover. It includes one file for each site from
/// `sites.d`.
pub const CONFIGURATION: &str = "howdah.toml";

/// The servers that run on a machine, their sites, and what the owner should know before the switch.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Plan {
    /// When the plan was made, in seconds since 1970.
    pub made_at: u64,
    /// The servers that ran at that time.
    pub servers: Vec<RunningServer>,
    /// The sites that they serve.
    pub sites: Vec<PlannedSite>,
    /// What the owner of the machine should know, the most severe first.
    pub findings: Vec<Finding>,
}

/// A kind of server that can be taken over.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerKind {
    /// nginx.
    Nginx,
    /// Apache, with mod_php, mod_fcgid or a proxy to php-fpm.
    Apache,
    /// php-fpm, whose pools become pools of Howdah.
    PhpFpm,
}

/// A server that runs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RunningServer {
    /// What it is.
    pub kind: ServerKind,
    /// The process that was started first, which has the listening sockets and starts the others.
    pub pid: u32,
    /// When that process started, in clock ticks since the machine did (field 22 of `/proc/PID/stat`): a pid alone does
    /// not identify a process.
    pub started: u64,
    /// The path of the program that the process runs.
    pub program: PathBuf,
    /// Its arguments, the name of the program first.
    pub arguments: Vec<String>,
    /// Its main configuration file.
    pub configuration: PathBuf,
    /// The user that its workers run as.
    pub user: Option<String>,
    /// Its unit of systemd: the one whose main process it is.
    pub unit: Option<String>,
    /// The variables that it was started with, if they are needed to start it again: Apache's configuration names some,
    /// and no unit sets them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<(String, String)>,
    /// The sockets at which it listens.
    pub listeners: Vec<Listener>,
    /// The configuration that it has loaded, and what became of it.
    #[serde(default)]
    pub loaded: LoadedConfiguration,
}

/// The configuration of a server that runs, as it was read for the plan.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LoadedConfiguration {
    /// When the server loaded it, in seconds since 1970: its start or its last reload, as far as its processes show it.
    pub at: u64,
    /// The files that it consists of.
    pub files: Vec<PathBuf>,
    /// How many of its directives are carried over.
    pub directives: DirectiveCounts,
    /// The list of its directives that are not, relative to the directory of the takeover.
    pub notes: Option<PathBuf>,
}

/// How many directives of a server had each outcome.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct DirectiveCounts {
    /// Directives that are carried over, with or without a difference.
    pub carried: usize,
    /// Directives that are carried over with a difference; also counted in `carried`.
    pub different: usize,
    /// Directives without a meaning in Howdah.
    pub irrelevant: usize,
    /// Directives that are not carried over.
    pub missing: usize,
    /// Directives that denied or limited access and are not carried over; also counted in `missing`.
    pub missing_protections: usize,
}

/// A listening socket of a server.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Listener {
    /// Its address: `0.0.0.0:80`, or the path of a Unix socket.
    pub address: ListenAddress,
    /// The inode of the socket, as in `/proc/PID/fd` and `/proc/net/tcp`.
    pub inode: u64,
}

/// The address of a listening socket.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ListenAddress {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// A site that Howdah will serve.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PlannedSite {
    /// A name for reports: usually the first host name.
    pub name: String,
    /// The host names, as Howdah's `hosts` has them. Empty if the site responds to every name.
    pub hosts: Vec<String>,
    /// The server that serves it now.
    pub served_by: ServerKind,
    /// The addresses at which the old server responds for it, and whether with TLS.
    pub addresses: Vec<SiteAddress>,
    /// Howdah's file for it, relative to the directory of the takeover.
    pub file: PathBuf,
    /// The directory of its files.
    pub root: PathBuf,
    /// How PHP runs: `mod_php`, `php-fpm pool www`, `none`.
    pub php: String,
    /// Its access log, if it is a file.
    pub access_log: Option<PathBuf>,
    /// Paths that the old configuration denies, such as `/wp-config.php` and `/.git/config`.
    pub denied_paths: Vec<String>,
}

/// An address at which a site responds.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SiteAddress {
    /// Its address, such as `0.0.0.0:443`.
    pub address: SocketAddr,
    /// Whether it speaks TLS.
    pub tls: bool,
}

/// The name of the finding about HTTP/3 that stays with an old server.
pub const HTTP3_NOT_SWITCHED: &str = "Http3NotSwitched";

/// Something that the owner of the machine should know before the switch.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Finding {
    /// How severe it is.
    pub severity: Severity,
    /// The name of the failure, such as `CertificateExpired`: the same in output, JSON and documents.
    pub name: String,
    /// The site that the finding concerns; `None` if it concerns the machine.
    pub site: Option<String>,
    /// Where it was found, such as `/etc/nginx/sites-enabled/shop:12`.
    pub place: Option<String>,
    /// What was found.
    pub message: String,
    /// What to do about the finding. Empty if nothing needs to be done.
    pub remedy: String,
}

/// How severe a finding is, the most severe first.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// `switch` refuses to run.
    Blocks,
    /// Something works differently after the switch.
    Risk,
    /// Nothing becomes worse, but the owner may want to know it.
    Note,
}

/// Returns an address at which this machine reaches a socket that is bound to `address`.
pub fn local_address(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

impl Plan {
    /// Reads the plan in the directory of a takeover.
    ///
    /// # Errors
    /// Returns a sentence for the user if the file cannot be read, or was written by another version.
    pub fn read(directory: &Path) -> Result<Plan, String> {
        let path = directory.join(PLAN_FILE);
        let text = std::fs::read(&path).map_err(|error| {
            format!(
                "{}: {error}; run `howdah takeover plan --dir {}` first",
                path.display(),
                directory.display()
            )
        })?;
        serde_json::from_slice(&text).map_err(|error| {
            format!(
                "{}: {error}; make the plan again with `howdah takeover plan`",
                path.display()
            )
        })
    }
}
