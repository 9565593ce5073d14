//! The control socket: a line of JSON asks, a line of JSON answers. Mode 0600: whoever may connect
//! may stop the server, so that is its user alone.
//!
//! Questions: `{"command":"who"}`, `{"command":"status"}`, `{"command":"cache","ask":…}`, `{"command":"certificates","ask":…}`, `{"command":"jobs","ask":…}`, `{"command":"reload"}`, `{"command":"upgrade"}`, `{"command":"stop","limit_ms":1000}`.
//! Answers: `{"ok":true,…}` or `{"ok":false,"mistakes":[…]}`.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use howdah_server::admin::jobs::JobStatus;
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

use super::facts::Facts;

/// Longest question. A packet to the front holds more.
pub const LONGEST: usize = 32 << 10;
/// Most connections at once; who comes later waits.
const CONNECTIONS: usize = 64;
/// Who has not asked within this time is not going to.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long an answer may take to be written.
const WRITING: Duration = Duration::from_secs(2);

/// What may be asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase")]
pub enum Ask {
    /// Which server this is. The master answers by itself, at once.
    Who,
    /// The status of master and front.
    Status,
    /// Something about the page cache.
    Cache {
        /// What to look up or to purge.
        ask: howdah_server::cache::admin::AdminCommand,
    },
    /// Something about ordered certificates. Answered when it is done.
    Certificates {
        /// What is wanted; none: how it stands with each.
        ask: Option<howdah_acme::Command>,
    },
    /// Something about background jobs. Answered when it is done.
    Jobs {
        /// What is wanted; none: how each stands.
        ask: Option<crate::jobs::settings::JobCommand>,
    },
    /// Take new code, php.ini and configuration. Answered when they are served.
    Reload,
    /// Go on as the program that is installed now. Answered when its front serves.
    Upgrade,
    /// Finish what runs and end. Answered when it has.
    Stop {
        /// How long running requests may take, in milliseconds; none: `timeouts.drain`.
        limit_ms: Option<u64>,
    },
}

/// What is answered.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Whether it was done.
    pub ok: bool,
    /// What was done, or why not.
    #[serde(default)]
    pub message: String,
    /// All mistakes, as they are shown.
    #[serde(default)]
    pub mistakes: Vec<String>,
    /// Advice, as it is shown.
    #[serde(default)]
    pub advice: Vec<String>,
    /// Number of the configuration that is served.
    #[serde(default)]
    pub generation: u64,
    /// Process id of the master.
    #[serde(default)]
    pub master: u32,
    /// The front's status.
    #[serde(default)]
    pub status: Option<serde_json::Value>,
    /// How it stands with each ordered certificate.
    #[serde(default)]
    pub certificates: serde_json::Value,
    /// How each background job stands.
    #[serde(default)]
    pub jobs: Vec<JobStatus>,
    /// Which server this is.
    #[serde(default)]
    pub server: Option<Facts>,
}

/// Somebody who waits for an answer.
pub struct Asker {
    stream: UnixStream,
}

impl Asker {
    /// On a connection that the program before an upgrade had.
    pub fn of(stream: UnixStream) -> Asker {
        Asker { stream }
    }

    /// The connection on which the answer is awaited.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn answer(mut self, answer: &Answer) {
        let Ok(mut line) = serde_json::to_vec(answer) else {
            return;
        };
        line.push(b'\n');
        // Who has gone, or does not read, goes without.
        let _ = self.stream.set_nonblocking(false);
        let _ = self.stream.set_write_timeout(Some(WRITING));
        let _ = self.stream.write_all(&line);
    }

    /// It was not done.
    pub fn refuse(self, why: &str) {
        self.answer(&Answer {
            message: why.to_owned(),
            ..Answer::default()
        });
    }

    /// It was not done, for all these reasons.
    pub fn mistakes(self, mistakes: &[String]) {
        self.answer(&Answer {
            mistakes: mistakes.to_vec(),
            ..Answer::default()
        });
    }

    /// It was done.
    pub fn done(self, what: &str, advice: &[String]) {
        self.answer(&Answer {
            ok: true,
            message: what.to_owned(),
            advice: advice.to_vec(),
            ..Answer::default()
        });
    }

    /// Which server this is.
    pub fn who(self, server: Facts) {
        self.answer(&Answer {
            ok: true,
            master: std::process::id(),
            server: Some(server),
            ..Answer::default()
        });
    }

    /// How it stands with each ordered certificate.
    pub fn certificates(self, certificates: serde_json::Value) {
        self.answer(&Answer {
            ok: true,
            certificates,
            ..Answer::default()
        });
    }

    /// How each background job stands.
    pub fn jobs(self, jobs: Vec<JobStatus>) {
        self.answer(&Answer {
            ok: true,
            jobs,
            ..Answer::default()
        });
    }

    /// The status, as the front wrote it.
    pub fn status(
        self,
        json: &str,
        generation: u64,
        server: Facts,
        certificates: serde_json::Value,
    ) {
        match serde_json::from_str(json) {
            Ok(status) => self.answer(&Answer {
                ok: true,
                generation,
                master: std::process::id(),
                status: Some(status),
                certificates,
                server: Some(server),
                ..Answer::default()
            }),
            Err(_) => self.refuse("the front's status is not JSON"),
        }
    }
}

