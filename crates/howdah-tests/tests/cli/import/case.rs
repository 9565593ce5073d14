//! A case: a directory `import/NAME` with the configuration (`etc`), a list of files of the sites (`files`), a list of
//! requests (`requests`), and the notes that the importer is expected to print (`notes`).
//!
//! In all of these files, `@dir@` is the directory where the case is laid out, `@user@` is the user that the servers
//! run as, `@http@`, `@https@` and `@other@` are ports, and `@php@` is PHP's series.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use howdah_machine::php;
use howdah_tests::differences::{Ledger, parse};
use howdah_tests::oracle;
use howdah_tests::pki::Pki;
use howdah_tests::process::{Process, wait_until};
use howdah_tests::rig::{free_address, howdah_program, is_root, wait_for_listener};
use howdah_tests::scratch::{Scratch, repository, run};

use super::probes::{ImportProbe, ProbeClient};

/// The program that runs PHP after the import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhpRunner {
    /// Howdah runs PHP: php-fpm's pools are imported as well.
    Howdah,
    /// php-fpm continues to run PHP.
    PhpFpm,
}

/// The server whose configuration is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceServer {
    Nginx,
    Apache,
}

impl SourceServer {
    /// Returns the server's name on the command line and in differences.md.
    fn name(self) -> &'static str {
        match self {
            SourceServer::Nginx => "nginx",
            SourceServer::Apache => "apache",
        }
    }
}

/// A case that has been laid out.
pub struct ImportCase {
    name: &'static str,
    pools: PhpRunner,
    scratch: Scratch,
    ports: [u16; 3],
    /// Another server, to which requests are forwarded.
    node: Option<Process>,
}

const DIRECTORIES: &[&str] = &["log", "run", "tmp", "tls"];
/// A script that prints how it was called.
const PROBE: &str = r#"<?php
header('X-Script: ' . $_SERVER['SCRIPT_NAME']);
if (isset($_GET['status'])) { http_response_code((int) $_GET['status']); }
if (isset($_GET['accel'])) { header('X-Accel-Redirect: ' . $_GET['accel']); }
foreach (['SCRIPT_NAME', 'SCRIPT_FILENAME', 'PATH_INFO', 'REQUEST_URI', 'QUERY_STRING', 'REQUEST_METHOD', 'HTTPS',
    'REMOTE_USER', 'APP_ENV', 'HTTP_HOST'] as $name) {
    echo $name, '=', $_SERVER[$name] ?? '', "\n";
}
echo 'memory_limit=', ini_get('memory_limit'), ' pool=', getenv('POOL'), "\n";
echo json_encode($_GET), "\n";
"#;

const NODE: &str = r#"<?php
header('X-Served-By: node');
echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['REQUEST_URI'], ' for ', $_SERVER['HTTP_HOST'], "\n";
"#;

impl ImportCase {
    /// Writes the files of the case into a directory of its own.
    pub fn new(name: &'static str, pools: PhpRunner) -> ImportCase {
        let scratch = Scratch::new(&format!("import-{name}"));
        let port = |_| free_address().port();
        let case = ImportCase {
            name,
            pools,
            scratch,
            ports: [0; 3].map(port),
            node: None,
        };
        for directory in DIRECTORIES {
            case.scratch.writable_dir(directory);
        }
        let pki = Pki::new(&case.scratch.join("tls"));
        pki.sign("site", &["127.0.0.1", "example.org", "www.example.org"]);
        case.lay_out(&case.source().join("etc"), &case.scratch.join("etc"));
        for line in case.lines("files") {
            let (path, what) = line.split_once(' ').unwrap_or((&line, ""));
            let text = match what {
                "probe" => PROBE.to_owned(),
                // A symbolic link, such as `uploads -> ../shared`.
                _ if what.starts_with("-> ") => {
                    let link = case.scratch.join(path);
                    fs::create_dir_all(link.parent().unwrap()).unwrap();
                    std::os::unix::fs::symlink(&what[3..], link).unwrap();
                    continue;
                }
                text => format!("{text}\n"),
            };
            case.scratch.write(path, text);
        }
        case
    }

