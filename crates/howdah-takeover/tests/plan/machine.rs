//! A private machine for a test: servers with their files in a directory of their own, and the program that plans.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use howdah_takeover::plan::{Finding, Plan, PlannedSite};
use howdah_test_support::process::{Process, run_to_exit, wait_until};
use howdah_test_support::scratch::{Scratch, howdah_program};

/// How long a server may take to start.
const START: Duration = Duration::from_secs(30);

/// Private servers, and the directory of a takeover.
pub struct Machine {
    /// The files of everything.
    pub scratch: Scratch,
    servers: Vec<Process>,
}

impl Machine {
    /// Creates a machine without servers.
    pub fn new(name: &str) -> Machine {
        Machine {
            scratch: Scratch::new(name),
            servers: Vec::new(),
        }
    }

    /// Returns the path of a file as text.
    pub fn path(&self, name: &str) -> String {
        self.scratch.join(name).display().to_string()
    }

    /// Starts nginx with these lines in `http`, and waits until it listens at the address.
    pub fn nginx(&mut self, name: &str, address: SocketAddr, http: &str) -> u32 {
        let prefix = self.path(name);
        let user = if is_root() { "user www-data;" } else { "" };
        let text = format!(
            "{user}\ndaemon off;\nworker_processes 1;\npid nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n\
             client_body_temp_path {prefix}/body;\nfastcgi_temp_path {prefix}/fastcgi;\nproxy_temp_path {prefix}/proxy;\n\
             uwsgi_temp_path {prefix}/uwsgi;\nscgi_temp_path {prefix}/scgi;\n{http}\n}}\n"
        );
        self.scratch.write(format!("{name}/nginx.conf"), text);
        let mut command = Command::new("/usr/sbin/nginx");
        command.args(["-p", &prefix, "-e", "stderr", "-c", "nginx.conf"]);
        self.start("nginx", &mut command, || {
            TcpStream::connect(address).is_ok()
        })
    }

    /// Starts php-fpm with these pools, and waits until it listens at the socket.
    pub fn php_fpm(&mut self, name: &str, socket: &str, pools: &str) -> u32 {
        let text = format!(
            "[global]\npid = {}\nerror_log = /dev/stderr\n{pools}",
            self.path(&format!("{name}.pid"))
        );
        let file = self.scratch.write(format!("{name}.conf"), text);
        let mut command = Command::new(php_fpm_program());
        command.args(["--nodaemonize", "--fpm-config"]).arg(file);
        let socket = socket.to_owned();
        self.start("php-fpm", &mut command, || {
            UnixStream::connect(&socket).is_ok()
        })
    }

    /// Starts Apache with these lines, and waits until it listens at the address.
    pub fn apache(&mut self, name: &str, address: SocketAddr, lines: &str) -> u32 {
        const MODULES: &[&str] = &[
            "authz_core",
            "authz_host",
            "alias",
            "dir",
            "mime",
            "proxy",
            "proxy_fcgi",
            "rewrite",
            "status",
        ];
        let root = self.path(name);
        // mod_php needs processes without threads.
        let mpm = if lines.contains("php_module") {
            "mpm_prefork"
        } else {
            "mpm_event"
        };
        let modules = std::iter::once(&mpm).chain(MODULES).map(|module| {
            format!("LoadModule {module}_module /usr/lib/apache2/modules/mod_{module}.so\n")
        });
        let mut text: String = modules.collect();
        if is_root() {
            text += "User www-data\nGroup www-data\n";
        }
        text += &format!(
            "ServerRoot {root}\nServerName localhost\nListen {address}\nPidFile {root}/apache.pid\nDefaultRuntimeDir {root}\nMutex file:{root}\nErrorLog /dev/stderr\nTypesConfig /etc/mime.types\n{lines}"
        );
        let file = self.scratch.write(format!("{name}/httpd.conf"), text);
        let mut command = Command::new("/usr/sbin/apache2");
        command.arg("-f").arg(file).arg("-DFOREGROUND");
        self.start("apache2", &mut command, || {
            TcpStream::connect(address).is_ok()
        })
    }

