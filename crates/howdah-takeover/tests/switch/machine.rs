//! A machine to take over: nginx and Apache with sites of their own on private ports, a pool of php-fpm behind nginx,
//! and the directory of a takeover with a plan, a trial and Howdah's configuration.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use howdah_machine::ports::free_address;
use howdah_takeover::plan::{
    ListenAddress, Listener, PLAN_FILE, Plan, PlannedSite, RunningServer, ServerKind, SiteAddress,
};
use howdah_takeover::switch::process::ProcessIdentity;
use howdah_takeover::switch::state::{Phase, SwitchState};
use howdah_takeover::trial::configuration::configuration_hash;
use howdah_takeover::trial::{TRIAL_FILE, Trial};
use howdah_test_support::process::{Process, run_to_exit, wait_until};
use howdah_test_support::process_tree;
use howdah_test_support::scratch::Scratch;
use rustix::process::{Pid, Signal, kill_process_group};

/// How long a server or a step may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Says which server runs it. `?crash`, `?fail` and `?slow` misbehave under Howdah only, or take three seconds.
const SCRIPT: &str = r#"<?php
$howdah = str_contains($_SERVER['SERVER_SOFTWARE'] ?? '', 'Howdah');
$faults = __DIR__ . '/../faults';
if ($howdah && isset($_GET['crash'])) { posix_kill(getmypid(), 11); }
if ($howdah && (isset($_GET['fail']) || is_file($faults))) { http_response_code(500); }
if (isset($_GET['slow'])) { sleep(3); }
$text = ($howdah ? 'howdah ' : 'old ') . basename(dirname(__DIR__));
header('Content-Length: ' . strlen($text));
echo $text;
"#;
const MODULES: &[&str] = &["mpm_prefork", "authz_core", "dir", "mime"];

/// How the servers listen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Listening {
    /// Both at an address of IPv4, each with one socket.
    Simple,
    /// nginx with a socket for each of its workers.
    SocketPerWorker,
    /// Apache with a socket that takes connections of IPv6 and IPv4, as `Listen 80` makes it on Debian.
    BothFamilies,
}

/// The machine. Dropping it stops everything, Howdah included.
pub struct Machine {
    scratch: Scratch,
    pub nginx: Process,
    pub apache: Process,
    _fpm: Process,
    /// The addresses of nginx and Apache.
    pub addresses: [SocketAddr; 2],
    pub plan: Plan,
}

impl Machine {
    /// Starts the servers, each with this number of sites. Returns `None` without root's rights, which a switch needs.
    pub fn start(name: &str, sites: usize) -> Option<Machine> {
        Machine::start_with(name, sites, Listening::Simple)
    }

