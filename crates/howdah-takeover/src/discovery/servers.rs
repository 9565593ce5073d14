//! Which processes are the main process of an nginx, Apache or php-fpm server, and which configuration each has loaded.

mod command_lines;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use howdah_os::account::account_of_uid;

use self::command_lines::{apache_paths, fpm_configuration, nginx_paths};
use super::findings::Findings;
use super::processes::{Process, Processes};
use super::sockets::ListeningSockets;
use crate::plan::{LoadedConfiguration, RunningServer, ServerKind, Severity};
use crate::switch::service::{main_process, systemd_runs};

/// A server that runs, and what is needed to read its configuration.
#[derive(Clone, Debug)]
pub struct FoundServer {
    /// The server as it is in the plan.
    pub server: RunningServer,
    /// How relative names in its configuration are resolved.
    pub paths: ConfigurationPaths,
    /// The processes that the server has started.
    pub workers: Vec<Process>,
    /// When it last loaded its configuration; before the first reload, when its main process started.
    pub loaded_at: SystemTime,
    /// Whether it continues to serve after the switch, behind Howdah.
    pub stays: bool,
}

/// How the names in a server's configuration are resolved.
#[derive(Clone, Debug, Default)]
pub struct ConfigurationPaths {
    /// The main configuration file.
    pub file: PathBuf,
    /// The `ServerRoot` of Apache.
    pub prefix: Option<PathBuf>,
    /// The directory that relative roots of nginx are resolved against.
    pub root_prefix: Option<PathBuf>,
    /// Variables of Apache.
    pub defined: Vec<(String, String)>,
}

/// Returns the kind of a server's main process, or `None` for all other processes. The program determines the kind. The
/// title, which any user can choose, is used only where the program is not visible.
pub fn kind_of_master(process: &Process, processes: &Processes) -> Option<ServerKind> {
    let kind = kind_of(process)?;
    let title = process.title();
    let is_child = || {
        let parent = processes.get(process.parent);
        parent.and_then(kind_of) == Some(kind)
    };
    let is_master = match kind {
        ServerKind::Nginx if title.starts_with("nginx: ") => {
            title.starts_with("nginx: master process")
        }
        // The programs of Howdah's own PHP processes are php-fpm, too, with another title.
        ServerKind::PhpFpm => title.starts_with("php-fpm: master process"),
        _ => !is_child(),
    };
    is_master.then_some(kind)
}

fn kind_of(process: &Process) -> Option<ServerKind> {
    match process.name() {
        "nginx" | "nginx-debug" | "openresty" => Some(ServerKind::Nginx),
        "apache2" | "httpd" | "httpd.worker" | "httpd.event" => Some(ServerKind::Apache),
        name if name.starts_with("httpd-") => Some(ServerKind::Apache),
        name if name.starts_with("php-fpm") => Some(ServerKind::PhpFpm),
        _ => None,
    }
}

/// Returns the name of a kind of server for messages.
pub fn kind_name(kind: ServerKind) -> &'static str {
    match kind {
        ServerKind::Nginx => "nginx",
        ServerKind::Apache => "Apache",
        ServerKind::PhpFpm => "php-fpm",
    }
}

/// Finds the servers of this machine. If `only` is not empty, it names the main processes of the servers to take over.
///
/// # Errors
/// Returns a sentence for the user if a process that is named in `only` is not a server.
pub fn find(
    processes: &Processes,
    sockets: &ListeningSockets,
    only: &[u32],
    findings: &mut Findings,
) -> Result<Vec<FoundServer>, String> {
    refuse_other_processes(only, processes)?;
    let mut servers = Vec::new();
    let mut elsewhere = Vec::new();
    for process in processes.all() {
        let Some(kind) = kind_of_master(process, processes) else {
            continue;
        };
        if only.is_empty() && is_elsewhere(process) {
            elsewhere.push(format!("{} (process {})", kind_name(kind), process.pid));
            continue;
        }
        let is_wanted = match only {
            [] => is_taken_over(process, kind, processes, findings),
            _ => only.contains(&process.pid),
        };
        if is_wanted && let Some(found) = server(process, kind, processes, sockets, findings) {
            servers.push(found);
        }
    }
    if !elsewhere.is_empty() {
        let message = format!(
            "servers in containers are not taken over: {}",
            elsewhere.join(", ")
        );
        findings.add(Severity::Note, "ServerInContainer", message, "");
    }
    Ok(servers)
}

