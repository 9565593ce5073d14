//! Scheduled jobs in a fleet: a run is claimed before it starts ([`super::run_claims`]), and the claim is released when
//! the run has ended. Without Valkey a run starts on no member, because running twice would be worse. Skipped runs are
//! logged.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use howdah_fleet::jobs::{ClaimResult, FleetJobRun};
use howdah_log::log::ErrorLog;
use howdah_proto::level::LogLevel;
use howdah_server::admin::jobs::FleetRun;
use jiff::Timestamp;

use super::job::{RunClaim, RunningJob};
use super::run_claims::{ClaimEvent, FleetSettings, RunClaims};
use super::{JobRunner, start_by_schedule};

/// How long a run waits for Valkey, unless the next run is due before.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(60);
/// How long before the next run is due the current one is given up.
const GIVE_UP_BEFORE_NEXT: Duration = Duration::from_millis(50);

impl JobRunner {
    /// Applies the fleet of a configuration.
    pub fn apply_fleet(&mut self, fleet: Option<FleetSettings>) -> Result<(), String> {
        if self.turns.as_ref().map(|turns| &turns.settings) == fleet.as_ref() {
            return Ok(());
        }
        if let Some(former) = self.turns.take() {
            former.leave();
            for job in &mut self.jobs {
                (job.claim, job.lock_token) = (None, None);
            }
        }
        if let Some(fleet) = fleet {
            let turns = RunClaims::start(&fleet);
            self.turns = Some(turns.map_err(|why| format!("cannot ask the fleet: {why}"))?);
        }
        Ok(())
    }

    /// A run of the schedule is due: starts the run, or claims it in the fleet first.
    pub fn start_or_claim(&mut self, at: usize, due: Timestamp, clock: Timestamp, now: Instant) {
        let job = &mut self.jobs[at];
        let Some(turns) = self.turns.as_mut().filter(|_| job.is_for_one_member()) else {
            if job.processes().next().is_some() {
                return report_still_running(job, &self.log, None);
            }
            return start_by_schedule(job, now);
        };
        let next = job.next.map(|next| next.duration_since(clock));
        let next = next.and_then(|pause| Duration::try_from(pause).ok());
        let within = next.map_or(CLAIM_TIMEOUT, |next| {
            CLAIM_TIMEOUT.min(next.saturating_sub(GIVE_UP_BEFORE_NEXT))
        });
        let token = turns.claim(&job.job.name, due.as_second(), within);
        let due = Some(due);
        match job.claim.replace(RunClaim { token, due }) {
            Some(RunClaim {
                due: Some(former), ..
            }) => report_skipped_run(
                job,
                &self.log,
                former,
                "JobLockUnreachable",
                UNANSWERED_MESSAGE,
            ),
            // An administrator waits for the former claim. The outcome is this one unless the scheduled run starts here.
            Some(RunClaim { due: None, .. }) => job.outcome = Err(already_due(&job.job.name)),
            None => {}
        }
    }

    /// Starts a run for an administrator, or returns why it does not start.
    pub fn run_by_hand(&mut self, at: usize, now: Instant) -> Result<(), String> {
        let job = &mut self.jobs[at];
        let Some(turns) = self.turns.as_mut().filter(|_| job.is_for_one_member()) else {
            return job.start(now);
        };
        let name = &job.job.name;
        if job.is_busy() {
            return Err(format!("JobStillRunning: the job `{name}` is running"));
        }
        if job.claim.is_some() {
            return Err(already_due(name));
        }
        let token = turns.claim(&job.job.name, 0, CLAIM_TIMEOUT);
        job.claim = Some(RunClaim { token, due: None });
        Ok(())
    }

    /// Handles the messages of the thread that asks Valkey.
    pub fn receive_from_fleet(&mut self) {
        let news = self.turns.as_ref().map(RunClaims::events);
        for news in news.unwrap_or_default() {
            match news {
                ClaimEvent::Claimed {
                    job,
                    token,
                    verdict,
                } => self.handle_verdict(&job, &token, verdict),
                ClaimEvent::Rows(rows) => self.show_runs(rows),
                ClaimEvent::Replaced { job, by } => {
                    let text = format!(
                        "this server did not reach Valkey before its lock expired, so {by} now runs the job, too"
                    );
                    self.warn(&job, "JobLockLost", &text);
                }
                ClaimEvent::Lost { job, member } => {
                    let text = format!(
                        "{member} started a run and has been silent since then; check whether the run has finished, and if necessary, repeat it with `howdah job run {job}`"
                    );
                    self.warn(&job, "JobMemberLost", &text);
                }
                ClaimEvent::Unreachable(why) => {
                    for missed in std::mem::take(&mut self.missed) {
                        let text =
                            format!("{}, unless another member ran the job: {why}", missed.text);
                        self.log
                            .job(&missed.job, LogLevel::Warning, "JobMissed", &text);
                    }
                }
            }
        }
    }

