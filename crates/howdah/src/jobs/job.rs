//! A job: its processes, its counters, and when it runs next. The decisions are made here; [`super::process`] starts
//! the processes and signals them.

use std::time::{Duration, Instant, SystemTime};

use howdah_executor::{exit_text, resident_bytes};
use howdah_log::log::ErrorLog;
use howdah_proto::control::Exit;
use howdah_proto::level::LogLevel;
use howdah_server::admin::jobs::{
    FleetRun, JobProcessStatus as ProcessStatus, JobStatus, LastRun, unix_seconds,
};
use howdah_server::cache::admin::AdminCommand;
use jiff::Timestamp;

use super::output_limit::OutputLimit;
use super::process::{EndReason, ProcessStage, RunningJobProcess};
use super::restarts::{RestartLog, Restarts};
use super::settings::reports;
use howdah_config::cron_schedule::CronSchedule;
use howdah_config::job_settings::{JobSettings, JobTiming};

/// How long the report of a write to the page cache is repeated, because a transaction may hide the write from other
/// connections for this time.
const MAX_TRANSACTION: Duration = Duration::from_secs(600);

/// The slot of one process.
pub struct JobSlot {
    restarts: Restarts,
    /// When a process is started in the slot; `None` if it is not started automatically.
    pub start_at: Option<Instant>,
    /// The process that runs in the slot.
    pub process: Option<RunningJobProcess>,
}

impl JobSlot {
    fn new(start_at: Option<Instant>) -> JobSlot {
        JobSlot {
            restarts: Restarts::default(),
            start_at,
            process: None,
        }
    }
}

/// A run that this member has claimed, while Valkey has not decided yet.
pub struct RunClaim {
    /// The token of the claim.
    pub token: String,
    /// When the run was due; `None` if an administrator requested it.
    pub due: Option<Timestamp>,
}

/// A job of the configuration.
pub struct RunningJob {
    /// The job's settings.
    pub job: JobSettings,
    /// The job's schedule, if it has one.
    pub schedule: Option<CronSchedule>,
    /// When the schedule is due next.
    pub next: Option<Timestamp>,
    /// The slots of its processes.
    pub slots: Vec<JobSlot>,
    /// Whether an administrator has stopped the job.
    pub is_stopped: bool,
    /// Whether the job is no longer configured or the server is stopping. In both cases no process is started.
    pub is_ending: bool,
    /// The counters since the first configuration with this job.
    status: JobStatus,
    limit: OutputLimit,
    /// The commands that receive a response when the job's processes have ended: the number of each command, and
    /// whether it started them.
    pub waiting_commands: Vec<(u64, bool)>,
    /// The result of the last process.
    pub outcome: Result<String, String>,
    /// The claim that Valkey has not decided yet.
    pub claim: Option<RunClaim>,
    /// In a fleet, the token of the claim under which the job runs.
    pub lock_token: Option<String>,
    /// Reports to the page cache from processes that have ended.
    reports: Vec<AdminCommand>,
}

impl RunningJob {
    /// Creates a job of a configuration that has just arrived.
    pub fn new(job: JobSettings, now: Instant, clock: Timestamp) -> RunningJob {
        let mut this = RunningJob {
            job: job.clone(),
            schedule: None,
            next: None,
            slots: Vec::new(),
            is_stopped: false,
            is_ending: false,
            status: JobStatus::default(),
            limit: OutputLimit::new(now),
            waiting_commands: Vec::new(),
            outcome: Ok(String::new()),
            claim: None,
            lock_token: None,
            reports: Vec::new(),
        };
        this.configure(job, now, clock);
        this
    }

    /// Applies a configuration, and new code: processes that always run are replaced when they have finished their
    /// current work.
    pub fn configure(&mut self, job: JobSettings, now: Instant, clock: Timestamp) {
        self.job = job;
        self.is_ending = false;
        let was_scheduled = self.schedule.is_some();
        let wanted = match &self.job.when {
            JobTiming::Always { processes } => {
                (self.schedule, self.next) = (None, None);
                *processes as usize
            }
            JobTiming::Schedule {
                expression,
                time_zone,
                ..
            } => {
                // The master has already checked the schedule.
                self.schedule =
                    CronSchedule::parse_expression(expression, time_zone.as_deref()).ok();
                self.next = self.schedule.as_ref().and_then(|s| s.next(clock));
                1
            }
        };
        self.status.wanted = wanted as u32;
        let always = self.schedule.is_none();
        for (at, slot) in self.slots.iter_mut().enumerate() {
            slot.start_at = match always {
                true => (at < wanted).then_some(now),
                false => slot.start_at.filter(|_| was_scheduled),
            };
            slot.restarts = Restarts::default();
            if let Some(process) = slot.process.as_mut().filter(|_| always) {
                process.end(EndReason::Asked, self.job.stop_timeout);
            }
        }
        while self.slots.len() < wanted {
            self.slots.push(JobSlot::new(always.then_some(now)));
        }
        self.drop_surplus();
    }