    /// The same, with other kinds of sockets.
    pub fn start_with(name: &str, sites: usize, listening: Listening) -> Option<Machine> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: a switch needs root's rights");
            return None;
        }
        let scratch = Scratch::new(name);
        let addresses = [(); 2].map(|()| free_address().expect("a free port"));
        for server in ["nginx", "apache"] {
            for number in 0..sites {
                scratch.write(format!("{server}{number}/public/index.php"), SCRIPT);
            }
        }
        let fpm = start_fpm(&scratch);
        let nginx = start_nginx(&scratch, addresses[0], sites, listening);
        let apache = start_apache(&scratch, addresses[1], sites, listening);
        let apache_addresses = apache_addresses(addresses[1], listening);
        write_howdah(&scratch, addresses[0], &apache_addresses, sites);
        let plan = plan(
            &scratch,
            [&nginx, &apache],
            [&[addresses[0]], &apache_addresses],
            sites,
        );
        let machine = Machine {
            scratch,
            nginx,
            apache,
            _fpm: fpm,
            addresses,
            plan,
        };
        machine.write_plan();
        machine.write_trial(|_| {});
        Some(machine)
    }

    /// The directory of the takeover.
    pub fn directory(&self) -> PathBuf {
        self.scratch.join("takeover")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    pub fn write_plan(&self) {
        let text = serde_json::to_string(&self.plan).unwrap();
        self.scratch.write(format!("takeover/{PLAN_FILE}"), text);
    }

    /// Writes a trial of the present configuration, after `change`.
    pub fn write_trial(&self, change: impl FnOnce(&mut Trial)) {
        let mut trial = Trial {
            configuration_hash: configuration_hash(&self.directory()).unwrap(),
            ..Trial::default()
        };
        change(&mut trial);
        let text = serde_json::to_string(&trial).unwrap();
        self.scratch.write(format!("takeover/{TRIAL_FILE}"), text);
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_howdah-takeover"));
        command.args(words).arg("--dir").arg(self.directory());
        command
    }

    /// Starts `switch` or `resume` in the background.
    pub fn begin(&self, words: &[&str]) -> Process {
        Process::start("howdah-takeover", &mut self.command(words))
    }

    /// Runs a command to its end: exit code, standard output, standard error.
    pub fn run(&self, words: &[&str]) -> (i32, String, String) {
        run_to_exit(&mut self.command(words))
    }

    pub fn state(&self) -> Option<SwitchState> {
        SwitchState::read(&self.directory()).unwrap()
    }

    pub fn write_state(&self, change: impl FnOnce(&mut SwitchState)) {
        let mut state = self.state().expect("there was a switch");
        change(&mut state);
        state.write(&self.directory()).unwrap();
    }

    pub fn wait_for_phase(&self, phase: Phase) {
        wait_until(&format!("{phase:?}"), PATIENCE, || {
            self.state().is_some_and(|state| state.phase == phase)
        });
    }

    /// Waits until Howdah's process is in the state, and returns it.
    pub fn howdah(&self) -> ProcessIdentity {
        wait_until("Howdah", PATIENCE, || {
            self.state().is_some_and(|state| state.howdah.is_some())
        });
        self.state().unwrap().howdah.unwrap()
    }

    /// Kills all processes of Howdah, without a warning.
    pub fn kill_howdah(&self) {
        if let Some(howdah) = self.state().and_then(|state| state.howdah) {
            kill_tree(howdah);
        }
    }

    /// Returns the first words of front pages of the servers: `old` or `howdah`.
    pub fn served_by(&self) -> [String; 2] {
        let server = |number: usize, name: &str| {
            let host = format!("{name}0.test");
            let body = crate::load::get(self.addresses[number], &host, "/");
            let body = body.unwrap_or_else(|error| panic!("{host}: {error}"));
            body.split(' ').next().unwrap_or_default().to_owned()
        };
        [server(0, "nginx"), server(1, "apache")]
    }

    /// Waits until both addresses are served by Howdah.
    pub fn wait_for_howdah(&self) {
        wait_until("Howdah", PATIENCE, || {
            self.served_by() == ["howdah", "howdah"]
        });
    }

    /// Checks that both addresses are served by the same server, and returns its name.
    pub fn server(&self) -> String {
        let [nginx, apache] = self.served_by();
        assert_eq!(nginx, apache);
        nginx
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        kill_by_file(&self.scratch.join("resume.pid"));
        if let Ok(Some(state)) = SwitchState::read(&self.directory()) {
            state.howdah.into_iter().for_each(kill_tree);
        }
        if std::thread::panicking() {
            for log in ["takeover/howdah.log", "takeover/old-servers.log"] {
                let text = fs::read_to_string(self.scratch.join(log)).unwrap_or_default();
                eprintln!("--- {log}:\n{text}");
            }
        }
        // Servers that were started again after a complete switch write their ids here, too.
        for file in ["nginx.pid", "apache.pid"] {
            kill_by_file(&self.scratch.join(file));
        }
        kill_left_behind(self.scratch.path());
    }
}

/// Kills the processes whose command line mentions the directory: children of a server that was killed while it started
/// them.
fn kill_left_behind(directory: &Path) {
    let directory = directory.display().to_string();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let pid = entry.file_name().to_string_lossy().parse::<u32>();
        if let Ok(pid) = pid
            && String::from_utf8_lossy(&line).contains(&directory)
            && let Some(process) = ProcessIdentity::of(pid)
        {
            process.signal(Signal::KILL);
        }
    }
}

fn kill_by_file(file: &Path) {
    let text = fs::read_to_string(file).unwrap_or_default();
    let process = text.trim().parse().ok().and_then(ProcessIdentity::of);
    process.into_iter().for_each(kill_tree);
}

/// Kills a process and everything below it.
pub fn kill_tree(process: ProcessIdentity) {
    if !process.is_alive() {
        return;
    }
    let tree = process_tree::below(process.pid as i32);
    let tree: Vec<ProcessIdentity> = tree
        .iter()
        .filter_map(|entry| ProcessIdentity::of(entry.pid as u32))
        .collect();
    // All at once as far as they are in one group, and then those that are not.
    let _ = kill_process_group(Pid::from_raw(process.pid as i32).unwrap(), Signal::KILL);
    tree.iter().for_each(|one| one.signal(Signal::KILL));
    wait_until("the exit of killed processes", PATIENCE, || {
        !tree
            .iter()
            .any(|one| one.is_alive() || has_threads(one.pid))
    });
}

/// Returns whether threads of a process whose first thread has exited still keep its sockets open.
fn has_threads(pid: u32) -> bool {
    fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 1)
}

fn wait_for_port(address: SocketAddr) {
    wait_until(&format!("{address}"), PATIENCE, || {
        std::net::TcpStream::connect(address).is_ok()
    });
}

