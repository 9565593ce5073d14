//! The machine on which a recipe is followed: a private directory, which contains its files, and in which its server
//! and commands run. The following is replaced in files, configurations and commands, and put back in their output:
//!
//! - the directories of a server, such as `/srv/` and `/etc/howdah/`, by the same directories below the private one;
//! - `:80` and `:443`, at which servers listen, and `127.0.0.1:PORT` by free ports of 127.0.0.1;
//! - the networks for examples (RFC 5737), `192.0.2.0/24`, `198.51.100.0/24` and `203.0.113.0/24`, by networks of
//!   loopback, so that `curl --interface 203.0.113.7` can be a client at this address;
//! - the line `user = "www-data"`, which only root may use, by nothing if the test runs as another user.
//!
//! The commands find a `curl` that connects to the server for every host name and trusts its local authority, and a
//! `howdah` that uses this server's control socket.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use howdah_tests::process::{Process, wait_until};
use howdah_tests::rig::{free_address, howdah_program, is_root};
use howdah_tests::scratch::{Scratch, run};

use super::page::{Page, Typed, is_as_written};

/// The directories that are moved into the private one.
const DIRECTORIES: [&str; 6] = [
    "/srv/",
    "/etc/howdah/",
    "/run/howdah/",
    "/var/cache/howdah/",
    "/var/lib/howdah/",
    "/var/log/howdah/",
];
/// Networks for examples, and the networks that replace them.
const NETWORKS: [(&str, &str); 3] = [
    ("192.0.2.", "127.0.2."),
    ("198.51.100.", "127.51.100."),
    ("203.0.113.", "127.0.113."),
];
/// The longest time that a server may take to start, or that a command is repeated until it has the output of the page.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Returns whether the output is to be written into the pages.
pub fn is_blessing() -> bool {
    std::env::var_os("HOWDAH_BLESS").is_some()
}

pub struct Machine {
    /// The running server. It is the first field, so it is stopped before its directory is removed.
    server: Option<Process>,
    scratch: Scratch,
    http: u16,
    https: u16,
    /// The ports of 127.0.0.1 that the page names, and those that replace them.
    ports: RefCell<Vec<(String, u16)>>,
}

impl Machine {
    /// Writes the page's files, and runs the commands that come before its first server.
    pub fn new(page: &Page) -> Machine {
        let scratch = Scratch::new("recipe");
        for directory in DIRECTORIES.iter().chain(&["/home/", "/acme/"]) {
            let path = scratch.join(directory.trim_start_matches('/'));
            fs::create_dir_all(path).expect("a directory can be made");
        }
        let machine = Machine {
            server: None,
            scratch,
            http: free_address().port(),
            https: free_address().port(),
            ports: RefCell::default(),
        };
        machine.write_programs();
        for (path, text) in &page.files {
            assert!(path.starts_with('/'), "{path} is not an absolute path");
            let place = machine.here(path);
            let place = Path::new(&place).strip_prefix(machine.scratch.path());
            let place = place.unwrap_or_else(|_| panic!("{path} is in no directory of a server"));
            machine.scratch.write(place, machine.here(text));
        }
        for command in &page.before {
            run(&mut machine.shell(&machine.here(command)));
        }
        machine
    }

    /// Starts the server with a configuration.
    pub fn serve(&mut self, config: &str) {
        let mut config = self.here(config);
        if config.contains(" tls") && !config.contains("[acme]") {
            config += &format!("\n[acme]\npath = {:?}\n", self.scratch.join("acme"));
        }
        let file = self.scratch.write("etc/howdah/howdah.toml", &config);
        let mut command = Command::new(howdah_program());
        command.arg("serve").arg("--config").arg(file);
        command.arg("--control").arg(self.scratch.join("control"));
        let server = Process::start("howdah", &mut command);
        server.wait_for_line("that it listens", MAX_WAIT, |line| {
            line.contains("howdah: listening on ").then_some(())
        });
        self.server = Some(server);
        if config.contains(" tls") {
            self.wait_for_certificates();
        }
    }

    /// Waits until the local authority has signed the certificates of all hosts, which it does after the start.
    fn wait_for_certificates(&self) {
        let directory = self.scratch.join("etc/howdah");
        let lines = run(Command::new("grep")
            .args(["-rh", "^hosts = "])
            .arg(directory));
        let hosts = lines.split('"').skip(1).step_by(2);
        for host in hosts.filter(|host| host.ends_with(".test")) {
            let handshake = format!(
                "openssl s_client -connect 127.0.0.1:{} -servername {} -CAfile {:?} -verify_return_error",
                self.https,
                host.replace('*', "any"),
                self.scratch.join("acme/local/root.pem"),
            );
            wait_until(&format!("the certificate for {host}"), MAX_WAIT, || {
                let output = self.shell(&handshake).output();
                output.is_ok_and(|output| output.status.success())
            });
        }
    }

