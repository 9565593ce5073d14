//! One process of a job, from its start to its end. It is the leader of its own process group, which ends with it. It
//! also ends with the process that runs jobs, however that process ends.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use howdah_executor::ProcessOutput;
use howdah_executor::launch::set_environment;
use howdah_os::descriptors::{exit_with_parent, inherit, run_as};
use howdah_proto::control::Exit;
use rustix::fs::OFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open,
    pidfd_send_signal, waitid,
};

use crate::effects::ScriptEffects;
use crate::sys;
use howdah_config::job_settings::{JobProgram, JobSettings};

/// The number of lines that are stored for the message about a failure, and below, the maximum number of characters of
/// each.
const TAIL_LINES: usize = 5;
const MAX_TAIL_LINE_CHARS: usize = 300;

/// The reason why a process was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The process has run longer than it may.
    Timeout,
    /// The process uses more memory than it may.
    TooLarge,
    /// An administrator, a reload or the end of the server has requested it.
    Asked,
}

impl EndReason {
    /// Returns the name of the reason in the log and the metrics.
    pub fn name(self) -> &'static str {
        match self {
            EndReason::Timeout => "JobTimeout",
            EndReason::TooLarge => "JobTooLarge",
            EndReason::Asked => "JobStopped",
        }
    }
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessStage {
    /// The process runs.
    Running,
    /// The process has been asked to end.
    Ending {
        /// Why the process has to end.
        reason: EndReason,
        /// When the process group is killed; `None` if it has been killed.
        kill_at: Option<Instant>,
    },
}

/// A process of a job.
pub struct RunningJobProcess {
    /// The process id, which is also the id of its group.
    pub pid: Pid,
    pidfd: OwnedFd,
    /// When it was started.
    pub started: Instant,
    /// The same time by the wall clock.
    pub since: SystemTime,
    /// The state of the process.
    pub stage: ProcessStage,
    output: Option<ProcessOutput>,
    /// The effects on databases, if the program is PHP.
    pub effects: Option<ScriptEffects>,
    /// The last lines of its output.
    pub tail: VecDeque<String>,
    /// The resident memory at the last check, in bytes.
    pub memory: u64,
}

impl RunningJobProcess {
    /// Starts a process of this job.
    ///
    /// # Errors
    /// Fails with the error of the operating system, or if the user or group does not exist.
    pub fn start(job: &JobSettings) -> io::Result<RunningJobProcess> {
        let (mut command, effects) = match &job.program {
            JobProgram::Php {
                program, arguments, ..
            } => {
                let (effects, writer) = ScriptEffects::pair()?;
                let mut command = program.command();
                command
                    .arg("php")
                    .arg("--effects-fd")
                    .arg(writer.as_raw_fd().to_string())
                    .args(arguments);
                inherit(&mut command, vec![writer]);
                (command, Some(effects))
            }
            JobProgram::Other { program, arguments } => {
                let mut command = Command::new(program);
                command.args(arguments);
                (command, None)
            }
        };
        std::fs::read_dir(&job.directory).map_err(|error| {
            let text = format!("the directory {}: {error}", job.directory.display());
            io::Error::new(error.kind(), text)
        })?;
        let none: [(String, String); 0] = [];
        set_environment(&mut command, job.clear_env, &none);
        run_as_job_user(&mut command, job)?;
        command
            .env("HOWDAH_JOB", &job.name)
            .envs(&job.environment)
            .current_dir(&job.directory)
            .process_group(0)
            .stdin(Stdio::null());
        if let JobProgram::Php { program, .. } = &job.program {
            program.preload(&mut command, job.clear_env)?;
        }
        exit_with_parent(&mut command, Signal::KILL);
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&reader, OFlags::NONBLOCK)?;
        command.stdout(Stdio::from(writer.try_clone()?));
        command.stderr(Stdio::from(writer));
        let child = command.spawn()?;
        let pid = Pid::from_raw(child.id() as i32)
            .ok_or_else(|| io::Error::other("spawn gave process id 0"))?;
        // The child is not reaped before this, so the id is still its own.
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(RunningJobProcess {
            pid,
            pidfd,
            started: Instant::now(),
            since: SystemTime::now(),
            stage: ProcessStage::Running,
            output: Some(ProcessOutput::new(reader)),
            effects,
            tail: VecDeque::new(),
            memory: 0,
        })
    }

    /// Returns the descriptors to poll: for the end of the process, its output and its reports.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let output = self.output.as_ref().map(ProcessOutput::pipe);
        let effects = self.effects.as_ref().and_then(ScriptEffects::fd);
        [Some(self.pidfd.as_fd()), output, effects]
            .into_iter()
            .flatten()
    }

    /// Reads the output of the process and passes each line to `each`.
    pub fn read_output(&mut self, mut each: impl FnMut(&str)) {
        let Some(output) = &mut self.output else {
            return;
        };
        let tail = &mut self.tail;
        let more = output.take(|line| {
            if tail.len() == TAIL_LINES {
                tail.pop_front();
            }
            tail.push_back(line.chars().take(MAX_TAIL_LINE_CHARS).collect());
            each(line);
        });
        if !more {
            self.output = None;
        }
    }

    /// Asks the process to end. The signal is sent only to the process itself, which may finish its current work, and
    /// not to the processes that it has started. The group is killed when the time is over.
    pub fn end(&mut self, reason: EndReason, within: Duration) {
        let at = Instant::now() + within;
        match &mut self.stage {
            ProcessStage::Running => {
                // A process that has changed its user can be signalled only by root.
                let _ = pidfd_send_signal(&self.pidfd, Signal::TERM);
                self.stage = ProcessStage::Ending {
                    reason,
                    kill_at: Some(at),
                };
            }
            ProcessStage::Ending { kill_at, .. } => *kill_at = kill_at.map(|before| before.min(at)),
        }
    }

    /// Kills the process group.
    pub fn kill(&self) {
        // The leader is not reaped before this value is dropped, so the number still belongs to the group.
        let _ = kill_process_group(self.pid, Signal::KILL);
    }

    /// Returns how the process ended, if it has. It stays a zombie until [`RunningJobProcess::kill_and_reap`].
    pub fn exit(&self) -> Option<Exit> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
        let status = status.ok().flatten()?;
        Some(match status.exit_status() {
            Some(code) => Exit::Code(code),
            None => Exit::Signal(status.terminating_signal().unwrap_or(0)),
        })
    }

    /// Kills the rest of the process group and reaps the process.
    pub fn kill_and_reap(&self) {
        self.kill();
        let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
    }
}

/// Makes the command run as the job's user, and sets the variables that a login would set.
fn run_as_job_user(command: &mut Command, job: &JobSettings) -> io::Result<()> {
    let account = match &job.user {
        Some(name) => sys::find_user(name)
            .ok_or_else(|| io::Error::other(format!("NoSuchUser: there is no user `{name}`")))?,
        None => howdah_os::account::effective_account(),
    };
    if let (Some(name), Some(home)) = (&account.name, &account.home) {
        let text =
            |text: &std::ffi::CString| std::ffi::OsStr::from_bytes(text.as_bytes()).to_owned();
        command
            .env("HOME", text(home))
            .env("USER", text(name))
            .env("LOGNAME", text(name));
    }
    let gid = match &job.group {
        Some(name) => sys::find_group(name)
            .ok_or_else(|| io::Error::other(format!("NoSuchGroup: there is no group `{name}`")))?,
        None => account.gid,
    };
    let other = (job.user.is_some() && sys::may_change_user()).then_some((&account, gid));
    run_as(command, other)
}
