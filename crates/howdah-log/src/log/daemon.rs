//! Parses the options that send a log to a daemon: syslog in nginx's notation, and the journal. It opens nothing; see
//! [`super::message`].

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The maximum length of a tag, the same as in nginx.
const MAX_TAG_BYTES: usize = 32;
/// The default tag of messages.
const DEFAULT_TAG: &str = "howdah";

/// The facilities by name (RFC 5424 §6.2.1). The index of each is its number.
const FACILITIES: [&str; 24] = [
    "kern",
    "user",
    "mail",
    "daemon",
    "auth",
    "syslog",
    "lpr",
    "news",
    "uucp",
    "cron",
    "authpriv",
    "ftp",
    "ntp",
    "security",
    "console",
    "solaris-cron",
    "local0",
    "local1",
    "local2",
    "local3",
    "local4",
    "local5",
    "local6",
    "local7",
];

/// A daemon that receives log messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogDaemon {
    /// A syslog daemon on this machine, by its socket.
    Local(PathBuf),
    /// A syslog daemon on another machine: host and port.
    Remote(String, u16),
    /// systemd's journal, by its socket.
    Journal(PathBuf),
}

/// A log that is sent to a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonTarget {
    /// The daemon that receives the messages.
    pub daemon: LogDaemon,
    /// The number of the facility.
    pub facility: u8,
    /// The tag (identifier) of the messages.
    pub tag: String,
}

/// Why a string does not name a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonTargetError(String);

impl fmt::Display for DaemonTargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl DaemonTarget {
    /// Parses `syslog`, `syslog:server=unix:/dev/log,facility=local7,tag=howdah` (nginx's notation), `journald` or
    /// `journald:/path/of/the/socket`. Returns `None` if the text names something else, such as a file.
    pub fn parse(text: &str) -> Option<Result<DaemonTarget, DaemonTargetError>> {
        let (word, rest) = text.split_once(':').unwrap_or((text, ""));
        match word {
            "syslog" => Some(DaemonTarget::syslog(rest)),
            "journald" => {
                let path = match rest {
                    "" => "/run/systemd/journal/socket",
                    path => path,
                };
                Some(match path.starts_with('/') {
                    true => Ok(DaemonTarget::to(LogDaemon::Journal(path.into()))),
                    false => Err(DaemonTargetError(format!(
                        "the path of the journal's socket must begin with `/`, found `{}`",
                        path.escape_debug()
                    ))),
                })
            }
            _ => None,
        }
    }

    fn to(daemon: LogDaemon) -> DaemonTarget {
        DaemonTarget {
            daemon,
            facility: 3,
            tag: DEFAULT_TAG.to_owned(),
        }
    }

    fn syslog(words: &str) -> Result<DaemonTarget, DaemonTargetError> {
        let mut target = DaemonTarget::to(LogDaemon::Local("/dev/log".into()));
        for word in words.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            let wrong = |expected: &str| {
                Err(DaemonTargetError(format!(
                    "expected {expected}, found `{}`",
                    word.escape_debug()
                )))
            };
            match word.split_once('=') {
                Some(("server", address)) => match parse_server(address) {
                    Some(daemon) => target.daemon = daemon,
                    None => return wrong("`server=unix:/path` or `server=HOST:PORT`"),
                },
                Some(("facility", name)) => match FACILITIES.iter().position(|f| *f == name) {
                    Some(number) => target.facility = number as u8,
                    None => return wrong("a facility such as `daemon` or `local7`"),
                },
                Some(("tag", tag)) => {
                    let valid = |b: u8| b.is_ascii_alphanumeric() || b"_-./".contains(&b);
                    if tag.is_empty() || tag.len() > MAX_TAG_BYTES || !tag.bytes().all(valid) {
                        return wrong("a tag of up to 32 letters, digits, `_`, `-`, `.` and `/`");
                    }
                    target.tag = tag.to_owned();
                }
                _ => return wrong("`server=`, `facility=` or `tag=`"),
            }
        }
        Ok(target)
    }

    /// Returns whether lines should have fields after their text.
    pub fn takes_fields(&self) -> bool {
        matches!(self.daemon, LogDaemon::Journal(_))
    }
}

/// Parses `unix:/path`, `host`, `host:port` or `[::1]:port`; the default port of syslog is 514.
fn parse_server(address: &str) -> Option<LogDaemon> {
    if let Some(path) = address.strip_prefix("unix:") {
        return path.starts_with('/').then(|| LogDaemon::Local(path.into()));
    }
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (address, 514),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let fits = !host.is_empty() && !host.contains(['/', ' ']) && port > 0;
    fits.then(|| LogDaemon::Remote(host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemon_target_parses_nginx_notation() {
        let is = |text: &str, daemon: LogDaemon, facility: u8, tag: &str| {
            let target = DaemonTarget::parse(text).unwrap().unwrap();
            assert_eq!(target.daemon, daemon, "{text}");
            assert_eq!(
                (target.facility, target.tag.as_str()),
                (facility, tag),
                "{text}"
            );
        };
        is("syslog", LogDaemon::Local("/dev/log".into()), 3, "howdah");
        is(
            "syslog:server=unix:/run/log.sock,facility=local7,tag=shop",
            LogDaemon::Local("/run/log.sock".into()),
            23,
            "shop",
        );
        let remote = |host: &str, port| LogDaemon::Remote(host.to_owned(), port);
        is(
            "syslog:server=logs.example",
            remote("logs.example", 514),
            3,
            "howdah",
        );
        is("syslog:server=[::1]:5514", remote("::1", 5514), 3, "howdah");
        is("syslog:server=[::1]", remote("::1", 514), 3, "howdah");
        let journal = "/run/systemd/journal/socket";
        is("journald", LogDaemon::Journal(journal.into()), 3, "howdah");
        is(
            "journald:/tmp/j",
            LogDaemon::Journal("/tmp/j".into()),
            3,
            "howdah",
        );
        for wrong in [
            "syslog:server=",
            "syslog:server=unix:log",
            "syslog:server=h:0",
            "syslog:server=h:port",
            "syslog:facility=local8",
            "syslog:tag=a b",
            "syslog:severity=info",
            "syslog:/dev/log",
            "journald:socket",
        ] {
            assert!(DaemonTarget::parse(wrong).unwrap().is_err(), "{wrong}");
        }
        for file in ["/var/log/syslog", "syslog.log", "stderr", "journal"] {
            assert_eq!(DaemonTarget::parse(file), None, "{file}");
        }
    }
}
