//! A private Valkey, or Redis: on a port of its own, with nothing on disk. For the tests of fleets.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::process::{Process, wait_until};
use crate::scratch::{Scratch, run};

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct Valkey {
    process: Process,
    port: u16,
    scratch: Scratch,
}

impl Valkey {
    /// Starts an empty one.
    ///
    /// # Panics
    /// If it does not come up, or no port is free.
    pub fn start() -> Valkey {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let scratch = Scratch::new("valkey");
        let process = Valkey::process(&scratch, port);
        let valkey = Valkey {
            process,
            port,
            scratch,
        };
        valkey.wait();
        valkey
    }

    fn process(scratch: &Scratch, port: u16) -> Process {
        let mut command = Command::new("/usr/bin/redis-server");
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(scratch.path());
        Process::start("redis-server", &mut command)
    }

    fn wait(&self) {
        wait_until("Valkey to answer", Duration::from_secs(20), || {
            let pong = self.client(&["PING"]).output();
            pong.is_ok_and(|output| output.stdout.starts_with(b"PONG"))
        });
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn client(&self, words: &[&str]) -> Command {
        let mut command = Command::new("/usr/bin/redis-cli");
        command.args(["-p", &self.port.to_string()]).args(words);
        command
    }

    /// Runs a command, and gives what it prints.
    ///
    /// # Panics
    /// If it fails.
    pub fn command(&self, words: &[&str]) -> String {
        run(&mut self.client(words))
    }

    /// Sends its process a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        self.process.signal(Signal::KILL);
        // It was killed: how it ended is known.
        let _ = self.process.wait_exit(Duration::from_secs(20));
    }

    /// Starts it after [`Valkey::kill`], empty.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn start_again(&mut self) {
        self.process = Valkey::process(&self.scratch, self.port);
        self.wait();
    }
}