fn refuse_other_processes(only: &[u32], processes: &Processes) -> Result<(), String> {
    for pid in only {
        let process = processes.get(*pid);
        let kind = process.and_then(|process| kind_of_master(process, processes));
        if kind.is_none() {
            return Err(format!(
                "--server {pid}: this is not the main process of an nginx, Apache or php-fpm server; `ps -ef --forest` shows them"
            ));
        }
    }
    Ok(())
}

/// Returns whether a server is taken over that the user has not named, and adds a finding for each that is not.
fn is_taken_over(
    process: &Process,
    kind: ServerKind,
    processes: &Processes,
    findings: &mut Findings,
) -> bool {
    let (name, pid) = (kind_name(kind), process.pid);
    let successor = processes.children(pid).into_iter();
    if successor
        .clone()
        .any(|child| kind_of_master(child, processes) == Some(kind))
    {
        findings.add(
            Severity::Risk,
            "UpgradeInProgress",
            format!("{name} (process {pid}) has started its successor, but is still running"),
            "Finish or cancel the upgrade of its program, then make the plan again.",
        );
        return false;
    }
    let own = rustix::process::geteuid().as_raw();
    // A user who starts a server chooses its configuration, and Howdah would run that configuration as root.
    if process.user.is_none_or(|user| user != 0 && user != own) {
        findings.add(
            Severity::Note,
            "ServerOfUser",
            format!(
                "{name} (process {pid}) was started by an unprivileged user, so it will not be taken over"
            ),
            &format!("If you trust its configuration, name it with --server {pid}."),
        );
        return false;
    }
    true
}

/// Returns whether a process has other processes or other network addresses than this one.
fn is_elsewhere(process: &Process) -> bool {
    let differs = |name: &str| {
        let own = std::fs::read_link(format!("/proc/self/{name}")).ok();
        let other = process.link(name);
        other.is_some() && other != own
    };
    ["ns/pid", "ns/net", "root"].into_iter().any(differs)
}

/// Describes a server. Returns `None` for a process without a socket, which is a command such as `apache2 -t`.
fn server(
    process: &Process,
    kind: ServerKind,
    processes: &Processes,
    sockets: &ListeningSockets,
    findings: &mut Findings,
) -> Option<FoundServer> {
    let listeners = sockets.of_process(process.pid);
    if listeners.as_ref().is_some_and(Vec::is_empty) {
        return None;
    }
    let program = visible_program(process, kind, listeners.is_some(), findings);
    let paths = match kind {
        ServerKind::Nginx => nginx_paths(&process.title(), &program),
        ServerKind::Apache => apache_paths(process, &program),
        ServerKind::PhpFpm => ConfigurationPaths {
            file: fpm_configuration(&process.title())?,
            ..ConfigurationPaths::default()
        },
    };
    let workers = processes.children(process.pid).into_iter();
    let workers: Vec<Process> = workers.cloned().collect();
    let unit = own_unit(process, kind, findings);
    Some(FoundServer {
        server: RunningServer {
            kind,
            pid: process.pid,
            started: process.started,
            program,
            arguments: process.arguments.clone(),
            configuration: paths.file.clone(),
            user: worker_user(kind, process, &workers),
            environment: environment(kind, process, unit.as_deref()),
            unit,
            listeners: listeners.unwrap_or_default(),
            loaded: LoadedConfiguration::default(),
        },
        paths,
        workers,
        loaded_at: process.start_time(),
        stays: false,
    })
}

/// Returns the unit whose main process the server is. Adds a finding if systemd runs and there is no such unit, because
/// the switch can then neither stop nor disable the server.
fn own_unit(process: &Process, kind: ServerKind, findings: &mut Findings) -> Option<String> {
    if !systemd_runs() {
        return None;
    }
    let unit = process.unit();
    let own = unit
        .clone()
        .filter(|unit| main_process(unit) == Some(process.pid));
    if own.is_none() && kind != ServerKind::PhpFpm {
        let (name, pid) = (kind_name(kind), process.pid);
        let elsewhere = unit.map_or(String::new(), |unit| {
            format!("; it runs in {unit}, which has a different main process")
        });
        findings.add(
            Severity::Risk,
            "ServerWithoutUnit",
            format!("{name} (process {pid}) is not the main process of any systemd unit{elsewhere}"),
            "The switch does not stop it. After the switch, make sure that the machine does not start it again, and that `howdah takeover resume` runs when the machine starts.",
        );
    }
    own
}

