//! The runs that were due while no server ran, as the file of the last runs shows ([`super::last_runs`]).

use howdah_proto::level::LogLevel;
use jiff::Timestamp;

use super::JobRunner;
use super::settings::JobRunnerSettings;
use howdah_config::cron_schedule::CronSchedule;
use howdah_config::job_settings::JobTiming;

/// The runs of a job that were due while no server ran.
pub struct MissedRuns {
    /// The job's name.
    pub job: String,
    /// When the last of these runs was due.
    pub due: Timestamp,
    /// The message for the log.
    pub text: String,
}

impl JobRunner {
    /// Logs which runs were missed while no server ran. They are not made up for, because a run that was planned for
    /// the night may not be wanted at noon.
    pub fn report_missed(&mut self, settings: &JobRunnerSettings) {
        let clock = Timestamp::now();
        for job in &settings.jobs {
            let JobTiming::Schedule {
                expression,
                time_zone,
                on_each,
                ..
            } = &job.when
            else {
                continue;
            };
            let (Some(last), Ok(schedule)) = (
                self.last_runs.last_due(&job.name, expression),
                CronSchedule::parse_expression(expression, time_zone.as_deref()),
            ) else {
                continue;
            };
            if let Some((n, at)) = schedule.missed(last, clock) {
                let runs = if n == 1 {
                    "1 run was"
                } else {
                    &format!("{n} runs were")
                };
                let text = format!(
                    "{runs} missed while no server was running, the last one at {}; to run the job now, use `howdah job run {}`",
                    schedule.show(at),
                    job.name
                );
                match settings.fleet.is_some() && !on_each {
                    true => self.missed.push(MissedRuns {
                        job: job.name.clone(),
                        due: at,
                        text,
                    }),
                    false => self
                        .log
                        .job(&job.name, LogLevel::Warning, "JobMissed", &text),
                }
            }
            self.last_runs.record(&job.name, expression, clock);
        }
    }

    pub fn write_last_runs(&mut self) {
        match self.last_runs.write() {
            Ok(()) => self.is_state_lost = false,
            Err(why) => self.report_state_lost(&why),
        }
    }

    pub fn report_state_lost(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_state_lost, true) {
            let text = format!(
                "cannot store when jobs last ran ({why}): runs that are missed while no server is running will not be noticed"
            );
            self.log.problem(LogLevel::Warning, "JobStateLost", &text);
        }
    }
}