    fn source(&self) -> PathBuf {
        repository()
            .join("crates/howdah-tests/tests/cli/import")
            .join(self.name)
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.source().join(name)).unwrap();
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(|line| self.filled(line)).collect()
    }

    fn filled(&self, text: &str) -> String {
        let user = match is_root() {
            true => "www-data".to_owned(),
            false => std::env::var("USER").unwrap_or_default(),
        };
        let [http, https, other] = self.ports.map(|port| port.to_string());
        [
            ("@dir@", self.scratch.path().to_str().unwrap()),
            ("@user@", &user),
            ("@http@", &http),
            ("@https@", &https),
            ("@other@", &other),
            ("@php@", &php::expand_placeholders("{php}")),
        ]
        .iter()
        .fold(text.to_owned(), |text, (name, value)| {
            text.replace(name, value)
        })
    }

    fn lay_out(&self, from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().flatten() {
            let target = to.join(entry.file_name());
            match entry.path().is_dir() {
                true => self.lay_out(&entry.path(), &target),
                false => {
                    let text = fs::read_to_string(entry.path()).unwrap();
                    fs::write(target, self.filled(&text)).unwrap();
                }
            }
        }
    }

    fn old(&self) -> SourceServer {
        match self.scratch.join("etc/apache2").is_dir() {
            true => SourceServer::Apache,
            false => SourceServer::Nginx,
        }
    }

    fn old_conf(&self) -> PathBuf {
        self.scratch.join(match self.old() {
            SourceServer::Nginx => "etc/nginx/nginx.conf",
            SourceServer::Apache => "etc/apache2/apache2.conf",
        })
    }

    fn fpm_conf(&self) -> PathBuf {
        self.scratch.join("etc/php/php-fpm.conf")
    }

    /// Starts php-fpm with the case's pools.
    pub fn start_php_fpm(&self) -> Process {
        let mut command = Command::new(php::expand_placeholders("/usr/sbin/php-fpm{php}"));
        command.arg("--nodaemonize").arg("-y").arg(self.fpm_conf());
        let process = Process::start("php-fpm", &mut command);
        let ready = || {
            let text = fs::read_to_string(self.scratch.join("log/php-fpm.log"));
            text.is_ok_and(|text| text.contains("ready to handle connections"))
        };
        wait_until("php-fpm", Duration::from_secs(30), ready);
        process
    }

    /// Starts nginx or Apache.
    pub fn start_old(&self) -> Process {
        let mut command = match self.old() {
            SourceServer::Nginx => {
                let mut command = Command::new("/usr/sbin/nginx");
                command.args(["-g", "daemon off;", "-c"]);
                command.arg(self.old_conf());
                command.arg("-e").arg(self.scratch.join("log/start.log"));
                command
            }
            // Does what apache2ctl does with envvars.
            SourceServer::Apache => {
                let mut command = Command::new("bash");
                let start = ". ./envvars; exec apache2 -d \"$PWD\" -f \"$0\" -DFOREGROUND";
                command.args(["-c", start]).arg(self.old_conf());
                command.current_dir(self.scratch.join("etc/apache2"));
                command
            }
        };
        Process::start(self.old().name(), &mut command)
    }

    /// Returns the addresses to which the requests go.
    fn addresses(&self, probes: &[ImportProbe]) -> Vec<SocketAddr> {
        let used = |port: &&u16| probes.iter().any(|probe| probe.port == **port);
        let used = self.ports.iter().filter(used);
        used.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, *port)))
            .collect()
    }

    /// Returns the address of the sites without TLS.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports[0]))
    }

    /// Returns the path of a file of the case.
    pub fn path(&self, name: &str) -> String {
        self.scratch.join(name).display().to_string()
    }

    /// Starts a server at `@other@` that responds to everything with the request that it received.
    pub fn with_node(mut self) -> ImportCase {
        let script = self.scratch.write("node.php", NODE);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports[2]));
        let mut command = Command::new("php");
        command.arg("-S").arg(address.to_string()).arg(script);
        self.node = Some(Process::start("node", &mut command));
        wait_for_listener("node", address);
        self
    }

    /// Runs `howdah import`.
    pub fn import(&self, more: &[&str]) -> Output {
        let mut command = Command::new(howdah_program());
        command.args(["import", self.old().name()]);
        command.arg(self.old_conf());
        if self.pools == PhpRunner::Howdah && self.fpm_conf().exists() {
            command.arg("--php-fpm").arg(self.fpm_conf());
        }
        command.arg("-o").arg(self.scratch.join("howdah.toml"));
        command.args(more).output().unwrap()
    }

    /// Starts Howdah with the imported configuration, and returns when it listens on all of these addresses.
    pub fn start_howdah(&self, more: &[&str], addresses: &[SocketAddr]) -> Process {
        let mut command = Command::new(howdah_program());
        command.args(["serve", "--config"]);
        command.arg(self.scratch.join("howdah.toml"));
        command
            .arg("--control")
            .arg(self.scratch.join("run/control"));
        let howdah = Process::start("howdah", command.args(more));
        for address in addresses {
            let listens = |line: &str| {
                let told = line.strip_prefix("howdah: listening on ")?;
                let port = format!(":{}", address.port());
                told.trim_end_matches('/').ends_with(&port).then_some(())
            };
            howdah.wait_for_line("where it listens", Duration::from_secs(30), listens);
        }
        howdah
    }

    fn probes(&self) -> Vec<ImportProbe> {
        let lines = self.lines("requests");
        lines.iter().map(|line| ImportProbe::read(line)).collect()
    }

    /// Sends the selected requests in order, with a client that has no TLS tickets from another server.
    pub fn ask_all(
        &self,
        name: &str,
        choose: fn(&ImportProbe) -> bool,
    ) -> Vec<oracle::ResponseProperties> {
        let probes = self.probes();
        for address in self.addresses(&probes) {
            wait_for_listener(name, address);
        }
        let client = ProbeClient::new(&self.scratch.join("tls/ca.pem"), self.ports);
        let chosen = probes.iter().filter(|probe| choose(probe));
        chosen.map(|probe| client.ask(probe)).collect()
    }

    /// Sends the requests to the old server, imports, sends them to Howdah, and compares.
    pub fn compare(self) {
        let against = self.old().name();
        let fpm = self.fpm_conf().exists().then(|| self.start_php_fpm());
        let old = self.start_old();
        let theirs = self.ask_all(against, |_| true);
        drop(old);
        // If Howdah runs PHP, php-fpm is stopped: the sites must work with the imported configuration alone.
        let fpm = fpm.filter(|_| self.pools == PhpRunner::PhpFpm);

        let import = self.import(&["--json"]);
        let said = String::from_utf8_lossy(&import.stderr);
        assert!(import.status.success(), "{}: {said}", self.name);
        assert_eq!(said, "", "{}", self.name);
        self.check_notes();
        self.make_links();
        let probes = self.probes();
        let howdah = self.start_howdah(&[], &self.addresses(&probes));
        let ours = self.ask_all("howdah", |_| true);
        drop((howdah, fpm));

        let page = self.source().with_file_name("differences.md");
        let page = fs::read_to_string(page).unwrap();
        let rows =
            parse(&page, &["nginx", "apache"]).unwrap_or_else(|why| panic!("{}", why.join("\n")));
        let of_this = |row: &howdah_tests::differences::Difference| row.is_about(self.name);
        let mut ledger = Ledger::new(rows.into_iter().filter(of_this).collect());
        for (probe, (ours, theirs)) in probes.iter().zip(ours.iter().zip(&theirs)) {
            let name = format!("{}.{}", self.name, probe.name);
            for found in oracle::compare(&name, ours, theirs) {
                ledger.enter("howdah", against, &found);
            }
        }
        ledger.close("import/differences.md", &[against]);
    }

    /// Makes the symbolic links that the notes ask their reader to make.
    fn make_links(&self) {
        let text = fs::read_to_string(self.scratch.join("howdah.toml.notes")).unwrap();
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| line.starts_with("ln -s ")) {
            let command = line.split(", then").next().unwrap();
            run(Command::new("sh").args(["-c", command]));
        }
    }

    /// Checks that the notes are as expected; `HOWDAH_BLESS=1` writes them instead.
    fn check_notes(&self) {
        let text = fs::read_to_string(self.scratch.join("howdah.toml.notes")).unwrap();
        let mut text = text.replace(self.scratch.path().to_str().unwrap(), "@dir@");
        for (port, name) in self.ports.iter().zip(["@http@", "@https@", "@other@"]) {
            text = text.replace(&port.to_string(), name);
        }
        text = text.replace(&php::expand_placeholders("php{php}"), "php@php@");
        let text = without_package_versions(&text);
        let path = self.source().join("notes");
        if std::env::var_os("HOWDAH_BLESS").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, expected, "HOWDAH_BLESS=1 writes {}", path.display());
    }
}

/// Replaces what depends on the versions of the packages of nginx and Apache: the number of types in `mime.types`, and
/// the protocols in `ssl.conf`.
fn without_package_versions(notes: &str) -> String {
    let normal = |line: &str| {
        if let Some((head, rest)) = line.split_once(" made of ")
            && let Some((_, rest)) = rest.split_once(" carried over")
        {
            return format!("{head} made of @all@ directives: @some@ carried over{rest}\n");
        }
        match line.split_once("SSLProtocol ") {
            Some((head, _)) if head.contains("mods-available/ssl.conf") => {
                format!("{head}SSLProtocol @protocols@\n")
            }
            _ => format!("{line}\n"),
        }
    };
    notes.lines().map(normal).collect()
}
