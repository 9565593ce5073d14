//! The control socket. A request is one line of JSON, and so is the response. The socket has mode 0600, because a
//! process that may connect may also stop the server: only the server's user has access.
//!
//! Requests: `{"command":"who"}`, `{"command":"status"}`, `{"command":"cache","ask":…}`,
//! `{"command":"certificates","ask":…}`, `{"command":"jobs","ask":…}`, `{"command":"reload"}`, `{"command":"reopen"}`,
//! `{"command":"upgrade"}`, `{"command":"stop","limit_ms":1000}`.
//!
//! Responses: `{"ok":true,…}` or `{"ok":false,"mistakes":[…]}`.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use howdah_server::admin::jobs::JobStatus;
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

use super::facts::ServerFacts;

/// The maximum length of a request, in bytes. A packet to the front can hold more.
pub const MAX_REQUEST_BYTES: usize = 32 << 10;
/// The maximum number of open connections; further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 64;
/// A connection is closed if no request arrives on it within this time.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum time for writing a response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// A request on the control socket.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase")]
pub enum ControlRequest {
    /// Requests the identity of the server. The master responds by itself, at once.
    Who,
    /// Requests the status of master and front.
    Status,
    /// A command for the page cache.
    Cache {
        /// What to look up or to purge.
        ask: howdah_server::cache::admin::AdminCommand,
    },
    /// A command for ordered certificates. The response is sent when the command is done.
    Certificates {
        /// The command; `None` requests the status of each certificate.
        ask: Option<howdah_acme::CertificateCommand>,
    },
    /// A command for background jobs. The response is sent when the command is done.
    Jobs {
        /// The command; `None` requests the status of each job.
        ask: Option<crate::jobs::settings::JobControlCommand>,
    },
    /// Load new code, php.ini and configuration. The response is sent when they are served.
    Reload,
    /// Open the log files again, after they have been renamed.
    Reopen,
    /// Replace the program with the one that is installed now. The response is sent when its front serves.
    Upgrade,
    /// Finish the running requests and exit. The response is sent when that is done.
    Stop {
        /// How long the running requests may take, in milliseconds; `None` means `timeouts.drain`.
        limit_ms: Option<u64>,
    },
}

/// A response on the control socket.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ControlResponse {
    /// Whether the command succeeded.
    pub ok: bool,
    /// What was done, or why the command failed.
    #[serde(default)]
    pub message: String,
    /// All mistakes, as they are displayed.
    #[serde(default)]
    pub mistakes: Vec<String>,
    /// Advice, as it is displayed.
    #[serde(default)]
    pub advice: Vec<String>,
    /// The number of the configuration that is being served.
    #[serde(default)]
    pub generation: u64,
    /// The process id of the master.
    #[serde(default)]
    pub master: u32,
    /// The front's status.
    #[serde(default)]
    pub status: Option<serde_json::Value>,
    /// The status of each ordered certificate.
    #[serde(default)]
    pub certificates: serde_json::Value,
    /// The status of each background job.
    #[serde(default)]
    pub jobs: Vec<JobStatus>,
    /// The identity of the server.
    #[serde(default)]
    pub server: Option<ServerFacts>,
}

/// A client that waits for a response.
pub struct ControlClient {
    stream: UnixStream,
}

impl ControlClient {
    /// Returns a client on a connection of the program before an upgrade.
    pub fn of(stream: UnixStream) -> ControlClient {
        ControlClient { stream }
    }

