//! The messages between the front and the spawner of a pool (modes `cgi` and `pool`), over one `SOCK_SEQPACKET` unix
//! socket. The spawner does for external programs what the zygote does for PHP children: it owns the processes, and the
//! front makes the decisions. There is no I/O here.
//!
//! ```text
//! command = "start" ID LIMIT_MS ("configured" | "file") NUL file NUL directory NUL {"NAME=value" NUL}
//!         | "end" ID GRACE_MS | "release" ID | "ask"
//! report = "ready" | "failed" NAME TEXT | "started" ID PID | "not-started" ID ERRNO
//!        | "exited" ID ("code" N | "signal" N) | "here"
//! ```
//! A *configured* start does not name the program: the spawner got it from the master, which reads it from the
//! configuration. Descriptors travel with `start` (`SCM_RIGHTS`). The end of the file means that the other side is
//! gone.

use crate::control::Exit;

/// The maximum length of a packet, in bytes; a longer one is neither sent nor accepted. The variables of a frame and
/// their names fit.
pub const MAX_PACKET_BYTES: usize = 160 * 1024;

/// The program that a start executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramToStart {
    /// The pool's configured program.
    Configured,
    /// This file (an absolute path).
    File(Vec<u8>),
}

/// Starts a process as the leader of a new process group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramStart {
    /// The number by which all later messages refer to the process.
    pub id: u64,
    /// The program to execute.
    pub program: ProgramToStart,
    /// The working directory. If it is empty, the process gets the spawner's.
    pub directory: Vec<u8>,
    /// `NAME=value` pairs, added to the spawner's environment.
    pub environment: Vec<Vec<u8>>,
    /// Milliseconds after which the process group is terminated (SIGTERM, then SIGKILL), regardless of the front. 0
    /// means no limit.
    pub limit_ms: u64,
}

/// A command from the front to a spawner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpawnerCommand {
    /// Starts a process. The spawner replies with [`SpawnerReport::Started`] or [`SpawnerReport::NotStarted`].
    Start(ProgramStart),
    /// Sends SIGTERM to the process group, and SIGKILL after this many milliseconds.
    End {
        /// The number of the process ([`ProgramStart::id`]).
        id: u64,
        /// Milliseconds between SIGTERM and SIGKILL.
        grace_ms: u64,
    },
    /// The front will not signal this process any more, so it may be reaped. Until then the leader stays a zombie, so
    /// the id of its group cannot be reused by another.
    Release {
        /// The number of the process ([`ProgramStart::id`]).
        id: u64,
    },
    /// Asks whether the spawner still responds. It replies with [`SpawnerReport::Pong`].
    Ping,
}

/// A report from a spawner to the front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpawnerReport {
    /// The spawner is ready to start processes.
    Ready,
    /// The spawner cannot work: a named reason and a sentence. It exits after this.
    Failed {
        /// `ProgramMissing`, `NoSuchUser` …
        name: String,
        /// What was attempted, on what, and what to do about it.
        message: String,
    },
    /// The process of a [`SpawnerCommand::Start`] is running.
    Started {
        /// The number of the process ([`ProgramStart::id`]).
        id: u64,
        /// The id of the process and of its process group.
        pid: i32,
    },
    /// The process of a [`SpawnerCommand::Start`] could not be started.
    NotStarted {
        /// The number the process would have had ([`ProgramStart::id`]).
        id: u64,
        /// `ENOENT`, `EACCES`, `ENOEXEC` …
        errno: i32,
    },
    /// The leader of the process group has exited.
    Exited {
        /// The number of the process ([`ProgramStart::id`]).
        id: u64,
        /// How the leader ended: its exit code or the signal.
        exit: Exit,
    },
    /// The reply to [`SpawnerCommand::Ping`].
    Pong,
}

fn word<'a>(text: &mut &'a str) -> Option<&'a str> {
    let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
    *text = rest;
    (!first.is_empty()).then_some(first)
}

fn number<T: std::str::FromStr>(text: &mut &str) -> Option<T> {
    word(text)?.parse().ok()
}

impl SpawnerCommand {
    /// Encodes the command as one packet. No part of it may contain a NUL byte, since the format has no way to express
    /// one; a frame's variables contain none.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            SpawnerCommand::Start(start) => {
                let (word, file) = match &start.program {
                    ProgramToStart::Configured => ("configured", &[][..]),
                    ProgramToStart::File(file) => ("file", &file[..]),
                };
                let mut out =
                    format!("start {} {} {word}\0", start.id, start.limit_ms).into_bytes();
                let fields = [file, &start.directory].into_iter();
                for field in fields.chain(start.environment.iter().map(Vec::as_slice)) {
                    out.extend_from_slice(field);
                    out.push(0);
                }
                out
            }
            SpawnerCommand::End { id, grace_ms } => format!("end {id} {grace_ms}").into_bytes(),
            SpawnerCommand::Release { id } => format!("release {id}").into_bytes(),
            SpawnerCommand::Ping => b"ask".to_vec(),
        }
    }

    /// Parses a packet. Returns `None` if it is not one of these commands.
    pub fn parse(packet: &[u8]) -> Option<SpawnerCommand> {
        if packet.len() > MAX_PACKET_BYTES {
            return None;
        }
        let end = packet.iter().position(|b| *b == 0).unwrap_or(packet.len());
        let mut head = std::str::from_utf8(&packet[..end]).ok()?;
        let command = match word(&mut head)? {
            "start" => {
                let (id, limit_ms) = (number(&mut head)?, number(&mut head)?);
                let kind = word(&mut head)?;
                // Every field ends with a NUL, including the last one.
                let fields = packet.get(end + 1..)?.strip_suffix(&[0])?;
                let mut fields = fields.split(|b| *b == 0);
                let (file, directory) = (fields.next()?, fields.next()?);
                let what = match (kind, file) {
                    ("configured", []) => ProgramToStart::Configured,
                    ("file", [b'/', ..]) => ProgramToStart::File(file.to_vec()),
                    _ => return None,
                };
                let environment: Vec<Vec<u8>> = fields.map(<[u8]>::to_vec).collect();
                let named =
                    |pair: &Vec<u8>| pair.iter().position(|b| *b == b'=').is_some_and(|n| n > 0);
                if !environment.iter().all(named) {
                    return None;
                }
                SpawnerCommand::Start(ProgramStart {
                    id,
                    program: what,
                    directory: directory.to_vec(),
                    environment,
                    limit_ms,
                })
            }
            _ if end < packet.len() => return None,
            "end" => SpawnerCommand::End {
                id: number(&mut head)?,
                grace_ms: number(&mut head)?,
            },
            "release" => SpawnerCommand::Release {
                id: number(&mut head)?,
            },
            "ask" => SpawnerCommand::Ping,
            _ => return None,
        };
        head.is_empty().then_some(command)
    }
}

