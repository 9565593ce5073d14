//! Lines of a log as messages to a daemon: syslog on a unix socket (RFC 3164, as libc's `syslog()` writes
//! it) or over UDP (RFC 5424), and systemd's journal by its native protocol. One message a line.
//!
//! A line may begin with `<N>`, its severity by syslog's number; without, it is 6. After the text
//! fields may follow, each behind [`FIELD`]: `NAME=value`, which the journal alone gets.

use std::fmt;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::clock::Civil;

/// What stands before each field of a line: no log writes it as text.
pub const FIELD: u8 = 0x1f;
/// Bytes of a message's text; a longer one ends with `...`. It fits into a datagram.
pub const LONGEST: usize = 60 << 10;
/// How long a daemon that does not read is waited for. Its queue is full then, and lines are lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// The severity of lines that say none: info.
const PLAIN: u8 = 6;
/// Longest tag, as nginx has it.
const LONGEST_TAG: usize = 32;
/// The name of the server in messages.
const TAG: &str = "howdah";

/// Facilities by name (RFC 5424 §6.2.1); their place is their number.
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

/// Appends a field to a line's text. `value` has no control characters.
pub(super) fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.push(FIELD);
    for part in ["HOWDAH_", name, "=", value] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Who gets the messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Daemon {
    /// A syslog daemon on this machine, by its socket.
    Local(PathBuf),
    /// A syslog daemon elsewhere: host and port.
    Remote(String, u16),
    /// systemd's journal, by its socket.
    Journal(PathBuf),
}

/// A log that goes to a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonTarget {
    /// Who gets the messages.
    pub daemon: Daemon,
    /// The number of the facility.
    pub facility: u8,
    /// What the messages are called by.
    pub tag: String,
}

/// Why a text names no daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonTargetError(String);

impl fmt::Display for DaemonTargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl DaemonTarget {
    /// Reads `syslog`, `syslog:server=unix:/dev/log,facility=local7,tag=howdah` (nginx' words), `journald`
    /// or `journald:/path/of/the/socket`. None: the text names something else, such as a file.
    pub fn read(text: &str) -> Option<Result<DaemonTarget, DaemonTargetError>> {
        let (word, rest) = text.split_once(':').unwrap_or((text, ""));
        match word {
            "syslog" => Some(DaemonTarget::syslog(rest)),
            "journald" => {
                let path = match rest {
                    "" => "/run/systemd/journal/socket",
                    path => path,
                };
                Some(match path.starts_with('/') {
                    true => Ok(DaemonTarget::to(Daemon::Journal(path.into()))),
                    false => Err(DaemonTargetError(format!(
                        "the path of the journal's socket begins with `/`, found `{}`",
                        path.escape_debug()
                    ))),
                })
            }
            _ => None,
        }
    }

    fn to(daemon: Daemon) -> DaemonTarget {
        DaemonTarget {
            daemon,
            facility: 3,
            tag: TAG.to_owned(),
        }
    }

    fn syslog(words: &str) -> Result<DaemonTarget, DaemonTargetError> {
        let mut target = DaemonTarget::to(Daemon::Local("/dev/log".into()));
        for word in words.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            let wrong = |expected: &str| {
                Err(DaemonTargetError(format!(
                    "expected {expected}, found `{}`",
                    word.escape_debug()
                )))
            };
            match word.split_once('=') {
                Some(("server", address)) => match server(address) {
                    Some(daemon) => target.daemon = daemon,
                    None => return wrong("`server=unix:/path` or `server=HOST:PORT`"),
                },
                Some(("facility", name)) => match FACILITIES.iter().position(|f| *f == name) {
                    Some(number) => target.facility = number as u8,
                    None => return wrong("a facility such as `daemon` or `local7`"),
                },
                Some(("tag", tag)) => {
                    let valid = |b: u8| b.is_ascii_alphanumeric() || b"_-./".contains(&b);
                    if tag.is_empty() || tag.len() > LONGEST_TAG || !tag.bytes().all(valid) {
                        return wrong("a tag of up to 32 letters, digits, `_`, `-`, `.` and `/`");
                    }
                    target.tag = tag.to_owned();
                }
                _ => return wrong("`server=`, `facility=` or `tag=`"),
            }
        }
        Ok(target)
    }

    /// Whether lines are to have fields behind their text.
    pub fn takes_fields(&self) -> bool {
        matches!(self.daemon, Daemon::Journal(_))
    }

    pub(super) fn open(&self, log: &'static str) -> io::Result<Messages> {
        Ok(Messages {
            socket: self.connect()?,
            target: self.clone(),
            log,
            host: host(),
            message: Vec::new(),
        })
    }

    fn connect(&self) -> io::Result<Socket> {
        let of_path = |path: &PathBuf| {
            let connect = || {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                socket.set_nonblocking(true)?;
                Ok(Socket::Unix(socket))
            };
            connect().map_err(|error: io::Error| named(&path.display().to_string(), &error))
        };
        match &self.daemon {
            Daemon::Local(path) | Daemon::Journal(path) => of_path(path),
            Daemon::Remote(host, port) => {
                let connect = || {
                    let mut addresses = (host.as_str(), *port).to_socket_addrs()?;
                    let to = addresses.next().ok_or(io::ErrorKind::NotFound)?;
                    let from: SocketAddr = match to.is_ipv4() {
                        true => (Ipv4Addr::UNSPECIFIED, 0).into(),
                        false => (Ipv6Addr::UNSPECIFIED, 0).into(),
                    };
                    let socket = UdpSocket::bind(from)?;
                    socket.connect(to)?;
                    socket.set_nonblocking(true)?;
                    Ok(Socket::Udp(socket))
                };
                connect().map_err(|error: io::Error| named(&format!("{host}:{port}"), &error))
            }
        }
    }
}