    /// Removes the slots beyond the configured number, each when its process has ended.
    fn drop_surplus(&mut self) {
        let wanted = self.status.wanted as usize;
        let mut at = 0;
        self.slots.retain(|slot| {
            at += 1;
            at <= wanted || slot.process.is_some()
        });
    }

    /// Returns the job's processes.
    pub fn processes(&self) -> impl Iterator<Item = &RunningJobProcess> {
        self.slots.iter().filter_map(|slot| slot.process.as_ref())
    }

    /// Asks all processes to end, within this time or their own time limit, whichever is shorter.
    pub fn end(&mut self, most: Duration) {
        let within = self.job.stop_timeout.min(most);
        for slot in &mut self.slots {
            slot.start_at = slot.start_at.filter(|_| self.schedule.is_none());
            if let Some(process) = &mut slot.process {
                process.end(EndReason::Asked, within);
            }
        }
    }

    /// Starts the job now, regardless of its schedule, or returns why it does not start.
    pub fn start(&mut self, now: Instant) -> Result<(), String> {
        if self.processes().next().is_some() {
            let name = &self.job.name;
            return Err(format!("JobStillRunning: the job `{name}` is running"));
        }
        self.is_stopped = false;
        for slot in &mut self.slots {
            slot.start_at = Some(now);
        }
        Ok(())
    }

    /// Starts, ends and kills the processes for which that is due. Returns whether anything has changed.
    pub fn act_on_deadlines(&mut self, log: &ErrorLog, now: Instant) -> bool {
        let mut changed = false;
        for at in 0..self.slots.len() {
            changed |= self.start_due(at, log, now);
            changed |= self.end_due(at, log, now);
        }
        changed
    }

    fn start_due(&mut self, at: usize, log: &ErrorLog, now: Instant) -> bool {
        let slot = &mut self.slots[at];
        let due = slot.start_at.is_some_and(|start_at| start_at <= now);
        if !due || slot.process.is_some() || self.is_stopped || self.is_ending {
            return false;
        }
        slot.start_at = None;
        match RunningJobProcess::start(&self.job) {
            Ok(process) => {
                let text = format!("process {}", process.pid.as_raw_nonzero());
                log.job(&self.job.name, LogLevel::Info, "JobStarted", &text);
                slot.process = Some(process);
                self.status.starts += 1;
            }
            Err(error) => {
                let (pause, say) = slot.restarts.pause_after_end(Duration::ZERO, false);
                slot.start_at = self.schedule.is_none().then(|| now + pause);
                self.status.count_failure("JobNotStarted");
                self.outcome = Err(format!("JobNotStarted: {error}"));
                if self.schedule.is_some() || say != RestartLog::Nothing {
                    let text = format!("the job cannot be started: {error}");
                    log.job(&self.job.name, LogLevel::Error, "JobNotStarted", &text);
                }
            }
        }
        true
    }

    fn end_due(&mut self, at: usize, log: &ErrorLog, now: Instant) -> bool {
        let job = &self.job;
        let slot = &mut self.slots[at];
        let Some(process) = &mut slot.process else {
            return false;
        };
        match process.stage {
            ProcessStage::Running => {
                if job
                    .timeout
                    .is_some_and(|limit| now >= process.started + limit)
                {
                    process.end(EndReason::Timeout, job.stop_timeout);
                    self.status.count_failure("JobTimeout");
                    let limit = job.timeout.unwrap_or_default().as_secs_f64();
                    let text =
                        format!("the process has run for {limit} s (timeout) and is sent SIGTERM");
                    log.job(&job.name, LogLevel::Error, "JobTimeout", &text);
                    return true;
                }
                if slot.restarts.has_recovered(now - process.started) {
                    log.job(
                        &job.name,
                        LogLevel::Notice,
                        "JobRecovered",
                        "the job runs again",
                    );
                }
                false
            }
            ProcessStage::Ending {
                reason,
                kill_at: Some(kill_at),
            } if kill_at <= now => {
                process.kill();
                process.stage = ProcessStage::Ending {
                    reason,
                    kill_at: None,
                };
                self.status.count_failure("JobKilled");
                let text =
                    "the process has not exited within stop_timeout after SIGTERM and is killed";
                log.job(&job.name, LogLevel::Warning, "JobKilled", text);
                true
            }
            ProcessStage::Ending { .. } => false,
        }
    }

