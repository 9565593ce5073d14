//! `howdah php`: PHP on the command line whose writes to databases reach the page cache of a running
//! server before this command is through: for cron jobs, WP-CLI, artisan, drush.
//!
//! `howdah-php php` is a child of this process and tells it what it is about to write; this process tells
//! the server, over its control socket. So a script that is killed has told, and PHP never waits for the
//! server. Everything else is the script's: standard streams, terminal, exit status.

use std::io::{PipeReader, Read};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use howdah_proto::effect;
use howdah_server::cache::steer;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::client;
use crate::arguments::Php;
use crate::master::control::Ask;
use crate::{exit, php, sys};

/// How often a script that goes on writing is told of, at most.
const EVERY: Duration = Duration::from_millis(500);
/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of different writes told at once; what is beyond is a write to any table. A packet between
/// the server's processes holds twice as much.
const MOST: usize = 24 << 10;
/// Longest effect: name, two places in the script and the description.
const LONGEST: usize = 4096;

/// Runs the script and tells the server of its writes.
pub fn run(arguments: &Php) -> ExitCode {
    let program = match php::find(None).and_then(|p| php::check(&p).map(|_| p)) {
        Ok(program) => program,
        Err(why) => {
            eprintln!("howdah: {why}");
            return exit::php();
        }
    };
    match watch(arguments, &program) {
        Ok(status) => status_of(status),
        Err(why) => {
            eprintln!("howdah: PhpDoesNotStart: {}: {why}", program.display());
            exit::php()
        }
    }
}

