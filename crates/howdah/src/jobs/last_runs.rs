//! A file that stores when each schedule was last due. After a start it shows which runs were missed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use howdah_os::safe_path;

/// The maximum number of bytes that are read from the file.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// When each schedule was last due.
#[derive(Debug, Default)]
pub struct LastRuns {
    path: PathBuf,
    jobs: BTreeMap<String, LastDue>,
}

#[derive(Debug, Serialize, Deserialize)]
struct LastDue {
    schedule: String,
    /// Seconds since 1970.
    at: i64,
}

impl LastRuns {
    /// Reads the file. If the file does not exist yet, the result is empty. The second value is the error if the file
    /// cannot be read.
    pub fn read(path: &Path) -> (LastRuns, Option<String>) {
        let mut this = LastRuns {
            path: path.to_owned(),
            jobs: BTreeMap::new(),
        };
        let trouble = match safe_path::read(path, MAX_FILE_BYTES) {
            Ok(text) => match serde_json::from_str(&text) {
                Ok(jobs) => {
                    this.jobs = jobs;
                    None
                }
                Err(why) => Some(why.to_string()),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(error.to_string()),
        };
        (this, trouble)
    }

    /// Returns when this schedule of a job was last due, as far as it is known.
    pub fn last_due(&self, job: &str, schedule: &str) -> Option<Timestamp> {
        let last = self
            .jobs
            .get(job)
            .filter(|last| last.schedule == schedule)?;
        Timestamp::from_second(last.at).ok()
    }

    /// Records that a schedule was due.
    pub fn record(&mut self, job: &str, schedule: &str, at: Timestamp) {
        let last = LastDue {
            schedule: schedule.to_owned(),
            at: at.as_second(),
        };
        self.jobs.insert(job.to_owned(), last);
    }

    /// Forgets the jobs that are not in `names`.
    pub fn retain(&mut self, names: &[&str]) {
        self.jobs.retain(|name, _| names.contains(&name.as_str()));
    }

    /// Writes the file, as a whole or not at all.
    ///
    /// # Errors
    /// Fails with the reason why the file cannot be written.
    pub fn write(&self) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}", self.path.display());
        if let Some(directory) = self.path.parent() {
            std::fs::create_dir_all(directory).map_err(failed)?;
        }
        let text = serde_json::to_string(&self.jobs).map_err(|error| failed(error.into()))?;
        safe_path::replace(&self.path, &text).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_runs_survive_a_restart_for_the_same_schedule() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/jobs.json");
        let (mut last, trouble) = LastRuns::read(&path);
        assert_eq!(trouble, None);
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        last.record("a", "@daily", at);
        last.record("b", "@daily", at);
        last.retain(&["a"]);
        last.write().unwrap();
        let (read, trouble) = LastRuns::read(&path);
        assert_eq!(trouble, None);
        assert_eq!(read.last_due("a", "@daily"), Some(at));
        assert_eq!(read.last_due("a", "@hourly"), None);
        assert_eq!(read.last_due("b", "@daily"), None);
        std::fs::write(&path, "{").unwrap();
        assert!(LastRuns::read(&path).1.is_some());
    }
}