    /// Reads the output and the reports of the processes, and cleans up after processes that have ended. Returns
    /// whether a process has ended.
    pub fn poll_processes(&mut self, log: &ErrorLog, now: Instant) -> bool {
        let mut ended = false;
        for at in 0..self.slots.len() {
            let name = &self.job.name;
            let Some(process) = &mut self.slots[at].process else {
                continue;
            };
            let exit = process.exit();
            if exit.is_some() {
                // The processes that it started may hold its output open.
                process.kill();
            }
            let (limit, status) = (&mut self.limit, &mut self.status);
            process.read_output(|line| match limit.admit(line.len()) {
                true => log.job(name, LogLevel::Notice, "output", line),
                false => status.dropped_lines += 1,
            });
            if let Some(effects) = &mut process.effects {
                effects.read();
            }
            if let Some(exit) = exit {
                ended = true;
                self.handle_exit(at, exit, log, now);
            }
        }
        if ended {
            self.drop_surplus();
        }
        let is_idle = self.processes().next().is_none();
        if let Some(lines) = self.limit.take_dropped(now, ended && is_idle) {
            let text = format!(
                "{lines} lines of the job's output were not logged, because there were too many"
            );
            log.job(&self.job.name, LogLevel::Warning, "JobOutputDropped", &text);
        }
        ended
    }

    fn handle_exit(&mut self, at: usize, exit: Exit, log: &ErrorLog, now: Instant) {
        let slot = &mut self.slots[at];
        let Some(mut process) = slot.process.take() else {
            return;
        };
        process.kill_and_reap();
        if let Some(effects) = &mut process.effects {
            effects.read();
            let wrote = effects.report();
            self.reports.extend(
                wrote
                    .into_iter()
                    .flat_map(|wrote| reports(&self.job, wrote)),
            );
        }
        let lived = now - process.started;
        let asked = process.stage != ProcessStage::Running;
        let well = asked || exit == Exit::Code(0);
        let how = exit_text(exit);
        let (pause, say) = slot.restarts.pause_after_end(lived, well);
        if self.schedule.is_none() && at < self.status.wanted as usize {
            let pause = if asked { Duration::ZERO } else { pause };
            slot.start_at = Some(now + pause);
        }
        let after = format!("{how} after {:.1} s", lived.as_secs_f64());
        self.outcome = match process.stage {
            ProcessStage::Running if well => Ok(after.clone()),
            ProcessStage::Running => Err(format!("JobFailed: {after}")),
            ProcessStage::Ending { reason, .. } => Err(format!("{}: {after}", reason.name())),
        };
        self.status.last = Some(LastRun {
            ended: unix_seconds(SystemTime::now()),
            seconds: lived.as_secs_f64(),
            how,
        });
        let name = &self.job.name;
        if well {
            log.job(name, LogLevel::Info, "JobEnded", &after);
            if say == RestartLog::Recovered {
                log.job(
                    name,
                    LogLevel::Notice,
                    "JobRecovered",
                    "the job succeeds again",
                );
            }
            return;
        }
        self.status.count_failure("JobFailed");
        let lines = match process.tail.is_empty() {
            true => "the process printed nothing".to_owned(),
            false => {
                let lines: Vec<&str> = process.tail.iter().map(String::as_str).collect();
                format!("its last lines: {}", lines.join(" | "))
            }
        };
        let pause = pause.as_secs();
        match say {
            _ if self.schedule.is_some() => {
                log.job(
                    name,
                    LogLevel::Error,
                    "JobFailed",
                    &format!("{after}; {lines}"),
                );
            }
            RestartLog::CrashLoop => {
                let text = format!(
                    "{after}, as in the runs before; the job is restarted after pauses of up to 60 s, and the next message is logged when it works again; {lines}"
                );
                log.job(name, LogLevel::Error, "JobCrashLoop", &text);
            }
            RestartLog::Failed => {
                let text = format!("{after}; it is restarted in {pause} s; {lines}");
                log.job(name, LogLevel::Error, "JobFailed", &text);
            }
            RestartLog::Nothing | RestartLog::Recovered => {}
        }
    }

