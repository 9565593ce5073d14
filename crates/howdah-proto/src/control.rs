//! The control messages between the front and the zygote of a pool, over one `SOCK_SEQPACKET` unix socket. A message is
//! one packet of text. The zygote owns the processes (only it can fork and reap them); the front makes the decisions.
//!
//! The end of the file means that the other side is gone. A zygote then retires its children, each of which finishes
//! its request, and exits; a front starts a new zygote.

use crate::shm::ChildId;
use crate::worker::WorkerMessage;

/// The maximum length of a packet, in bytes. A longer trace is truncated to fit.
pub const MAX_PACKET_BYTES: usize = 32 * 1024;

/// A command from the front to a zygote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZygoteCommand {
    /// Forks a child for this scoreboard row. The child exits after `max_requests` jobs (0: never). The zygote replies
    /// with [`ZygoteReport::Spawned`] or [`ZygoteReport::SpawnFailed`].
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
    /// Reads the PHP stack of a running child from outside. The zygote replies with [`ZygoteReport::Trace`].
    Trace {
        /// The child whose stack is read.
        child: ChildId,
    },
    /// Lists or compiles scripts in a separate process. The descriptor of the file with their paths travels with the
    /// packet (`SCM_RIGHTS`). The zygote replies with [`ZygoteReport::ScriptsDone`].
    Scripts(ScriptsOperation),
}

/// An operation on a file of script paths, each of which ends with NUL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptsOperation {
    /// Writes the paths of the scripts in the opcode cache to the file.
    List,
    /// Compiles the scripts in the file into the opcode cache.
    Compile,
}

/// A report from a zygote to the front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZygoteReport {
    /// PHP's module startup is done, and children can be forked.
    Ready {
        /// The [`crate::shm::VERSION`] that the zygote was built with.
        version: u32,
        /// The PHP that has started.
        php: StartedPhp,
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
    /// The operation of [`ZygoteCommand::Scripts`] is finished, or cannot be done.
    ScriptsDone,
}

/// What a zygote says about the PHP that it has started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartedPhp {
    /// PHP's version, from its constant `PHP_VERSION`.
    pub version: String,
    /// Whether opcache is loaded and enabled for this SAPI.
    pub opcache: bool,
    /// The names of the loaded extensions.
    pub extensions: Vec<String>,
    /// The directories from which PHP has read extensions and additional .ini files.
    pub directories: Vec<String>,
}

impl StartedPhp {
    fn encode(&self) -> String {
        let mut text = format!("{} {}", u8::from(self.opcache), self.version);
        for (word, values) in [
            ("extension", &self.extensions),
            ("directory", &self.directories),
        ] {
            for value in values {
                text.push_str(&format!("\n{word} {value}"));
            }
        }
        text
    }

    fn parse(text: &str) -> Option<StartedPhp> {
        let (mut first, lines) = text.split_once('\n').unwrap_or((text, ""));
        let mut php = StartedPhp {
            opcache: number::<u8>(&mut first)? != 0,
            version: first.to_owned(),
            ..StartedPhp::default()
        };
        php.add_lines(lines);
        Some(php)
    }

    /// Adds the extensions and directories that these lines name: `extension NAME` or `directory PATH`.
    pub fn add_lines(&mut self, lines: &str) {
        for line in lines.lines() {
            match split_word(line) {
                ("extension", name) => self.extensions.push(name.to_owned()),
                ("directory", path) => self.directories.push(path.to_owned()),
                _ => {}
            }
        }
    }
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
fn split_word(text: &str) -> (&str, &str) {
    text.split_once(' ').unwrap_or((text, ""))
}

fn number<T: std::str::FromStr>(text: &mut &str) -> Option<T> {
    let (first, rest) = split_word(text);
    *text = rest;
    first.parse().ok()
}

fn child(text: &mut &str) -> Option<ChildId> {
    Some(ChildId {
        index: number(text)?,
        incarnation: number(text)?,
    })
}

impl ZygoteCommand {
    /// Encodes the command as the text of one packet.
    pub fn encode(&self) -> String {
        match self {
            ZygoteCommand::Spawn {
                child,
                max_requests,
            } => {
                format!("spawn {} {max_requests}", child_text(*child))
            }
            ZygoteCommand::Signal { child, signal } => {
                format!("signal {} {signal}", child_text(*child))
            }
            ZygoteCommand::Trace { child } => format!("trace {}", child_text(*child)),
            ZygoteCommand::Scripts(ScriptsOperation::List) => "list-scripts".to_owned(),
            ZygoteCommand::Scripts(ScriptsOperation::Compile) => "compile-scripts".to_owned(),
        }
    }

