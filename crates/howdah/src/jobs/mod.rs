//! `howdah jobs`: the process that runs background jobs, always or by a schedule. The master starts it. It survives a
//! front and exits with the server. It has the master's rights, because jobs run as users of their own. It does not
//! handle HTTP, and splits the output of jobs into lines without interpreting it.
//!
//! - [`settings`]: the settings of jobs.
//! - [`job`]: a job; [`process`]: a process of a job; [`restarts`]: decides when a process is started again.
//! - [`last_runs`]: stores when a schedule was last due.
//! - [`missed`]: runs that were due while no server ran.
//! - [`fleet`]: decides which runs this server executes in a fleet; [`run_claims`]: the thread that asks Valkey.
//! - [`output_limit`]: limits the output that is logged; [`strays`]: processes that left their job.

mod fleet;
mod job;
mod last_runs;
mod missed;
mod output_limit;
mod process;
mod restarts;
pub mod run_claims;
pub mod settings;
mod strays;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use howdah_log::log::ErrorLog;
use howdah_proto::level::LogLevel;
use howdah_server::admin::jobs::JobStatus;
use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Pid;

use crate::master::print_message;
use crate::process_channel::{
    FromJobs, ProcessChannel, ReceiveOutcome, ToJobs, read_text, text_file,
};
use crate::{child, error_log, exit};
use howdah_config::job_settings::JobTiming;
use job::RunningJob;
use last_runs::LastRuns;
use missed::MissedRuns;
use run_claims::RunClaims;
use settings::{JobControlCommand, JobRunnerSettings};

/// How often memory and stray processes are checked while a job runs.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum time to sleep, because the clock may have been set in the meantime.
const MAX_SLEEP: Duration = Duration::from_secs(30);
/// If the clock was set back by more than this many seconds, the next run of each schedule is computed again.
const CLOCK_SET_BACK_SECONDS: i64 = 3 * 3600;

/// Runs `howdah jobs`.
pub fn run(link: i32) -> ExitCode {
    match serve(link) {
        Ok(()) => exit::done(),
        Err(why) => {
            print_message(format!("jobs: {why}"));
            exit::failed()
        }
    }
}

fn serve(link: i32) -> Result<(), String> {
    let (link, _blocked) = child::prepare(link)?;
    let (settings, mut fds) = match link.receive::<ToJobs>() {
        ReceiveOutcome::Message(ToJobs::Settings, fds) => read_settings(fds)?,
        _ => return Ok(()),
    };
    strays::become_subreaper();
    let level = LogLevel::of(settings.level.into());
    let log = error_log::open(&settings.log, level, fds.pop())
        .map_err(|error| format!("cannot write the error log: {error}"))?;
    let (last_runs, trouble) = LastRuns::read(&settings.state);
    let mut jobs = JobRunner {
        link,
        log,
        jobs: Vec::new(),
        last_runs,
        is_state_lost: false,
        is_stopping: false,
        is_master_gone: false,
        ended_groups: Vec::new(),
        turns: None,
        missed: Vec::new(),
        last_clock: Timestamp::now(),
        last_tick: Instant::now(),
        changed: true,
    };
    if let Some(why) = trouble {
        jobs.report_state_lost(&format!("{}: {why}", settings.state.display()));
    }
    jobs.report_missed(&settings);
    jobs.configure(settings)?;
    while jobs.turn()? {}
    if let Some(turns) = jobs.turns.take() {
        turns.leave();
    }
    Ok(())
}

fn read_settings(fds: Vec<OwnedFd>) -> Result<(JobRunnerSettings, Vec<OwnedFd>), String> {
    let mut fds = fds.into_iter();
    let text = fds.next().ok_or("descriptors are missing")?;
    let text = read_text(text).map_err(|error| error.to_string())?;
    let settings = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    Ok((settings, fds.collect()))
}

struct JobRunner {
    link: ProcessChannel,
    log: ErrorLog,
    jobs: Vec<RunningJob>,
    last_runs: LastRuns,
    /// Whether the file of the last runs cannot be written, which has been logged.
    is_state_lost: bool,
    /// Whether the server is stopping.
    is_stopping: bool,
    /// Whether the master has exited. A closed channel stays readable, so it is no longer polled.
    is_master_gone: bool,
    /// Process groups in which processes have been killed recently.
    ended_groups: Vec<Pid>,
    /// In a fleet, the thread that asks which member executes a run.
    turns: Option<RunClaims>,
    /// Runs that other members may have executed while no server ran here.
    missed: Vec<MissedRuns>,
    last_clock: Timestamp,
    last_tick: Instant,
    /// Whether the master must be sent the status of the jobs.
    changed: bool,
}

