//! php-fpm: a static pool behind a unix socket or a TCP port.

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use super::StackJob;
use crate::LabError;
use crate::folder::RunFolder;
use crate::need;
use crate::process::LabProcess;
use howdah_machine::ports::free_address;

/// The kind of socket that php-fpm listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FpmSocketKind {
    /// A unix socket in the stack's folder.
    Unix,
    /// A TCP port of 127.0.0.1.
    Tcp,
}

/// The address that php-fpm listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FpmAddress {
    /// The path of a unix socket.
    Unix(PathBuf),
    /// A TCP address.
    Tcp(SocketAddr),
}

impl fmt::Display for FpmAddress {
    /// Formats the address as nginx and Howdah write it in their configurations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FpmAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            FpmAddress::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// The pool settings that php-fpm's manual recommends for speed, with comments that explain them.
const TUNED_POOL_SETTINGS: &str = include_str!("../../../../benchmarks/rivals/php-fpm.conf");

/// Starts a pool of `job.children`. `backlog` overrides the backlog of the listening socket.
pub fn start(
    job: &StackJob,
    folder: &RunFolder,
    via: FpmSocketKind,
    backlog: Option<u32>,
) -> Result<(FpmAddress, LabProcess), LabError> {
    let address = match via {
        FpmSocketKind::Unix => FpmAddress::Unix(folder.join("fpm.sock")),
        FpmSocketKind::Tcp => FpmAddress::Tcp(free_address()?),
    };
    let listen = match &address {
        FpmAddress::Unix(path) => path.display().to_string(),
        FpmAddress::Tcp(address) => address.to_string(),
    };
    let backlog = backlog.map_or(String::new(), |n| format!("listen.backlog = {n}\n"));
    let environment = job.environment.iter();
    let environment: String = environment
        .map(|(name, value)| format!("env[{name}] = \"{value}\"\n"))
        .collect();
    let conf = folder.write(
        "php-fpm.conf",
        format!(
            "[global]\nerror_log = /dev/stderr\ndaemonize = no\n\
             [lab]\nlisten = {listen}\n{TUNED_POOL_SETTINGS}{backlog}pm.max_children = {}\n\
             catch_workers_output = yes\n{environment}",
            job.children
        ),
    )?;
    let mut command = Command::new(need::PHP_FPM.find()?);
    command
        .args(["--nodaemonize", "-y"])
        .arg(conf)
        .arg("-c")
        .arg(&job.ini.file)
        .env("PHP_INI_SCAN_DIR", &job.ini.scan_directory);
    let log = folder.join("php-fpm.log");
    let mut process = LabProcess::start("php-fpm", &command, log, folder.run_as())?;
    match &address {
        // The socket file exists from bind() on, and connections are refused until listen().
        FpmAddress::Unix(path) => {
            process.wait_for("socket", || UnixStream::connect(path).is_ok())?;
        }
        FpmAddress::Tcp(address) => process.wait_for_listener(*address)?,
    }
    Ok((address, process))
}
