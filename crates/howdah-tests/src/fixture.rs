//! A small site, whose scripts the test itself writes, served by Howdah. It gives the test access to the server's
//! control commands, access log and processes, and to gates in scripts. It is meant for fault, load and reload tests,
//! which observe the server from outside as an administrator does.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::gate::{self, Gate};
use crate::http::{self, Response};
use crate::http3;
use crate::pki::Pki;
use crate::process::wait_until;
use crate::process_tree::{self, ProcessEntry};
use crate::rig::{Howdah, Server, Site, howdah_program};
use crate::scratch::Scratch;

/// The body of the response to `/hello.php`.
pub const HELLO: &str = "Hello, elephant riders!\n";

/// The minimum number of reloads, however slow the machine is.
pub const FEWEST_RELOADS: u32 = 10;

/// The configuration with which the server trusts the client address that a proxy on this machine states.
pub const TRUSTED_PROXIES: &str = "[trusted_proxies]\nnetworks = [\"127.0.0.0/8\"]\n";

/// Returns the request header with which a trusted proxy states its client's address.
pub fn from(address: &str) -> String {
    format!("X-Forwarded-For: {address}\r\n")
}

/// A site to be served. See [`Fixture::named`].
pub struct Builder {
    scratch: Scratch,
    site: Site,
    config: String,
    pool: String,
    site_lines: String,
}

/// A running Howdah with a site of the test.
pub struct Fixture {
    /// The running server, which serves the site of the test.
    pub howdah: Howdah,
    site: Site,
    scratch: Scratch,
}

impl Builder {
    /// Adds a file below the document root.
    pub fn file(self, name: &str, contents: impl AsRef<[u8]>) -> Self {
        self.scratch.write(Path::new("site").join(name), contents);
        self
    }

    /// Adds a script. In it, `GATES` is replaced by the include file that defines `stand_at()`, and `SCRATCH` by the
    /// private directory.
    pub fn script(self, name: &str, php: &str) -> Self {
        let scratch = self.scratch.path().display().to_string();
        let php = php
            .replace("GATES", &format!("{scratch}/gates.php"))
            .replace("SCRATCH", &scratch);
        self.file(name, php)
    }

    /// Adds an option of `howdah serve`, with its value.
    pub fn argument(mut self, option: &str, value: &str) -> Self {
        let value = self.place(value);
        self.site
            .howdah_arguments
            .extend([option.to_owned(), value]);
        self
    }

    /// Also listens for HTTPS. The site's lines must name the certificates, e.g. with the lines that [`Pki::site`]
    /// returns.
    pub fn tls(self) -> Self {
        self.argument("--listen", "127.0.0.1:0 tls")
    }

    /// Also listens for HTTPS and HTTP/3, with a certificate for `localhost`. See [`Fixture::http3`].
    pub fn http3(self) -> Self {
        Pki::new(self.scratch.path()).sign("site", &["localhost", "127.0.0.1"]);
        self.argument("--listen", "127.0.0.1:0 tls http3")
            .site(&Pki::site("site"))
    }

    /// Also accepts HTTP/2 without TLS, as [`crate::http2`] uses it.
    pub fn h2c(mut self) -> Self {
        self.site.h2c = true;
        self
    }

    /// Sets the number of PHP processes.
    pub fn children(mut self, children: usize) -> Self {
        self.site = self.site.children(children);
        self
    }