impl JobRunner {
    /// Waits for events and handles them. Returns false when everything is done.
    fn turn(&mut self) -> Result<bool, String> {
        self.act_on_deadlines();
        if self.is_stopping && self.jobs.iter().all(|job| job.processes().next().is_none()) {
            self.send_status();
            return Ok(false);
        }
        if std::mem::take(&mut self.changed) {
            self.send_status();
        }
        self.wait()?;
        self.receive_from_master()?;
        self.receive_from_fleet();
        let now = Instant::now();
        let mut ended = false;
        let groups = self.groups();
        for job in &mut self.jobs {
            ended |= job.poll_processes(&self.log, now);
        }
        if ended {
            // Only the groups of the last end are remembered, because a killed process disappears soon.
            self.ended_groups = groups;
            self.changed = true;
            self.kill_strays();
        }
        self.report_writes();
        self.release_claims();
        self.respond_to_ended();
        Ok(true)
    }

    fn wait(&self) -> Result<(), String> {
        let now = Instant::now();
        let runs = self.jobs.iter().any(|job| job.processes().next().is_some());
        let tick = runs.then(|| self.last_tick + CHECK_INTERVAL);
        let due = self.jobs.iter().filter_map(|job| job.next_deadline(now));
        let due = due.chain(tick).min();
        let clock = Timestamp::now();
        let scheduled = self.jobs.iter().filter_map(|job| job.next).min();
        let scheduled = scheduled.map(|at| Duration::try_from(at.duration_since(clock)));
        let pause = [
            due.map(|due| due.saturating_duration_since(now)),
            // A run whose time has passed is due.
            scheduled.map(Result::unwrap_or_default),
        ];
        let pause = pause.into_iter().flatten().min();
        // The pause is rounded up, because waking a moment early would only spin.
        let pause = pause.unwrap_or(MAX_SLEEP) + Duration::from_millis(1);
        let pause = pause.min(MAX_SLEEP);
        let mut fds = Vec::new();
        if !self.is_master_gone {
            fds.push(PollFd::from_borrowed_fd(self.link.fd(), PollFlags::IN));
        }
        if let Some(turns) = &self.turns {
            fds.push(PollFd::from_borrowed_fd(turns.fd(), PollFlags::IN));
        }
        for process in self.jobs.iter().flat_map(RunningJob::processes) {
            let descriptors = process.descriptors();
            fds.extend(descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        let timeout = Timespec {
            tv_sec: pause.as_secs() as i64,
            tv_nsec: i64::from(pause.subsec_nanos()),
        };
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Handles the messages of the master. If the master has exited, all jobs are stopped.
    fn receive_from_master(&mut self) -> Result<(), String> {
        while !self.is_master_gone {
            match self.link.receive_now::<ToJobs>() {
                ReceiveOutcome::Nothing => break,
                ReceiveOutcome::Closed => {
                    self.is_master_gone = true;
                    self.stop(Duration::MAX);
                }
                ReceiveOutcome::Message(ToJobs::Settings, fds) => match read_settings(fds) {
                    Ok((settings, mut fds)) => {
                        let level = LogLevel::of(settings.level.into());
                        let style = error_log::style(&settings.log);
                        let file = fds.pop().map(File::from);
                        if let Err(error) = self.log.reconfigure(&settings.log, file, style, level)
                        {
                            print_message(format!(
                                "LogNotReopened: {error}; the old log remains in use"
                            ));
                        }
                        self.configure(settings)?;
                    }
                    Err(why) => print_message(format!("jobs: {why}")),
                },
                ReceiveOutcome::Message(ToJobs::Reopen, fds) => {
                    if let Some(file) = fds.into_iter().next() {
                        // If this fails, the old file stays in use.
                        let _ = self.log.sink().reopen_as(file.into());
                    }
                }
                ReceiveOutcome::Message(ToJobs::Command { id, command }, _) => {
                    self.command(id, &command)
                }
                ReceiveOutcome::Message(ToJobs::Stop { limit }, _) => {
                    self.stop(Duration::from_millis(limit));
                }
            }
        }
        Ok(())
    }

    /// Applies another configuration, or the same one with new code.
    fn configure(&mut self, settings: JobRunnerSettings) -> Result<(), String> {
        if self.is_stopping {
            return Ok(());
        }
        let is_asked = |job: &howdah_config::job_settings::JobSettings| {
            let when = &job.when;
            matches!(when, JobTiming::Schedule { on_each: false, .. })
        };
        // Without runs to share, Valkey is not asked. Once it has been asked, ended runs must be released.
        if self.turns.is_some() || settings.jobs.iter().any(is_asked) {
            self.apply_fleet(settings.fleet)?;
        }
        let (now, clock) = (Instant::now(), Timestamp::now());
        for job in &mut self.jobs {
            if !settings.jobs.iter().any(|new| new.name == job.job.name) {
                job.is_ending = true;
                job.next = None;
                job.end(Duration::MAX);
            }
        }
        for new in settings.jobs {
            if let JobTiming::Schedule { expression, .. } = &new.when
                && self.last_runs.last_due(&new.name, expression).is_none()
            {
                self.last_runs.record(&new.name, expression, clock);
            }
            match self.jobs.iter_mut().find(|job| job.job.name == new.name) {
                Some(job) => job.configure(new, now, clock),
                None => self.jobs.push(RunningJob::new(new, now, clock)),
            }
        }
        let names = self.jobs.iter().filter(|job| job.schedule.is_some());
        let names: Vec<&str> = names.map(|job| job.job.name.as_str()).collect();
        self.last_runs.retain(&names);
        if !names.is_empty() {
            self.write_last_runs();
        }
        self.changed = true;
        Ok(())
    }

    fn act_on_deadlines(&mut self) {
        let (now, clock) = (Instant::now(), Timestamp::now());
        let set_back = self.last_clock.as_second() - clock.as_second() > CLOCK_SET_BACK_SECONDS;
        self.last_clock = clock;
        let mut was_due = false;
        for at in 0..self.jobs.len() {
            let job = &mut self.jobs[at];
            if set_back {
                job.next = job.schedule.as_ref().and_then(|s| s.next(clock));
            }
            while let Some(next) = job.next.filter(|next| *next <= clock) {
                was_due = true;
                let schedule = job.schedule.as_ref();
                job.next = schedule.and_then(|s| s.next(next));
                let expression = match &job.job.when {
                    JobTiming::Schedule { expression, .. } => expression.as_str(),
                    JobTiming::Always { .. } => "",
                };
                self.last_runs.record(&job.job.name, expression, next);
                // If several runs came due while the machine slept, only one is started.
                if job.next.is_none_or(|later| later > clock) {
                    self.start_or_claim(at, next, clock, now);
                    break;
                }
            }
            self.changed |= self.jobs[at].act_on_deadlines(&self.log, now);
        }
        if was_due {
            self.changed = true;
            self.write_last_runs();
        }
        let gone = |job: &RunningJob| job.is_ending && job.processes().next().is_none();
        if !self.is_stopping {
            self.jobs
                .retain(|job| !gone(job) || !job.waiting_commands.is_empty());
        }
        if now >= self.last_tick + CHECK_INTERVAL {
            self.last_tick = now;
            for job in &mut self.jobs {
                self.changed |= job.check_memory(&self.log);
            }
            self.kill_strays();
        }
    }

    fn kill_strays(&mut self) {
        let groups = self.groups();
        for (name, pid) in strays::kill_strays(&groups, &self.ended_groups) {
            let text = format!(
                "process {pid} ({name}) has left the process group of its job and is killed: a job must run in the foreground"
            );
            self.log.problem(LogLevel::Warning, "JobStray", &text);
        }
    }

    fn groups(&self) -> Vec<Pid> {
        let processes = self.jobs.iter().flat_map(RunningJob::processes);
        processes.map(|process| process.pid).collect()
    }

    /// Reports the writes of jobs to the page cache.
    fn report_writes(&mut self) {
        for ask in self.jobs.iter_mut().flat_map(RunningJob::take_due_reports) {
            // If the master has exited, there is no page cache.
            let _ = self.link.send(&FromJobs::Wrote { ask }, &[]);
        }
    }

    fn command(&mut self, id: u64, command: &JobControlCommand) {
        let now = Instant::now();
        let names: Vec<&str> = self.jobs.iter().map(|job| job.job.name.as_str()).collect();
        let names = names.join(", ");
        let Some(at) = self
            .jobs
            .iter()
            .position(|job| job.job.name == command.job())
        else {
            let name = command.job().escape_debug();
            let why = format!("NoSuchJob: there is no job `{name}`; the jobs are: {names}");
            return self.send_outcome(id, Err(why));
        };
        let outcome = match command {
            JobControlCommand::Run { .. } => {
                let started = self.run_by_hand(at, now);
                started.map(|()| match self.jobs[at].schedule {
                    // The response is sent when the run has ended.
                    Some(_) => None,
                    None => Some("started"),
                })
            }
            JobControlCommand::Stop { .. } => {
                self.withdraw_claim(at);
                let job = &mut self.jobs[at];
                let runs = job.processes().next().is_some();
                job.is_stopped = job.schedule.is_none();
                job.end(Duration::MAX);
                match (runs, job.is_stopped) {
                    (true, _) => Ok(None),
                    (false, true) => Ok(Some("stopped")),
                    (false, false) => Ok(Some("the job was not running; its schedule continues")),
                }
            }
        };
        match outcome {
            Ok(None) => {
                let is_run = matches!(command, JobControlCommand::Run { .. });
                self.jobs[at].waiting_commands.push((id, is_run));
            }
            Ok(Some(done)) => self.send_outcome(id, Ok(done.to_owned())),
            Err(why) => self.send_outcome(id, Err(why)),
        }
        self.changed = true;
    }

    /// Responds to the commands that wait for the end of a job.
    fn respond_to_ended(&mut self) {
        let mut answers = Vec::new();
        for job in &mut self.jobs {
            let starts = job.slots.iter().any(|slot| slot.start_at.is_some()) && !job.is_stopped;
            if job.processes().next().is_none() && !starts && job.claim.is_none() {
                let ids = std::mem::take(&mut job.waiting_commands);
                answers.extend(ids.into_iter().map(|(id, is_run)| match is_run {
                    true => (id, job.outcome.clone()),
                    false => (id, Ok("stopped".to_owned())),
                }));
            }
        }
        if !answers.is_empty() {
            self.send_status();
        }
        for (id, outcome) in answers {
            self.send_outcome(id, outcome);
        }
    }

    fn send_outcome(&self, id: u64, outcome: Result<String, String>) {
        let ok = outcome.is_ok();
        let text = outcome.unwrap_or_else(|why| why);
        let sent = text_file(&text)
            .and_then(|text| self.link.send(&FromJobs::Done { id, ok }, &[text.as_fd()]));
        if let Err(error) = sent {
            print_message(format!("jobs: cannot reach the master: {error}"));
        }
    }

    fn send_status(&self) {
        let all: Vec<JobStatus> = self.jobs.iter().map(RunningJob::status).collect();
        // The next read of the channel notices if the master has exited.
        let _ = serde_json::to_string(&all)
            .map_err(std::io::Error::from)
            .and_then(|text| text_file(&text))
            .and_then(|text| self.link.send(&FromJobs::Status, &[text.as_fd()]));
    }

    /// Stops all jobs, each within `most` or its own time limit, whichever is shorter.
    fn stop(&mut self, most: Duration) {
        self.is_stopping = true;
        self.changed = true;
        for job in &mut self.jobs {
            job.is_ending = true;
            job.next = None;
            job.end(most);
        }
    }
}

/// Starts a run of the schedule after a random delay.
fn start_by_schedule(job: &mut RunningJob, now: Instant) {
    let jitter = match &job.job.when {
        JobTiming::Schedule { jitter, .. } => *jitter,
        JobTiming::Always { .. } => Duration::ZERO,
    };
    for slot in &mut job.slots {
        slot.start_at = Some(now + random_delay(jitter));
    }
}

/// Returns a random time between zero and `most`.
fn random_delay(most: Duration) -> Duration {
    let mut bytes = [0; 4];
    // Without a random number, the delay is zero.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    most.mul_f64(f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX))
}
