//! Finds a server's control socket and sends requests to it.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::master::control::{ControlRequest, ControlResponse, runtime_directory};
use crate::master::facts::ServerFacts;
use crate::master::watchdog;
use howdah_config::arguments::{ServeArguments, ServerTarget};
use howdah_config::environment::EnvironmentOptions;
use howdah_config::{self, ConfigSource};

/// How long a master may take to send its identity. It responds by itself, but sometimes checks files first.
const IDENTITY_TIMEOUT: Duration = Duration::from_secs(15);

/// How long to wait for a response.
#[derive(Clone, Copy, Debug)]
pub enum ResponseWait {
    /// This long, regardless of what the server is doing.
    AtMost(Duration),
    /// While the server's master is alive: the server itself limits how long this takes.
    WhileMasterLives,
}

/// The reason why there is no response.
#[derive(Debug)]
pub enum NoResponse {
    /// No such server runs.
    NoServer(String),
    /// The server runs but did not respond, or several servers match.
    Other(String),
}

impl From<String> for NoResponse {
    fn from(why: String) -> NoResponse {
        NoResponse::Other(why)
    }
}

impl NoResponse {
    /// Returns the reason, as the command prints it.
    pub fn reason(self) -> String {
        let (NoResponse::NoServer(why) | NoResponse::Other(why)) = self;
        why
    }
}

/// Sends a request to the selected server. Fails with the reason why there is no response.
pub fn send_request(
    target: &ServerTarget,
    question: &ControlRequest,
    wait: ResponseWait,
) -> Result<ControlResponse, String> {
    send_request_if_server_runs(target, question, wait).map_err(NoResponse::reason)
}

/// Does the same as [`send_request`], but lets the caller tell a missing server from other failures.
pub fn send_request_if_server_runs(
    target: &ServerTarget,
    question: &ControlRequest,
    wait: ResponseWait,
) -> Result<ControlResponse, NoResponse> {
    let (path, stream) = connect(target)?;
    Ok(exchange(&path, &stream, question, wait)?)
}

fn exchange(
    path: &Path,
    stream: &UnixStream,
    question: &ControlRequest,
    wait: ResponseWait,
) -> Result<ControlResponse, String> {
    let failed = |error: io::Error| {
        let path = path.display();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                silent_master_message(stream, &path.to_string())
            }
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                format!("NoAnswer: the server at {path} exited without a response")
            }
            _ => format!("NoAnswer: no response from the server at {path}: {error}"),
        }
    };
    let timeout = match wait {
        ResponseWait::AtMost(time) => time,
        ResponseWait::WhileMasterLives => IDENTITY_TIMEOUT,
    };
    stream.set_read_timeout(Some(timeout)).map_err(failed)?;
    stream.set_write_timeout(Some(timeout)).map_err(failed)?;
    let mut line = serde_json::to_vec(question).map_err(|e| failed(e.into()))?;
    line.push(b'\n');
    let mut out = stream;
    out.write_all(&line).map_err(failed)?;
    let mut answer = Vec::new();
    let mut reader = BufReader::new(stream);
    loop {
        match reader.read_until(b'\n', &mut answer) {
            Ok(_) => break,
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock
                    && matches!(wait, ResponseWait::WhileMasterLives) =>
            {
                // A master that responds to this is alive and still works on the request. A master of a version without
                // `who` responds, too, with an error.
                let other = UnixStream::connect(path).map_err(failed)?;
                exchange(
                    path,
                    &other,
                    &ControlRequest::Who,
                    ResponseWait::AtMost(IDENTITY_TIMEOUT),
                )?;
            }
            Err(error) => return Err(failed(error)),
        }
    }
    if answer.is_empty() {
        return Err(failed(io::ErrorKind::BrokenPipe.into()));
    }
    serde_json::from_slice(&answer).map_err(|e| failed(e.into()))
}

/// Describes a master that does not respond: it is stopped or waits for a disk, and the kernel knows which.
fn silent_master_message(stream: &UnixStream, path: &str) -> String {
    let master = rustix::net::sockopt::socket_peercred(stream).map(|who| {
        let pid = who.pid.as_raw_nonzero().get();
        watchdog::describe(pid, pid)
    });
    let master = master.unwrap_or_else(|_| "unknown".to_owned());
    format!(
        "NoAnswer: the server at {path} has not responded in time; the state of its master: {master}"
    )
}