    /// Stops the running server.
    pub fn stop(&mut self) {
        self.server = None;
    }

    /// Runs a command. Returns its standard output and standard error, with the page's directories, addresses and
    /// ports.
    pub fn output_of(&self, typed: &Typed) -> String {
        let until = Instant::now() + MAX_WAIT;
        loop {
            let output = self.run_once(&self.here(&typed.command));
            let as_written = is_as_written(&typed.output, &output);
            let unknown = typed.output.is_empty() && is_blessing();
            if as_written || unknown || !typed.repeated || Instant::now() >= until {
                return output;
            }
            // The command has no immediate effect, and the page says why.
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn run_once(&self, command: &str) -> String {
        let output = self
            .shell(&format!("exec 2>&1\n{command}"))
            .output()
            .expect("a shell can be started");
        let mut text = self.there(&String::from_utf8_lossy(&output.stdout));
        if !output.status.success() {
            text += &format!("[{}]\n", output.status);
        }
        text
    }

    fn shell(&self, command: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("timeout");
        shell
            .args(["120", "sh", "-c", command])
            .env(
                "PATH",
                format!("{}:{path}", self.scratch.join("bin").display()),
            )
            .current_dir(self.scratch.join("home"))
            .stdin(Stdio::null());
        shell
    }

    fn write_programs(&self) {
        let root = self.scratch.join("acme/local/root.pem");
        let curl = format!(
            "#!/bin/sh\n\
             test -f {root:?} && set -- --cacert {root:?} \"$@\"\n\
             PATH=${{PATH#*:}} exec curl --noproxy '*' --max-time 60 --connect-to :80:127.0.0.1:{} --connect-to :443:127.0.0.1:{} \"$@\"\n",
            self.http, self.https,
        );
        let howdah = format!(
            "#!/bin/sh\n\
             case $1 in\n\
             reload | status | stop) set -- \"$@\" --control {control:?} ;;\n\
             cache | job) set -- \"$@\" --control {control:?} ;;\n\
             esac\n\
             exec {program:?} \"$@\"\n",
            control = self.scratch.join("control"),
            program = howdah_program(),
        );
        for (name, text) in [("curl", curl), ("howdah", howdah)] {
            let path = self.scratch.write(Path::new("bin").join(name), text);
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(path, mode).expect("the file is our own");
        }
    }

    /// Replaces the page's directories, addresses and ports by the test's.
    fn here(&self, text: &str) -> String {
        let mut text = text.to_owned();
        let base = self.scratch.path().display().to_string();
        for directory in DIRECTORIES {
            text = text.replace(directory, &format!("{base}{directory}"));
        }
        for (network, ours) in NETWORKS {
            text = text.replace(network, ours);
        }
        text = self.with_our_ports(&text);
        text = text.replace("\":80\"", &format!("\"127.0.0.1:{}\"", self.http));
        text = text.replace("\":443 tls", &format!("\"127.0.0.1:{} tls", self.https));
        if !is_root() {
            text = text.replace("user = \"www-data\"\n", "");
        }
        text
    }

    fn with_our_ports(&self, text: &str) -> String {
        const LOOPBACK: &str = "127.0.0.1:";
        let mut parts = text.split(LOOPBACK);
        let mut replaced = parts.next().unwrap_or_default().to_owned();
        let mut ports = self.ports.borrow_mut();
        for part in parts {
            let end = part.find(|c: char| !c.is_ascii_digit());
            let (port, rest) = part.split_at(end.unwrap_or(part.len()));
            let is_ours = ports.iter().any(|(_, ours)| ours.to_string() == port);
            let known = ports.iter().find(|(theirs, _)| theirs == port);
            let ours = match known {
                Some((_, ours)) => ours.to_string(),
                None if port.is_empty() || is_ours => port.to_owned(),
                None => {
                    let ours = free_address().port();
                    ports.push((port.to_owned(), ours));
                    ours.to_string()
                }
            };
            replaced += &format!("{LOOPBACK}{ours}{rest}");
        }
        replaced
    }

    /// Puts the page's directories, addresses and ports back.
    fn there(&self, text: &str) -> String {
        let base = self.scratch.path().display().to_string();
        let mut text = text.replace(&base, "");
        // A URL does not name the ports 80 and 443.
        for port in [self.http, self.https] {
            text = text.replace(&format!(".test:{port}"), ".test");
        }
        for (theirs, ours) in self.ports.borrow().iter() {
            text = text.replace(&format!("127.0.0.1:{ours}"), &format!("127.0.0.1:{theirs}"));
        }
        for (network, ours) in NETWORKS {
            text = text.replace(ours, network);
        }
        text
    }
}