fn start_fpm(scratch: &Scratch) -> Process {
    let socket = scratch.join("fpm.sock");
    let text = format!(
        "[global]\nerror_log = /dev/stderr\ndaemonize = no\n[www]\nuser = www-data\ngroup = www-data\nlisten = {}\nlisten.owner = www-data\npm = static\npm.max_children = 6\n",
        socket.display()
    );
    let file = scratch.write("fpm.conf", text);
    let mut command = Command::new(php_fpm());
    let process = Process::start("php-fpm", command.arg("-F").arg("-y").arg(file));
    wait_until("php-fpm", PATIENCE, || socket.exists());
    process
}

fn php_fpm() -> PathBuf {
    let programs = fs::read_dir("/usr/sbin").expect("/usr/sbin").flatten();
    let mut found = programs
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().contains("/php-fpm"));
    found.next().expect("php-fpm is installed")
}

fn start_nginx(
    scratch: &Scratch,
    address: SocketAddr,
    sites: usize,
    listening: Listening,
) -> Process {
    let path = scratch.path().display();
    let mut text = format!(
        "user www-data;\npid {path}/nginx.pid;\nerror_log stderr;\nworker_processes 2;\ndaemon off;\nevents {{ worker_connections 512; }}\nhttp {{\naccess_log {path}/nginx.log;\n"
    );
    for temporary in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(text, "{temporary}_temp_path {path}/{temporary};");
    }
    for number in 0..sites {
        // nginx wants the parameter only once for an address.
        let parameter = match (number, listening) {
            (0, Listening::SocketPerWorker) => "reuseport",
            _ => "",
        };
        let _ = writeln!(
            text,
            "server {{ listen {address} {parameter}; server_name nginx{number}.test; root {path}/nginx{number}/public; index index.php; location ~ \\.php$ {{ fastcgi_pass unix:{path}/fpm.sock; fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_param QUERY_STRING $query_string; fastcgi_param REQUEST_METHOD $request_method; fastcgi_param SERVER_SOFTWARE nginx; }} }}"
        );
    }
    text.push_str("}\n");
    let file = scratch.write("nginx.conf", text);
    let process = Process::start("nginx", Command::new("/usr/sbin/nginx").arg("-c").arg(file));
    wait_for_port(address);
    process
}

fn start_apache(
    scratch: &Scratch,
    address: SocketAddr,
    sites: usize,
    listening: Listening,
) -> Process {
    let listen = match listening {
        Listening::BothFamilies => address.port().to_string(),
        _ => address.to_string(),
    };
    let path = scratch.path().display();
    let mut text = String::new();
    for module in MODULES {
        let _ = writeln!(
            text,
            "LoadModule {module}_module /usr/lib/apache2/modules/mod_{module}.so"
        );
    }
    let _ = write!(
        text,
        "LoadModule php_module {}\nUser www-data\nGroup www-data\nServerName localhost\nListen {listen}\nPidFile {path}/apache.pid\nDefaultRuntimeDir {path}\nMutex file:{path}\nErrorLog /dev/stderr\nTypesConfig /etc/mime.types\nStartServers 6\nMinSpareServers 4\nMaxRequestWorkers 8\nDirectoryIndex index.php\n<FilesMatch \"\\.php$\">\nSetHandler application/x-httpd-php\n</FilesMatch>\n",
        mod_php().display()
    );
    for number in 0..sites {
        let port = address.port();
        let _ = write!(
            text,
            "<VirtualHost *:{port}>\nServerName apache{number}.test\nDocumentRoot {path}/apache{number}/public\n<Directory {path}/apache{number}/public>\nRequire all granted\n</Directory>\n</VirtualHost>\n"
        );
    }
    let file = scratch.write("apache.conf", text);
    let mut command = Command::new("/usr/sbin/apache2");
    let process = Process::start("apache2", command.arg("-f").arg(file).arg("-DFOREGROUND"));
    wait_for_port(address);
    process
}

fn mod_php() -> PathBuf {
    let modules = fs::read_dir("/usr/lib/apache2/modules").expect("Apache is installed");
    let mut found = modules.flatten().map(|entry| entry.path());
    let is_php = |path: &PathBuf| path.to_string_lossy().contains("/libphp");
    found.find(is_php).expect("mod_php is installed")
}

/// Returns the addresses of Apache, as the plan has them.
fn apache_addresses(address: SocketAddr, listening: Listening) -> Vec<SocketAddr> {
    let port = address.port();
    match listening {
        Listening::BothFamilies => vec![
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
        ],
        _ => vec![address],
    }
}