    /// Sets a variable of the server's environment.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.site = self.site.environment(name, value);
        self
    }

    /// Serves with PHP's command-line program, which, unlike php-fpm, has the extension pcntl.
    pub fn command_line_php(self) -> Self {
        let name = howdah_machine::php::expand_placeholders("php{php}");
        let program = howdah_machine::programs::find(&name);
        let program = program
            .unwrap_or_else(|| panic!("there is no {name}: run scripts/setup-debian.sh test"));
        self.environment("HOWDAH_PHP", &program.display().to_string())
    }

    /// Sets a PHP directive.
    pub fn ini(mut self, name: &str, value: &str) -> Self {
        self.site = self.site.ini(name, value);
        self
    }

    /// Adds lines to the configuration file. In them, `ROOT` is replaced by the document root and `SCRATCH` by the
    /// private directory.
    pub fn config(mut self, text: &str) -> Self {
        self.config.push_str(&self.place(text));
        self.config.push('\n');
        self
    }

    /// Adds lines to the site's only pool, e.g. `max_requests = 40`.
    pub fn pool(mut self, lines: &str) -> Self {
        self.pool.push_str(lines);
        self.pool.push('\n');
        self
    }

    /// Adds lines to the site itself, e.g. `request_buffering = "off"`.
    pub fn site(mut self, lines: &str) -> Self {
        self.site_lines.push_str(lines);
        self.site_lines.push('\n');
        self
    }

    /// Serves another directory (or symbolic link) inside the private directory.
    pub fn root(mut self, name: &str) -> Self {
        self.site.root = self.scratch.join(name);
        self.site.project = self.site.root.clone();
        self
    }

    /// Starts `howdah` through another program, for example `unshare --mount`.
    pub fn through(mut self, words: &[&str]) -> Self {
        let words = words.iter().map(|word| self.place(word)).collect();
        self.site.howdah_wrapper = words;
        self
    }

    /// Returns the private directory.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Returns the site to be served, for a PHP server that runs beside Howdah.
    pub fn as_site(&self) -> &Site {
        &self.site
    }

    /// Uses mode `fastcgi` with these backends, which the caller runs.
    pub fn fastcgi(mut self, addresses: &str) -> Self {
        let words = ["--mode", "fastcgi", "--fastcgi", addresses];
        self.site.howdah_arguments.extend(words.map(str::to_owned));
        self
    }

    /// Starts the server.
    ///
    /// # Panics
    /// If the server does not start.
    pub fn start(mut self) -> Fixture {
        let mut config = self.config.clone();
        if !self.pool.is_empty() {
            config.push_str(&format!("[pool.www]\n{}", self.place(&self.pool)));
        }
        if !self.site_lines.trim().is_empty() {
            let site = format!("[[site]]\nroot = \"ROOT\"\n{}", self.site_lines);
            config.push_str(&self.place(&site));
        }
        // Howdah refuses to run as root behind a proxy unless the configuration says so explicitly.
        let behind_proxy = config.contains("[trusted_proxies]") && !config.contains("user = ");
        if behind_proxy && rustix::process::geteuid().is_root() {
            let words = ["--user", "root"].map(str::to_owned);
            self.site.howdah_arguments.extend(words);
        }
        for (option, name) in [
            ("--control", "control.sock"),
            ("--access-log", "access.log"),
        ] {
            // An option may be given only once.
            if self.site.howdah_arguments.iter().any(|word| word == option) {
                continue;
            }
            self.site.howdah_arguments.push(option.to_owned());
            let path = self.scratch.join(name).display().to_string();
            self.site.howdah_arguments.push(path);
        }
        if !config.is_empty() {
            self.site.howdah_config = Some(config);
        }
        Fixture {
            howdah: Howdah::start(&self.site),
            site: self.site,
            scratch: self.scratch,
        }
    }

    fn place(&self, text: &str) -> String {
        text.replace("ROOT", &self.site.root.display().to_string())
            .replace("SCRATCH", &self.scratch.path().display().to_string())
    }
}

impl Fixture {
    /// Returns the builder of a site with `hello.php`, `pid.php` (prints its process id) and `hold.php?gate=NAME`
    /// (waits at a gate, then prints `released`), served by two children.
    pub fn named(name: &str) -> Builder {
        let scratch = Scratch::new(name);
        let gates = scratch.writable_dir("gates");
        scratch.write("gates.php", gate::php(&gates));
        let site = Site::new(scratch.join("site")).children(2);
        Builder {
            scratch,
            site,
            config: String::new(),
            pool: String::new(),
            site_lines: String::new(),
        }
        .script("hello.php", &format!("<?php echo {HELLO:?};"))
        .script("pid.php", "<?php echo getmypid();")
        .script(
            "hold.php",
            "<?php require 'GATES'; stand_at($_GET['gate']); echo 'released';",
        )
    }

    /// Returns the builder of a server for an existing site, with that site's own settings.
    pub fn of(name: &str, site: Site) -> Builder {
        Builder {
            scratch: Scratch::new(name),
            site,
            config: String::new(),
            pool: String::new(),
            site_lines: String::new(),
        }
    }

    /// Stops the server as an administrator does, and starts it again on another port.
    ///
    /// # Panics
    /// If the server does not start.
    pub fn restart(&mut self) {
        self.howdah.process.stop();
        self.howdah = Howdah::start(&self.site);
    }

