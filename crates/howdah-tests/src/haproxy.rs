//! A private haproxy in front of several servers. It checks each server's health and sends no request to a server that
//! does not respond. It retries a request if the connection failed, and a GET also if the response was empty. It names
//! the server of a response in the header [`SERVER`].

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

/// The response header in which haproxy names the server: `m0` is the first.
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

/// A running haproxy. It is terminated when dropped.
#[derive(Debug)]
pub struct Haproxy {
    _process: Process,
    address: SocketAddr,
    admin: PathBuf,
    _scratch: Scratch,
}

impl Haproxy {
    /// Starts haproxy in front of these servers. Its health checks request the path `check` of the host `host`.
    ///
    /// # Panics
    /// If haproxy does not start, or finds no server that responds.
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
        // The socket's file exists a moment before haproxy listens on it.
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

    /// Returns the address on which haproxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns whether a server has passed haproxy's health check, so requests are sent to it.
    ///
    /// # Panics
    /// If haproxy does not know the server.
    pub fn is_up(&self, server: usize) -> bool {
        let stat = self.command("show stat");
        let mut lines = stat.lines();
        let names = lines.next().expect("a line with the names of the columns");
        let row = format!("fleet,m{server},");
        let row = lines.find(|line| line.starts_with(&row));
        let row: Vec<&str> = row.expect("a row of the server").split(',').collect();
        let column = |wanted| names.split(',').position(|name| name == wanted);
        let value = |name| row[column(name).expect("a column")];
        value("status").starts_with("UP") && value("check_status") == "L7OK"
    }

    /// Tells haproxy that a server now listens at another address.
    ///
    /// # Panics
    /// If haproxy does not accept the change.
    pub fn moved(&self, server: usize, to: SocketAddr) {
        let (ip, port) = (to.ip(), to.port());
        let answer = self.command(&format!("set server fleet/m{server} addr {ip} port {port}"));
        assert!(answer.contains("hange"), "{answer}");
    }

    /// Runs a command on haproxy's administration socket and returns the output.
    ///
    /// # Panics
    /// If haproxy does not respond.
    pub fn command(&self, command: &str) -> String {
        let mut answer = String::new();
        let asked = UnixStream::connect(&self.admin).and_then(|mut admin| {
            admin.write_all(format!("{command}\n").as_bytes())?;
            admin.read_to_string(&mut answer)
        });
        asked.expect("haproxy responds");
        answer
    }
}
