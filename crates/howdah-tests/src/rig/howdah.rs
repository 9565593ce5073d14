//! The program under test: `howdah serve`, as built beside this test program or as named by `HOWDAH_BIN`. Its address
//! is read from the line that it prints for each listener, `howdah: listening on http://ADDRESS`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{PhpIni, Server, ServerKind, Site, wait_for_listener};
use crate::process::Process;
use crate::scratch::{Scratch, howdah_program};

/// A running `howdah serve`.
#[derive(Debug)]
pub struct Howdah {
    address: SocketAddr,
    /// The process, for tests that signal it or read its output.
    pub process: Process,
    scratch: Scratch,
}

/// How long the front may take to start PHP and listen.
const START: Duration = Duration::from_secs(30);
const LISTENING: &str = "howdah: listening on http://";

impl Howdah {
    /// Starts Howdah on `site`, on a port that it chooses itself.
    ///
    /// # Panics
    /// If Howdah does not start; the message contains its log.
    pub fn start(site: &Site) -> Self {
        let scratch = Scratch::new("howdah");
        let ini = PhpIni::write(&scratch, site);
        let mut words: Vec<_> = site.howdah_wrapper.iter().map(PathBuf::from).collect();
        words.push(howdah_program());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command.arg("serve").args([
            "--listen",
            if site.h2c {
                "127.0.0.1:0 h2c"
            } else {
                "127.0.0.1:0"
            },
        ]);
        // Howdah rejects a directory argument that no site of the configuration would serve.
        if !names_every_root(site.howdah_config.as_deref().unwrap_or_default()) {
            command.arg(&site.project);
        }
        command.args(&site.howdah_arguments);
        // In mode `fastcgi`, php.ini belongs to the operator of PHP, and Howdah rejects an argument that names one.
        if !site.howdah_arguments.iter().any(|word| word == "fastcgi") {
            // Scripts see only those variables of the server's environment that `--env` names.
            let names = site.environment.iter().map(|(name, _)| name);
            command
                .args(names.flat_map(|name| ["--env", name]))
                .args(["--children", &site.children.to_string()])
                .arg("--php-ini")
                .arg(&ini.file)
                .env("PHP_INI_SCAN_DIR", &ini.scan_dir);
        }
        if let Some(text) = &site.howdah_config {
            command
                .arg("--config")
                .arg(scratch.write("howdah.toml", text));
        }
        for (name, value) in &site.environment {
            command.env(name, value);
        }
        let process = Process::start("howdah", &mut command);
        let address = process.wait_for_line(LISTENING, START, |line| {
            line.split_once(LISTENING)?
                .1
                .trim_end_matches('/')
                .parse()
                .ok()
        });
        wait_for_listener("howdah", address);
        Howdah {
            address,
            process,
            scratch,
        }
    }

    /// Returns the address on which Howdah listens for HTTPS, if it was started with such an address.
    ///
    /// # Panics
    /// If Howdah does not print the address; the message contains Howdah's log.
    pub fn tls_address(&self) -> SocketAddr {
        const LISTENING: &str = "howdah: listening on https://";
        self.process.wait_for_line(LISTENING, START, |line| {
            let address = line.split_once(LISTENING)?.1;
            address.trim_end_matches('/').parse().ok()
        })
    }

    /// Returns the private directory of this server.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }
}

/// Returns whether a configuration has sites and every site has a root.
fn names_every_root(config: &str) -> bool {
    let mut sections = config.split("[[site]]").skip(1).peekable();
    let has_root = |section: &str| {
        let own = section.lines().take_while(|line| !line.starts_with('['));
        own.map(str::trim_start)
            .any(|line| line.starts_with("root"))
    };
    sections.peek().is_some() && sections.all(has_root)
}

impl Server for Howdah {
    fn kind(&self) -> ServerKind {
        ServerKind::Howdah
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn log(&self) -> String {
        self.process.log()
    }
}

/// Runs `howdah check` on a configuration file and returns its exit code and its output.
///
/// # Panics
/// If the program cannot be started.
pub fn check(config: &Path) -> (Option<i32>, String) {
    let output = Command::new(howdah_program())
        .args(["check", "--config"])
        .arg(config)
        .output()
        .expect("howdah can be started");
    let printed = [output.stdout, output.stderr].concat();
    let code = output.status.code();
    (code, String::from_utf8_lossy(&printed).into_owned())
}
