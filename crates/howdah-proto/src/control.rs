//! The control messages between the front and the zygote of a pool, over one `SOCK_SEQPACKET` unix socket. A message is
//! one packet of text. The zygote owns the processes (only it can fork and reap them); the front makes the decisions.
//!
//! The end of the file means that the other side is gone. A zygote then retires its children, each of which finishes
//! its request, and exits; a front starts a new zygote.

use crate::shm::ChildId;
use crate::worker::WorkerMessage;

/// The maximum length of a packet, in bytes. A longer trace is truncated to fit.
pub const MAX_MESSAGE: usize = 32 * 1024;

/// A command from the front to a zygote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Forks a child for this scoreboard row. The child exits after `max_requests` jobs (0: never). The zygote replies
    /// with [`Report::Spawned`] or [`Report::SpawnFailed`].
    Spawn {
        /// The row and its new incarnation.
        child: ChildId,
        /// The number of jobs after which the child exits.
        max_requests: u64,
    },
    /// Sends a signal to a child, if the child still has this incarnation and has not been reaped.
    Signal {
        /// The child that receives the signal.
        child: ChildId,
        /// The signal's number, as kill(2) takes it.
        signal: i32,
    },
    /// Reads the PHP stack of a running child from outside. The zygote replies with [`Report::Trace`].
    Trace {
        /// The child whose stack is read.
        child: ChildId,
    },
    /// Lists or compiles scripts in a separate process. The descriptor of the file with their paths travels with the
    /// packet (`SCM_RIGHTS`). The zygote replies with [`Report::ScriptsDone`].
    Scripts(ScriptsWork),
}

/// An operation on a file of script paths, each of which ends with NUL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptsWork {
    /// Writes the paths of the scripts in the opcode cache to the file.
    List,
    /// Compiles the scripts in the file into the opcode cache.
    Compile,
}

/// A report from a zygote to the front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// PHP's module startup is done, and children can be forked.
    Ready {
        /// The [`crate::shm::VERSION`] that the zygote was built with.
        version: u32,
        /// PHP's version, from its constant `PHP_VERSION`.
        php: String,
        /// Whether opcache is loaded and enabled for this SAPI.
        opcache: bool,
    },
    /// The zygote cannot serve: a named reason and a sentence. It exits after this.
    Failed {
        /// `PhpStartup`, `BadMemory`, `PreloadFailed`, `NoSuchUser`, `CannotChangeUser` …
        name: String,
        /// What was attempted, on what, and what to do about it.
        message: String,
    },
    /// A child was forked. Its pidfd travels with the packet (`SCM_RIGHTS`).
    Spawned {
        /// The scoreboard row and incarnation from the command.
        child: ChildId,
        /// The process id of the new child.
        pid: i32,
    },
    /// The zygote could not fork a child.
    SpawnFailed {
        /// The row and incarnation from the command; no process has them.
        child: ChildId,
        /// The system's message for the error of fork(2).
        message: String,
    },
    /// A child has exited and the zygote has reaped it.
    Exited {
        /// The row and incarnation the child had.
        child: ChildId,
        /// How the child ended: its exit code or the signal.
        exit: Exit,
    },
    /// A worker's message about its boot.
    Worker(WorkerMessage),
    /// The PHP stack of a child, one line for each call, innermost first. It is empty if the child was not running PHP.
    Trace {
        /// The child whose stack was read.
        child: ChildId,
        /// `function() FILE:LINE` lines.
        stack: String,
    },
    /// The operation of [`Command::Scripts`] is finished, or cannot be done.
    ScriptsDone,
}

/// How a child, a zygote or an external program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The process exited with this code.
    Code(i32),
    /// This signal killed the process.
    Signal(i32),
    /// The process is gone, but its zygote died first, so its exit status is unknown. Never sent in a message.
    Unseen,
}

fn child_text(c: ChildId) -> String {
    format!("{} {}", c.index, c.incarnation)
}

/// Splits `text` at the first space into a word and the rest; the rest may be empty.
fn word(text: &str) -> (&str, &str) {
    text.split_once(' ').unwrap_or((text, ""))
}

fn number<T: std::str::FromStr>(text: &mut &str) -> Option<T> {
    let (first, rest) = word(text);
    *text = rest;
    first.parse().ok()
}

fn child(text: &mut &str) -> Option<ChildId> {
    Some(ChildId {
        index: number(text)?,
        incarnation: number(text)?,
    })
}

impl Command {
    /// Encodes the command as the text of one packet.
    pub fn encode(&self) -> String {
        match self {
            Command::Spawn {
                child,
                max_requests,
            } => {
                format!("spawn {} {max_requests}", child_text(*child))
            }
            Command::Signal { child, signal } => format!("signal {} {signal}", child_text(*child)),
            Command::Trace { child } => format!("trace {}", child_text(*child)),
            Command::Scripts(ScriptsWork::List) => "list-scripts".to_owned(),
            Command::Scripts(ScriptsWork::Compile) => "compile-scripts".to_owned(),
        }
    }