    fn warn(&mut self, name: &str, failure: &str, text: &str) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.job.name == name) {
            job.count_failure(failure);
            self.log.job(name, LogLevel::Error, failure, text);
            self.changed = true;
        }
    }

    fn handle_verdict(&mut self, name: &str, token: &str, verdict: Result<ClaimResult, String>) {
        let job = self.jobs.iter_mut().find(|job| job.job.name == name);
        let job = job.filter(|job| job.claim.as_ref().is_some_and(|c| c.token == token));
        let Some((claim, job)) = job.and_then(|job| Some((job.claim.take()?, job))) else {
            if let (Ok(ClaimResult::Yours(_)), Some(turns)) = (verdict, &self.turns) {
                let why = "the job was not started".to_owned();
                turns.release(name, token, Err(why));
            }
            return;
        };
        self.changed = true;
        match verdict {
            Ok(ClaimResult::Yours(_)) => {
                job.lock_token = Some(claim.token);
                job.outcome =
                    Err("JobStopped: the job was stopped before it was started".to_owned());
                if job.processes().next().is_some() {
                    // The run on this member has lost its lock, or never had a lock.
                    return report_still_running(job, &self.log, None);
                }
                let now = Instant::now();
                match claim.due {
                    Some(_) => start_by_schedule(job, now),
                    None => {
                        if let Err(why) = job.start(now) {
                            job.outcome = Err(why);
                        }
                    }
                }
            }
            Ok(ClaimResult::Runs(member)) => match claim.due {
                Some(_) => report_still_running(job, &self.log, Some(&member)),
                None => {
                    job.outcome = Err(format!("JobStillRunning: the job is running on {member}"))
                }
            },
            Ok(ClaimResult::Ahead(time)) => {
                let text = format!(
                    "this server's clock is {} s ahead of Valkey's",
                    time.as_secs()
                );
                report_refused_run(job, &self.log, claim.due, "JobClockAhead", &text);
            }
            Ok(ClaimResult::Taken(_) | ClaimResult::Wait(_)) => job.count_run_elsewhere(),
            Err(why) => {
                let text = match why.is_empty() {
                    true => UNANSWERED_MESSAGE.to_owned(),
                    false => {
                        format!("Valkey does not report which server should run the job: {why}")
                    }
                };
                report_refused_run(job, &self.log, claim.due, "JobLockUnreachable", &text);
            }
        }
    }

    fn show_runs(&mut self, rows: BTreeMap<String, FleetJobRun>) {
        for missed in std::mem::take(&mut self.missed) {
            let ran = rows
                .get(&missed.job)
                .is_some_and(|run| run.decided >= missed.due.as_second());
            if !ran {
                self.log
                    .job(&missed.job, LogLevel::Warning, "JobMissed", &missed.text);
            }
        }
        for (name, run) in rows {
            let job = self.jobs.iter_mut().find(|job| job.job.name == name);
            if let Some(job) = job.filter(|job| job.is_for_one_member() && run.at > 0) {
                self.changed |= job.record_fleet_run(FleetRun {
                    member: run.member,
                    began: run.at.max(0) as u64 / 1000,
                    ended: u64::try_from(run.ended).ok().filter(|at| *at > 0),
                    how: run.how,
                    good: run.good,
                });
            }
        }
    }

    /// Withdraws the claim of a job that must not start any more.
    pub fn withdraw_claim(&mut self, at: usize) {
        let job = &mut self.jobs[at];
        if let (Some(claim), Some(turns)) = (job.claim.take(), &self.turns) {
            job.outcome = Err("JobStopped: the job was stopped before it was started".to_owned());
            turns.release(&job.job.name, &claim.token, job.outcome.clone());
        }
    }

    /// Releases the claims of ended runs, and of jobs that must not start any more.
    pub fn release_claims(&mut self) {
        for at in 0..self.jobs.len() {
            if self.jobs[at].is_ending {
                self.withdraw_claim(at);
            }
        }
        let Some(turns) = &self.turns else {
            return;
        };
        for job in &mut self.jobs {
            if !job.is_busy()
                && let Some(token) = job.lock_token.take()
            {
                turns.release(&job.job.name, &token, job.outcome.clone());
            }
        }
    }
}

fn already_due(name: &str) -> String {
    format!(
        "JobStillRunning: the job `{name}` is already due, and Valkey is being asked which server runs it"
    )
}

const UNANSWERED_MESSAGE: &str = "Valkey does not report which server should run the job";

fn report_still_running(job: &mut RunningJob, log: &ErrorLog, member: Option<&str>) {
    let on = member.map_or(String::new(), |member| format!(" on {member}"));
    let text = format!(
        "the job is due, but its previous run has not finished{on}, so this run is skipped"
    );
    job.count_failure("JobStillRunning");
    job.outcome = Err(format!("JobStillRunning: {text}"));
    log.job(&job.job.name, LogLevel::Warning, "JobStillRunning", &text);
}

/// Handles a run that cannot be claimed. The reason is sent to the administrator who requested the run; for a scheduled
/// run it is logged.
fn report_refused_run(
    job: &mut RunningJob,
    log: &ErrorLog,
    due: Option<Timestamp>,
    name: &str,
    why: &str,
) {
    match due {
        Some(due) => report_skipped_run(job, log, due, name, why),
        None => job.outcome = Err(format!("{name}: {why}")),
    }
}

fn report_skipped_run(job: &mut RunningJob, log: &ErrorLog, due: Timestamp, name: &str, why: &str) {
    let due = job.schedule.as_ref().map(|schedule| schedule.show(due));
    let text = format!(
        "this server skips the run of {}: {why}; if no other member ran the job (`howdah job list`), run `howdah job run {}`",
        due.unwrap_or_default(),
        job.job.name
    );
    job.count_failure(name);
    log.job(&job.job.name, LogLevel::Error, name, &text);
}
