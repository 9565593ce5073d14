//! Sends lines of a log as messages to a daemon: syslog on a unix socket (RFC 3164, as libc's `syslog()` writes it) or
//! over UDP (RFC 5424), and systemd's journal by its native protocol. Each line is one message.
//!
//! A line may begin with `<N>`, its severity by syslog's number; the default is 6. The text may be followed by fields,
//! each preceded by [`FIELD_SEPARATOR`]: `NAME=value`. Only the journal receives them.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::clock::UtcDateTime;
use super::daemon::{DaemonTarget, LogDaemon};

/// The byte that precedes each field of a line. No log writes it as text.
pub const FIELD_SEPARATOR: u8 = 0x1f;
/// The maximum length of a message's text in bytes, which fits into a datagram. A longer text is cut and ends with
/// `...`.
pub const MAX_TEXT_BYTES: usize = 60 << 10;
/// How long to wait for a daemon that does not read. Its queue is then full, and lines are lost.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// The severity of lines that do not specify one: info.
const DEFAULT_SEVERITY: u8 = 6;

/// Appends a field to a line's text. `value` must not contain control characters.
pub(super) fn append_field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.push(FIELD_SEPARATOR);
    for part in ["HOWDAH_", name, "=", value] {
        out.extend_from_slice(part.as_bytes());
    }
}

fn connect(daemon: &LogDaemon) -> io::Result<DaemonSocket> {
    let of_path = |path: &PathBuf| {
        let connect = || {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path)?;
            socket.set_nonblocking(true)?;
            Ok(DaemonSocket::Unix(socket))
        };
        connect().map_err(|error: io::Error| with_context(&path.display().to_string(), &error))
    };
    match daemon {
        LogDaemon::Local(path) | LogDaemon::Journal(path) => of_path(path),
        LogDaemon::Remote(host, port) => {
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
                Ok(DaemonSocket::Udp(socket))
            };
            connect().map_err(|error: io::Error| with_context(&format!("{host}:{port}"), &error))
        }
    }
}

/// Returns this machine's name, or `-` if it has none (RFC 5424 §6.2.4).
fn host_name() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let name = read.unwrap_or_default().trim().to_owned();
    if name.is_empty() {
        "-".to_owned()
    } else {
        name
    }
}

fn with_context(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

enum DaemonSocket {
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

impl DaemonSocket {
    fn send(&self, message: &[u8]) -> io::Result<usize> {
        match self {
            DaemonSocket::Unix(socket) => socket.send(message),
            DaemonSocket::Udp(socket) => socket.send(message),
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            DaemonSocket::Unix(socket) => socket.as_fd(),
            DaemonSocket::Udp(socket) => socket.as_fd(),
        }
    }
}

/// Sends lines to a daemon.
pub(super) struct DaemonSender {
    socket: DaemonSocket,
    target: DaemonTarget,
    /// The name of the log: `access` or `error`.
    log: &'static str,
    host: String,
    message: Vec<u8>,
}

impl DaemonSender {
    /// Connects to the daemon for the lines of `log`: `access` or `error`.
    pub(super) fn open(target: &DaemonTarget, log: &'static str) -> io::Result<DaemonSender> {
        Ok(DaemonSender {
            socket: connect(&target.daemon)?,
            target: target.clone(),
            log,
            host: host_name(),
            message: Vec::new(),
        })
    }

    /// Sends whole lines. The error contains the number of lines that are lost.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        let mut failed = None;
        let mut lost = 0;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            // A daemon that does not read now will not read the next line either.
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

    /// Sends the message. If that fails, it connects again, because a restarted daemon has another socket.
    fn send(&mut self) -> io::Result<()> {
        let Err(error) = self.try_to_send() else {
            return Ok(());
        };
        self.socket = connect(&self.target.daemon)?;
        if error.kind() == io::ErrorKind::TimedOut {
            // Waiting once is enough. The next message goes to the daemon that listens then.
            return Err(error);
        }
        self.try_to_send()
    }

    fn try_to_send(&self) -> io::Result<()> {
        loop {
            match self.socket.send(&self.message) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait_until_writable()?
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until the daemon has read something.
    fn wait_until_writable(&self) -> io::Result<()> {
        let descriptor = self.socket.descriptor();
        let mut polled = [PollFd::new(&descriptor, PollFlags::OUT)];
        let patience = Timespec {
            tv_sec: SEND_TIMEOUT.as_secs() as i64,
            tv_nsec: 0,
        };
        match poll(&mut polled, Some(&patience)) {
            Ok(0) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the log daemon does not read its socket",
            )),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn compose(&mut self, line: &[u8], now: SystemTime) {
        let (severity, line) = match line {
            [b'<', severity @ b'0'..=b'7', b'>', rest @ ..] => (severity - b'0', rest),
            line => (DEFAULT_SEVERITY, line),
        };
        let mut parts = line.split(|byte| *byte == FIELD_SEPARATOR);
        let whole = parts.next().unwrap_or_default();
        let (text, cut) = match whole.get(..MAX_TEXT_BYTES) {
            Some(text) => (text, &b"..."[..]),
            None => (whole, &b""[..]),
        };
        let out = &mut self.message;
        out.clear();
        let DaemonTarget { tag, facility, .. } = &self.target;
        let (priority, process) = (facility * 8 + severity, std::process::id());
        // Writing to memory cannot fail.
        match &self.target.daemon {
            LogDaemon::Local(_) => {
                let _ = write!(out, "<{priority}>");
                UtcDateTime::of(now).syslog(out);
                let _ = write!(out, " {tag}[{process}]: ");
            }
            LogDaemon::Remote(..) => {
                let _ = write!(out, "<{priority}>1 ");
                UtcDateTime::of(now).rfc3339(out);
                let _ = write!(out, " {} {tag} {process} - - ", self.host);
            }
            LogDaemon::Journal(_) => {
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
    fn message_has_the_lines_severity_and_for_the_journal_its_fields() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log.sock");
        let receiver = UnixDatagram::bind(&path).unwrap();
        let said = |text: &str, line: &[u8]| {
            let target = DaemonTarget::parse(text).unwrap().unwrap();
            let mut messages = DaemonSender::open(&target, "error").unwrap();
            messages.write(line).unwrap();
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
        let long = [
            vec![b'a'; MAX_TEXT_BYTES + 1],
            b"\x1fHOWDAH_STATUS=200\n".to_vec(),
        ]
        .concat();
        let message = said(&journal, &long);
        assert!(message.contains("HOWDAH_STATUS=200\nMESSAGE=aaa"));
        assert!(message.ends_with("aaa...\n") && message.len() < MAX_TEXT_BYTES + 200);
    }

    #[test]
    fn daemon_that_does_not_read_loses_lines_until_it_restarts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log.sock");
        let text = format!("syslog:server=unix:{}", path.display());
        let target = DaemonTarget::parse(&text).unwrap().unwrap();
        let gone = DaemonSender::open(&target, "access").err().unwrap();
        assert!(gone.to_string().contains("log.sock"), "{gone}");
        let receiver = UnixDatagram::bind(&path).unwrap();
        let mut messages = DaemonSender::open(&target, "access").unwrap();
        let many = b"line\n".repeat(100_000);
        let (lost, error) = messages.write(&many).unwrap_err();
        assert!(lost > 90_000 && lost < 100_000, "{lost}");
        assert_eq!(error.to_string(), "the log daemon does not read its socket");
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
