//! An upgrade: the master executes the program that is now installed, in place. Its process id, its listening sockets
//! and its control socket stay, so no client is refused or has to wait. The front of the previous program serves until
//! the new front does, and then finishes its requests ([`Predecessors`]). In the meantime it renders every page instead
//! of serving stored ones.
//!
//! 1. The new program reads the configuration (`howdah serve … --takes-over`). If it finds mistakes, nothing changes.
//! 2. The front hands over (`crate::front::hand_over`).
//! 3. `exec`. The state that the new program continues with is in a memory file: [`Inheritance`].
//!
//! php-fpm does the same at SIGUSR2 (`fpm_pctl_exec`), but passes on only its sockets.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::WaitStatus;
use serde::{Deserialize, Serialize};

use super::control::{ControlClient, ControlSocket};
use super::listeners::InheritedListener;
use super::process::{exit_text, kill};
use super::{Master, MasterState, notify, print_message, print_mistakes};
use crate::process_channel::{ProcessChannel, ToFront};
use crate::sys;

/// The version of the format of [`Inheritance`]. A program that uses another format refuses to take over.
pub const INHERITANCE_FORMAT: u32 = 1;
/// The environment variable that holds the process id and the descriptor of its [`Inheritance`], separated by a colon.
const INHERITANCE_VARIABLE: &str = "HOWDAH_TAKES_OVER";
/// How long the new program may take to check the configuration.
const CHECK_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the master waits for responses to earlier requests before it executes the new program.
const PENDING_RESPONSES_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the front may take to hand over.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(10);

/// The state that the master of the next program continues with. Numbers are descriptors.
#[derive(Debug, Serialize, Deserialize)]
struct Inheritance {
    listeners: Vec<InheritedListener>,
    control: (PathBuf, RawFd),
    /// The fronts that are serving or finishing their requests: process id and channel.
    fronts: Vec<(i32, RawFd)>,
    /// The process that runs jobs: process id and channel.
    jobs: Option<(i32, RawFd)>,
    /// The connection of the client that requested the upgrade.
    asker: Option<RawFd>,
}

/// The state that was taken over from the previous program. It is empty unless this process is an upgrade.
#[derive(Default)]
pub struct InheritedState {
    /// The sockets that the server has bound.
    pub listeners: Vec<(InheritedListener, Vec<OwnedFd>, Vec<OwnedFd>)>,
    /// The control socket.
    pub control: Option<ControlSocket>,
    /// The fronts: process id and channel.
    pub fronts: Vec<(i32, ProcessChannel)>,
    /// The process that runs jobs: process id and channel.
    pub jobs: Option<(i32, ProcessChannel)>,
    /// The client that requested the upgrade.
    pub asker: Option<ControlClient>,
}

impl InheritedState {
    /// Takes the state that the previous program has left to this process; `None` if there was no previous program.
    /// Must be called before [`sys::close_inherited_on_exec`].
    ///
    /// # Errors
    /// Fails if the state cannot be read.
    pub fn take() -> io::Result<Option<InheritedState>> {
        let value = std::env::var(INHERITANCE_VARIABLE).unwrap_or_default();
        let Some((pid, number)) = value.split_once(':') else {
            return Ok(None);
        };
        // A command that the previous server started may have inherited the variable, too.
        if pid != std::process::id().to_string() {
            return Ok(None);
        }
        let number = number.parse().map_err(io::Error::other)?;
        let mut text = String::new();
        let mut file = File::from(sys::take_inherited(number)?);
        file.rewind()?;
        file.read_to_string(&mut text)?;
        let left: Inheritance = serde_json::from_str(&text)?;
        let all = |numbers: &[RawFd]| -> io::Result<Vec<OwnedFd>> {
            numbers
                .iter()
                .map(|number| sys::take_inherited(*number))
                .collect()
        };
        let mut listeners = Vec::new();
        for listener in left.listeners {
            let (sockets, udp) = (all(&listener.sockets)?, all(&listener.udp)?);
            listeners.push((listener, sockets, udp));
        }
        let line = |(pid, number)| {
            Ok::<_, io::Error>((pid, ProcessChannel::new(sys::take_inherited(number)?)))
        };
        let (path, socket) = left.control;
        let stream = left.asker.map(sys::take_inherited).transpose()?;
        Ok(Some(InheritedState {
            listeners,
            control: Some(ControlSocket::of(
                path,
                UnixListener::from(sys::take_inherited(socket)?),
            )),
            fronts: left
                .fronts
                .into_iter()
                .map(line)
                .collect::<io::Result<_>>()?,
            jobs: left.jobs.map(line).transpose()?,
            asker: stream.map(|stream| ControlClient::of(UnixStream::from(stream))),
        }))
    }
}