    /// Parses a packet. Returns `None` if it is not one of these commands.
    pub fn parse(packet: &[u8]) -> Option<Command> {
        let (verb, mut rest) = word(std::str::from_utf8(packet).ok()?);
        match packet {
            b"list-scripts" => return Some(Command::Scripts(ScriptsWork::List)),
            b"compile-scripts" => return Some(Command::Scripts(ScriptsWork::Compile)),
            _ => {}
        }
        let child = child(&mut rest)?;
        Some(match verb {
            "spawn" => Command::Spawn {
                child,
                max_requests: number(&mut rest)?,
            },
            "signal" => Command::Signal {
                child,
                signal: number(&mut rest)?,
            },
            "trace" => Command::Trace { child },
            _ => return None,
        })
    }
}

impl Report {
    /// Encodes the report as one packet, truncated to [`MAX_MESSAGE`] at a character boundary.
    pub fn encode(&self) -> String {
        let mut text = match self {
            Report::Ready {
                version,
                php,
                opcache,
            } => {
                format!("ready {version} {} {php}", u8::from(*opcache))
            }
            Report::Failed { name, message } => format!("failed {name} {message}"),
            Report::Spawned { child, pid } => format!("spawned {} {pid}", child_text(*child)),
            Report::SpawnFailed { child, message } => {
                format!("spawn-failed {} {message}", child_text(*child))
            }
            Report::Exited { child, exit } => match exit {
                Exit::Code(code) => format!("exited {} code {code}", child_text(*child)),
                Exit::Signal(signal) => format!("exited {} signal {signal}", child_text(*child)),
                Exit::Unseen => format!("exited {} unseen", child_text(*child)),
            },
            Report::Worker(word) => format!("worker {}", word.encode()),
            Report::Trace { child, stack } => format!("trace {} {stack}", child_text(*child)),
            Report::ScriptsDone => "scripts-done".to_owned(),
        };
        let mut end = text.len().min(MAX_MESSAGE);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text
    }

    /// Parses a packet. Returns `None` if it is not one of these reports.
    pub fn parse(packet: &[u8]) -> Option<Report> {
        let (verb, mut rest) = word(std::str::from_utf8(packet).ok()?);
        Some(match verb {
            "ready" => {
                let version = number(&mut rest)?;
                let opcache = number::<u8>(&mut rest)? != 0;
                Report::Ready {
                    version,
                    opcache,
                    php: rest.to_owned(),
                }
            }
            "failed" => {
                let (name, message) = word(rest);
                Report::Failed {
                    name: name.to_owned(),
                    message: message.to_owned(),
                }
            }
            "spawned" => Report::Spawned {
                child: child(&mut rest)?,
                pid: number(&mut rest)?,
            },
            "spawn-failed" => Report::SpawnFailed {
                child: child(&mut rest)?,
                message: rest.to_owned(),
            },
            "exited" => {
                let child = child(&mut rest)?;
                let (how, value) = word(rest);
                let value = value.parse().ok()?;
                let exit = match how {
                    "code" => Exit::Code(value),
                    "signal" => Exit::Signal(value),
                    _ => return None,
                };
                Report::Exited { child, exit }
            }
            "worker" => Report::Worker(WorkerMessage::parse(rest.as_bytes())?),
            "trace" => Report::Trace {
                child: child(&mut rest)?,
                stack: rest.to_owned(),
            },
            "scripts-done" if rest.is_empty() => Report::ScriptsDone,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_the_wire_and_nonsense_is_refused() {
        let child = ChildId {
            index: 3,
            incarnation: 9,
        };
        for command in [
            Command::Spawn {
                child,
                max_requests: 500,
            },
            Command::Signal { child, signal: 15 },
            Command::Trace { child },
            Command::Scripts(ScriptsWork::List),
            Command::Scripts(ScriptsWork::Compile),
        ] {
            assert_eq!(Command::parse(command.encode().as_bytes()), Some(command));
        }
        for report in [
            Report::Ready {
                version: 1,
                php: "8.2.1-deb 1".into(),
                opcache: true,
            },
            Report::Failed {
                name: "PhpStartup".into(),
                message: "no such file: x".into(),
            },
            Report::Spawned { child, pid: 77 },
            Report::SpawnFailed {
                child,
                message: "try again".into(),
            },
            Report::Exited {
                child,
                exit: Exit::Signal(11),
            },
            Report::Exited {
                child,
                exit: Exit::Code(0),
            },
            Report::Worker(WorkerMessage::Booted { child }),
            Report::Trace {
                child,
                stack: "f() /a b.php:3\nmain() /i.php:1".into(),
            },
            Report::ScriptsDone,
        ] {
            assert_eq!(Report::parse(report.encode().as_bytes()), Some(report));
        }
        for nonsense in [
            "",
            "spawn",
            "spawn 1",
            "spawn x 1 2",
            "exited 1 1 dead 3",
            "\u{e9}",
        ] {
            assert_eq!(Command::parse(nonsense.as_bytes()), None, "{nonsense}");
            assert_eq!(Report::parse(nonsense.as_bytes()), None, "{nonsense}");
        }
    }
}