struct Connection {
    stream: UnixStream,
    line: Vec<u8>,
    since: Instant,
}

/// The socket and who is connected.
pub struct ControlSocket {
    path: PathBuf,
    listener: UnixListener,
    connections: Vec<Connection>,
    /// Who asked for the stop.
    pub stop_asker: Option<Asker>,
}

impl ControlSocket {
    /// Binds the path, or one named after `label` in the usual directory. A socket that nobody
    /// answers on is a dead server's and goes. That of the program before an upgrade, `former`, stays if it is
    /// there.
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
                private_directory(&directory)?;
                directory.join(format!("{label}.sock"))
            }
        };
        let failed = |error: io::Error| {
            format!(
                "ControlFailed: cannot make the control socket {}: {error}; name another with --control",
                path.display()
            )
        };
        match UnixStream::connect(&path) {
            Ok(stream) => {
                let holder = rustix::net::sockopt::socket_peercred(&stream)
                    .map(|who| format!(" (process {})", who.pid.as_raw_nonzero()))
                    .unwrap_or_default();
                return Err(format!(
                    "ControlInUse: another howdah{holder} answers on the control socket {}; stop it, or name another with --control",
                    path.display()
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // A file that is no socket refuses as well, and is not ours to remove.
                let there = path.symlink_metadata().map_err(failed)?;
                if !there.file_type().is_socket() {
                    return Err(failed(io::Error::other(
                        "a file that is no socket is there",
                    )));
                }
                std::fs::remove_file(&path).map_err(failed)?;
            }
            Err(_) => {}
        }
        // Single-threaded: nobody else makes a file meanwhile.
        let before = rustix::process::umask(Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(&path);
        rustix::process::umask(before);
        let listener = bound.map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(ControlSocket::of(path, listener))
    }

    /// The socket that the program before an upgrade had bound.
    pub fn of(path: PathBuf, listener: UnixListener) -> ControlSocket {
        ControlSocket {
            path,
            listener,
            connections: Vec::new(),
            stop_asker: None,
        }
    }

    /// Whether somebody is about to ask.
    pub fn is_talking(&self) -> bool {
        !self.connections.is_empty()
    }

    /// The socket, for the program after an upgrade.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Goes on at another socket; who is connected, or was about to be, is still answered.
    pub fn replace(&mut self, other: ControlSocket) {
        self.accept();
        self.remove_file();
        (self.path, self.listener) = (other.path, other.listener);
    }

    fn accept(&mut self) {
        while self.connections.len() < CONNECTIONS
            && let Ok((stream, _)) = self.listener.accept()
        {
            if stream.set_nonblocking(true).is_ok() {
                self.connections.push(Connection {
                    stream,
                    line: Vec::new(),
                    since: Instant::now(),
                });
            }
        }
    }

    /// To wait on: the socket, then the connections.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let connections = self.connections.iter().map(|c| c.stream.as_fd());
        std::iter::once(self.listener.as_fd()).chain(connections)
    }

    /// Takes what came on the descriptors that are ready.
    pub fn serve(&mut self, ready: &[bool]) -> Vec<(Ask, Asker)> {
        let mut questions = Vec::new();
        let mut left = Vec::new();
        let flags = ready
            .iter()
            .skip(1)
            .copied()
            .chain(std::iter::repeat(false));
        for (mut connection, ready) in self.connections.drain(..).zip(flags) {
            if !ready {
                if connection.since.elapsed() < PATIENCE {
                    left.push(connection);
                }
                continue;
            }
            match connection.read() {
                Reading::More => left.push(connection),
                Reading::Gone => {}
                Reading::Question(question) => {
                    let asker = Asker {
                        stream: connection.stream,
                    };
                    match question {
                        Some(question) => questions.push((question, asker)),
                        None => asker.refuse(
                            "not a command: who, status, cache, certificates, jobs, reload, upgrade or stop",
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

    /// The path of its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file, at the end.
    pub fn remove_file(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

enum Reading {
    More,
    Gone,
    /// None: it is no question that a server answers.
    Question(Option<Ask>),
}

impl Connection {
    fn read(&mut self) -> Reading {
        let mut bytes = [0; 1024];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Reading::Gone,
                Ok(n) => self.line.extend_from_slice(&bytes[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Reading::Gone,
            }
            if self.line.len() > LONGEST {
                return Reading::Question(None);
            }
        }
        let Some(end) = self.line.iter().position(|b| *b == b'\n') else {
            return Reading::More;
        };
        Reading::Question(serde_json::from_slice(&self.line[..end]).ok())
    }
}

/// Where control sockets are when nobody says otherwise.
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

/// The process id of the server whose control socket is named after that port, if it lives.
pub fn answers_for_port(port: u16) -> Option<i32> {
    let path = runtime_directory().join(format!("{port}.sock"));
    let stream = UnixStream::connect(path).ok()?;
    let who = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    Some(who.pid.as_raw_nonzero().get())
}

/// In /tmp anybody may have made it before us.
fn private_directory(directory: &Path) -> Result<(), String> {
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
        let why = "it is not a directory of ours that only we can write";
        return Err(failed(why.to_owned()));
    }
    Ok(())
}