    /// Starts a server, and waits until it listens.
    pub fn start(&mut self, name: &str, command: &mut Command, listens: impl Fn() -> bool) -> u32 {
        let process = Process::start(name, command);
        let pid = process.pid();
        self.servers.push(process);
        wait_until(name, START, listens);
        pid
    }

    /// Runs `howdah-takeover plan` for these servers. Returns its exit code, standard output and standard error.
    pub fn plan_output(&self, servers: &[u32], more: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_howdah-takeover"));
        command.arg("plan").arg("--dir").arg(self.takeover());
        for pid in servers {
            command.args(["--server", &pid.to_string()]);
        }
        run_to_exit(command.args(more))
    }

    /// Makes the plan, and checks that the file and the output agree.
    pub fn plan(&self, servers: &[u32]) -> Plan {
        let (code, stdout, stderr) = self.plan_output(servers, &["--json"]);
        assert_eq!(code, 0, "{stderr}");
        let plan = Plan::read(&self.takeover()).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&stdout).unwrap(), plan);
        plan
    }

    /// Returns the directory of the takeover.
    pub fn takeover(&self) -> PathBuf {
        self.scratch.join("takeover")
    }

    /// Returns the exit code and the messages of `howdah check` for the configuration of the plan.
    pub fn check(&self) -> (i32, String) {
        let mut command = Command::new(howdah_program());
        command
            .arg("check")
            .arg("--config")
            .arg(self.takeover().join("howdah.toml"));
        let (code, stdout, stderr) = run_to_exit(&mut command);
        (code, stdout + &stderr)
    }

    /// Returns the text of a site's file.
    pub fn site_file(&self, site: &PlannedSite) -> String {
        let path = self.takeover().join(&site.file);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

/// Returns the site of that name.
pub fn site<'p>(plan: &'p Plan, name: &str) -> &'p PlannedSite {
    let mut sites = plan.sites.iter();
    sites
        .find(|site| site.name == name)
        .unwrap_or_else(|| panic!("no site {name}: {:#?}", plan.sites))
}

/// Returns the finding of that name whose site, place and message contain the text.
pub fn found<'p>(plan: &'p Plan, name: &str, text: &str) -> &'p Finding {
    let mut findings = plan.findings.iter();
    let fits = |finding: &&Finding| finding.name == name && format!("{finding:?}").contains(text);
    findings
        .find(fits)
        .unwrap_or_else(|| panic!("no finding {name} with {text}: {:#?}", plan.findings))
}

/// Returns whether there is a finding of that name.
pub fn has(plan: &Plan, name: &str) -> bool {
    plan.findings.iter().any(|finding| finding.name == name)
}

/// Returns an address on the loopback interface that is free now.
pub fn free_address() -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap()
}

/// Returns whether the tests run as root, whose servers have workers of another user.
pub fn is_root() -> bool {
    howdah_os::process::is_root()
}

/// Returns the lines of a php-fpm pool that listens at this socket.
pub fn pool(name: &str, socket: &str) -> String {
    let user = if is_root() {
        "user = www-data\ngroup = www-data\nlisten.owner = www-data\n"
    } else {
        ""
    };
    format!("[{name}]\n{user}listen = {socket}\npm = ondemand\npm.max_children = 3\n")
}

/// Returns the php-fpm of the series that the library is built for.
pub fn php_fpm_program() -> PathBuf {
    let host = howdah_test_support::php::php_host();
    let name = host
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let series = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    let all = [
        format!("/usr/sbin/php-fpm{series}"),
        "/usr/sbin/php-fpm".to_owned(),
    ];
    let installed = all.iter().find(|path| Path::new(path).is_file());
    installed.unwrap_or(&all[0]).into()
}
