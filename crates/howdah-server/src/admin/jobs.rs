//! Background jobs in the status and the metrics. The process that runs the jobs (`howdah jobs`) has no HTTP interface,
//! so it reports their state to the front, which shows it.

use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::format::{MetricsText, append_counts};

/// The state of a job at one moment. Times are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobStatus {
    /// The job's name.
    pub job: String,
    /// `running`, `waiting` (for its schedule, or for a restart), `stopping` or `stopped`.
    pub state: String,
    /// The schedule; `None` for a job that always runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// When the job is started next, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// How many processes the job has while it runs.
    pub wanted: u32,
    /// Its processes.
    pub processes: Vec<JobProcessStatus>,
    /// How often a process of the job was started.
    pub starts: u64,
    /// Failures by name, with their counts.
    pub failures: Vec<(String, u64)>,
    /// Lines of output that were dropped because there were too many for the log.
    pub dropped_lines: u64,
    /// How the job's last process ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<LastRun>,
    /// The job's last run on any member of the fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetRun>,
    /// Scheduled runs that other members of the fleet carried out.
    pub runs_elsewhere: u64,
}

/// A process of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobProcessStatus {
    /// The process id.
    pub pid: i32,
    /// When the process was started.
    pub since: u64,
    /// The process's resident memory, in bytes, when it was last checked.
    pub memory: u64,
}

/// How a process of a job ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastRun {
    /// When the process ended.
    pub ended: u64,
    /// How long the process ran, in seconds.
    pub seconds: f64,
    /// How the process ended, such as `exit code 0`.
    pub how: String,
}

/// A run of a job in a fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetRun {
    /// The member that ran the job.
    pub member: String,
    /// When the run began.
    pub began: u64,
    /// When the run ended; `None` while it continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// How the run ended.
    pub how: String,
    /// Whether the run succeeded.
    pub good: bool,
}

impl JobStatus {
    /// Counts a failure.
    pub fn count_failure(&mut self, name: &str) {
        match self.failures.iter_mut().find(|(known, _)| known == name) {
            Some((_, n)) => *n += 1,
            None => self.failures.push((name.to_owned(), 1)),
        }
    }

    /// Returns a line of text about the job; `now` is in seconds since 1970.
    pub fn describe(&self, now: u64) -> String {
        let mut line = format!("job {}: {}", self.job, self.state);
        if self.processes.len() as u32 != self.wanted || self.wanted > 1 {
            let _ = write!(
                line,
                ", {} of {} processes",
                self.processes.len(),
                self.wanted
            );
        }
        if let Some(schedule) = &self.schedule {
            let _ = write!(line, ", schedule {schedule}");
        }
        if let Some(next) = self.next {
            let _ = write!(
                line,
                ", next in {}",
                super::duration(next.saturating_sub(now))
            );
        }
        let _ = write!(line, ", {} starts", self.starts);
        if let Some(last) = &self.last {
            let ago = super::duration(now.saturating_sub(last.ended));
            let _ = write!(
                line,
                ", last: {} after {:.1} s, {ago} ago",
                last.how, last.seconds
            );
        }
        if let Some(run) = &self.fleet {
            let ago = |at: u64| super::duration(now.saturating_sub(at));
            let _ = match run.ended {
                None => write!(
                    line,
                    ", in the fleet: on {} for {}",
                    run.member,
                    ago(run.began)
                ),
                Some(at) => write!(
                    line,
                    ", in the fleet: on {}, {}, {} ago",
                    run.member,
                    run.how,
                    ago(at)
                ),
            };
        }
        if self.dropped_lines > 0 {
            let _ = write!(line, ", {} lines of output dropped", self.dropped_lines);
        }
        line
    }
}

/// Returns a time as seconds since 1970.
pub fn unix_seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

static SHOWN_JOBS: Mutex<Vec<JobStatus>> = Mutex::new(Vec::new());

/// Replaces the jobs that the status shows.
pub fn set_shown_jobs(jobs: Vec<JobStatus>) {
    *SHOWN_JOBS.lock().unwrap_or_else(PoisonError::into_inner) = jobs;
}

/// Returns the jobs that the status shows.
pub fn shown_jobs() -> Vec<JobStatus> {
    SHOWN_JOBS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Appends jobs as text; `now` is in seconds since 1970.
pub fn append_text(out: &mut String, jobs: &[JobStatus], now: u64) {
    for job in jobs {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", job.describe(now));
        append_counts(out, "  failures", job.failures.iter().cloned());
        for process in &job.processes {
            let _ = writeln!(
                out,
                "  process {}, up {}, {} KB",
                process.pid,
                super::duration(now.saturating_sub(process.since)),
                process.memory / 1024
            );
        }
    }
}

pub(super) fn append_metrics(m: &mut MetricsText, jobs: &[JobStatus]) {
    type JobMetricValue = (&'static str, fn(&JobStatus) -> u64);
    const VALUES: &[JobMetricValue] = &[
        ("howdah_job_processes", |job| job.processes.len() as u64),
        ("howdah_job_memory_bytes", |job| {
            job.processes.iter().map(|process| process.memory).sum()
        }),
        ("howdah_job_starts_total", |job| job.starts),
        ("howdah_job_runs_elsewhere_total", |job| job.runs_elsewhere),
        ("howdah_job_output_lines_dropped_total", |job| {
            job.dropped_lines
        }),
    ];
    if jobs.is_empty() {
        return;
    }
    for (name, value) in VALUES {
        let mut family = m.family(name);
        for job in jobs {
            family.add(&[&job.job], value(job));
        }
    }
    let mut ended = m.family("howdah_job_last_end_timestamp_seconds");
    for (job, last) in jobs
        .iter()
        .filter_map(|job| Some((job, job.last.as_ref()?)))
    {
        ended.add(&[&job.job], last.ended);
    }
    let mut failures = m.family("howdah_job_failures_total");
    for job in jobs {
        for (name, n) in &job.failures {
            failures.add(&[&job.job, name], n);
        }
    }
}
