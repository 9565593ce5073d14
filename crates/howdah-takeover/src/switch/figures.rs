//! The figures of the old servers before the switch, and those of Howdah during the watch.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use howdah_import::verify::log::request_and_status;
use serde::{Deserialize, Serialize};

use super::probe::{Probe, ProbeResult, ProbeRounds, probes};
use crate::discovery::files::LogTail;
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
    /// Those of them for which [`is_error`] returns true.
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
    /// Those of them for which [`is_error`] returns true.
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
    /// Measures the old servers: reads their access logs without the parts that an earlier Howdah has written, and requests
    /// the front page of each site several times. While it waits, it asks `interruption` repeatedly.
    ///
    /// # Errors
    /// What `interruption` returns.
    pub fn measure<E>(
        plan: &Plan,
        of_howdah: &[LogPart],
        interruption: impl FnMut() -> Option<E>,
    ) -> Result<Baseline, E> {
        let mut baseline = Baseline::default();
        for log in access_logs(plan) {
            // A log that cannot be read takes nothing from the switch but this figure.
            if let Ok((requests, errors)) = count_tail(log, of_howdah) {
                baseline.logged_requests += requests;
                baseline.logged_errors += errors;
            }
        }
        baseline.measure_front_pages(probes(plan), interruption)?;
        Ok(baseline)
    }

    fn measure_front_pages<E>(
        &mut self,
        mut alive: Vec<Probe>,
        mut interruption: impl FnMut() -> Option<E>,
    ) -> Result<(), E> {
        let mut rounds = ProbeRounds::new(&alive);
        let mut responded = BTreeSet::new();
        let mut times = Vec::new();
        for round in 0..PROBE_ROUNDS.1 {
            let is_complete = alive.iter().all(|probe| responded.contains(&probe.site));
            if round >= PROBE_ROUNDS.0 && times.len() >= ENOUGH_TIMES && is_complete {
                break;
            }
            let results = rounds.round(&mut interruption)?;
            let unfit = |one: &&ProbeResult| one.failed() || one.leads_elsewhere;
            let failed: BTreeSet<String> = results
                .iter()
                .filter(unfit)
                .map(|result| result.site.clone())
                .collect();
            let fit = || results.iter().filter(|one| !unfit(one));
            times.extend(fit().map(|one| one.ms));
            responded.extend(fit().map(|one| one.site.clone()));
            alive.retain(|probe| !failed.contains(&probe.site));
            rounds.forget(&failed);
            self.unwatched.extend(failed);
        }
        // If there are many sites, or slow ones, some were not requested at all.
        let (probes, missed): (Vec<Probe>, Vec<Probe>) = alive
            .into_iter()
            .partition(|probe| responded.contains(&probe.site));
        self.unwatched
            .extend(missed.into_iter().map(|probe| probe.site));
        self.probes = probes;
        (self.p50_ms, self.p99_ms) = percentiles(times);
        Ok(())
    }

    /// Returns the share of errors among the logged requests; 0 if nothing was logged.
    pub fn error_share(&self) -> f64 {
        share(self.logged_errors, self.logged_requests)
    }
}

/// Returns whether a status means that the server did not do its work: it failed, or it let the client wait (429).
pub fn is_error(status: u64) -> bool {
    status >= 500 || status == 429
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

/// Returns the access logs of a plan.
fn access_logs(plan: &Plan) -> impl Iterator<Item = &Path> {
    let logs = plan
        .sites
        .iter()
        .filter_map(|site| site.access_log.as_deref());
    logs.collect::<BTreeSet<&Path>>().into_iter().take(MAX_LOGS)
}

/// A part of an access log of the old servers that Howdah may have written.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LogPart {
    /// The path of the log.
    pub path: PathBuf,
    /// The file that had this name.
    pub inode: u64,
    /// Where the part begins.
    pub from: u64,
    /// Where it ends; `None` while Howdah may continue to write.
    pub to: Option<u64>,
}

impl LogPart {
    /// Returns the parts that begin at the present ends of the logs, together with those of `earlier` that still exist.
    pub fn begin(plan: &Plan, earlier: &[LogPart]) -> Vec<LogPart> {
        let now = access_logs(plan).map(|path| {
            // A log that does not exist yet is like one that is rotated.
            let (inode, length) = inode_and_length(path).unwrap_or_default();
            LogPart {
                path: path.to_owned(),
                inode,
                from: length,
                to: None,
            }
        });
        let exists = |part: &&LogPart| {
            inode_and_length(&part.path).is_some_and(|(inode, _)| inode == part.inode)
        };
        let earlier = earlier.iter().filter(exists).cloned();
        earlier.chain(now).take(2 * MAX_LOGS).collect()
    }

