//! A server with a site whose certificates come from the test's authority.

use std::path::PathBuf;
use std::process::{Command, Output};

use howdah_tests::process::{Process, wait_until};
use howdah_tests::rig::howdah_program;
use howdah_tests::scratch::{Scratch, run};

use super::authority::{Authority, MAX_WAIT};

pub const NAMES: [&str; 2] = ["one.example.org", "two.example.org"];

pub struct AcmeSite {
    pub scratch: Scratch,
    pub process: Process,
    tls: u16,
    root: PathBuf,
}

/// The options with which a server is started.
pub struct AcmeSiteOptions<'a> {
    pub names: &'a [&'a str],
    /// Whether there is a listener without TLS.
    pub http: bool,
    /// Further lines of the `[acme]` section, and other sections.
    pub lines: String,
    /// The server's ports; `None` means the ports that the authority connects to.
    pub ports: Option<(u16, u16)>,
}

impl Default for AcmeSiteOptions<'_> {
    fn default() -> Self {
        AcmeSiteOptions {
            names: &NAMES,
            http: true,
            lines: String::new(),
            ports: None,
        }
    }
}

impl AcmeSite {
    pub fn start(authority: &Authority, options: &AcmeSiteOptions<'_>) -> AcmeSite {
        let scratch = Scratch::new("acme-site");
        let root = scratch.join("root");
        scratch.write("root/hello.txt", "hello\n");
        scratch.write(
            "root/peek.php",
            "<?php echo posix_getuid(), ' ', @file_get_contents($_GET['file']) === false ? 'closed' : 'open';",
        );
        let (http, tls) = options.ports.unwrap_or((authority.http, authority.tls));
        let config = authority.configuration() + &options.lines;
        let mut command = Command::new(howdah_program());
        command
            .arg("serve")
            .arg(&root)
            .args([
                "--listen",
                &format!("127.0.0.1:{tls} tls"),
                "--children",
                "1",
            ])
            .arg("--config")
            .arg(scratch.write("howdah.toml", config))
            .arg("--control")
            .arg(scratch.join("control"))
            .env("SSL_CERT_FILE", authority.scratch.join("api.pem"));
        if options.http {
            command.args(["--listen", &format!("127.0.0.1:{http}")]);
        }
        for name in options.names {
            command.args(["--domain", name]);
        }
        let process = Process::start("howdah", &mut command);
        process.wait_for_line("that it listens", MAX_WAIT, |line| {
            line.contains("listening on https://").then_some(())
        });
        AcmeSite {
            scratch,
            process,
            tls,
            root: authority.scratch.join("root.pem"),
        }
    }

    /// Waits for a log line that contains `text`, and returns the line.
    pub fn wait_for(&self, text: &str) -> String {
        self.process.wait_for_line(text, MAX_WAIT, |line| {
            line.contains(text).then(|| line.to_owned())
        })
    }

    /// Returns how often `text` occurs in the log.
    pub fn logged(&self, text: &str) -> usize {
        self.process.log().matches(text).count()
    }

    /// Sends a request over HTTPS with a client that trusts only the authority.
    pub fn get(&self, name: &str, path: &str) -> Result<String, String> {
        let output = Command::new("curl")
            .args(["-sS", "--max-time", "60", "--cacert"])
            .arg(&self.root)
            .args(["--resolve", &format!("{name}:{}:127.0.0.1", self.tls)])
            .arg(format!("https://{name}:{}{path}", self.tls))
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }

    /// Waits until a name is served with a certificate from the authority.
    pub fn wait_until_served(&self, name: &str) {
        wait_until(
            &format!("{name} to be served:\n{}", self.process.log()),
            MAX_WAIT,
            || self.get(name, "/hello.txt").as_deref() == Ok("hello\n"),
        );
    }

    pub fn command(&self, words: &[&str]) -> Output {
        let mut command = Command::new(howdah_program());
        command
            .args(words)
            .arg("--control")
            .arg(self.scratch.join("control"));
        command.output().unwrap()
    }

    /// Returns the process that orders certificates.
    pub fn orderer(&self) -> Option<i32> {
        self.child_with("certificates")
    }

    /// Returns the process that the master started with this command.
    pub fn child_with(&self, command: &str) -> Option<i32> {
        let master = self.process.pid();
        let children = format!("/proc/{master}/task/{master}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let mut pids = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        pids.find(|pid: &i32| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split('\0').nth(1) == Some(command)
        })
    }

    /// Makes later requests trust this root instead.
    pub fn trust(&mut self, root: PathBuf) {
        self.root = root;
    }
}

/// Returns the serial number of a stored certificate, in hex.
pub fn serial(authority: &Authority, name: &str) -> String {
    let path = authority
        .scratch
        .join("state/certificates")
        .join(format!("{name}.pem"));
    let text = run(Command::new("openssl")
        .args(["x509", "-noout", "-serial", "-in"])
        .arg(path));
    text.trim().trim_start_matches("serial=").to_owned()
}
