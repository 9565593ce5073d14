//! A private haproxy in front of several servers: it asks each whether it answers, sends no request to
//! one that does not, and repeats one only if it cannot have been carried out. Names the server of an answer
//! in the field [`SERVER`].

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::process::{Process, wait_until};
use crate::rig::{free_address, wait_for_listener};
use crate::scratch::Scratch;

/// The field of an answer by which haproxy names the server: `m0` is the first.
pub const SERVER: &str = "X-Server";

const CONFIG: &str = "
global
    stats socket ADMIN mode 600 level admin
defaults
    mode http
    timeout connect 2s
    timeout client 2m
    timeout server 2m
    timeout check 2s
    retries 3
    option redispatch 1
    retry-on conn-failure empty-response
listen fleet
    bind ADDRESS
    balance roundrobin
    http-request disable-l7-retry unless METH_GET
    http-response set-header X-Server %s
    option httpchk
    http-check send meth GET uri CHECK hdr Host HOST
    default-server check inter 200ms fall 2 rise 1
";

/// A running haproxy. Dropping it ends it.
#[derive(Debug)]
pub struct Haproxy {
    _process: Process,
    address: SocketAddr,
    admin: PathBuf,
    _scratch: Scratch,
}

impl Haproxy {
    /// Starts it in front of these servers, which it asks for `check`, a path, of this host.
    ///
    /// # Panics
    /// If it does not come up, or finds no server that answers.
    pub fn start(servers: &[SocketAddr], host: &str, check: &str) -> Haproxy {
        let scratch = Scratch::new("haproxy");
        let admin = scratch.join("admin.sock");
        let address = free_address();
        let mut config = CONFIG
            .replace("ADMIN", &admin.display().to_string())
            .replace("ADDRESS", &address.to_string())
            .replace("HOST", host)
            .replace("CHECK", check);
        for (number, server) in servers.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(config, "    server m{number} {server}");
        }
        let config = scratch.write("haproxy.cfg", config);
        let mut command = Command::new("/usr/sbin/haproxy");
        let process = Process::start("haproxy", command.arg("-db").arg("-f").arg(config));
        wait_for_listener("haproxy", address);
        // The socket's file is there a moment before haproxy listens on it.
        wait_until("haproxy to serve", Duration::from_secs(30), || {
            UnixStream::connect(&admin).is_ok()
        });
        let haproxy = Haproxy {
            _process: process,
            address,
            admin,
            _scratch: scratch,
        };
        wait_until(
            "haproxy to find the servers",
            Duration::from_secs(30),
            || (0..servers.len()).all(|server| haproxy.is_up(server)),
        );
        haproxy
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether a server has answered haproxy, so that requests are sent to it.
    ///
    /// # Panics
    /// If haproxy does not know it.
    pub fn is_up(&self, server: usize) -> bool {
        let stat = self.command("show stat");
        let mut lines = stat.lines();
        let names = lines.next().expect("names of columns");
        let row = format!("fleet,m{server},");
        let row = lines.find(|line| line.starts_with(&row));
        let row: Vec<&str> = row.expect("a row of the server").split(',').collect();
        let column = |wanted| names.split(',').position(|name| name == wanted);
        let value = |name| row[column(name).expect("a column")];
        value("status").starts_with("UP") && value("check_status") == "L7OK"
    }

    /// A server listens elsewhere now.
    ///
    /// # Panics
    /// If haproxy does not take it.
    pub fn moved(&self, server: usize, to: SocketAddr) {
        let (ip, port) = (to.ip(), to.port());
        let answer = self.command(&format!("set server fleet/m{server} addr {ip} port {port}"));
        assert!(answer.contains("hange"), "{answer}");
    }

    /// Carries out a command of its administration.
    ///
    /// # Panics
    /// If haproxy does not answer.
    pub fn command(&self, command: &str) -> String {
        let mut answer = String::new();
        let asked = UnixStream::connect(&self.admin).and_then(|mut admin| {
            admin.write_all(format!("{command}\n").as_bytes())?;
            admin.read_to_string(&mut answer)
        });
        asked.expect("haproxy answers");
        answer
    }
}
