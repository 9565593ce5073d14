//! The process that runs background jobs (`crate::jobs`). It is started with the first configuration that has jobs, and
//! started again when it dies. Its last status outlives fronts.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use howdah_server::admin::jobs::JobStatus;
use rustix::process::{Pid, Signal, kill_process_group};

use super::control::ControlClient;
use super::process::kill;
use super::restart::RestartPlan;
use super::unconfirmed_writes::UnconfirmedWrites;
use super::{print_message, reload};
use crate::child;

use crate::jobs::settings::{JobControlCommand, JobRunnerSettings};
use crate::process_channel::{
    FromJobs, ProcessChannel, ReceiveOutcome, ToFront, ToJobs, read_text, text_file,
};

/// The maximum number of messages that are received in one turn.
const MAX_MESSAGES_PER_TURN: usize = 64;

struct JobRunnerProcess {
    pid: i32,
    link: ProcessChannel,
    since: Instant,
    /// Whether the process has closed the channel. SIGCHLD follows when it has exited.
    hung_up: bool,
}

/// The process that runs background jobs, and its last status.
#[derive(Default)]
pub struct BackgroundJobs {
    settings: Option<JobRunnerSettings>,
    process: Option<JobRunnerProcess>,
    restart: RestartPlan,
    /// Whether the server is stopping. If so, the process is not started again.
    stopping: bool,
    status: Vec<JobStatus>,
    clients: BTreeMap<u64, ControlClient>,
    next_id: u64,
    /// Whether the process belongs to the program before an upgrade. It stops its jobs, and then another process is
    /// started.
    is_predecessor: bool,
}

impl BackgroundJobs {
    /// Runs these jobs from now on, with new code. Without jobs, the process stops those it has.
    pub fn assign(&mut self, settings: JobRunnerSettings, log: &howdah_config::ServeSettings) {
        let none = settings.jobs.is_empty();
        self.settings = Some(settings);
        match &self.process {
            // Another process is started when this one has exited.
            Some(_) if self.is_predecessor => {}
            // The process stops the jobs that are running.
            Some(_) => self.send_settings(log),
            None if none => {}
            None => self.start(log),
        }
    }

    fn start(&mut self, log: &howdah_config::ServeSettings) {
        self.restart.cancel();
        match child::execute("jobs") {
            Ok((pid, link)) => {
                self.process = Some(JobRunnerProcess {
                    pid,
                    link,
                    since: Instant::now(),
                    hung_up: false,
                });
                self.send_settings(log);
            }
            Err(error) => {
                print_message(format!(
                    "JobsNotStarted: cannot start the process that runs jobs: {error}"
                ));
                self.restart.plan(None);
            }
        }
    }

    fn send_settings(&mut self, log: &howdah_config::ServeSettings) {
        let (Some(process), Some(settings)) = (&self.process, &self.settings) else {
            return;
        };
        let send = || -> io::Result<()> {
            let text = text_file(&serde_json::to_string(settings)?)?;
            let file = reload::open_error_log(log)?;
            let mut fds = vec![text.as_fd()];
            fds.extend(file.as_ref().map(AsFd::as_fd));
            process.link.send_now(&ToJobs::Settings, &fds)
        };
        self.kill_if_unsent(send());
    }

    /// Kills the process if a message could not be sent, because it is of no use then.
    fn kill_if_unsent(&self, sent: io::Result<()>) {
        if let (Err(error), Some(process)) = (sent, &self.process) {
            print_message(format!(
                "JobsDied: the process that runs jobs does not accept messages ({error}), so Howdah kills it"
            ));
            kill(process.pid);
        }
    }

    /// Continues with the process of the program before an upgrade. Its jobs must end within this time.
    pub fn adopt(&mut self, pid: i32, link: ProcessChannel, limit: Duration) {
        let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        // A process that accepts no messages has exited, or is about to.
        let _ = link.send_now(&ToJobs::Stop { limit }, &[]);
        self.is_predecessor = true;
        self.process = Some(JobRunnerProcess {
            pid,
            link,
            since: Instant::now(),
            hung_up: false,
        });
    }

    /// Returns the process id and the channel.
    pub fn process(&self) -> Option<(i32, &ProcessChannel)> {
        self.process
            .as_ref()
            .map(|process| (process.pid, &process.link))
    }