    /// Ends the part at the present end of the log. If the log has been rotated since, Howdah may have written all of the
    /// present file.
    pub fn end(&mut self) {
        let Some((inode, length)) = inode_and_length(&self.path).filter(|_| self.to.is_none())
        else {
            return;
        };
        if inode != self.inode || length < self.from {
            (self.inode, self.from) = (inode, 0);
        }
        self.to = Some(length);
    }

    fn includes(&self, inode: u64, offset: u64) -> bool {
        self.inode == inode && (self.from..self.to.unwrap_or(u64::MAX)).contains(&offset)
    }
}

fn inode_and_length(path: &Path) -> Option<(u64, u64)> {
    let metadata = path.metadata().ok()?;
    Some((metadata.ino(), metadata.len()))
}

/// Counts the requests in the last part of a log, and the errors among them, without those in the parts that Howdah has
/// written.
fn count_tail(path: &Path, of_howdah: &[LogPart]) -> io::Result<(u64, u64)> {
    let log = LogTail::read(path, LOG_TAIL_BYTES)?;
    let is_old = |offset: u64| {
        !of_howdah
            .iter()
            .any(|part| part.includes(log.inode, offset))
    };
    let lines = log.lines().filter(|(offset, _)| is_old(*offset));
    let statuses = lines.filter_map(|(_, line)| Some(request_and_status(line)?.1));
    Ok(statuses.fold((0, 0), |(requests, errors), status| {
        (requests + 1, errors + u64::from(is_error(status.into())))
    }))
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
        let small = directory.write(
            "small",
            [line(200), line(502), line(404), line(429)].concat(),
        );
        assert_eq!(count_tail(&small, &[]).unwrap(), (4, 2));
        // What Howdah appends is not counted, not even after a rotation.
        let mut parts = vec![LogPart {
            path: small.clone(),
            inode: inode_and_length(&small).unwrap().0,
            from: inode_and_length(&small).unwrap().1,
            to: None,
        }];
        let append = |text: String| {
            let mut whole = std::fs::read(&small).unwrap_or_default();
            whole.extend(text.into_bytes());
            std::fs::write(&small, whole).unwrap();
        };
        append(line(500).repeat(5));
        parts[0].end();
        append(line(200));
        assert_eq!(count_tail(&small, &parts).unwrap(), (5, 2));
        parts[0].to = None;
        std::fs::rename(&small, directory.join("small.1")).unwrap();
        append(line(500).repeat(5));
        parts[0].end();
        append(line(200));
        assert_eq!(count_tail(&small, &parts).unwrap(), (1, 0));
        let lines = 20_000;
        let large = directory.write("large", line(500).repeat(lines));
        let (requests, errors) = count_tail(&large, &[]).unwrap();
        assert!(requests > 1000 && requests < lines as u64, "{requests}");
        assert_eq!(requests, errors);
        assert!(count_tail(&directory.join("missing"), &[]).is_err());
    }

    #[test]
    fn log_that_howdah_has_created_is_not_counted() {
        use crate::plan::{PlannedSite, ServerKind};
        let directory = Scratch::new("switch-new-log");
        let path = directory.join("access.log");
        let site = PlannedSite {
            name: "shop.test".to_owned(),
            hosts: Vec::new(),
            served_by: ServerKind::Nginx,
            addresses: Vec::new(),
            file: PathBuf::new(),
            root: PathBuf::new(),
            php: String::new(),
            access_log: Some(path.clone()),
            denied_paths: Vec::new(),
        };
        let plan = Plan {
            sites: vec![site],
            ..Plan::default()
        };
        let mut parts = LogPart::begin(&plan, &[]);
        let line = |status: u16| format!("192.0.2.1 - - [x] \"GET / HTTP/1.1\" {status} 5\n");
        directory.write("access.log", line(500).repeat(5));
        parts.iter_mut().for_each(LogPart::end);
        directory.write("access.log", line(500).repeat(5) + &line(200));
        assert_eq!(count_tail(&path, &parts).unwrap(), (1, 0));
    }
}
