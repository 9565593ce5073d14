//! The figures of the old servers before the switch, and those of Howdah during the watch.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use howdah_import::verify::log::request_and_status;
use serde::{Deserialize, Serialize};

use super::probe::{Probe, ProbeResult, probes};
use crate::plan::Plan;

/// The part of each access log that is read, in bytes from its end.
const LOG_TAIL_BYTES: u64 = 512 << 10;
/// The maximum number of access logs that are read.
const MAX_LOGS: usize = 200;
/// How often the front pages are requested before the switch: at least and at most this often.
const PROBE_ROUNDS: (usize, usize) = (3, 20);
/// The number of measured times that suffices to state their 99th percentile.
const ENOUGH_TIMES: usize = 100;

/// The figures of the old servers.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Baseline {
    /// Requests in the last part of their access logs.
    pub logged_requests: u64,
    /// Those of them with a status of 500 or higher.
    pub logged_errors: u64,
    /// The front pages that responded in every round, and are requested again during the watch.
    pub probes: Vec<Probe>,
    /// The sites whose front page did not respond, or only with an error; their front pages are not watched.
    pub unwatched: Vec<String>,
    /// The median of the times of front pages, in milliseconds.
    pub p50_ms: f64,
    /// The 99th percentile of these times, in milliseconds.
    pub p99_ms: f64,
}

/// The figures of Howdah during the watch.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct WatchFigures {
    /// How long Howdah has been watched, in seconds.
    pub seconds: u64,
    /// Responses that Howdah has sent.
    pub requests: u64,
    /// Those of them with a status of 500 or higher.
    pub errors: u64,
    /// PHP processes that crashed during a request.
    pub crashes: u64,
    /// The median of the times of front pages in the last ten seconds, in milliseconds.
    pub p50_ms: f64,
    /// The 99th percentile of these times, in milliseconds.
    pub p99_ms: f64,
    /// The sites whose front page failed in the last round.
    pub failing: Vec<String>,
}

impl Baseline {
    /// Measures the old servers: reads their access logs, and requests the front page of each site several times.
    pub fn measure(plan: &Plan) -> Baseline {
        let mut baseline = Baseline::default();
        let logs: BTreeSet<&Path> = plan
            .sites
            .iter()
            .filter_map(|site| site.access_log.as_deref())
            .collect();
        for log in logs.into_iter().take(MAX_LOGS) {
            // A log that cannot be read takes nothing from the switch but this figure.
            if let Ok((requests, errors)) = count_tail(log) {
                baseline.logged_requests += requests;
                baseline.logged_errors += errors;
            }
        }
        baseline.measure_front_pages(probes(plan));
        baseline
    }

    fn measure_front_pages(&mut self, probes: Vec<Probe>) {
        let mut alive = probes;
        let mut times = Vec::new();
        for round in 0..PROBE_ROUNDS.1 {
            if round >= PROBE_ROUNDS.0 && times.len() >= ENOUGH_TIMES {
                break;
            }
            let results = ProbeResult::of_all(&alive);
            let failed: BTreeSet<String> = results
                .iter()
                .filter(|result| result.failed())
                .map(|result| result.site.clone())
                .collect();
            times.extend(results.iter().filter(|one| !one.failed()).map(|one| one.ms));
            alive.retain(|probe| !failed.contains(&probe.site));
            self.unwatched.extend(failed);
        }
        self.probes = alive;
        (self.p50_ms, self.p99_ms) = percentiles(times);
    }

    /// Returns the share of logged requests with a status of 500 or higher; 0 if nothing was logged.
    pub fn error_share(&self) -> f64 {
        share(self.logged_errors, self.logged_requests)
    }
}

/// Returns `part` as a share of `whole`; 0 if `whole` is 0.
pub fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    }
}

/// Returns the median and the 99th percentile; 0 if there are no values.
pub fn percentiles(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let rank = (values.len() as f64 * share).ceil() as usize;
        values.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    };
    (at(0.5), at(0.99))
}

/// Counts the requests in the last part of a log, and those with a status of 500 or higher.
fn count_tail(path: &Path) -> io::Result<(u64, u64)> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let skipped = length.saturating_sub(LOG_TAIL_BYTES);
    file.seek(SeekFrom::Start(skipped))?;
    let mut log = BufReader::new(io::Read::take(file, LOG_TAIL_BYTES));
    let (mut requests, mut errors) = (0, 0);
    let mut line = Vec::new();
    // The first line may be a part of one.
    if skipped > 0 {
        log.read_until(b'\n', &mut line)?;
    }
    loop {
        line.clear();
        if log.read_until(b'\n', &mut line)? == 0 {
            return Ok((requests, errors));
        }
        if let Some((_, status)) = request_and_status(&line) {
            requests += 1;
            errors += u64::from(status >= 500);
        }
    }
}

#[cfg(test)]
mod tests {
    use howdah_test_support::scratch::Scratch;

    use super::*;

    #[test]
    fn percentiles_of_few_values_are_among_them() {
        assert_eq!(percentiles(Vec::new()), (0.0, 0.0));
        assert_eq!(percentiles(vec![3.0, 1.0, 2.0]), (2.0, 3.0));
        let hundred = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentiles(hundred), (50.0, 99.0));
    }

    #[test]
    fn log_tail_is_counted_by_status() {
        let directory = Scratch::new("switch-log");
        let line = |status: u16| format!("192.0.2.1 - - [x] \"GET / HTTP/1.1\" {status} 5\n");
        let small = directory.write("small", [line(200), line(502), line(404)].concat());
        assert_eq!(count_tail(&small).unwrap(), (3, 1));
        let lines = 20_000;
        let large = directory.write("large", line(500).repeat(lines));
        let (requests, errors) = count_tail(&large).unwrap();
        assert!(requests > 1000 && requests < lines as u64, "{requests}");
        assert_eq!(requests, errors);
        assert!(count_tail(&directory.join("missing")).is_err());
    }
}
