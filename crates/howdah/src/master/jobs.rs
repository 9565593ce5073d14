//! The process that runs background jobs (`crate::jobs`): started with the first configuration that has
//! some, started again when it dies. What it has said last outlives fronts.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use howdah_server::admin::jobs::JobStatus;
use rustix::process::{Pid, Signal, kill_process_group};

use super::control::Asker;
use super::process::kill;
use super::restart::Restart;
use super::unnoted::Unnoted;
use super::{reload, say};
use crate::child;
use crate::config;
use crate::jobs::settings::{JobCommand, Settings};
use crate::link::{FromJobs, Link, Received, ToFront, ToJobs, read_text, text_file};

/// Messages taken at once.
const MESSAGES: usize = 64;

struct Process {
    pid: i32,
    link: Link,
    since: Instant,
    /// It has closed the line: SIGCHLD shows the rest.
    hung_up: bool,
}

/// See the module.
#[derive(Default)]
pub struct BackgroundJobs {
    settings: Option<Settings>,
    process: Option<Process>,
    restart: Restart,
    /// The server ends: it is not started again.
    stopping: bool,
    status: Vec<JobStatus>,
    askers: BTreeMap<u64, Asker>,
    next_id: u64,
    /// The process is of the program before an upgrade: it ends its jobs, and another is started then.
    is_former: bool,
}

impl BackgroundJobs {
    /// Has these jobs run from now on, with new code. Without any the process ends.
    pub fn assign(&mut self, settings: Settings, log: &config::Settings) {
        let none = settings.jobs.is_empty();
        self.settings = Some(settings);
        match &self.process {
            // Another is started when it has ended.
            Some(_) if self.is_former => {}
            // It ends the jobs that it has.
            Some(_) => self.send_settings(log),
            None if none => {}
            None => self.start(log),
        }
    }

    fn start(&mut self, log: &config::Settings) {
        self.restart.cancel();
        match child::execute("jobs") {
            Ok((pid, link)) => {
                self.process = Some(Process {
                    pid,
                    link,
                    since: Instant::now(),
                    hung_up: false,
                });
                self.send_settings(log);
            }
            Err(error) => {
                say(format!(
                    "JobsNotStarted: cannot start the process that runs jobs: {error}"
                ));
                self.restart.plan(None);
            }
        }
    }

    fn send_settings(&mut self, log: &config::Settings) {
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
        self.must_hear(send());
    }

    /// One that takes no messages any more is of no use.
    fn must_hear(&self, sent: io::Result<()>) {
        if let (Err(error), Some(process)) = (sent, &self.process) {
            say(format!(
                "JobsDied: the process that runs jobs takes no messages ({error}); it is killed"
            ));
            kill(process.pid);
        }
    }

    /// Goes on with the process of the program before an upgrade: its jobs end within this time.
    pub fn adopt(&mut self, pid: i32, link: Link, limit: Duration) {
        let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        // One that takes no messages is gone, or going.
        let _ = link.send_now(&ToJobs::Stop { limit }, &[]);
        self.is_former = true;
        self.process = Some(Process {
            pid,
            link,
            since: Instant::now(),
            hung_up: false,
        });
    }

    /// The process, and the line to it.
    pub fn process(&self) -> Option<(i32, &Link)> {
        self.process
            .as_ref()
            .map(|process| (process.pid, &process.link))
    }

