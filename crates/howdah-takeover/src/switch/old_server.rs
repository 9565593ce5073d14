//! Starts an old server that was stopped after a complete switch, and stops one whose work Howdah has taken over.

use std::fs::File;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
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
    match (&server.unit, service::systemd_runs()) {
        (Some(unit), true) => service::systemctl(&["start", unit])?,
        _ => run(server, directory).map_err(failed)?,
    }
    let listens = |port: &&SharedPort| {
        let address = crate::plan::local_address(port.address);
        TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok()
    };
    match wait_for(START_TIMEOUT, || ports.iter().all(listens)) {
        true => Ok(()),
        false => Err(failed("it does not listen at its addresses".to_owned())),
    }
}

/// Runs the command line of a server. It may go to the background or stay.
fn run(server: &RunningServer, directory: &Path) -> Result<(), String> {
    let log = directory.join(LOG_FILE);
    let output = File::options().create(true).append(true).open(&log);
    let output = output.map_err(|error| format!("{}: {error}", log.display()))?;
    let errors = output.try_clone().map_err(|error| error.to_string())?;
    let mut command = Command::new(&server.program);
    command.args(arguments(server)).process_group(0);
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    start_with_no_signal_blocked(&mut command);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    // Reaps the process if it goes to the background, and otherwise whenever it exits.
    std::thread::spawn(move || child.wait());
    Ok(())
}

/// Returns the arguments of a server without the name of its program.
fn arguments(server: &RunningServer) -> Vec<String> {
    let first = server.arguments.first().map_or("", String::as_str);
    match first.strip_prefix(NGINX_TITLE) {
        // The title has the command line, separated by spaces (ngx_process_cycle.c).
        Some(line) if server.kind == ServerKind::Nginx => {
            let words = line.split_whitespace().skip(1);
            words.map(str::to_owned).collect()
        }
        _ => server.arguments.iter().skip(1).cloned().collect(),
    }
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
                listeners: Vec::new(),
                loaded: Default::default(),
            };
            assert_eq!(arguments(&server), expected);
        };
        let title = "nginx: master process /usr/sbin/nginx -c /tmp/n.conf";
        check(ServerKind::Nginx, &[title], &["-c", "/tmp/n.conf"]);
        check(ServerKind::Nginx, &["nginx", "-c", "/n"], &["-c", "/n"]);
        check(
            ServerKind::Apache,
            &["apache2", "-k", "start"],
            &["-k", "start"],
        );
    }
}