    /// Returns the descriptor to poll.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        let process = self.process.as_ref().filter(|process| !process.hung_up)?;
        Some(process.link.fd())
    }

    /// Returns when the process is started again.
    pub fn next_start(&self) -> Option<Instant> {
        self.restart.due_at()
    }

    /// Starts the process again when that is due.
    pub fn restart_if_due(&mut self, now: Instant, log: &howdah_config::ServeSettings) {
        if self.restart.is_due(now) {
            self.start(log);
        }
    }

    /// Makes the process write to this log file from now on.
    pub fn reopen(&self, file: Option<BorrowedFd<'_>>) {
        if let (Some(process), Some(file)) = (&self.process, file) {
            let sent = process.link.send_now(&ToJobs::Reopen, &[file]);
            self.kill_if_unsent(sent);
        }
    }

    /// Returns whether the process that exited was this one. The kernel has killed its jobs; the processes that those
    /// jobs started are killed here.
    pub fn reaped(&mut self, pid: i32, how: &str) -> bool {
        let Some(process) = self.process.take_if(|process| process.pid == pid) else {
            return false;
        };
        for process in self.status.iter().flat_map(|job| &job.processes) {
            if let Some(group) = Pid::from_raw(process.pid) {
                // The kernel does not reuse the number of a process group while a process of the group lives.
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        self.status.clear();
        for asker in std::mem::take(&mut self.clients).into_values() {
            asker.refuse("JobsDied: the process that runs jobs has exited");
        }
        let has_jobs = self.settings.as_ref().is_some_and(|s| !s.jobs.is_empty());
        let is_former = std::mem::take(&mut self.is_predecessor);
        if has_jobs && !self.stopping && is_former {
            self.restart.plan_now();
        } else if has_jobs && !self.stopping {
            self.restart.plan(Some(process.since));
            print_message(format!(
                "JobsDied: the process that runs jobs exited ({how}), and its jobs were killed; it is restarted"
            ));
        }
        true
    }

    /// Receives the messages of the process. The writes of jobs are put into `unnoted`. Returns whether the front must
    /// be sent a new status of the jobs.
    pub fn receive(&mut self, unnoted: &mut UnconfirmedWrites) -> bool {
        let mut news = false;
        for _ in 0..MAX_MESSAGES_PER_TURN {
            let Some(process) = self.process.as_mut().filter(|process| !process.hung_up) else {
                break;
            };
            match process.link.receive_now::<FromJobs>() {
                ReceiveOutcome::Nothing => break,
                // The process is exiting; SIGCHLD follows.
                ReceiveOutcome::Closed => process.hung_up = true,
                ReceiveOutcome::Message(message, fds) => {
                    news |= self.handle_message(message, fds, unnoted)
                }
            }
        }
        news
    }

    fn handle_message(
        &mut self,
        message: FromJobs,
        fds: Vec<OwnedFd>,
        unnoted: &mut UnconfirmedWrites,
    ) -> bool {
        let text = fds.into_iter().next().and_then(|fd| read_text(fd).ok());
        let text = text.unwrap_or_default();
        match message {
            FromJobs::Status => {
                self.status = serde_json::from_str(&text).unwrap_or_default();
                return true;
            }
            FromJobs::Wrote { ask } => unnoted.add_job_write(ask),
            FromJobs::Done { id, ok } => {
                if let Some(asker) = self.clients.remove(&id) {
                    match ok {
                        true => asker.succeed(&text, &[]),
                        false => asker.refuse(&text),
                    }
                }
            }
        }
        false
    }

    /// Returns the status of the jobs.
    pub fn status(&self) -> &[JobStatus] {
        &self.status
    }

    /// Sends the front the status of the jobs.
    pub fn send_status(&self, front: &ProcessChannel) -> io::Result<()> {
        let text = text_file(&serde_json::to_string(&self.status)?)?;
        front.send_now(&ToFront::Jobs, &[text.as_fd()])
    }

    /// Forwards a command of an administrator.
    pub fn command(&mut self, command: JobControlCommand, asker: ControlClient) {
        let Some(process) = &self.process else {
            let has_jobs = self.settings.as_ref().is_some_and(|s| !s.jobs.is_empty());
            return asker.refuse(match has_jobs {
                false => "NoSuchJob: the configuration has no [[job]]",
                true => "JobsDied: the process that runs jobs is being started; try again",
            });
        };
        self.next_id += 1;
        let id = self.next_id;
        let sent = process.link.send_now(&ToJobs::Command { id, command }, &[]);
        self.clients.insert(id, asker);
        self.kill_if_unsent(sent);
    }

    /// Asks all jobs to end within this time. Then the process exits.
    pub fn stop(&mut self, limit: Duration) {
        self.stopping = true;
        self.restart.cancel();
        if let Some(process) = &self.process {
            let limit = limit.as_millis() as u64;
            // A process that accepts no messages is killed when the time is over.
            let _ = process.link.send_now(&ToJobs::Stop { limit }, &[]);
        }
    }

    /// Returns whether the process exists.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Kills the process and its jobs at once.
    pub fn kill(&mut self) {
        if let Some(pid) = self.process.as_ref().map(|process| process.pid) {
            kill(pid);
            self.stopping = true;
            self.reaped(pid, "killed");
        }
    }
}