impl SpawnerReport {
    /// Encodes the report as one packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            SpawnerReport::Ready => "ready".to_owned(),
            SpawnerReport::Failed { name, message } => format!("failed {name} {message:.4096}"),
            SpawnerReport::Started { id, pid } => format!("started {id} {pid}"),
            SpawnerReport::NotStarted { id, errno } => format!("not-started {id} {errno}"),
            SpawnerReport::Exited { id, exit } => match exit {
                Exit::Code(code) => format!("exited {id} code {code}"),
                Exit::Signal(signal) => format!("exited {id} signal {signal}"),
                // A spawner never sends this.
                Exit::Unseen => format!("exited {id} code 255"),
            },
            SpawnerReport::Pong => "here".to_owned(),
        }
        .into_bytes()
    }

    /// Parses a packet. Returns `None` if it is not one of these reports.
    pub fn parse(packet: &[u8]) -> Option<SpawnerReport> {
        let mut text = std::str::from_utf8(packet).ok()?;
        let report = match word(&mut text)? {
            "ready" => SpawnerReport::Ready,
            "failed" => {
                let name = word(&mut text)?.to_owned();
                let message = std::mem::take(&mut text).to_owned();
                SpawnerReport::Failed { name, message }
            }
            "started" => SpawnerReport::Started {
                id: number(&mut text)?,
                pid: number(&mut text).filter(|pid| *pid > 0)?,
            },
            "not-started" => SpawnerReport::NotStarted {
                id: number(&mut text)?,
                errno: number(&mut text)?,
            },
            "exited" => SpawnerReport::Exited {
                id: number(&mut text)?,
                exit: match (word(&mut text)?, number(&mut text)?) {
                    ("code", code) => Exit::Code(code),
                    ("signal", signal) => Exit::Signal(signal),
                    _ => return None,
                },
            },
            "here" => SpawnerReport::Pong,
            _ => return None,
        };
        text.is_empty().then_some(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> ProgramStart {
        ProgramStart {
            id: 7,
            program: ProgramToStart::File(b"/srv/cgi-bin/a b.pl".to_vec()),
            directory: b"/srv/cgi-bin".to_vec(),
            environment: vec![b"QUERY_STRING=a=1&b=\xff".to_vec(), b"EMPTY=".to_vec()],
            limit_ms: 300_000,
        }
    }

    #[test]
    fn spawner_messages_round_trip() {
        let configured = ProgramStart {
            program: ProgramToStart::Configured,
            directory: Vec::new(),
            environment: Vec::new(),
            ..start()
        };
        for command in [
            SpawnerCommand::Start(start()),
            SpawnerCommand::Start(configured),
            SpawnerCommand::End {
                id: 1,
                grace_ms: 1000,
            },
            SpawnerCommand::Release { id: u64::MAX },
            SpawnerCommand::Ping,
        ] {
            assert_eq!(SpawnerCommand::parse(&command.encode()), Some(command));
        }
        for report in [
            SpawnerReport::Ready,
            SpawnerReport::Failed {
                name: "ProgramMissing".into(),
                message: "no /usr/bin/php-cgi; apt install php-cgi".into(),
            },
            SpawnerReport::Started { id: 3, pid: 77 },
            SpawnerReport::NotStarted { id: 3, errno: 8 },
            SpawnerReport::Exited {
                id: 3,
                exit: Exit::Code(0),
            },
            SpawnerReport::Exited {
                id: 3,
                exit: Exit::Signal(9),
            },
            SpawnerReport::Pong,
        ] {
            assert_eq!(SpawnerReport::parse(&report.encode()), Some(report));
        }
    }

    #[test]
    fn spawner_start_needs_an_absolute_path_and_malformed_packets_are_refused() {
        for packet in [
            &b""[..],
            b"start",
            b"start 1 0 configured",
            b"start 1 0 configured\0\0",
            b"start 1 0 configured\0/bin/sh\0/\0",
            b"start 1 0 file\0\0/\0",
            b"start 1 0 file\0bin/sh\0/\0",
            b"start 1 0 file\0/bin/sh\0/\0NOVALUE\0",
            b"start 1 0 file\0/bin/sh\0/\0=x\0",
            b"start 1 0 file\0/bin/sh\0/\0A=1",
            b"start x 0 file\0/bin/sh\0/\0",
            b"end 1",
            b"end 1 2 3",
            b"end 1 2\0",
            b"release -1",
            b"exited 1 dead 3",
            b"started 1 -1",
            b"started 1 0",
        ] {
            assert_eq!(SpawnerCommand::parse(packet), None, "{packet:?}");
            assert_eq!(SpawnerReport::parse(packet), None, "{packet:?}");
        }
    }
}
