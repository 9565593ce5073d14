//! The measurements of a replayed log, as data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::outcome::Outcome;
use crate::replay::line::LineFault;

/// The maximum number of responses with another status than the log's that are kept one by one.
pub const MAX_CHANGES: usize = 10;

/// What a replay measured besides the rest of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// What was read from the log.
    pub log: LogSummary,
    /// How late requests were begun after they were due, for whatever reason, in nanoseconds.
    pub lateness: Histogram,
    /// How many requests were begun over [`LATE_AFTER_SECONDS`] late.
    pub late: u64,
    /// The latencies of complete responses, by status.
    pub statuses: BTreeMap<u16, Histogram>,
    /// How many responses had the status of the log.
    pub same: u64,
    /// How many responses had another one, by the status of the log and that of the response.
    pub changed: BTreeMap<StatusChange, u64>,
    /// The first of those responses.
    pub changes: Vec<ChangedResponse>,
    /// How many requests got no complete response, so that there is no status to compare.
    pub without_response: u64,
}

/// When a request counts as late, in seconds.
pub const LATE_AFTER_SECONDS: f64 = 0.010;

/// What was read from a log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogSummary {
    /// The number of lines that were read.
    pub lines: u64,
    /// The number of requests that were given to the load tester.
    pub released: u64,
    /// The number of requests that were left out because of their method.
    pub other_methods: BTreeMap<String, u64>,
    /// The number of requests that were left out because they are not for a path.
    pub no_path: u64,
    /// The lines that could not be understood.
    pub faulty: BTreeMap<LineFault, FaultyLines>,
    /// Whether the log's clock has whole seconds, so that the requests of a second were spread over it.
    pub whole_seconds: bool,
    /// How often the log's clock went back.
    pub clock_jumps: u64,
    /// How many requests were sent later than they arrived, because their line came too late in the log.
    pub moved: u64,
    /// When the first and the last of the requests arrived, in seconds since 1970.
    pub first: Option<f64>,
    /// See `first`.
    pub last: Option<f64>,
    /// Why the log could not be read to its end, if it could not.
    pub read_error: Option<String>,
}

/// Lines with the same fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultyLines {
    /// How many there are.
    pub count: u64,
    /// The number of the first one, from 1.
    pub first: u64,
}

/// A status in the log, and a different one now. Its form in JSON is `200 > 404`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct StatusChange {
    /// The status in the log.
    pub logged: u16,
    /// The status of the response.
    pub now: u16,
}

impl std::fmt::Display for StatusChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} > {}", self.logged, self.now)
    }
}

impl From<StatusChange> for String {
    fn from(change: StatusChange) -> String {
        change.to_string()
    }
}

impl TryFrom<String> for StatusChange {
    type Error = String;

    fn try_from(text: String) -> Result<StatusChange, String> {
        let parts = text.split_once(" > ");
        let parsed = parts.and_then(|(logged, now)| {
            let (logged, now) = (logged.parse().ok()?, now.parse().ok()?);
            Some(StatusChange { logged, now })
        });
        parsed.ok_or_else(|| format!("`{text}` is not a change of status"))
    }
}

/// A response with another status than the log's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedResponse {
    /// The number of the line in the log, from 1.
    pub line: u64,
    /// The method of the request, `GET` or `HEAD`.
    pub method: String,
    /// The path and query.
    pub target: String,
    /// The status in the log.
    pub logged: u16,
    /// The status of the response.
    pub now: u16,
    /// How the request ended.
    pub outcome: Outcome,
}

impl LogSummary {
    /// Returns the number of lines that could not be understood.
    pub fn faulty_lines(&self) -> u64 {
        self.faulty.values().map(|lines| lines.count).sum()
    }

    /// Says which lines were left out, and why: `3 POST, 1 without a time (first in line 7)`. Says how many lines there
    /// were if none was left out.
    pub fn skipped_sentence(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        for (method, count) in &self.other_methods {
            parts.push(format!("{count} {}", method.escape_default()));
        }
        if self.no_path > 0 {
            parts.push(format!("{} not for a path", self.no_path));
        }
        for (fault, lines) in &self.faulty {
            let (count, first) = (lines.count, lines.first);
            parts.push(format!(
                "{count} with {} (first in line {first})",
                fault.description()
            ));
        }
        if let Some(error) = &self.read_error {
            parts.push(format!("reading ended after line {}: {error}", self.lines));
        }
        if parts.is_empty() {
            return format!("{} lines were read", self.lines);
        }
        parts.join(", ")
    }
}

impl Replay {
    /// Adds the counts of another thread.
    pub fn add(&mut self, other: Replay) {
        self.lateness.add(&other.lateness);
        self.late += other.late;
        for (status, latency) in other.statuses {
            self.statuses.entry(status).or_default().add(&latency);
        }
        self.same += other.same;
        for (change, count) in other.changed {
            *self.changed.entry(change).or_default() += count;
        }
        self.changes.extend(other.changes);
        self.changes.sort_by_key(|change| change.line);
        self.changes.truncate(MAX_CHANGES);
        self.without_response += other.without_response;
    }
}