/// The script's exit status; of a script ended by a signal, what shells make of it.
fn status_of(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn watch(arguments: &Php, program: &std::path::Path) -> std::io::Result<ExitStatus> {
    // Those of a terminal reach the script, too: this process only must outlive it.
    let signals = sys::signal_descriptor(&[
        libc::SIGCHLD,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGHUP,
    ])?;
    let (reader, writer) = std::io::pipe()?;
    let mut command = Command::new(program);
    command
        .arg("php")
        .arg("--effects-fd")
        .arg(writer.as_raw_fd().to_string());
    if let Some(file) = &arguments.php_ini {
        command.arg("--php-ini").arg(file);
    }
    if arguments.no_php_ini {
        command.arg("--no-php-ini");
    }
    for setting in &arguments.define {
        command.arg("-d").arg(setting);
    }
    if let Some(code) = &arguments.run {
        command.arg("--code").arg(code);
    }
    command.arg("--");
    if arguments.run.is_none() && arguments.script.is_empty() {
        command.arg("-");
    }
    sys::hand_down(command.args(&arguments.script), writer.as_raw_fd());
    let mut child = command.spawn()?;
    drop(writer);
    rustix::io::ioctl_fionbio(&reader, true)?;
    let mut told = Told::new(arguments, reader);
    loop {
        let wait = told.due().map(|due| Timespec {
            tv_sec: due.as_secs() as i64,
            tv_nsec: i64::from(due.subsec_nanos()),
        });
        let mut fds = vec![PollFd::new(&signals, PollFlags::IN)];
        if let Some(reader) = &told.reader {
            fds.push(PollFd::new(reader, PollFlags::IN));
        }
        match rustix::event::poll(&mut fds, wait.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        told.read();
        for signal in sys::pending_signals(&signals) {
            if signal == libc::SIGTERM || signal == libc::SIGHUP {
                pass_on(&child, signal);
            }
        }
        if let Some(status) = child.try_wait()? {
            // What it told last is in the pipe. A process it left behind may hold the pipe open.
            told.read();
            told.tell();
            told.complain();
            return Ok(status);
        }
        if told.due() == Some(Duration::ZERO) {
            told.tell();
        }
    }
}

fn pass_on(child: &Child, signal: i32) {
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, rustix::process::Signal::from_named_raw(signal)) {
        // It may have ended by itself just now.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// What the script wrote and the server has heard of it.
struct Told<'a> {
    arguments: &'a Php,
    reader: Option<PipeReader>,
    bytes: Vec<u8>,
    /// Different writes so far.
    writes: Vec<String>,
    size: usize,
    /// There is something to tell.
    news: bool,
    last: Option<Instant>,
    /// Why the server did not hear it.
    failure: Option<String>,
}

impl Told<'_> {
    fn new(arguments: &Php, reader: PipeReader) -> Told<'_> {
        Told {
            arguments,
            reader: Some(reader),
            bytes: Vec::new(),
            writes: Vec::new(),
            size: 0,
            news: false,
            last: None,
            failure: None,
        }
    }

    /// When the server is to be told next.
    fn due(&self) -> Option<Duration> {
        let since = self.last.map(|last| last.elapsed());
        self.news
            .then(|| since.map_or(Duration::ZERO, |since| EVERY.saturating_sub(since)))
    }

    /// Takes what the script has told.
    fn read(&mut self) {
        let mut piece = [0; 8192];
        while let Some(reader) = &mut self.reader {
            match reader.read(&mut piece) {
                Ok(0) => self.reader = None,
                Ok(n) => self.bytes.extend_from_slice(&piece[..n]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
            if !self.take() {
                // Nonsense: whatever it was, something is told of.
                self.reader = None;
                self.note(String::new());
            }
        }
    }

    /// Takes whole effects from the front: `u32 length | u32 name_len | name | value`.
    fn take(&mut self) -> bool {
        let number = |bytes: &[u8], at: usize| {
            let four = bytes.get(at..at + 4)?;
            Some(u32::from_ne_bytes(four.try_into().ok()?) as usize)
        };
        while let Some(length) = number(&self.bytes, 0) {
            if !(4..=LONGEST).contains(&length) {
                return false;
            }
            let Some(payload) = self.bytes.get(4..4 + length) else {
                break;
            };
            let name_len = number(payload, 0).unwrap_or_default();
            let Some((name, value)) = payload[4..].split_at_checked(name_len) else {
                return false;
            };
            match name {
                effect::WRITE => {
                    let value = String::from_utf8_lossy(value).into_owned();
                    self.note(value);
                }
                effect::WROTE => self.news = true,
                // More than was asked, never less: it stands for all.
                effect::PURGE => self.note(String::new()),
                _ => {}
            }
            self.bytes.drain(..4 + length);
        }
        true
    }

    fn note(&mut self, write: String) {
        self.news = true;
        if self.writes.contains(&write) {
            return;
        }
        self.size += write.len();
        if self.size > MOST {
            // A write to any table stands for all.
            self.writes = vec![String::new()];
            self.size = MOST;
        } else {
            self.writes.push(write);
        }
    }

    /// Tells the server all of it once more: what was told before it could be read by others counts
    /// again.
    fn tell(&mut self) {
        if self.writes.is_empty() {
            return;
        }
        self.news = false;
        let question = Ask::Cache {
            ask: steer::Ask::Wrote {
                site: self.arguments.site.clone(),
                writes: self.writes.clone(),
            },
        };
        let answer = client::ask(&self.arguments.target, &question, Some(PATIENCE));
        self.last = Some(Instant::now());
        self.failure = match answer {
            Ok(answer) => {
                let word = |key: &str| Some(answer.status.as_ref()?.get(key)?.as_str()?.to_owned());
                // Without a cache there is nothing to be told.
                word("mistake").filter(|why| !why.starts_with("CacheOff"))
            }
            Err(why) => Some(why),
        };
    }

    /// Says what the server has not heard, if anything, and what to do.
    fn complain(&self) {
        let Some(why) = &self.failure else { return };
        let writes: Vec<String> = self
            .writes
            .iter()
            .take(5)
            .map(|write| steer::in_words(write))
            .collect();
        eprintln!(
            "howdah php: {why}\nhowdah php: WritesNotTold: the script wrote to a database ({}{}), and no page cache was told; \
             when the server runs: howdah cache purge --all",
            writes.join("; "),
            if self.writes.len() > writes.len() {
                "; …"
            } else {
                ""
            }
        );
    }
}
