//! A private PostgreSQL on a unix socket: a cluster of its own in a temporary directory, without TCP, with every user
//! trusted and durability switched off. PostgreSQL refuses to run as root, so a test that runs as root starts it as the
//! package's user.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::process::{Process, wait_until};
use crate::scratch::{Scratch, run};

/// A running database server. Dropping it terminates the server and deletes its data.
#[derive(Debug)]
pub struct Postgres {
    process: Process,
    directory: PathBuf,
    _scratch: Scratch,
}

impl Postgres {
    /// Creates a cluster and starts the server.
    ///
    /// # Panics
    /// If the server does not start; the message contains its log.
    pub fn start() -> Self {
        let scratch = Scratch::new("postgres");
        let directory = scratch.writable_dir("cluster");
        let data = directory.join("data");
        let programs = programs();
        run(unprivileged(&mut Command::new(programs.join("initdb")))
            .args(["--no-sync", "--no-instructions", "--auth=trust"])
            .args(["--username=site", "--encoding=UTF8", "--locale=C"])
            .arg(&data));
        let mut command = Command::new(programs.join("postgres"));
        unprivileged(&mut command)
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(&directory);
        for setting in [
            "listen_addresses=",
            "fsync=off",
            "autovacuum=off",
            "shared_buffers=16MB",
            "max_connections=30",
        ] {
            command.args(["-c", setting]);
        }
        let postgres = Postgres {
            process: Process::start("postgres", &mut command),
            directory,
            _scratch: scratch,
        };
        wait_until("PostgreSQL to respond", Duration::from_secs(60), || {
            let asked = postgres.client().args(["-c", "SELECT 1"]).output();
            asked.is_ok_and(|out| out.status.success())
        });
        postgres
    }

    /// Returns the directory of the socket, which clients use as the host. The user is `site` and the database
    /// `postgres`.
    pub fn host(&self) -> &Path {
        &self.directory
    }

    /// Runs statements and returns their output.
    ///
    /// # Panics
    /// If a statement fails.
    pub fn sql(&self, statements: &str) -> String {
        run(self.client().args(["-c", statements]))
    }

    fn client(&self) -> Command {
        let mut command = Command::new("/usr/bin/psql");
        command
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"])
            .args(["-U", "site", "-d", "postgres", "-h"])
            .arg(&self.directory);
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // On SIGTERM, the usual signal to terminate a process, PostgreSQL waits for clients to disconnect
        // (postgres(1)). On SIGINT it does not.
        self.process.signal(Signal::INT);
    }
}

/// Returns the directory in which Debian installs the server's programs, for the newest version.
fn programs() -> PathBuf {
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .unwrap_or_else(|error| panic!("/usr/lib/postgresql: {error}; run scripts/setup-debian.sh"))
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, programs)| programs.join("initdb").is_file())
        .collect();
    versions.sort();
    versions.pop().expect("PostgreSQL is installed").1
}

fn unprivileged(command: &mut Command) -> &mut Command {
    if rustix::process::geteuid().is_root() {
        let id = |what: &str| {
            let said = run(Command::new("id").args([what, "postgres"]));
            said.trim().parse().expect("id prints a number")
        };
        command.uid(id("-u")).gid(id("-g"));
    }
    // The current working directory may be one that this user cannot enter.
    command.current_dir("/")
}