/// The program with the arguments it was started with. It checks the configuration before it replaces this one.
pub struct InstalledProgram {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl InstalledProgram {
    /// Returns the program of this process.
    ///
    /// # Errors
    /// Fails with the error of the operating system.
    pub fn current() -> io::Result<InstalledProgram> {
        let path = std::env::current_exe()?;
        // The file was replaced after this process or a previous upgrade was started: use the file that is at this path
        // now.
        let text = path.as_os_str().to_string_lossy().into_owned();
        let path = text.strip_suffix(" (deleted)").map_or(path, PathBuf::from);
        Ok(InstalledProgram {
            path,
            arguments: std::env::args_os().collect(),
        })
    }

    /// Makes the installed program read the configuration. Returns its process id and the file that it writes mistakes
    /// to.
    fn check(&self) -> io::Result<(i32, File)> {
        let mistakes = File::from(memfd_create("howdah-mistakes", MemfdFlags::CLOEXEC)?);
        let format = INHERITANCE_FORMAT.to_string();
        let mut command = Command::new(&self.path);
        for argument in self.arguments.iter().skip(1) {
            command.arg(argument);
            if argument == "serve" {
                break;
            }
        }
        command
            .args(["--takes-over", &format])
            .args(
                self.arguments
                    .iter()
                    .skip(1)
                    .skip_while(|word| *word != "serve")
                    .skip(1),
            )
            .stdin(Stdio::null())
            .stdout(mistakes.try_clone()?)
            .stderr(mistakes.try_clone()?)
            .process_group(0);
        Ok((command.spawn()?.id() as i32, mistakes))
    }
}

/// The state of an upgrade.
#[derive(Default)]
pub enum UpgradeState {
    /// No upgrade is in progress.
    #[default]
    No,
    /// The new program checks the configuration.
    Checking {
        /// The process id of the new program.
        pid: i32,
        /// The output of the new program.
        mistakes: File,
        /// The client that requested the upgrade.
        asker: Option<ControlClient>,
        /// When the new program is killed.
        deadline: Instant,
    },
    /// The front has been asked to hand over.
    HandingOver {
        /// The client that requested the upgrade.
        asker: Option<ControlClient>,
        /// When the front is killed.
        deadline: Instant,
    },
    /// The front has handed over. Clients that sent a request to the control socket earlier receive their response
    /// first.
    Leaving {
        /// The client that requested the upgrade.
        asker: Option<ControlClient>,
        /// When the master stops waiting for these responses.
        deadline: Instant,
    },
    /// This is the new program, and its front does not serve yet.
    TakingOver {
        /// The client that requested the upgrade.
        asker: Option<ControlClient>,
    },
}

impl UpgradeState {
    /// Returns whether new connections to the control socket are left to the new program.
    pub fn is_leaving(&self) -> bool {
        matches!(self, UpgradeState::Leaving { .. })
    }

    /// Returns whether this is the new program and its front does not serve yet.
    pub fn is_taking_over(&self) -> bool {
        matches!(self, UpgradeState::TakingOver { .. })
    }
}

impl Master {
    /// Replaces the running program with the one that is installed now.
    pub(super) fn upgrade(&mut self, asker: Option<ControlClient>) {
        let serving = matches!(self.state, MasterState::Serving)
            && self
                .front
                .as_ref()
                .is_some_and(|front| front.watch.is_some());
        let why = match (&self.upgrade, &self.pending) {
            (UpgradeState::No, None) if serving => None,
            (UpgradeState::No, Some(_)) => Some("a reload is in progress; try again"),
            (UpgradeState::No, None) => Some("the server is starting or stopping"),
            _ => Some("an upgrade is in progress"),
        };
        if let Some(why) = why {
            return refuse_upgrade(asker, &[why.to_owned()]);
        }
        match self.program.check() {
            Err(error) => {
                let program = self.program.path.display();
                refuse_upgrade(asker, &[format!("cannot execute {program}: {error}")]);
            }
            Ok((pid, mistakes)) => {
                self.upgrade = UpgradeState::Checking {
                    pid,
                    mistakes,
                    asker,
                    deadline: Instant::now() + CHECK_TIMEOUT,
                };
            }
        }
    }

