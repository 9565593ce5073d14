//! Starts an old server that was stopped after a complete switch, and stops one whose work Howdah has taken over.

use std::fs::File;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use howdah_os::descriptors::start_with_no_signal_blocked;

use super::failure::{FailureName, SwitchFailure};
use super::howdah::wait_for;
use super::ports::SharedPort;
use super::service;
use crate::plan::{Plan, RunningServer, ServerKind};

/// How long an old server may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a connection to it may take.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);
/// What nginx shows as its command line instead of its arguments.
const NGINX_TITLE: &str = "nginx: master process ";
/// The name of the file with the messages of old servers that are started again.
const LOG_FILE: &str = "old-servers.log";

/// Starts each server of the plan that has ports of the switch and no longer runs, and waits until it listens.
///
/// # Errors
/// `OldServerDoesNotStart` with what to do.
pub fn start_stopped(
    plan: &Plan,
    ports: &[SharedPort],
    directory: &Path,
) -> Result<(), SwitchFailure> {
    for server in &plan.servers {
        let stopped: Vec<&SharedPort> = ports
            .iter()
            .filter(|port| port.owner.pid == server.pid && !port.owner.is_alive())
            .collect();
        if !stopped.is_empty() {
            start(server, &stopped, directory)?;
        }
    }
    Ok(())
}

fn start(
    server: &RunningServer,
    ports: &[&SharedPort],
    directory: &Path,
) -> Result<(), SwitchFailure> {
    let failed = |why: String| {
        FailureName::OldServerDoesNotStart.with(format!(
            "{}: {why}; look into its log and {}, and start it by hand",
            server.program.display(),
            directory.join(LOG_FILE).display()
        ))
    };
    let all_listen = || ports.iter().all(|port| listens(port));
    // Howdah has exited, so somebody has started the old server already.
    if all_listen() {
        return Ok(());
    }
    let mut child = match (&server.unit, service::systemd_runs()) {
        (Some(unit), true) => {
            service::systemctl(&["start", unit])?;
            None
        }
        _ => Some(run(server, directory).map_err(failed)?),
    };
    let mut ended = None;
    let done = wait_for(START_TIMEOUT, || {
        let status = child.as_mut().and_then(|child| child.try_wait().ok()?);
        // A server that goes to the background succeeds.
        ended = status.filter(|status| !status.success());
        ended.is_some() || all_listen()
    });
    if let Some(mut child) = child {
        // Reaps the process whenever it exits.
        std::thread::spawn(move || child.wait());
    }
    match (ended, done) {
        (Some(status), _) => Err(failed(format!("it exited ({status})"))),
        (None, true) => Ok(()),
        (None, false) => Err(failed("it does not listen on its addresses".to_owned())),
    }
}

/// Returns whether some server accepts connections at an address.
pub fn listens(port: &SharedPort) -> bool {
    let address = crate::plan::local_address(port.address);
    TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok()
}

/// Runs the command line of a server. It may go to the background or stay.
fn run(server: &RunningServer, directory: &Path) -> Result<Child, String> {
    let log = directory.join(LOG_FILE);
    let output = File::options().create(true).append(true).open(&log);
    let output = output.map_err(|error| format!("{}: {error}", log.display()))?;
    let errors = output.try_clone().map_err(|error| error.to_string())?;
    // The shell of the administrator may have another umask.
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "umask 022; exec \"$@\"", "sh"]);
    command.arg(&server.program).args(arguments(server));
    let environment = server.environment.iter().map(|(name, value)| (name, value));
    command.envs(environment).process_group(0);
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    start_with_no_signal_blocked(&mut command);
    command.spawn().map_err(|error| error.to_string())
}

/// Returns the arguments of a server without the name of its program.
fn arguments(server: &RunningServer) -> Vec<String> {
    let first = server.arguments.first().map_or("", String::as_str);
    match first.strip_prefix(NGINX_TITLE) {
        Some(line) if server.kind == ServerKind::Nginx => nginx_arguments(line),
        _ => server.arguments.iter().skip(1).cloned().collect(),
    }
}

/// Returns the arguments in nginx's title, which has the command line, separated by spaces (ngx_process_cycle.c). A value
/// may contain spaces, as those of `-g` do: it ends where the next option begins. A directive of `-g` ends with `;`.
fn nginx_arguments(line: &str) -> Vec<String> {
    let is_option = |word: &str| {
        let mut characters = word.chars();
        characters.next() == Some('-')
            && characters
                .next()
                .is_some_and(|c| "?hvVtTqspecg".contains(c))
    };
    let mut arguments: Vec<String> = Vec::new();
    // The words before the first option are the path of the program.
    for word in line.split(' ').skip_while(|word| !is_option(word)) {
        let continues = match arguments.last() {
            Some(last) if is_option(word) => {
                let before = arguments.iter().rev().nth(1);
                let is_attached = last.starts_with("-g") && last.len() > 2;
                let is_directive = is_attached || before.is_some_and(|one| one == "-g");
                is_directive && !last.trim_end().ends_with(';')
            }
            // The value of an option follows it, or is attached to it.
            Some(last) => !(is_option(last) && last.len() == 2),
            None => false,
        };
        match arguments.last_mut().filter(|_| continues) {
            Some(last) => *last = format!("{last} {word}"),
            None => arguments.push(word.to_owned()),
        }
    }
    // A title may end with spaces.
    if let Some(last) = arguments.last_mut() {
        last.truncate(last.trim_end().len());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_nginx_are_read_from_its_title() {
        let check = |kind: ServerKind, shown: &[&str], expected: &[&str]| {
            let server = RunningServer {
                kind,
                pid: 1,
                started: 1,
                program: "/usr/sbin/nginx".into(),
                arguments: shown.iter().map(|word| (*word).to_owned()).collect(),
                configuration: "/etc/nginx/nginx.conf".into(),
                user: None,
                unit: None,
                environment: Vec::new(),
                listeners: Vec::new(),
                loaded: Default::default(),
            };
            assert_eq!(arguments(&server), expected);
        };
        let title = "nginx: master process /usr/sbin/nginx -c /tmp/n.conf";
        check(ServerKind::Nginx, &[title], &["-c", "/tmp/n.conf"]);
        for (line, expected) in [
            ("nginx -g daemon off;", &["-g", "daemon off;"][..]),
            (
                "/a b/nginx -g daemon on; master_process on; -q",
                &["-g", "daemon on; master_process on;", "-q"],
            ),
            (
                "nginx -c /a b/n.conf -e stderr ",
                &["-c", "/a b/n.conf", "-e", "stderr"],
            ),
            (
                "nginx -gdaemon off; -p/srv/a b",
                &["-gdaemon off;", "-p/srv/a b"],
            ),
            ("nginx", &[]),
        ] {
            let title = format!("{NGINX_TITLE}{line}");
            check(ServerKind::Nginx, &[&title], expected);
        }
        check(ServerKind::Nginx, &["nginx", "-c", "/n"], &["-c", "/n"]);
        check(
            ServerKind::Apache,
            &["apache2", "-k", "start"],
            &["-k", "start"],
        );
    }
}