    /// Checks the memory of the processes. Returns whether it has changed.
    pub fn check_memory(&mut self, log: &ErrorLog) -> bool {
        let mut changed = false;
        for process in self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.process.as_mut())
        {
            let memory = resident_bytes(process.pid.as_raw_nonzero().get());
            changed |= std::mem::replace(&mut process.memory, memory) != memory;
            let most = self.job.max_memory.filter(|most| memory > *most);
            if let Some(most) = most
                && process.stage == ProcessStage::Running
            {
                process.end(EndReason::TooLarge, self.job.stop_timeout);
                self.status.count_failure("JobTooLarge");
                let text = format!(
                    "process {} uses {} MiB, which is more than max_memory ({} MiB), and is sent SIGTERM",
                    process.pid.as_raw_nonzero(),
                    memory >> 20,
                    most >> 20
                );
                log.job(&self.job.name, LogLevel::Warning, "JobTooLarge", &text);
            }
        }
        changed
    }

    /// Returns when the job must act next.
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let starts = self.slots.iter().filter_map(|slot| match slot.process {
            None if !self.is_stopped && !self.is_ending => slot.start_at,
            _ => None,
        });
        let ends = self.processes().filter_map(|process| match process.stage {
            ProcessStage::Running => Some(process.started + self.job.timeout?),
            ProcessStage::Ending { kill_at, .. } => kill_at,
        });
        let reports = self.processes().filter_map(|process| {
            let effects = process.effects.as_ref()?;
            Some(now + effects.due()?)
        });
        starts.chain(ends).chain(reports).min()
    }

    /// Returns the reports of writes that are due for the page cache.
    pub fn take_due_reports(&mut self) -> Vec<AdminCommand> {
        let mut all = std::mem::take(&mut self.reports);
        let job = &self.job;
        let processes = self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.process.as_mut());
        for effects in processes.filter_map(|process| process.effects.as_mut()) {
            if effects.due() == Some(Duration::ZERO) {
                effects.forget_older(MAX_TRANSACTION);
                let wrote = effects.report();
                all.extend(wrote.into_iter().flat_map(|wrote| reports(job, wrote)));
                effects.confirm_report();
            }
        }
        all
    }

    /// Counts a run that did not take place, by the name of the failure.
    pub fn count_failure(&mut self, name: &str) {
        self.status.count_failure(name);
    }

    /// Counts a run that another member of the fleet executes.
    pub fn count_run_elsewhere(&mut self) {
        self.status.runs_elsewhere += 1;
    }

    /// Records the last run in the fleet. Returns whether it has changed.
    pub fn record_fleet_run(&mut self, run: FleetRun) -> bool {
        let former = self.status.fleet.replace(run);
        former != self.status.fleet
    }

    /// Returns whether the job runs on only one member of a fleet.
    pub fn is_for_one_member(&self) -> bool {
        matches!(&self.job.when, JobTiming::Schedule { on_each: false, .. })
    }

    /// Returns whether a process of the job exists or is about to be started.
    pub fn is_busy(&self) -> bool {
        self.processes().next().is_some() || self.slots.iter().any(|slot| slot.start_at.is_some())
    }

    /// Returns the status of the job.
    pub fn status(&self) -> JobStatus {
        let ending = |process: &RunningJobProcess| process.stage != ProcessStage::Running;
        let state = match (self.processes().next().is_some(), self.is_stopped) {
            (true, _) if self.processes().all(ending) => "stopping",
            (true, _) => "running",
            (false, true) => "stopped",
            (false, false) => "waiting",
        };
        let schedule = match &self.job.when {
            JobTiming::Schedule { expression, .. } => Some(expression.clone()),
            JobTiming::Always { .. } => None,
        };
        // A job that always runs and is waiting is started again at this time.
        let again = self.slots.iter().filter_map(|slot| slot.start_at).min();
        let again = again.filter(|_| state == "waiting").map(|at| {
            let pause = at.saturating_duration_since(Instant::now());
            unix_seconds(SystemTime::now() + pause)
        });
        let scheduled = self.next.and_then(|next| next.as_second().try_into().ok());
        let processes = self.processes().map(|process| ProcessStatus {
            pid: process.pid.as_raw_nonzero().get(),
            since: unix_seconds(process.since),
            memory: process.memory,
        });
        JobStatus {
            job: self.job.name.clone(),
            state: state.to_owned(),
            schedule,
            next: scheduled.or(again),
            processes: processes.collect(),
            ..self.status.clone()
        }
    }
}