    /// Returns when the current step of the upgrade times out.
    pub(super) fn upgrade_deadline(&self) -> Option<Instant> {
        match self.upgrade {
            UpgradeState::Checking { deadline, .. }
            | UpgradeState::HandingOver { deadline, .. }
            | UpgradeState::Leaving { deadline, .. } => Some(deadline),
            UpgradeState::No | UpgradeState::TakingOver { .. } => None,
        }
    }

    /// Executes the new program once no client waits for a response, and ends an upgrade that has taken too long.
    pub(super) fn continue_upgrade(&mut self, now: Instant) {
        if let UpgradeState::Leaving { deadline, .. } = self.upgrade {
            let is_quiet = self.front_requests.is_empty() && !self.control.has_connections();
            if is_quiet || now >= deadline {
                self.execute_new_program();
            }
            return;
        }
        if self
            .upgrade_deadline()
            .is_none_or(|deadline| now < deadline)
        {
            return;
        }
        let seconds = |limit: Duration| limit.as_secs();
        let why = match &mut self.upgrade {
            // The process has not been reaped yet, so its process id is still its own.
            UpgradeState::Checking { pid, .. } => {
                kill(*pid);
                format!(
                    "the new program has not read the configuration within {} s",
                    seconds(CHECK_TIMEOUT)
                )
            }
            _ => {
                // This front no longer serves stored pages, so it is replaced by a new one.
                if let Some(front) = &mut self.front {
                    front.kill();
                }
                format!(
                    "FrontUnresponsive: the front has not handed over within {} s, so Howdah kills it",
                    seconds(HAND_OVER_TIMEOUT)
                )
            }
        };
        self.end_upgrade(&[why]);
    }

    /// Ends the upgrade and refuses it to the client that requested it.
    pub(super) fn end_upgrade(&mut self, mistakes: &[String]) {
        match std::mem::take(&mut self.upgrade) {
            UpgradeState::No => {}
            UpgradeState::Checking { asker, .. }
            | UpgradeState::HandingOver { asker, .. }
            | UpgradeState::Leaving { asker, .. }
            | UpgradeState::TakingOver { asker } => refuse_upgrade(asker, mistakes),
        }
    }

    /// Returns whether the process that exited was the one that checks the configuration. If it found no mistakes, the
    /// front is asked to hand over.
    pub(super) fn upgrade_checked(&mut self, ended: i32, status: WaitStatus) -> bool {
        match &self.upgrade {
            UpgradeState::Checking { pid, .. } if *pid == ended => {}
            _ => return false,
        }
        let UpgradeState::Checking {
            mut mistakes,
            asker,
            ..
        } = std::mem::take(&mut self.upgrade)
        else {
            return false;
        };
        if status.exit_status() != Some(0) {
            let mut text = String::new();
            let read = mistakes
                .rewind()
                .and_then(|()| mistakes.read_to_string(&mut text));
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            if read.is_err() || lines.is_empty() {
                let how = exit_text(status);
                lines.push(format!(
                    "the new program cannot read the configuration: {how}"
                ));
            }
            refuse_upgrade(asker, &lines);
            return true;
        }
        let Some(front) = self.front.as_ref().filter(|_| self.pending.is_none()) else {
            refuse_upgrade(
                asker,
                &["the front is being started, or a reload is in progress; try again".to_owned()],
            );
            return true;
        };
        let sent = front.link.send_now(&ToFront::HandOver, &[]);
        self.upgrade = UpgradeState::HandingOver {
            asker,
            deadline: Instant::now() + HAND_OVER_TIMEOUT,
        };
        self.kill_front_if_unsent(sent);
        true
    }

    /// Notes that the front has handed over.
    pub(super) fn handed_over(&mut self) {
        if let UpgradeState::HandingOver { asker, .. } = std::mem::take(&mut self.upgrade) {
            let deadline = Instant::now() + PENDING_RESPONSES_TIMEOUT;
            self.upgrade = UpgradeState::Leaving { asker, deadline };
        }
    }