    /// Sends SIGKILL to all processes of the server, the front first.
    ///
    /// # Panics
    /// If one of them survives.
    pub fn kill_all(&mut self) {
        let front = self.try_front();
        let others = self.processes().into_iter().map(|entry| entry.pid);
        let all: Vec<i32> = front
            .into_iter()
            .chain([self.master()])
            .chain(others)
            .collect();
        for pid in &all {
            // Some processes exit by themselves when the first one is gone.
            let _ = Pid::from_raw(*pid).map(|pid| kill_process(pid, Signal::KILL));
        }
        wait_until(
            "all processes of the server to be gone",
            Duration::from_secs(20),
            || {
                !self.howdah.process.is_running()
                    && !all.iter().any(|pid| process_tree::is_alive(*pid))
            },
        );
    }

    /// Starts the server again after [`Fixture::kill_all`].
    ///
    /// # Panics
    /// If the server does not start.
    pub fn start_again(&mut self) {
        self.howdah = Howdah::start(&self.site);
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> std::net::SocketAddr {
        self.howdah.address()
    }

    /// Returns the address on which the server listens for HTTPS; see [`Builder::tls`].
    pub fn tls_address(&self) -> std::net::SocketAddr {
        self.howdah.tls_address()
    }

    /// Opens an HTTP/3 connection to the address that [`Builder::http3`] configured.
    ///
    /// # Panics
    /// If the server does not respond.
    pub fn http3(&self) -> http3::Http3TestClient {
        let authority = self.path("ca.pem");
        http3::Http3TestClient::open(&authority, self.tls_address(), "localhost").expect("HTTP/3")
    }

    /// Sends `GET path` on a new connection.
    ///
    /// # Panics
    /// If there is no well-formed response.
    pub fn get(&self, path: &str) -> Response {
        http::get(self.address(), path)
    }

    /// Checks that `/hello.php` returns its usual response.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    pub fn still_serves(&self) {
        let answer = self.get("/hello.php");
        assert_eq!((answer.status(), answer.text().as_str()), (200, HELLO));
    }

    /// Sends `GET path` from a new thread, for responses that are expected to wait.
    pub fn start_get(&self, path: &str) -> PendingResponse {
        let address = self.address();
        let path = path.to_owned();
        PendingResponse(std::thread::spawn(move || {
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
            http::exchange(address, request.as_bytes())
        }))
    }

    /// Makes a gate for `hold.php?gate=NAME` or `stand_at('NAME')`.
    pub fn gate(&self, name: &str) -> Gate {
        Gate::new(&self.scratch.join("gates"), name)
    }