fn connect(target: &ServerTarget) -> Result<(PathBuf, UnixStream), NoResponse> {
    let named = match (&target.control, &target.config) {
        (Some(path), _) => Some(path.clone()),
        (None, Some(file)) => {
            let source = ConfigSource::read(file)?;
            howdah_config::control_socket_path(&ServeArguments::default(), &source)
        }
        (None, None) => EnvironmentOptions::of_process().control(),
    };
    let path = match named {
        Some(path) => path,
        None => find(target.config.as_deref())?,
    };
    match UnixStream::connect(&path) {
        Ok(stream) => Ok((path, stream)),
        Err(error) => {
            let why = format!(
                "NoServer: no server responds on {}: {error}",
                path.display()
            );
            Err(match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    NoResponse::NoServer(why)
                }
                _ => NoResponse::Other(why),
            })
        }
    }
}

/// Finds a server in the default directory: the one with this configuration file, or the only one.
fn find(file: Option<&Path>) -> Result<PathBuf, NoResponse> {
    let directory = runtime_directory();
    let mut alive = sockets(&directory);
    alive.retain(|path| UnixStream::connect(path).is_ok());
    if let Some(file) = file {
        return find_by_configuration(file, &directory, alive);
    }
    match alive.len() {
        0 => Err(NoResponse::NoServer(format!(
            "NoServer: no server is running (looked in {}); if its control socket is elsewhere, name it with --control",
            directory.display()
        ))),
        1 => Ok(alive.remove(0)),
        n => {
            let title = format!("SeveralServers: {n} servers are running; choose one of them:");
            Err(list_servers(&title, &alive).into())
        }
    }
}

/// Finds the server that was started with this file. Its port may come from the command line or from an earlier version
/// of the file, so each server is asked.
fn find_by_configuration(
    file: &Path,
    directory: &Path,
    alive: Vec<PathBuf>,
) -> Result<PathBuf, NoResponse> {
    let whole = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let is_it = |path: &PathBuf| {
        let config = server_facts(path).and_then(|facts| facts.config);
        config.is_some_and(|config| config == whole)
    };
    let (mut those, others): (Vec<_>, Vec<_>) = alive.into_iter().partition(is_it);
    let file = whole.display();
    match (those.len(), others.is_empty()) {
        (1, _) => Ok(those.remove(0)),
        (0, true) => Err(NoResponse::NoServer(format!(
            "NoServer: no server is running, neither with {file} nor with another configuration (looked in {})",
            directory.display()
        ))),
        (0, false) => {
            let title =
                format!("NoServer: no server is running with {file}; the running servers are:");
            Err(NoResponse::NoServer(list_servers(&title, &others)))
        }
        (n, _) => {
            let title =
                format!("SeveralServers: {n} servers are running with {file}; choose one of them:");
            Err(list_servers(&title, &those).into())
        }
    }
}

/// Requests the identity on a connection of its own, because a server handles one request on each connection.
fn server_facts(path: &Path) -> Option<ServerFacts> {
    let stream = UnixStream::connect(path).ok()?;
    exchange(
        path,
        &stream,
        &ControlRequest::Who,
        ResponseWait::AtMost(IDENTITY_TIMEOUT),
    )
    .ok()?
    .server
}

/// Returns `title`, followed by a line for each server.
fn list_servers(title: &str, servers: &[PathBuf]) -> String {
    let mut text = title.to_owned();
    for path in servers {
        let facts =
            server_facts(path).map_or_else(|| "does not respond".to_owned(), |facts| facts.line());
        text += &format!("\n  --control {}  {facts}", path.display());
    }
    text
}

fn sockets(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "sock"))
        .collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn client_describes_a_server_that_does_not_respond() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.sock");
        // Connections wait in the backlog of this listener.
        let listener = UnixListener::bind(&path).unwrap();
        let ask = || {
            let stream = UnixStream::connect(&path).unwrap();
            let wait = ResponseWait::AtMost(Duration::from_millis(20));
            exchange(&path, &stream, &ControlRequest::Status, wait).unwrap_err()
        };
        let why = ask();
        let named = format!("NoAnswer: the server at {} has not", path.display());
        assert!(why.starts_with(&named), "{why}");
        assert!(why.contains("its master: "), "{why}");
        assert!(!why.contains("os error"), "{why}");
        let end = std::thread::spawn(move || drop(listener.incoming().nth(1)));
        let why = ask();
        assert!(why.contains("exited without a response"), "{why}");
        end.join().unwrap();
    }
}
