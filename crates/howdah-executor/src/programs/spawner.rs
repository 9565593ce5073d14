//! The spawner process: starts programs on order, reaps them, signals their groups, and ends them
//! when the front is gone. Single-threaded, asleep in `poll(2)`; decides nothing but what must
//! happen when nobody else can: a limit that passes, a front that is gone.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use howdah_proto::control::Exit;
use howdah_proto::spawner::{MAX_PACKET, SpawnerCommand, SpawnerReport, Start, What};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

use howdah_os::descriptors::end_with_parent;

/// When the front is gone, from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(1);
/// Most programs at once: the places of a pool, twice, for replacements.
const MOST: usize = 2048;

/// How the descriptors of a start are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Three descriptors: standard input, output and error.
    Cgi,
    /// One: the listening socket as standard input (FastCGI specification §2.2). What the program
    /// prints goes where the spawner's own messages go.
    FastCgi,
}

/// What a spawner is started with, by the master.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether the programs speak CGI or FastCGI: which descriptors come with a start.
    pub protocol: Protocol,
    /// The configured program and its arguments; empty: there is none.
    pub command: Vec<OsString>,
    /// Environment of every program, on top of the spawner's.
    pub environment: Vec<(OsString, OsString)>,
}

enum ProgramStage {
    Running { limit: Option<Instant> },
    Draining { kill_at: Option<Instant> },
}

struct Program {
    pid: Pid,
    pidfd: OwnedFd,
    stage: ProgramStage,
    /// The end is reported; the process stays a zombie until it is released.
    exited: bool,
    released: bool,
    /// SIGTERM was sent: processes of the group that are left at the release are killed.
    ended: bool,
}

struct Spawner {
    control: OwnedFd,
    settings: Settings,
    programs: BTreeMap<u64, Program>,
    reports: VecDeque<SpawnerReport>,
}

/// Serves orders until the other end of `control` is closed, then ends all programs.
///
/// # Errors
/// `poll(2)` failed; nothing else ends it.
pub fn serve(control: OwnedFd, settings: Settings) -> io::Result<()> {
    let mut spawner = Spawner {
        control,
        settings,
        programs: BTreeMap::new(),
        reports: VecDeque::new(),
    };
    let fit = spawner.find_program();
    let able = fit.is_ok();
    let report = match fit {
        Ok(()) => SpawnerReport::Ready,
        Err(message) => SpawnerReport::Failed {
            name: "ProgramMissing".to_owned(),
            message,
        },
    };
    spawner.reports.push_back(report);
    while spawner.send_reports() {
        if !able && spawner.reports.is_empty() {
            return Ok(());
        }
        let wait = spawner.act_on_time(Instant::now());
        spawner.wait(wait)?;
        if !spawner.take_orders() {
            break;
        }
        spawner.look_for_the_dead();
    }
    spawner.end_all()
}

impl Spawner {
    /// Checks that the program exists, so that a missing one is reported at the start and not by every
    /// request.
    fn find_program(&self) -> Result<(), String> {
        let Some(program) = self.settings.command.first().map(PathBuf::from) else {
            return Ok(());
        };
        rustix::fs::access(&program, rustix::fs::Access::EXEC_OK)
            .map_err(|error| format!("cannot execute {}: {error}", program.display()))
    }

    /// Sends what waits to be sent; `false` when the front is gone.
    fn send_reports(&mut self) -> bool {
        while let Some(report) = self.reports.front() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::send(&self.control, &report.encode(), flags) {
                Ok(_) => drop(self.reports.pop_front()),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    fn wait(&self, pause: Option<Duration>) -> io::Result<()> {
        let mut interest = PollFlags::IN;
        if !self.reports.is_empty() {
            interest |= PollFlags::OUT;
        }
        let mut fds = vec![PollFd::new(&self.control, interest)];
        let living = self.programs.values().filter(|p| !p.exited);
        fds.extend(living.map(|p| PollFd::new(&p.pidfd, PollFlags::IN)));
        // Rounded up: waking a moment early would only spin.
        let timeout = pause.map(|pause| pause + Duration::from_millis(1));
        let timeout = timeout.map(|pause| Timespec {
            tv_sec: pause.as_secs() as i64,
            tv_nsec: i64::from(pause.subsec_nanos()),
        });
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Carries out what has been ordered; `false` when the front is gone.
    fn take_orders(&mut self) -> bool {
        let mut packet = vec![0; MAX_PACKET];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let mut parts = [IoSliceMut::new(&mut packet)];
            let got = rustix::net::recvmsg(&self.control, &mut parts, &mut ancillary, flags);
            let length = match got {
                Ok(message) if message.bytes > 0 => message.bytes,
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => return true,
                Ok(_) | Err(_) => return false,
            };
            let mut fds = Vec::new();
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    fds.extend(rights);
                }
            }
            match SpawnerCommand::parse(&packet[..length]) {
                Some(SpawnerCommand::Start(start)) => self.start(start, fds),
                Some(SpawnerCommand::End { id, grace_ms }) => {
                    self.end(id, Duration::from_millis(grace_ms))
                }
                Some(SpawnerCommand::Release { id }) => self.release(id),
                Some(SpawnerCommand::Ask) => self.reports.push_back(SpawnerReport::Here),
                // The front is of the same build: this is a bug of ours, and going on would hide it.
                None => return false,
            }
        }
    }