/// Returns the variables with which a server has to be started again. A unit sets them by itself, and nginx overwrites
/// them with its title.
fn environment(kind: ServerKind, process: &Process, unit: Option<&str>) -> Vec<(String, String)> {
    if kind != ServerKind::Apache || unit.is_some() {
        return Vec::new();
    }
    // What a service manager has told this one process (systemd.exec(5)).
    let of_process = |name: &str| {
        name.starts_with("LISTEN_")
            || name.starts_with("WATCHDOG_")
            || name.starts_with("SYSTEMD_")
            || matches!(
                name,
                "NOTIFY_SOCKET" | "INVOCATION_ID" | "JOURNAL_STREAM" | "MAINPID"
            )
    };
    let mut variables = process.environment();
    variables.retain(|(name, _)| !of_process(name));
    variables
}

/// Returns the program of a server, and adds findings about one that is not visible or that has been replaced.
fn visible_program(
    process: &Process,
    kind: ServerKind,
    sockets_are_visible: bool,
    findings: &mut Findings,
) -> PathBuf {
    let (name, pid) = (kind_name(kind), process.pid);
    if !sockets_are_visible || process.program.is_none() {
        findings.add(
            Severity::Risk,
            "ProcessUnreadable",
            format!("the program or the sockets of {name} (process {pid}) are not visible"),
            "Run `howdah takeover plan` as root.",
        );
    }
    let Some((program, is_replaced)) = process.program_file() else {
        return usual_program(kind);
    };
    if is_replaced {
        let shown = program.display();
        let message = format!(
            "{name} (process {pid}) still runs a version of {shown} that has been replaced"
        );
        findings.add(Severity::Note, "ProgramReplaced", message, "");
    }
    program
}

/// The path of a program that is not visible.
fn usual_program(kind: ServerKind) -> PathBuf {
    let paths: &[&str] = match kind {
        ServerKind::Nginx => &["/usr/sbin/nginx", "/usr/local/nginx/sbin/nginx"],
        ServerKind::Apache => &["/usr/sbin/apache2", "/usr/sbin/httpd"],
        ServerKind::PhpFpm => &["/usr/sbin/php-fpm"],
    };
    let installed = paths
        .iter()
        .find(|path| std::path::Path::new(path).is_file());
    PathBuf::from(installed.unwrap_or(&paths[0]))
}

/// Returns the user of the workers; `None` for php-fpm, whose pools have users of their own.
fn worker_user(kind: ServerKind, process: &Process, workers: &[Process]) -> Option<String> {
    if kind == ServerKind::PhpFpm {
        return None;
    }
    let mut users = workers.iter().filter_map(|worker| worker.user);
    let user = users.find(|user| *user != 0).or(process.user)?;
    let name = account_of_uid(user)
        .name
        .and_then(|name| name.into_string().ok());
    Some(name.unwrap_or_else(|| user.to_string()))
}

impl FoundServer {
    /// Records what the server has loaded, and when. A reload of nginx replaces its workers. A reload of Apache or
    /// php-fpm rewrites their `pid_file`.
    pub fn set_loaded(&mut self, mut loaded: LoadedConfiguration, pid_file: Option<&PathBuf>) {
        let reloaded = match self.server.kind {
            ServerKind::Nginx => {
                let current = self.workers.iter();
                let current = current.filter(|worker| !worker.title().contains("shutting down"));
                current.map(Process::start_time).min()
            }
            _ => pid_file.and_then(|path| {
                let text = std::fs::read_to_string(path).ok()?;
                let is_own = text.trim().parse() == Ok(self.server.pid);
                is_own
                    .then(|| path.metadata().ok()?.modified().ok())
                    .flatten()
            }),
        };
        self.loaded_at = self.loaded_at.max(reloaded.unwrap_or(self.loaded_at));
        loaded.at = unix_seconds(self.loaded_at);
        self.server.loaded = loaded;
    }

    /// Returns how messages name the server.
    pub fn display(&self) -> String {
        format!(
            "{} (process {})",
            kind_name(self.server.kind),
            self.server.pid
        )
    }
}

/// Returns a time in seconds since 1970.
pub fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
