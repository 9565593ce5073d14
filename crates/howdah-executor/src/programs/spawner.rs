//! The spawner process: it starts programs on command, reaps them, signals their process groups, and terminates them
//! when the front is gone. It is single-threaded and sleeps in `poll(2)`. It decides only what the front cannot decide:
//! what to do when a limit has passed or the front is gone.

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
use howdah_proto::spawner::{
    MAX_PACKET_BYTES, ProgramStart, ProgramToStart, SpawnerCommand, SpawnerReport,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

use howdah_os::descriptors::exit_with_parent;

/// The time between SIGTERM and SIGKILL when the front is gone or a program's limit has passed.
const KILL_GRACE: Duration = Duration::from_secs(1);
/// The maximum number of programs at once: twice the maximum of a pool, for replacements.
const MAX_PROGRAMS: usize = 2048;

/// How the descriptors of a start are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramProtocol {
    /// Three descriptors: standard input, output and error.
    Cgi,
    /// One descriptor: the listening socket as standard input (FastCGI specification §2.2). The program's output goes
    /// where the spawner's own messages go.
    FastCgi,
}

/// The settings with which the master starts a spawner.
#[derive(Clone, Debug)]
pub struct SpawnerSettings {
    /// Whether the programs speak CGI or FastCGI, which determines the descriptors of a start.
    pub protocol: ProgramProtocol,
    /// The configured program and its arguments. It is empty if there is none.
    pub command: Vec<OsString>,
    /// Environment variables of every program, added to the spawner's.
    pub environment: Vec<(OsString, OsString)>,
}

enum ProgramStage {
    Running { limit: Option<Instant> },
    Draining { kill_at: Option<Instant> },
}

struct RunningProgram {
    pid: Pid,
    pidfd: OwnedFd,
    stage: ProgramStage,
    /// The exit has been reported. The process stays a zombie until it is released.
    exited: bool,
    released: bool,
    /// SIGTERM was sent. Processes of the group that are left at the release are killed.
    terminated: bool,
}

struct SpawnerProcess {
    control: OwnedFd,
    settings: SpawnerSettings,
    programs: BTreeMap<u64, RunningProgram>,
    reports: VecDeque<SpawnerReport>,
}

/// Executes commands until the other end of `control` is closed, then terminates all programs.
///
/// # Errors
/// `poll(2)` failed. Nothing else makes it fail.
pub fn serve(control: OwnedFd, settings: SpawnerSettings) -> io::Result<()> {
    let mut spawner = SpawnerProcess {
        control,
        settings,
        programs: BTreeMap::new(),
        reports: VecDeque::new(),
    };
    let fit = spawner.check_program();
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
        let wait = spawner.enforce_limits(Instant::now());
        spawner.wait(wait)?;
        if !spawner.read_commands() {
            break;
        }
        spawner.report_exited_programs();
    }
    spawner.terminate_all()
}

impl SpawnerProcess {
    /// Checks that the program exists, so a missing one is reported once at the start instead of by every request.
    fn check_program(&self) -> Result<(), String> {
        let Some(program) = self.settings.command.first().map(PathBuf::from) else {
            return Ok(());
        };
        rustix::fs::access(&program, rustix::fs::Access::EXEC_OK)
            .map_err(|error| format!("cannot execute {}: {error}", program.display()))
    }

    /// Sends the pending reports. Returns `false` if the front is gone.
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
        // Rounded up: waking slightly too early would only spin.
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

