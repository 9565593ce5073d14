//! `howdah php`: PHP on the command line whose writes to databases reach the page cache of a running
//! server before this command is through: for cron jobs, WP-CLI, artisan, drush.
//!
//! `howdah-php php` is a child of this process and reports what it is about to write; this process
//! reports that to the server, over its control socket. So a script that is killed has reported its
//! writes, and PHP never waits for the server. Everything else is the script's: standard streams,
//! terminal, exit status.

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use howdah_proto::effect;
use howdah_server::cache::admin::{self, AdminCommand};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use super::client::{self, Wait};
use crate::arguments::Php;
use crate::master::control::{self, Ask};
use crate::{exit, php, sys};

/// How often the writes of a script are reported, at most.
const EVERY: Duration = Duration::from_millis(500);
/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of different writes and of purges reported at once; what is beyond is a write to any
/// table, and purges everything.
const MOST: usize = 12 << 10;
// Both, and the rest of the question.
const _: () = assert!(2 * MOST + 4096 <= control::LONGEST);

/// Runs the script and reports its writes to the server.
pub fn run(arguments: &Php) -> ExitCode {
    let program = match php::find(None).and_then(|p| php::check(&p).map(|_| p)) {
        Ok(program) => program,
        Err(why) => {
            eprintln!("howdah: {why}");
            return exit::php();
        }
    };
    let php_ini = arguments.php_ini.as_deref();
    let defines = match super::settings_of_variables("php", &program, php_ini) {
        Ok(defines) => defines,
        Err(why) => {
            eprintln!("howdah: PhpDoesNotStart: {why}");
            return exit::php();
        }
    };
    match watch(arguments, &program, &defines) {
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

/// `howdah-php php` with these arguments, which reports to `writer`.
fn command(
    arguments: &Php,
    program: &std::path::Path,
    defines: &[(String, String)],
    writer: &OwnedFd,
) -> Command {
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
    let defines = defines
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    for setting in defines.chain(arguments.define.iter().cloned()) {
        command.arg("-d").arg(setting);
    }
    if let Some(code) = &arguments.run {
        command.arg("--code").arg(code);
    }
    command.arg("--");
    if arguments.run.is_none() && arguments.script.is_empty() {
        command.arg("-");
    }
    command.args(&arguments.script);
    command
}

fn watch(
    arguments: &Php,
    program: &std::path::Path,
    defines: &[(String, String)],
) -> std::io::Result<ExitStatus> {
    // Those of a terminal reach the script, too: this process only must outlive it.
    let signals = sys::SignalDescriptor::new(&[
        libc::SIGCHLD,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGHUP,
    ])?;
    // Messages, not a stream: one is read as a whole or not at all, whoever else reports.
    let (reader, writer) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let mut command = command(arguments, program, defines, &writer);
    sys::inherit(&mut command, vec![writer]);
    let mut child = command.spawn()?;
    // Ours of the writing end goes with the command.
    drop(command);
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
        for signal in signals.take() {
            if signal == libc::SIGTERM || signal == libc::SIGHUP {
                pass_on(&child, signal);
            }
        }
        if let Some(status) = child.try_wait()? {
            // Its last report is in the socket. A process it left behind may hold the other end.
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

/// What the script wrote and purges, and what the server has heard of it.
struct Told<'a> {
    arguments: &'a Php,
    reader: Option<OwnedFd>,
    /// Different writes so far.
    writes: Words,
    /// Purges the server has not heard of.
    purges: Words,
    /// There is something to tell.
    news: bool,
    last: Option<Instant>,
    /// Why the server did not hear it.
    failure: Option<String>,
}

/// Different words, as many as fit; one stands for all when there are more.
struct Words {
    words: Vec<String>,
    size: usize,
    any: &'static str,
}

impl Words {
    fn new(any: &'static str) -> Words {
        Words {
            words: Vec::new(),
            size: 0,
            any,
        }
    }

    fn note(&mut self, word: String) {
        let is_all = self.words.first().is_some_and(|first| first == self.any);
        if is_all || self.words.contains(&word) {
            return;
        }
        // Control characters and quotes take more room than themselves.
        self.size += serde_json::to_string(&word).map_or(MOST, |text| text.len() + 1);
        if self.size > MOST || word == self.any {
            self.words.clear();
            self.words.push(self.any.to_owned());
        } else {
            self.words.push(word);
        }
    }
}

impl Told<'_> {
    fn new(arguments: &Php, reader: OwnedFd) -> Told<'_> {
        Told {
            arguments,
            reader: Some(reader),
            // A write of which nothing is said is one to any table.
            writes: Words::new(""),
            purges: Words::new("*"),
            news: false,
            last: None,
            failure: None,
        }
    }

    /// When the next report to the server is due.
    fn due(&self) -> Option<Duration> {
        let since = self.last.map(|last| last.elapsed());
        self.news
            .then(|| since.map_or(Duration::ZERO, |since| EVERY.saturating_sub(since)))
    }

    /// Takes the script's reports.
    fn read(&mut self) {
        let mut message = vec![0; effect::MAX_MESSAGE];
        while let Some(reader) = &self.reader {
            let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
            match rustix::net::recv(reader, &mut message[..], flags) {
                Ok((0, _)) => self.reader = None,
                Ok((_, length)) => self.take(message.get(..length)),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
    }

    /// Takes one effect: `u32 name_len | name | value`; none: it was longer than any may be.
    fn take(&mut self, message: Option<&[u8]>) {
        let parts = message.and_then(|message| {
            let (length, rest) = message.split_first_chunk()?;
            rest.split_at_checked(u32::from_ne_bytes(*length) as usize)
        });
        let text = |value| String::from_utf8_lossy(value).into_owned();
        match parts {
            Some((effect::WRITE, value)) => self.writes.note(text(value)),
            Some((effect::WROTE, _)) => {}
            Some((effect::PURGE, value)) => match std::str::from_utf8(value) {
                Ok(word) => self.purges.note(word.to_owned()),
                Err(_) => self.purges.note("*".to_owned()),
            },
            // A session, a cookie: of a page, which there is none of.
            Some(_) => return,
            // An invalid report still counts as a write.
            None => self.writes.note(String::new()),
        }
        self.news = true;
    }

    /// Reports all writes to the server once more, since what was reported before it could be read
    /// by others counts again; purges once.
    fn tell(&mut self) {
        self.news = false;
        if self.writes.words.is_empty() && self.purges.words.is_empty() {
            return;
        }
        let question = Ask::Cache {
            ask: AdminCommand::Wrote {
                site: self.arguments.site.clone(),
                writes: self.writes.words.clone(),
                purges: self.purges.words.clone(),
            },
        };
        let answer = client::ask(&self.arguments.target, &question, Wait::AtMost(PATIENCE));
        self.last = Some(Instant::now());
        self.failure = match answer {
            Ok(answer) => {
                let word = |key: &str| Some(answer.status.as_ref()?.get(key)?.as_str()?.to_owned());
                match (word("cache"), word("mistake")) {
                    (Some(_), _) => None,
                    // Without a cache there is nothing to report.
                    (None, Some(why)) if why.starts_with("CacheOff") => None,
                    (None, why) => Some(why.unwrap_or(answer.message)),
                }
            }
            Err(why) => Some(why),
        };
        if self.failure.is_none() {
            self.purges = Words::new("*");
        }
    }

    /// Says what the server has not heard, if anything, and what to do.
    fn complain(&self) {
        let Some(why) = &self.failure else { return };
        let writes = self.writes.words.iter().map(|write| admin::in_words(write));
        let purges = self.purges.words.iter().map(|word| format!("purge {word}"));
        let all: Vec<String> = writes.chain(purges).collect();
        let told = all.iter().take(5).map(String::as_str);
        let told: Vec<&str> = told.collect();
        eprintln!(
            "howdah php: {why}\nhowdah php: WritesNotTold: the script wrote to a database, or purged ({}{}), and no page cache was informed; \
             when the server runs: howdah cache purge --all",
            told.join("; "),
            if all.len() > told.len() { "; …" } else { "" }
        );
    }
}