fn write_howdah(scratch: &Scratch, nginx: SocketAddr, apache: &[SocketAddr], sites: usize) {
    let listen = |addresses: &[SocketAddr]| {
        let quoted = addresses.iter().map(|address| format!("\"{address}\""));
        format!("listen = [{}]", quoted.collect::<Vec<_>>().join(", "))
    };
    let path = scratch.path().display();
    let mut text = format!(
        "{}\nuser = \"www-data\"\ncontrol = \"{path}/howdah.sock\"\ninclude = [\"sites.d/*.toml\"]\n\n[pool.www]\nmax_children = 4\n",
        listen(&[nginx])
    );
    text.push_str("\n[timeouts]\ndrain = \"20s\"\n");
    scratch.write("takeover/howdah.toml", text);
    for (server, addresses) in [("nginx", &[nginx][..]), ("apache", apache)] {
        let listen = listen(addresses);
        for number in 0..sites {
            let site = format!(
                "[[site]]\n{listen}\nname = \"{server}{number}\"\nhosts = [\"{server}{number}.test\"]\nroot = \"{path}/{server}{number}/public\"\n"
            );
            scratch.write(format!("takeover/sites.d/{server}{number}.toml"), site);
        }
    }
}

fn plan(
    scratch: &Scratch,
    processes: [&Process; 2],
    addresses: [&[SocketAddr]; 2],
    sites: usize,
) -> Plan {
    let kinds = [ServerKind::Nginx, ServerKind::Apache];
    let files = ["nginx.conf", "apache.conf"];
    let server = |number: usize| {
        // The last address is that of the socket.
        let bound = *addresses[number].last().expect("an address");
        let file = scratch.join(files[number]);
        running_server(kinds[number], processes[number].pid(), file, bound)
    };
    let site = |server: usize, name: &str, number: usize| PlannedSite {
        name: format!("{name}{number}"),
        hosts: vec![format!("{name}{number}.test")],
        served_by: kinds[server],
        addresses: addresses[server]
            .iter()
            .map(|address| SiteAddress {
                address: *address,
                tls: false,
            })
            .collect(),
        file: format!("sites.d/{name}{number}.toml").into(),
        root: scratch.join(format!("{name}{number}/public")),
        php: "mod_php".to_owned(),
        access_log: (server == 0).then(|| scratch.join("nginx.log")),
        denied_paths: Vec::new(),
    };
    let all = (0..sites).flat_map(|number| [site(0, "nginx", number), site(1, "apache", number)]);
    Plan {
        made_at: howdah_takeover::switch::state::now(),
        servers: [0, 1].map(server).into(),
        sites: all.collect(),
        findings: Vec::new(),
    }
}

pub fn running_server(
    kind: ServerKind,
    pid: u32,
    configuration: PathBuf,
    address: SocketAddr,
) -> RunningServer {
    let process = ProcessIdentity::of(pid).expect("the server runs");
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    let words = line
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty());
    let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
    let listening = listening_inodes(address);
    let sockets = process.sockets().unwrap();
    let own = listening
        .into_iter()
        .filter(|inode| sockets.contains_key(inode));
    RunningServer {
        kind,
        pid,
        started: process.started,
        program: fs::read_link(format!("/proc/{pid}/exe")).unwrap(),
        arguments: words.collect(),
        configuration,
        user: Some("www-data".to_owned()),
        unit: None,
        environment: Vec::new(),
        listeners: own
            .map(|inode| Listener {
                address: ListenAddress::Tcp(address),
                inode,
            })
            .collect(),
        loaded: Default::default(),
    }
}

/// Returns the inodes of the sockets that listen at an address of IPv4, or at all addresses of IPv6.
fn listening_inodes(address: SocketAddr) -> Vec<u64> {
    let (file, ip) = match address {
        SocketAddr::V4(v4) => {
            let ip = u32::from_ne_bytes(v4.ip().octets());
            ("/proc/net/tcp", format!("{ip:08X}"))
        }
        SocketAddr::V6(_) => ("/proc/net/tcp6", "0".repeat(32)),
    };
    let local = format!("{ip}:{:04X}", address.port());
    let text = fs::read_to_string(file).unwrap();
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let listening = lines.filter(|fields| fields[1] == local && fields[3] == "0A");
    let mut inodes: Vec<u64> = listening.map(|fields| fields[9].parse().unwrap()).collect();
    inodes.sort_unstable();
    inodes
}

/// Returns the JSON that a command prints.
pub fn json(text: &str) -> HashMap<String, serde_json::Value> {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Starts a request in the background that takes three seconds, and waits until it has been sent.
pub fn start_slow_request(
    address: SocketAddr,
    host: &str,
) -> std::thread::JoinHandle<std::io::Result<String>> {
    let host = host.to_owned();
    let (sent, is_sent) = std::sync::mpsc::channel();
    let request = std::thread::spawn(move || {
        let mut client = crate::load::Client::connect(address).unwrap();
        client.send(&host, "/?slow", true).unwrap();
        sent.send(()).unwrap();
        Ok(client.receive()?.1)
    });
    is_sent.recv().unwrap();
    request
}