    /// Executes the pending commands. Returns `false` if the front is gone.
    fn read_commands(&mut self) -> bool {
        let mut packet = vec![0; MAX_PACKET_BYTES];
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
                    self.terminate(id, Duration::from_millis(grace_ms))
                }
                Some(SpawnerCommand::Release { id }) => self.release(id),
                Some(SpawnerCommand::Ping) => self.reports.push_back(SpawnerReport::Pong),
                // The front is from the same build, so this is a bug of this program, and to continue would hide it.
                None => return false,
            }
        }
    }

    fn start(&mut self, start: ProgramStart, fds: Vec<OwnedFd>) {
        let id = start.id;
        let limit = (start.limit_ms > 0).then(|| Duration::from_millis(start.limit_ms));
        let report = match self.execute(start, fds) {
            Ok((pid, pidfd)) => {
                self.programs.insert(
                    id,
                    RunningProgram {
                        pid,
                        pidfd,
                        stage: ProgramStage::Running {
                            limit: limit.map(|limit| Instant::now() + limit),
                        },
                        exited: false,
                        released: false,
                        terminated: false,
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

    fn execute(&self, start: ProgramStart, fds: Vec<OwnedFd>) -> io::Result<(Pid, OwnedFd)> {
        if self.programs.len() >= MAX_PROGRAMS || self.programs.contains_key(&start.id) {
            return Err(rustix::io::Errno::AGAIN.into());
        }
        let mut command = match (start.program, self.settings.command.split_first()) {
            (ProgramToStart::File(file), _) if self.settings.protocol == ProgramProtocol::Cgi => {
                let file = PathBuf::from(OsString::from_vec(file));
                check_format(&file)?;
                Command::new(file)
            }
            (ProgramToStart::Configured, Some((program, arguments))) => {
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
            ProgramProtocol::Cgi => {
                command.stdout(Stdio::from(next()?));
                command.stderr(Stdio::from(next()?));
                Signal::KILL
            }
            ProgramProtocol::FastCgi => {
                command.stdout(Stdio::inherit());
                command.stderr(Stdio::inherit());
                // php-cgi's parent process terminates its children (`fastcgi_cleanup`).
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
        exit_with_parent(&mut command, death);
        let child = command.spawn()?;
        let pid = Pid::from_raw(child.id() as i32)
            .ok_or_else(|| io::Error::other("spawn gave process id 0"))?;
        // The child cannot have been reaped yet, so its id has not been reused.
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        Ok((pid, pidfd))
    }

    fn terminate(&mut self, id: u64, grace: Duration) {
        if let Some(program) = self.programs.get_mut(&id) {
            program.terminate(Instant::now() + grace);
        }
    }

    fn release(&mut self, id: u64) {
        let fastcgi = self.settings.protocol == ProgramProtocol::FastCgi;
        let Some(program) = self.programs.get_mut(&id) else {
            return;
        };
        program.released = true;
        // A CGI program may leave a process in the background, as under other servers. The children of a FastCGI
        // program are useless without it.
        if program.terminated || fastcgi {
            program.signal(Signal::KILL);
        }
        if program.exited {
            program.reap();
            self.programs.remove(&id);
        }
    }

    fn report_exited_programs(&mut self) {
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

    /// Terminates programs that exceed their limit, and kills those that have not exited after SIGTERM. Returns the
    /// time until the next such action.
    fn enforce_limits(&mut self, now: Instant) -> Option<Duration> {
        let mut next: Option<Instant> = None;
        for program in self.programs.values_mut() {
            if let ProgramStage::Running { limit: Some(limit) } = program.stage
                && limit <= now
                && !program.exited
            {
                program.terminate(now + KILL_GRACE);
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

    /// Terminates all programs. The front is gone, so no client waits for their responses.
    fn terminate_all(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + KILL_GRACE;
        for program in self.programs.values_mut() {
            program.terminate(deadline);
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

/// Returns `ENOEXEC` for a file that is not a binary and does not name its interpreter. The C library, which std uses
/// for execution, would pass such a file to the shell (execvp(3)), even any text with an executable bit.
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
        // A binary need not be readable. The exec reports any other error.
        Err(_) => Ok(()),
    }
}

impl RunningProgram {
    fn terminate(&mut self, kill_at: Instant) {
        self.signal(Signal::TERM);
        self.terminated = true;
        let kill_at = match self.stage {
            ProgramStage::Draining { kill_at: Some(at) } => at.min(kill_at),
            _ => kill_at,
        };
        self.stage = ProgramStage::Draining {
            kill_at: Some(kill_at),
        };
    }

    /// Signals the whole group. The leader has not been reaped, so the group's id has not been reused.
    fn signal(&self, signal: Signal) {
        // This fails if no process is left, or if a process has changed its user and may not be signalled.
        let _ = rustix::process::kill_process_group(self.pid, signal);
    }

    /// Returns the program's exit, if it has exited. It stays a zombie.
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