    /// Executes the new program. Returns only if that fails.
    fn execute_new_program(&mut self) {
        let UpgradeState::Leaving { asker, .. } = std::mem::take(&mut self.upgrade) else {
            return;
        };
        self.abandon_reload("the server is being upgraded; try again");
        notify::reloading();
        print_message("upgrade: executing the new program");
        let error = match self.inheritance(asker.as_ref()) {
            Ok((left, fds)) => {
                let mut variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
                variables.retain(|(name, _)| name != INHERITANCE_VARIABLE);
                let value = format!("{}:{}", std::process::id(), left.as_raw_fd());
                variables.push((INHERITANCE_VARIABLE.into(), value.into()));
                let kept: Vec<BorrowedFd<'_>> = fds.iter().copied().chain([left.as_fd()]).collect();
                sys::execute_in_place(
                    &self.program.path,
                    &self.program.arguments,
                    &variables,
                    &kept,
                )
            }
            Err(error) => error,
        };
        notify::ready();
        // This front no longer serves stored pages, so it is replaced by a new one.
        if let Some(front) = &mut self.front {
            front.kill();
        }
        let program = self.program.path.display();
        refuse_upgrade(asker, &[format!("cannot execute {program}: {error}")]);
    }

    /// Continues with the processes of the previous program, if there was one.
    pub(super) fn take_over(
        &mut self,
        fronts: Vec<(i32, ProcessChannel)>,
        jobs: Option<(i32, ProcessChannel)>,
    ) {
        if !fronts.is_empty() {
            self.listeners.leave_udp();
        }
        for (pid, link) in fronts {
            self.predecessors.add(pid, link);
        }
        if let Some((pid, link)) = jobs {
            self.jobs
                .adopt(pid, link, self.settings.server.timeouts.drain);
        }
    }

    /// The new front serves. In a new program, the previous fronts are now asked to finish their requests.
    pub(super) fn has_taken_over(&mut self) {
        if let UpgradeState::TakingOver { asker } = std::mem::take(&mut self.upgrade) {
            self.predecessors
                .stop(self.settings.server.timeouts.drain, true);
            let text = format!("upgraded: howdah {} is serving", env!("CARGO_PKG_VERSION"));
            print_message(&text);
            if let Some(asker) = asker {
                asker.succeed(&text, &[]);
            }
            for question in std::mem::take(&mut self.early_requests) {
                self.handle_request(question);
            }
        }
    }

    /// A front of the previous program has exited. After the last one, the new front takes over what they held: HTTP/3
    /// and the directory of the page cache.
    pub(super) fn predecessor_is_gone(&mut self) {
        if !self.predecessors.is_empty() || self.is_stopping() {
            return;
        }
        print_message("upgrade: the previous front has exited");
        if self.listeners.take_udp() || self.settings.cache_disk.is_some() {
            self.reload(vec![None]);
        }
    }

    fn inheritance<'a>(
        &'a self,
        asker: Option<&'a ControlClient>,
    ) -> io::Result<(File, Vec<BorrowedFd<'a>>)> {
        let mut fds = Vec::new();
        let listeners = self.listeners.inheritance(&mut fds);
        let mut keep = |fd: BorrowedFd<'a>| {
            fds.push(fd);
            fd.as_raw_fd()
        };
        let before = self
            .predecessors
            .iter()
            .map(|front| (front.pid, &front.link));
        let front = self.front.as_ref().map(|front| (front.pid, &front.link));
        let left = Inheritance {
            listeners,
            control: (
                self.control.path().to_owned(),
                keep(self.control.listener()),
            ),
            fronts: before
                .chain(front)
                .map(|(pid, link)| (pid, keep(link.fd())))
                .collect(),
            jobs: self
                .jobs
                .process()
                .map(|(pid, link)| (pid, keep(link.fd()))),
            asker: asker.map(|asker| keep(asker.fd())),
        };
        let mut file = File::from(memfd_create("howdah-inheritance", MemfdFlags::CLOEXEC)?);
        file.write_all(&serde_json::to_vec(&left)?)?;
        Ok((file, fds))
    }
}

/// Logs that the upgrade was refused and sends the mistakes to the client.
fn refuse_upgrade(asker: Option<ControlClient>, mistakes: &[String]) {
    print_message("UpgradeRefused: the previous program continues to serve:");
    print_mistakes(mistakes);
    if let Some(asker) = asker {
        asker.mistakes(mistakes);
    }
}