    /// Parses a packet. Returns `None` if it is not one of these commands.
    pub fn parse(packet: &[u8]) -> Option<ZygoteCommand> {
        let (verb, mut rest) = split_word(std::str::from_utf8(packet).ok()?);
        match packet {
            b"list-scripts" => return Some(ZygoteCommand::Scripts(ScriptsOperation::List)),
            b"compile-scripts" => return Some(ZygoteCommand::Scripts(ScriptsOperation::Compile)),
            _ => {}
        }
        let child = child(&mut rest)?;
        Some(match verb {
            "spawn" => ZygoteCommand::Spawn {
                child,
                max_requests: number(&mut rest)?,
            },
            "signal" => ZygoteCommand::Signal {
                child,
                signal: number(&mut rest)?,
            },
            "trace" => ZygoteCommand::Trace { child },
            _ => return None,
        })
    }
}

impl ZygoteReport {
    /// Encodes the report as one packet, truncated to [`MAX_PACKET_BYTES`] at a character boundary.
    pub fn encode(&self) -> String {
        let mut text = match self {
            ZygoteReport::Ready { version, php } => format!("ready {version} {}", php.encode()),
            ZygoteReport::Failed { name, message } => format!("failed {name} {message}"),
            ZygoteReport::Spawned { child, pid } => format!("spawned {} {pid}", child_text(*child)),
            ZygoteReport::SpawnFailed { child, message } => {
                format!("spawn-failed {} {message}", child_text(*child))
            }
            ZygoteReport::Exited { child, exit } => match exit {
                Exit::Code(code) => format!("exited {} code {code}", child_text(*child)),
                Exit::Signal(signal) => format!("exited {} signal {signal}", child_text(*child)),
                Exit::Unseen => format!("exited {} unseen", child_text(*child)),
            },
            ZygoteReport::Worker(word) => format!("worker {}", word.encode()),
            ZygoteReport::Trace { child, stack } => format!("trace {} {stack}", child_text(*child)),
            ZygoteReport::ScriptsDone => "scripts-done".to_owned(),
        };
        let mut end = text.len().min(MAX_PACKET_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text
    }

    /// Parses a packet. Returns `None` if it is not one of these reports.
    pub fn parse(packet: &[u8]) -> Option<ZygoteReport> {
        let (verb, mut rest) = split_word(std::str::from_utf8(packet).ok()?);
        Some(match verb {
            "ready" => ZygoteReport::Ready {
                version: number(&mut rest)?,
                php: StartedPhp::parse(rest)?,
            },
            "failed" => {
                let (name, message) = split_word(rest);
                ZygoteReport::Failed {
                    name: name.to_owned(),
                    message: message.to_owned(),
                }
            }
            "spawned" => ZygoteReport::Spawned {
                child: child(&mut rest)?,
                pid: number(&mut rest)?,
            },
            "spawn-failed" => ZygoteReport::SpawnFailed {
                child: child(&mut rest)?,
                message: rest.to_owned(),
            },
            "exited" => {
                let child = child(&mut rest)?;
                let (how, value) = split_word(rest);
                let value = value.parse().ok()?;
                let exit = match how {
                    "code" => Exit::Code(value),
                    "signal" => Exit::Signal(value),
                    _ => return None,
                };
                ZygoteReport::Exited { child, exit }
            }
            "worker" => ZygoteReport::Worker(WorkerMessage::parse(rest.as_bytes())?),
            "trace" => ZygoteReport::Trace {
                child: child(&mut rest)?,
                stack: rest.to_owned(),
            },
            "scripts-done" if rest.is_empty() => ZygoteReport::ScriptsDone,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_round_trip_and_malformed_ones_are_refused() {
        let child = ChildId {
            index: 3,
            incarnation: 9,
        };
        for command in [
            ZygoteCommand::Spawn {
                child,
                max_requests: 500,
            },
            ZygoteCommand::Signal { child, signal: 15 },
            ZygoteCommand::Trace { child },
            ZygoteCommand::Scripts(ScriptsOperation::List),
            ZygoteCommand::Scripts(ScriptsOperation::Compile),
        ] {
            assert_eq!(
                ZygoteCommand::parse(command.encode().as_bytes()),
                Some(command)
            );
        }
        for report in [
            ZygoteReport::Ready {
                version: 1,
                php: StartedPhp {
                    version: "8.2.1-deb 1".into(),
                    opcache: true,
                    ..StartedPhp::default()
                },
            },
            ZygoteReport::Ready {
                version: 1,
                php: StartedPhp {
                    version: "8.5.0".into(),
                    opcache: false,
                    extensions: vec!["Core".into(), "Zend OPcache".into()],
                    directories: vec!["/usr/lib/php 8".into()],
                },
            },
            ZygoteReport::Failed {
                name: "PhpStartup".into(),
                message: "no such file: x".into(),
            },
            ZygoteReport::Spawned { child, pid: 77 },
            ZygoteReport::SpawnFailed {
                child,
                message: "try again".into(),
            },
            ZygoteReport::Exited {
                child,
                exit: Exit::Signal(11),
            },
            ZygoteReport::Exited {
                child,
                exit: Exit::Code(0),
            },
            ZygoteReport::Worker(WorkerMessage::Booted { child }),
            ZygoteReport::Trace {
                child,
                stack: "f() /a b.php:3\nmain() /i.php:1".into(),
            },
            ZygoteReport::ScriptsDone,
        ] {
            assert_eq!(
                ZygoteReport::parse(report.encode().as_bytes()),
                Some(report)
            );
        }
        for nonsense in [
            "",
            "spawn",
            "spawn 1",
            "spawn x 1 2",
            "exited 1 1 dead 3",
            "\u{e9}",
        ] {
            assert_eq!(
                ZygoteCommand::parse(nonsense.as_bytes()),
                None,
                "{nonsense}"
            );
            assert_eq!(ZygoteReport::parse(nonsense.as_bytes()), None, "{nonsense}");
        }
    }
}