    /// Returns the connection on which the client waits for the response.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn respond(mut self, answer: &ControlResponse) {
        let Ok(mut line) = serde_json::to_vec(answer) else {
            return;
        };
        line.push(b'\n');
        // A client that has disconnected or does not read gets no response.
        let _ = self.stream.set_nonblocking(false);
        let _ = self.stream.set_write_timeout(Some(WRITE_TIMEOUT));
        let _ = self.stream.write_all(&line);
    }

    /// Responds that the command failed.
    pub fn refuse(self, why: &str) {
        self.respond(&ControlResponse {
            message: why.to_owned(),
            ..ControlResponse::default()
        });
    }

    /// Responds that the command failed, with all reasons.
    pub fn mistakes(self, mistakes: &[String]) {
        self.respond(&ControlResponse {
            mistakes: mistakes.to_vec(),
            ..ControlResponse::default()
        });
    }

    /// Responds that the command succeeded.
    pub fn succeed(self, what: &str, advice: &[String]) {
        self.respond(&ControlResponse {
            ok: true,
            message: what.to_owned(),
            advice: advice.to_vec(),
            ..ControlResponse::default()
        });
    }

    /// Responds with the identity of the server.
    pub fn who(self, server: ServerFacts) {
        self.respond(&ControlResponse {
            ok: true,
            master: std::process::id(),
            server: Some(server),
            ..ControlResponse::default()
        });
    }

    /// Responds with the status of each ordered certificate.
    pub fn certificates(self, certificates: serde_json::Value) {
        self.respond(&ControlResponse {
            ok: true,
            certificates,
            ..ControlResponse::default()
        });
    }

    /// Responds with the status of each background job.
    pub fn jobs(self, jobs: Vec<JobStatus>) {
        self.respond(&ControlResponse {
            ok: true,
            jobs,
            ..ControlResponse::default()
        });
    }

    /// Responds with the status, as the front wrote it.
    pub fn status(
        self,
        json: &str,
        generation: u64,
        server: ServerFacts,
        certificates: serde_json::Value,
    ) {
        match serde_json::from_str(json) {
            Ok(status) => self.respond(&ControlResponse {
                ok: true,
                generation,
                master: std::process::id(),
                status: Some(status),
                certificates,
                server: Some(server),
                ..ControlResponse::default()
            }),
            Err(_) => self.refuse("the front's status is not JSON"),
        }
    }
}

struct ControlConnection {
    stream: UnixStream,
    line: Vec<u8>,
    since: Instant,
}

/// The control socket and its connections.
pub struct ControlSocket {
    path: PathBuf,
    listener: UnixListener,
    connections: Vec<ControlConnection>,
    /// The client that requested the stop.
    pub stop_client: Option<ControlClient>,
}

