//! The runs that were due while no server ran, as the file of the last runs shows ([`super::last_runs`]).

use howdah_proto::level::Level;
use jiff::Timestamp;

use super::Jobs;
use super::schedule::Schedule;
use super::settings::{Settings, When};

/// The runs of a job that were due while no server ran.
pub struct Missed {
    /// The job's name.
    pub job: String,
    /// When the last of these runs was due.
    pub due: Timestamp,
    /// The message for the log.
    pub text: String,
}

impl Jobs {
    /// Logs which runs were missed while no server ran. They are not made up for, because a run that was planned for
    /// the night may not be wanted at noon.
    pub fn report_missed(&mut self, settings: &Settings) {
        let clock = Timestamp::now();
        for job in &settings.jobs {
            let When::Schedule {
                expression,
                time_zone,
                on_each,
                ..
            } = &job.when
            else {
                continue;
            };
            let (Some(last), Ok(schedule)) = (
                self.last_runs.of(&job.name, expression),
                Schedule::parse(expression, time_zone.as_deref()),
            ) else {
                continue;
            };
            if let Some((n, at)) = schedule.missed(last, clock) {
                let runs = if n == 1 {
                    "1 run"
                } else {
                    &format!("{n} runs")
                };
                let text = format!(
                    "{runs} missed while no server ran, the last at {}; `howdah job run {}` makes up for it",
                    schedule.show(at),
                    job.name
                );
                match settings.fleet.is_some() && !on_each {
                    true => self.missed.push(Missed {
                        job: job.name.clone(),
                        due: at,
                        text,
                    }),
                    false => self.log.job(&job.name, Level::Warning, "JobMissed", &text),
                }
            }
            self.last_runs.note(&job.name, expression, clock);
        }
    }

    pub fn keep_state(&mut self) {
        match self.last_runs.write() {
            Ok(()) => self.is_state_lost = false,
            Err(why) => self.lose_state(&why),
        }
    }

    pub fn lose_state(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_state_lost, true) {
            let text = format!(
                "cannot keep when schedules last ran ({why}): runs that are missed while no server runs are not noticed"
            );
            self.log.problem(Level::Warning, "JobStateLost", &text);
        }
    }
}