/// This machine's name; `-` stands for none (RFC 5424 §6.2.4).
fn host() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let name = read.unwrap_or_default().trim().to_owned();
    if name.is_empty() {
        "-".to_owned()
    } else {
        name
    }
}

fn named(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// `unix:/path`, `host`, `host:port`, `[::1]:port`; the port of syslog is 514.
fn server(address: &str) -> Option<Daemon> {
    if let Some(path) = address.strip_prefix("unix:") {
        return path.starts_with('/').then(|| Daemon::Local(path.into()));
    }
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (address, 514),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let fits = !host.is_empty() && !host.contains(['/', ' ']) && port > 0;
    fits.then(|| Daemon::Remote(host.to_owned(), port))
}

enum Socket {
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

impl Socket {
    fn send(&self, message: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(socket) => socket.send(message),
            Socket::Udp(socket) => socket.send(message),
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Unix(socket) => socket.as_fd(),
            Socket::Udp(socket) => socket.as_fd(),
        }
    }
}

/// Sends lines to a daemon.
pub(super) struct Messages {
    socket: Socket,
    target: DaemonTarget,
    /// `access` or `error`.
    log: &'static str,
    host: String,
    message: Vec<u8>,
}

impl Messages {
    /// Sends whole lines; an error comes with the number of lines that are lost.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        let mut failed = None;
        let mut lost = 0;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            // One that does not read now will not read the next line either.
            if failed.is_none() {
                let line = line.strip_suffix(b"\n").unwrap_or(line);
                self.compose(line, SystemTime::now());
                failed = self.send().err();
            }
            lost += u64::from(failed.is_some());
        }
        match failed {
            None => Ok(()),
            Some(error) => Err((lost, error)),
        }
    }

    /// Sends the message; a daemon that was started again has another socket.
    fn send(&mut self) -> io::Result<()> {
        if self.try_to_send().is_ok() {
            return Ok(());
        }
        self.socket = self.target.connect()?;
        self.try_to_send()
    }

    fn try_to_send(&self) -> io::Result<()> {
        loop {
            match self.socket.send(&self.message) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait()?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until the daemon has read something.
    fn wait(&self) -> io::Result<()> {
        let descriptor = self.socket.descriptor();
        let mut polled = [PollFd::new(&descriptor, PollFlags::OUT)];
        let patience = Timespec {
            tv_sec: PATIENCE.as_secs() as i64,
            tv_nsec: 0,
        };
        match poll(&mut polled, Some(&patience)) {
            Ok(0) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the daemon does not read",
            )),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn compose(&mut self, line: &[u8], now: SystemTime) {
        let (severity, line) = match line {
            [b'<', severity @ b'0'..=b'7', b'>', rest @ ..] => (severity - b'0', rest),
            line => (PLAIN, line),
        };
        let mut parts = line.split(|byte| *byte == FIELD);
        let whole = parts.next().unwrap_or_default();
        let (text, cut) = match whole.get(..LONGEST) {
            Some(text) => (text, &b"..."[..]),
            None => (whole, &b""[..]),
        };
        let out = &mut self.message;
        out.clear();
        let DaemonTarget { tag, facility, .. } = &self.target;
        let (priority, process) = (facility * 8 + severity, std::process::id());
        // Writing to memory cannot fail.
        match &self.target.daemon {
            Daemon::Local(_) => {
                let _ = write!(out, "<{priority}>");
                Civil::of(now).syslog(out);
                let _ = write!(out, " {tag}[{process}]: ");
            }
            Daemon::Remote(..) => {
                let _ = write!(out, "<{priority}>1 ");
                Civil::of(now).rfc3339(out);
                let _ = write!(out, " {} {tag} {process} - - ", self.host);
            }
            Daemon::Journal(_) => {
                let _ = write!(
                    out,
                    "PRIORITY={severity}\nSYSLOG_FACILITY={facility}\nSYSLOG_IDENTIFIER={tag}\nHOWDAH_LOG={}\n",
                    self.log
                );
                for field in parts {
                    out.extend_from_slice(field);
                    out.push(b'\n');
                }
                out.extend_from_slice(b"MESSAGE=");
            }
        }
        out.extend_from_slice(text);
        out.extend_from_slice(cut);
        if self.target.takes_fields() {
            out.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_named_by_nginx_words() {
        let is = |text: &str, daemon: Daemon, facility: u8, tag: &str| {
            let target = DaemonTarget::read(text).unwrap().unwrap();
            assert_eq!(target.daemon, daemon, "{text}");
            assert_eq!(
                (target.facility, target.tag.as_str()),
                (facility, tag),
                "{text}"
            );
        };
        is("syslog", Daemon::Local("/dev/log".into()), 3, "howdah");
        is(
            "syslog:server=unix:/run/log.sock,facility=local7,tag=shop",
            Daemon::Local("/run/log.sock".into()),
            23,
            "shop",
        );
        let remote = |host: &str, port| Daemon::Remote(host.to_owned(), port);
        is(
            "syslog:server=logs.example",
            remote("logs.example", 514),
            3,
            "howdah",
        );
        is("syslog:server=[::1]:5514", remote("::1", 5514), 3, "howdah");
        is("syslog:server=[::1]", remote("::1", 514), 3, "howdah");
        let journal = "/run/systemd/journal/socket";
        is("journald", Daemon::Journal(journal.into()), 3, "howdah");
        is(
            "journald:/tmp/j",
            Daemon::Journal("/tmp/j".into()),
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
            assert!(DaemonTarget::read(wrong).unwrap().is_err(), "{wrong}");
        }
        for file in ["/var/log/syslog", "syslog.log", "stderr", "journal"] {
            assert_eq!(DaemonTarget::read(file), None, "{file}");
        }
    }

    #[test]
    fn a_line_becomes_a_message_with_its_severity_and_for_the_journal_with_its_fields() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log.sock");
        let receiver = UnixDatagram::bind(&path).unwrap();
        let said = |text: &str, line: &[u8]| {
            let target = DaemonTarget::read(text).unwrap().unwrap();
            target.open("error").unwrap().write(line).unwrap();
            let mut message = vec![0; 1 << 20];
            let length = receiver.recv(&mut message).unwrap();
            String::from_utf8(message[..length].to_vec()).unwrap()
        };
        let process = std::process::id();
        let syslog = format!("syslog:server=unix:{},facility=local7", path.display());
        let message = said(&syslog, b"<3>error ChildDied: x\x1fHOWDAH_NAME=ChildDied\n");
        assert!(message.starts_with("<187>"), "{message}");
        let end = format!(" howdah[{process}]: error ChildDied: x");
        assert!(message.ends_with(&end), "{message}");
        assert_eq!(
            message.len(),
            "<187>Nov 25 13:00:00".len() + end.len(),
            "{message}"
        );
        assert!(said(&syslog, b"192.0.2.1 - -\n").starts_with("<190>"));
        let journal = format!("journald:{}", path.display());
        assert_eq!(
            said(
                &journal,
                b"<3>error ChildDied: x\x1fHOWDAH_NAME=ChildDied\n"
            ),
            "PRIORITY=3\nSYSLOG_FACILITY=3\nSYSLOG_IDENTIFIER=howdah\nHOWDAH_LOG=error\n\
             HOWDAH_NAME=ChildDied\nMESSAGE=error ChildDied: x\n"
        );
        let long = [vec![b'a'; LONGEST + 1], b"\x1fHOWDAH_STATUS=200\n".to_vec()].concat();
        let message = said(&journal, &long);
        assert!(message.contains("HOWDAH_STATUS=200\nMESSAGE=aaa"));
        assert!(message.ends_with("aaa...\n") && message.len() < LONGEST + 200);
    }

    #[test]
    fn a_daemon_that_does_not_read_costs_lines_and_one_that_is_back_gets_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log.sock");
        let text = format!("syslog:server=unix:{}", path.display());
        let target = DaemonTarget::read(&text).unwrap().unwrap();
        let gone = target.open("access").err().unwrap();
        assert!(gone.to_string().contains("log.sock"), "{gone}");
        let receiver = UnixDatagram::bind(&path).unwrap();
        let mut messages = target.open("access").unwrap();
        let many = b"line\n".repeat(100_000);
        let (lost, error) = messages.write(&many).unwrap_err();
        assert!(lost > 90_000 && lost < 100_000, "{lost}");
        assert_eq!(error.to_string(), "the daemon does not read");
        drop(receiver);
        assert_eq!(messages.write(b"line\n").unwrap_err().0, 1);
        std::fs::remove_file(&path).unwrap();
        let receiver = UnixDatagram::bind(&path).unwrap();
        messages.write(b"again\n").unwrap();
        let mut message = [0; 200];
        let length = receiver.recv(&mut message).unwrap();
        assert!(message[..length].ends_with(b": again"));
    }
}