    fn start(&mut self, start: Start, fds: Vec<OwnedFd>) {
        let id = start.id;
        let limit = (start.limit_ms > 0).then(|| Duration::from_millis(start.limit_ms));
        let report = match self.execute(start, fds) {
            Ok((pid, pidfd)) => {
                self.programs.insert(
                    id,
                    Program {
                        pid,
                        pidfd,
                        stage: ProgramStage::Running {
                            limit: limit.map(|limit| Instant::now() + limit),
                        },
                        exited: false,
                        released: false,
                        ended: false,
                    },
                );
                let pid = pid.as_raw_nonzero().get();
                SpawnerReport::Started { id, pid }
            }
            Err(error) => {
                let errno = error.raw_os_error();
                let errno = errno.unwrap_or(rustix::io::Errno::INVAL.raw_os_error());
                SpawnerReport::NotStarted { id, errno }
            }
        };
        self.reports.push_back(report);
    }

    fn execute(&self, start: Start, fds: Vec<OwnedFd>) -> io::Result<(Pid, OwnedFd)> {
        if self.programs.len() >= MOST || self.programs.contains_key(&start.id) {
            return Err(rustix::io::Errno::AGAIN.into());
        }
        let mut command = match (start.what, self.settings.command.split_first()) {
            (What::File(file), _) if self.settings.protocol == Protocol::Cgi => {
                let file = PathBuf::from(OsString::from_vec(file));
                check_format(&file)?;
                Command::new(file)
            }
            (What::Configured, Some((program, arguments))) => {
                let mut command = Command::new(program);
                command.args(arguments);
                command
            }
            _ => return Err(rustix::io::Errno::PERM.into()),
        };
        let missing = || io::Error::from(rustix::io::Errno::BADF);
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or_else(missing);
        command.stdin(Stdio::from(next()?));
        let death = match self.settings.protocol {
            Protocol::Cgi => {
                command.stdout(Stdio::from(next()?));
                command.stderr(Stdio::from(next()?));
                Signal::KILL
            }
            Protocol::FastCgi => {
                command.stdout(Stdio::inherit());
                command.stderr(Stdio::inherit());
                // php-cgi's parent takes its children along (`fastcgi_cleanup`).
                Signal::TERM
            }
        };
        let pairs = self.settings.environment.iter();
        command.envs(pairs.map(|(name, value)| (name, value)));
        for pair in start.environment {
            let at = pair.iter().position(|b| *b == b'=').unwrap_or(pair.len());
            let value = OsString::from_vec(pair[(at + 1).min(pair.len())..].to_vec());
            command.env(OsString::from_vec(pair[..at].to_vec()), value);
        }
        if !start.directory.is_empty() {
            command.current_dir(OsString::from_vec(start.directory));
        }
        command.process_group(0);
        end_with_parent(&mut command, death);
        let child = command.spawn()?;
        let pid = Pid::from_raw(child.id() as i32)
            .ok_or_else(|| io::Error::other("spawn gave process id 0"))?;
        // Nobody reaps it before this: the id is still its own.
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        Ok((pid, pidfd))
    }

    fn end(&mut self, id: u64, grace: Duration) {
        if let Some(program) = self.programs.get_mut(&id) {
            program.end(Instant::now() + grace);
        }
    }