    /// Returns a path in the private directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// Writes a file below the private directory.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        self.scratch.write(name, contents)
    }

    /// Runs `howdah` with these words and with the control socket of this server.
    ///
    /// # Panics
    /// If the program cannot be started.
    pub fn control(&self, words: &[&str]) -> Output {
        Command::new(howdah_program())
            .args(words)
            .arg("--control")
            .arg(self.scratch.join("control.sock"))
            .output()
            .expect("howdah can be started")
    }

    /// Calls [`Fixture::reload`] repeatedly: as many times as `HOWDAH_TESTS_RELOADS` says, otherwise until `budget` has
    /// passed or 1000 reloads are done, but at least [`FEWEST_RELOADS`] times. Returns the number of reloads.
    ///
    /// # Panics
    /// If a reload fails, or `HOWDAH_TESTS_RELOADS` is not a number.
    #[track_caller]
    pub fn reload_often(&self, budget: Duration) -> u32 {
        let wanted: Option<u32> = std::env::var("HOWDAH_TESTS_RELOADS")
            .ok()
            .map(|n| n.parse().expect("HOWDAH_TESTS_RELOADS is a number"));
        let begun = Instant::now();
        let mut done = 0;
        let enough = |done: u32| match wanted {
            Some(wanted) => done >= wanted,
            None => done >= FEWEST_RELOADS && (done >= 1000 || begun.elapsed() >= budget),
        };
        while !enough(done) {
            self.reload();
            done += 1;
        }
        println!("{done} reloads of {:?} each", begun.elapsed() / done.max(1));
        done
    }

    /// Runs `howdah reload`, which must succeed.
    ///
    /// # Panics
    /// If it fails; the message contains its output.
    #[track_caller]
    pub fn reload(&self) {
        let output = self.control(&["reload"]);
        assert!(output.status.success(), "howdah reload: {output:?}");
    }

    /// Returns the output of `howdah status --json`.
    ///
    /// # Panics
    /// If the command fails or its output is not JSON.
    #[track_caller]
    pub fn status(&self) -> serde_json::Value {
        let output = self.control(&["status", "--json"]);
        assert!(output.status.success(), "howdah status: {output:?}");
        serde_json::from_slice(&output.stdout).expect("howdah status --json is JSON")
    }

    /// Returns the lines of the access log so far.
    pub fn access_log(&self) -> Vec<String> {
        std::fs::read_to_string(self.scratch.join("access.log"))
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Returns the process id of the master, which is the process that the test started.
    pub fn master(&self) -> i32 {
        self.howdah.process.pid().cast_signed()
    }

    /// Returns all processes of the server.
    pub fn processes(&self) -> Vec<ProcessEntry> {
        process_tree::below(self.master())
    }

    /// Returns the process id of the front: the child of the master that is not a PHP process.
    ///
    /// # Panics
    /// If there is no front.
    pub fn front(&self) -> i32 {
        self.try_front().expect("the server has a front")
    }

    /// Returns the process id of the front, if there is one now.
    pub fn try_front(&self) -> Option<i32> {
        let master = self.master();
        self.processes()
            .iter()
            .find(|e| e.parent == master && e.program == "howdah")
            .map(|e| e.pid)
    }

    /// Returns the process ids of the zygotes, which are the PHP processes whose parent is not a PHP process.
    pub fn zygotes(&self) -> Vec<i32> {
        let all = self.processes();
        let php = |pid| {
            all.iter()
                .any(|e| e.pid == pid && e.program == "howdah-php")
        };
        all.iter()
            .filter(|e| e.program == "howdah-php" && !php(e.parent))
            .map(|e| e.pid)
            .collect()
    }

    /// Returns the process ids of the children, which are the PHP processes whose parent is a zygote.
    pub fn children(&self) -> Vec<i32> {
        let zygotes = self.zygotes();
        self.processes()
            .iter()
            .filter(|e| e.program == "howdah-php" && zygotes.contains(&e.parent))
            .map(|e| e.pid)
            .collect()
    }

    /// Returns the resident memory of the front and the master, in KiB.
    pub fn server_memory(&self) -> u64 {
        self.processes()
            .iter()
            .filter(|e| e.program == "howdah")
            .filter_map(|e| process_tree::memory(e.pid, "Rss"))
            .sum()
    }

    /// Returns the memory that all processes together have written to, in KiB; shared pages count once.
    ///
    /// Pages of files are not counted: a program's text is shared with every other server that runs the same program,
    /// so this server's share of it grows whenever another server exits.
    pub fn whole_memory(&self) -> u64 {
        let processes = self.processes();
        let fields = ["Pss_Anon", "Pss_Shmem"];
        processes
            .iter()
            .flat_map(|e| fields.map(|field| process_tree::memory(e.pid, field)))
            .flatten()
            .sum()
    }

    /// Waits until the log (standard error) has a line that contains all `words`.
    ///
    /// # Panics
    /// If no such line appears.
    pub fn wait_for_log(&self, words: &[&str]) -> String {
        self.howdah
            .process
            .wait_for_line(&words.join(" … "), Duration::from_secs(20), |line| {
                words
                    .iter()
                    .all(|word| line.contains(word))
                    .then(|| line.to_owned())
            })
    }

    /// Returns the log (standard error) so far.
    pub fn log(&self) -> String {
        self.howdah.process.log()
    }

    /// Waits until `condition` holds for this fixture.
    ///
    /// # Panics
    /// If that takes longer than half a minute; the message contains `what`.
    pub fn wait(&self, what: &str, mut condition: impl FnMut(&Fixture) -> bool) {
        wait_until(what, Duration::from_secs(30), || condition(self));
    }
}

/// A response that has not arrived yet; see [`Fixture::start_get`].
pub struct PendingResponse(std::thread::JoinHandle<Result<Response, http::ExchangeError>>);

impl PendingResponse {
    /// Waits for the response, well-formed or not.
    ///
    /// # Errors
    /// The response is malformed, or there is none.
    ///
    /// # Panics
    /// If the requesting thread panicked.
    pub fn try_answer(self) -> Result<Response, http::ExchangeError> {
        self.0.join().expect("the requesting thread does not panic")
    }

    /// Waits for the response.
    ///
    /// # Panics
    /// If there is no well-formed response.
    #[track_caller]
    pub fn answer(self) -> Response {
        self.try_answer()
            .unwrap_or_else(|broken| panic!("no response: {broken}"))
    }

    /// Returns whether the response (or its failure) has arrived.
    pub fn is_there(&self) -> bool {
        self.0.is_finished()
    }
}

/// Sends a signal to one process by its id.
///
/// # Panics
/// If there is no such process.
pub fn signal(pid: i32, signal: Signal) {
    let id = Pid::from_raw(pid).expect("process ids are positive");
    kill_process(id, signal).unwrap_or_else(|error| panic!("kill {pid}: {error}"));
}