impl ControlSocket {
    /// Binds the path, or a path in the default directory that is named after `label`. If no server accepts connections
    /// on an existing socket, its server is dead and the socket's file is removed. The socket of the program before an
    /// upgrade, `former`, is reused if there is one.
    pub fn bind(
        former: Option<ControlSocket>,
        path: Option<&Path>,
        label: &str,
    ) -> Result<ControlSocket, String> {
        if let Some(mut former) = former {
            if path.is_some_and(|path| path != former.path) {
                former.replace(ControlSocket::bind(None, path, label)?);
            }
            return Ok(former);
        }
        let path = match path {
            Some(path) => path.to_owned(),
            None => {
                let directory = runtime_directory();
                create_private_directory(&directory)?;
                directory.join(format!("{label}.sock"))
            }
        };
        let failed = |error: io::Error| {
            format!(
                "ControlFailed: cannot create the control socket {}: {error}; name another path with --control",
                path.display()
            )
        };
        match UnixStream::connect(&path) {
            Ok(stream) => {
                let holder = rustix::net::sockopt::socket_peercred(&stream)
                    .map(|who| format!(" (process {})", who.pid.as_raw_nonzero()))
                    .unwrap_or_default();
                return Err(format!(
                    "ControlInUse: another howdah{holder} uses the control socket {}; stop it, or name another path with --control",
                    path.display()
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // Connecting to a file that is not a socket is refused as well; that file is not ours to remove.
                let there = path.symlink_metadata().map_err(failed)?;
                if !there.file_type().is_socket() {
                    return Err(failed(io::Error::other(
                        "the path exists and is not a socket",
                    )));
                }
                std::fs::remove_file(&path).map_err(failed)?;
            }
            Err(_) => {}
        }
        // This process has a single thread, so no other thread creates a file while the umask is changed.
        let before = rustix::process::umask(Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(&path);
        rustix::process::umask(before);
        let listener = bound.map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(ControlSocket::of(path, listener))
    }

    /// Returns the socket that the program before an upgrade had bound.
    pub fn of(path: PathBuf, listener: UnixListener) -> ControlSocket {
        ControlSocket {
            path,
            listener,
            connections: Vec::new(),
            stop_client: None,
        }
    }

    /// Returns whether a client is connected and about to send a request.
    pub fn has_connections(&self) -> bool {
        !self.connections.is_empty()
    }

    /// Returns the listening socket, for the program after an upgrade.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Moves to another socket. Clients that are connected, or waiting to be accepted, still receive a response.
    pub fn replace(&mut self, other: ControlSocket) {
        self.accept();
        self.remove_file();
        (self.path, self.listener) = (other.path, other.listener);
    }

    fn accept(&mut self) {
        while self.connections.len() < MAX_CONNECTIONS
            && let Ok((stream, _)) = self.listener.accept()
        {
            if stream.set_nonblocking(true).is_ok() {
                self.connections.push(ControlConnection {
                    stream,
                    line: Vec::new(),
                    since: Instant::now(),
                });
            }
        }
    }

    /// Returns the descriptors to poll: the listening socket, then the connections.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let connections = self.connections.iter().map(|c| c.stream.as_fd());
        std::iter::once(self.listener.as_fd()).chain(connections)
    }

    /// Reads the requests that have arrived on the descriptors that are ready.
    pub fn read_requests(&mut self, ready: &[bool]) -> Vec<(ControlRequest, ControlClient)> {
        let mut questions = Vec::new();
        let mut left = Vec::new();
        let flags = ready
            .iter()
            .skip(1)
            .copied()
            .chain(std::iter::repeat(false));
        for (mut connection, ready) in self.connections.drain(..).zip(flags) {
            if !ready {
                if connection.since.elapsed() < REQUEST_TIMEOUT {
                    left.push(connection);
                }
                continue;
            }
            match connection.read() {
                RequestRead::More => left.push(connection),
                RequestRead::Gone => {}
                RequestRead::Question(question) => {
                    let asker = ControlClient {
                        stream: connection.stream,
                    };
                    match question {
                        Some(question) => questions.push((question, asker)),
                        None => asker.refuse(
                            "unknown command; expected who, status, cache, certificates, jobs, reload, upgrade or stop",
                        ),
                    }
                }
            }
        }
        self.connections = left;
        if ready.first() == Some(&true) {
            self.accept();
        }
        questions
    }

    /// Returns the path of the socket's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the socket's file when the server exits.
    pub fn remove_file(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

enum RequestRead {
    More,
    Gone,
    /// `None` if the request is not a valid command.
    Question(Option<ControlRequest>),
}

impl ControlConnection {
    fn read(&mut self) -> RequestRead {
        let mut bytes = [0; 1024];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return RequestRead::Gone,
                Ok(n) => self.line.extend_from_slice(&bytes[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return RequestRead::Gone,
            }
            if self.line.len() > MAX_REQUEST_BYTES {
                return RequestRead::Question(None);
            }
        }
        let Some(end) = self.line.iter().position(|b| *b == b'\n') else {
            return RequestRead::More;
        };
        RequestRead::Question(serde_json::from_slice(&self.line[..end]).ok())
    }
}

/// Returns the default directory of control sockets.
pub fn runtime_directory() -> PathBuf {
    if crate::sys::is_root() {
        return PathBuf::from("/run/howdah");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if !directory.is_empty() => PathBuf::from(directory).join("howdah"),
        _ => {
            let uid = rustix::process::geteuid().as_raw();
            PathBuf::from(format!("/tmp/howdah-{uid}"))
        }
    }
}

/// Returns the process id of the server whose control socket in this directory is named after the port, if the server
/// is running.
pub fn server_of_port(directory: &Path, port: u16) -> Option<i32> {
    let path = directory.join(format!("{port}.sock"));
    let stream = UnixStream::connect(path).ok()?;
    let who = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    Some(who.pid.as_raw_nonzero().get())
}

/// Creates the directory, or checks an existing one: in /tmp any user may have created it before us.
fn create_private_directory(directory: &Path) -> Result<(), String> {
    let failed = |why: String| {
        format!(
            "ControlFailed: cannot use {} for control sockets: {why}; name a path with --control",
            directory.display()
        )
    };
    let made = std::fs::DirBuilder::new().mode(0o700).create(directory);
    if let Err(error) = made
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(failed(error.to_string()));
    }
    let meta = directory
        .symlink_metadata()
        .map_err(|e| failed(e.to_string()))?;
    let ours = meta.uid() == rustix::process::geteuid().as_raw();
    if !meta.is_dir() || !ours || meta.permissions().mode() & 0o022 != 0 {
        let why =
            "it must be a directory that belongs to this user and that no other user can write to";
        return Err(failed(why.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_of_a_port_is_found_by_its_control_socket_while_it_runs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("8080.sock");
        let socket = UnixListener::bind(path).unwrap();
        let ours = Some(std::process::id() as i32);
        assert_eq!(server_of_port(directory.path(), 8080), ours);
        assert_eq!(server_of_port(directory.path(), 8081), None);
        // The file stays, as after a crash.
        drop(socket);
        assert_eq!(server_of_port(directory.path(), 8080), None);
    }
}
