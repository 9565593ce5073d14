//! A private MariaDB on a unix socket, with its own data directory, no TCP, no password for root, and durability
//! switched off. It is only for the tests of applications.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::{Process, wait_until};
use crate::scratch::{Scratch, profile_dir, run};

/// A running database server. Dropping it terminates the server and deletes its data.
#[derive(Debug)]
pub struct Mariadb {
    _process: Process,
    socket: PathBuf,
    _scratch: Scratch,
}

impl Mariadb {
    /// Starts a server on an empty data directory, which is created once and then copied.
    ///
    /// # Panics
    /// If the server does not start; the message contains its log.
    pub fn start() -> Self {
        let scratch = Scratch::new("mariadb");
        let data = scratch.join("data");
        run(Command::new("cp").arg("-r").arg(template()).arg(&data));
        let socket = scratch.join("mariadb.sock");
        let process = Process::start(
            "mariadbd",
            server_options(&mut Command::new("/usr/sbin/mariadbd"), &data)
                .arg(format!("--socket={}", socket.display()))
                .args([
                    "--skip-networking",
                    "--innodb-flush-log-at-trx-commit=0",
                    "--sync-binlog=0",
                ])
                .args([
                    "--innodb-buffer-pool-size=64M",
                    "--skip-log-bin",
                    "--innodb-doublewrite=0",
                ]),
        );
        let mariadb = Mariadb {
            _process: process,
            socket,
            _scratch: scratch,
        };
        wait_until("MariaDB to respond", Duration::from_secs(60), || {
            mariadb
                .client()
                .args(["-e", "SELECT 1"])
                .output()
                .is_ok_and(|out| out.status.success())
        });
        // PHP under Apache runs as another user, which must be able to connect to the socket.
        run(Command::new("chmod").arg("a+rwx").arg(&mariadb.socket));
        mariadb
    }

    /// Returns the server's unix socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Runs statements as root and returns their output, with the columns separated by tabs.
    ///
    /// # Panics
    /// If a statement fails.
    pub fn sql(&self, statements: &str) -> String {
        run(self
            .client()
            .args(["--batch", "--skip-column-names", "-e", statements]))
    }

    /// Creates a database and an account that has all privileges on it.
    pub fn create(&self, database: &str, user: &str, password: &str) {
        self.sql(&format!(
            "CREATE DATABASE {database} CHARACTER SET utf8mb4;
             CREATE USER '{user}'@'localhost' IDENTIFIED BY '{password}';
             GRANT ALL ON {database}.* TO '{user}'@'localhost';"
        ));
    }

    fn client(&self) -> Command {
        let mut command = Command::new("/usr/bin/mariadb");
        command
            .args(["--no-defaults", "--user=root"])
            .arg(format!("--socket={}", self.socket.display()));
        command
    }
}

/// Sets the options that the server and its bootstrap share. As root, the server insists on `--user`.
fn server_options<'a>(command: &'a mut Command, data: &Path) -> &'a mut Command {
    command
        .arg("--no-defaults")
        .arg(format!("--datadir={}", data.display()));
    if rustix::process::geteuid().is_root() {
        command.arg("--user=root");
    }
    command
}

/// Returns an initialised data directory, kept in the target directory because creating one takes seconds. Several
/// threads and processes may ask for it at the same time: a lock lets the first one create it.
fn template() -> PathBuf {
    let kept = profile_dir().join("fixtures/mariadb-template");
    let directory = kept.parent().expect("a path with a directory");
    std::fs::create_dir_all(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let lock = std::fs::File::create(kept.with_extension("lock")).expect("a lock file");
    lock.lock().expect("the lock of the template");
    if !kept.exists() {
        let fresh = kept.with_extension("unfinished");
        let _ = std::fs::remove_dir_all(&fresh);
        std::fs::create_dir(&fresh).unwrap_or_else(|error| panic!("{}: {error}", fresh.display()));
        run(
            server_options(&mut Command::new("/usr/bin/mariadb-install-db"), &fresh)
                .args(["--skip-test-db", "--auth-root-authentication-method=normal"]),
        );
        std::fs::rename(&fresh, &kept).expect("the finished template can be renamed");
    }
    kept
}