    fn release(&mut self, id: u64) {
        let fastcgi = self.settings.protocol == Protocol::FastCgi;
        let Some(program) = self.programs.get_mut(&id) else {
            return;
        };
        program.released = true;
        // A CGI program may leave something running in the background, as under other servers; what
        // a FastCGI program forked has no use without it.
        if program.ended || fastcgi {
            program.signal(Signal::KILL);
        }
        if program.exited {
            program.reap();
            self.programs.remove(&id);
        }
    }

    fn look_for_the_dead(&mut self) {
        let mut gone = Vec::new();
        for (id, program) in &mut self.programs {
            if program.exited {
                continue;
            }
            let Some(exit) = program.exit() else { continue };
            program.exited = true;
            self.reports
                .push_back(SpawnerReport::Exited { id: *id, exit });
            if program.released {
                program.reap();
                gone.push(*id);
            }
        }
        for id in gone {
            self.programs.remove(&id);
        }
    }

    /// Ends what is over its limit, kills what has been asked to end and has not; returns when there
    /// is something to do next.
    fn act_on_time(&mut self, now: Instant) -> Option<Duration> {
        let mut next: Option<Instant> = None;
        for program in self.programs.values_mut() {
            if let ProgramStage::Running { limit: Some(limit) } = program.stage
                && limit <= now
                && !program.exited
            {
                program.end(now + GRACE);
            }
            if let ProgramStage::Draining { kill_at: Some(at) } = program.stage
                && at <= now
            {
                program.signal(Signal::KILL);
                program.stage = ProgramStage::Draining { kill_at: None };
            }
            let due = match program.stage {
                ProgramStage::Running { limit } if !program.exited => limit,
                ProgramStage::Draining { kill_at } => kill_at,
                ProgramStage::Running { .. } => None,
            };
            next = [next, due].into_iter().flatten().min();
        }
        next.map(|at| at.saturating_duration_since(now))
    }

    /// Ends all programs: the front is gone, so nobody waits for their answers.
    fn end_all(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + GRACE;
        for program in self.programs.values_mut() {
            program.end(deadline);
        }
        while self.programs.values().any(|program| !program.exited) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let living = self.programs.values().filter(|p| !p.exited);
            let mut fds: Vec<_> = living
                .map(|p| PollFd::new(&p.pidfd, PollFlags::IN))
                .collect();
            let timeout = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let _ = rustix::event::poll(&mut fds, Some(&timeout));
            for program in self.programs.values_mut() {
                program.exited = program.exit().is_some();
            }
        }
        for program in self.programs.values() {
            program.signal(Signal::KILL);
            program.reap();
        }
        Ok(())
    }
}

/// `ENOEXEC` for what is neither a binary nor names its interpreter. The C library, by which std
/// executes, would hand such a file to the shell (execvp(3)): any text with an executable bit.
fn check_format(file: &Path) -> io::Result<()> {
    let mut magic = [0; 4];
    match std::fs::File::open(file).and_then(|mut f| f.read_exact(&mut magic[..2]).map(|()| f)) {
        Ok(mut f) => {
            let _ = f.read(&mut magic[2..]);
            match magic.starts_with(b"#!") || &magic == b"\x7fELF" {
                true => Ok(()),
                false => Err(rustix::io::Errno::NOEXEC.into()),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(rustix::io::Errno::NOEXEC.into())
        }
        // A binary need not be readable; what else is wrong with it the exec says.
        Err(_) => Ok(()),
    }
}

impl Program {
    fn end(&mut self, kill_at: Instant) {
        self.signal(Signal::TERM);
        self.ended = true;
        let kill_at = match self.stage {
            ProgramStage::Draining { kill_at: Some(at) } => at.min(kill_at),
            _ => kill_at,
        };
        self.stage = ProgramStage::Draining {
            kill_at: Some(kill_at),
        };
    }

    /// To its whole group. The leader has not been reaped, so the group's number is still its own.
    fn signal(&self, signal: Signal) {
        // It fails when nobody is left, or for what has changed its user: not ours to end.
        let _ = rustix::process::kill_process_group(self.pid, signal);
    }

    /// How it ended, if it has; it stays a zombie.
    fn exit(&self) -> Option<Exit> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
        let status = status.ok().flatten()?;
        Some(match status.exit_status() {
            Some(code) => Exit::Code(code),
            None => Exit::Signal(status.terminating_signal().unwrap_or(0)),
        })
    }

    fn reap(&self) {
        let options = WaitIdOptions::EXITED;
        let _ = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
    }
}