    /// To wait on.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        let process = self.process.as_ref().filter(|process| !process.hung_up)?;
        Some(process.link.fd())
    }

    /// When it is started again.
    pub fn wake(&self) -> Option<Instant> {
        self.restart.wake()
    }

    /// Starts it again, when it is time.
    pub fn act(&mut self, now: Instant, log: &config::Settings) {
        if self.restart.is_due(now) {
            self.start(log);
        }
    }

    /// Writes to this log file from now on.
    pub fn reopen(&self, file: Option<BorrowedFd<'_>>) {
        if let (Some(process), Some(file)) = (&self.process, file) {
            let sent = process.link.send_now(&ToJobs::Reopen, &[file]);
            self.must_hear(sent);
        }
    }

    /// Whether the process that ended was this one. The kernel has killed its jobs; what those started is
    /// killed here.
    pub fn reaped(&mut self, pid: i32, how: &str) -> bool {
        let Some(process) = self.process.take_if(|process| process.pid == pid) else {
            return false;
        };
        for process in self.status.iter().flat_map(|job| &job.processes) {
            if let Some(group) = Pid::from_raw(process.pid) {
                // A group's number is not given to another process while one of the group lives.
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        self.status.clear();
        for asker in std::mem::take(&mut self.askers).into_values() {
            asker.refuse("JobsDied: the process that runs jobs has ended");
        }
        let has_jobs = self.settings.as_ref().is_some_and(|s| !s.jobs.is_empty());
        let is_former = std::mem::take(&mut self.is_former);
        if has_jobs && !self.stopping && is_former {
            self.restart.plan_now();
        } else if has_jobs && !self.stopping {
            self.restart.plan(Some(process.since));
            say(format!(
                "JobsDied: the process that runs jobs ended ({how}), and its jobs with it; it is started again"
            ));
        }
        true
    }

    /// Takes what it says; what jobs wrote is put into `unnoted`. Returns whether the front is to hear how the
    /// jobs stand.
    pub fn hear(&mut self, unnoted: &mut Unnoted) -> bool {
        let mut news = false;
        for _ in 0..MESSAGES {
            let Some(process) = self.process.as_mut().filter(|process| !process.hung_up) else {
                break;
            };
            match process.link.receive_now::<FromJobs>() {
                Received::Nothing => break,
                // It ends: SIGCHLD shows the rest.
                Received::Closed => process.hung_up = true,
                Received::Message(message, fds) => news |= self.take(message, fds, unnoted),
            }
        }
        news
    }

    fn take(&mut self, message: FromJobs, fds: Vec<OwnedFd>, unnoted: &mut Unnoted) -> bool {
        let text = fds.into_iter().next().and_then(|fd| read_text(fd).ok());
        let text = text.unwrap_or_default();
        match message {
            FromJobs::Status => {
                self.status = serde_json::from_str(&text).unwrap_or_default();
                return true;
            }
            FromJobs::Wrote { ask } => unnoted.job_wrote(ask),
            FromJobs::Done { id, ok } => {
                if let Some(asker) = self.askers.remove(&id) {
                    match ok {
                        true => asker.done(&text, &[]),
                        false => asker.refuse(&text),
                    }
                }
            }
        }
        false
    }

    /// How the jobs stand.
    pub fn status(&self) -> &[JobStatus] {
        &self.status
    }

    /// Tells the front how the jobs stand.
    pub fn send_status(&self, front: &Link) -> io::Result<()> {
        let text = text_file(&serde_json::to_string(&self.status)?)?;
        front.send_now(&ToFront::Jobs, &[text.as_fd()])
    }

    /// Passes on what a person wants.
    pub fn command(&mut self, command: JobCommand, asker: Asker) {
        let Some(process) = &self.process else {
            let has_jobs = self.settings.as_ref().is_some_and(|s| !s.jobs.is_empty());
            return asker.refuse(match has_jobs {
                false => "NoSuchJob: the configuration has no [[job]]",
                true => "JobsDied: the process that runs jobs is being started; ask again",
            });
        };
        self.next_id += 1;
        let id = self.next_id;
        let sent = process.link.send_now(&ToJobs::Command { id, command }, &[]);
        self.askers.insert(id, asker);
        self.must_hear(sent);
    }

    /// Asks all jobs to end within this time; the process leaves then.
    pub fn stop(&mut self, limit: Duration) {
        self.stopping = true;
        self.restart.cancel();
        if let Some(process) = &self.process {
            let limit = limit.as_millis() as u64;
            // One that takes no messages is killed when the time is over.
            let _ = process.link.send_now(&ToJobs::Stop { limit }, &[]);
        }
    }

    /// Whether the process is there.
    pub fn runs(&self) -> bool {
        self.process.is_some()
    }

    /// Ends it and its jobs at once.
    pub fn kill(&mut self) {
        if let Some(pid) = self.process.as_ref().map(|process| process.pid) {
            kill(pid);
            self.stopping = true;
            self.reaped(pid, "killed");
        }
    }
}
