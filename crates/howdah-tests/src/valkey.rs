//! A private Valkey, or Redis, on a port of its own and without storage on disk, for the tests of fleets. [`cluster`]
//! runs several of them.

pub mod cluster;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::process::{Process, wait_until};
use crate::rig::free_address;
use crate::scratch::{Scratch, run};

/// A running server. Dropping it terminates the server.
#[derive(Debug)]
pub struct Valkey {
    process: Process,
    port: u16,
    arguments: Vec<String>,
    /// The arguments with which `redis-cli` authenticates.
    login: Vec<String>,
    scratch: Scratch,
}

fn free_port() -> u16 {
    free_address().port()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

impl Valkey {
    /// Starts an empty server.
    ///
    /// # Panics
    /// If the server does not start, or no port is free.
    pub fn start() -> Valkey {
        let port = free_port();
        let arguments = words(&["--port", &port.to_string()]);
        Valkey::with(port, arguments, &[], Scratch::new("valkey"))
    }

    /// Starts a server with further arguments, for which `redis-cli` needs the arguments in `login`.
    ///
    /// # Panics
    /// As for [`Valkey::start`].
    pub fn configured(more: &[&str], login: &[&str]) -> Valkey {
        let port = free_port();
        let mut arguments = words(&["--port", &port.to_string()]);
        arguments.extend(words(more));
        Valkey::with(port, arguments, login, Scratch::new("valkey"))
    }

    /// Starts a server that speaks TLS only, with the certificate `valkey` of the authority in `directory`.
    ///
    /// # Panics
    /// As for [`Valkey::start`].
    pub fn tls(directory: &Path) -> Valkey {
        Valkey::tls_with(directory, &[], &[])
    }

    fn tls_with(directory: &Path, more: &[&str], login: &[&str]) -> Valkey {
        let port = free_port();
        let file = |name: &str| directory.join(name).display().to_string();
        let (authority, port_text) = (file("ca.pem"), port.to_string());
        let (certificate, key) = (file("valkey.pem"), file("valkey.key"));
        let arguments = [
            ["--port", "0"],
            ["--tls-port", &port_text],
            ["--tls-cert-file", &certificate],
            ["--tls-key-file", &key],
            ["--tls-ca-cert-file", &authority],
            ["--tls-auth-clients", "no"],
        ];
        let arguments = words(&[arguments.as_flattened(), more].concat());
        let login = [&["--tls", "--cacert", &authority], login].concat();
        Valkey::with(port, arguments, &login, Scratch::new("valkey"))
    }

    /// Starts a Sentinel for `primary`, which it calls `main` and replaces after one second of silence.
    ///
    /// # Panics
    /// As for [`Valkey::start`].
    pub fn sentinel(primary: &Valkey) -> Valkey {
        let port = free_port();
        let scratch = Scratch::new("sentinel");
        let (address, monitored) = (primary.address(), "sentinel monitor main");
        let config = format!(
            "port {port}\n{monitored} {} {} 1\nsentinel down-after-milliseconds main 1000\n\
             sentinel failover-timeout main 3000\n",
            address.ip(),
            address.port()
        );
        let config = scratch.write("sentinel.conf", config);
        let arguments = words(&[&config.display().to_string(), "--sentinel"]);
        Valkey::with(port, arguments, &[], scratch)
    }

    fn with(port: u16, arguments: Vec<String>, login: &[&str], scratch: Scratch) -> Valkey {
        let process = Valkey::process(&scratch, &arguments);
        let valkey = Valkey {
            process,
            port,
            arguments,
            login: words(login),
            scratch,
        };
        valkey.wait();
        valkey
    }

    fn process(scratch: &Scratch, arguments: &[String]) -> Process {
        let mut command = Command::new("/usr/bin/redis-server");
        command.args(arguments).args(["--bind", "127.0.0.1"]);
        if !arguments.iter().any(|word| word == "--sentinel") {
            command.args(["--save", "", "--appendonly", "no"]);
            // With this delay, a replica receives its copy immediately.
            command.args(["--repl-diskless-sync-delay", "0"]);
        }
        command.arg("--dir").arg(scratch.path());
        Process::start("redis-server", &mut command)
    }

    fn wait(&self) {
        wait_until("Valkey to respond", Duration::from_secs(20), || {
            let pong = self.client(&["PING"]).output();
            pong.is_ok_and(|output| output.stdout.starts_with(b"PONG"))
        });
    }

    /// Returns the server's URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    fn client(&self, words: &[&str]) -> Command {
        let mut command = Command::new("/usr/bin/redis-cli");
        command.args(["-p", &self.port.to_string(), "--no-auth-warning"]);
        command.args(&self.login).args(words);
        command
    }

    /// Runs a command and returns its output.
    ///
    /// # Panics
    /// If the command fails.
    pub fn command(&self, words: &[&str]) -> String {
        run(&mut self.client(words))
    }

    /// Sends a signal to the server's process.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        self.process.signal(Signal::KILL);
        // The exit status is known: the process was killed.
        let _ = self.process.wait_exit(Duration::from_secs(20));
    }

    /// Starts the server again after [`Valkey::kill`], with no data.
    ///
    /// # Panics
    /// If the server does not start.
    pub fn start_again(&mut self) {
        self.process = Valkey::process(&self.scratch, &self.arguments);
        self.wait();
    }
}
