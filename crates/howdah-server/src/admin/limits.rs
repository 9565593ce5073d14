//! The limits of clients in the status.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::format::MetricsText;

/// A limit and its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitRow {
    /// The site's name.
    pub site: String,
    /// The line of the rule in the configuration file.
    pub line: usize,
    /// The limit, as text.
    pub limit: String,
    /// Requests that wait because their own client has too many PHP processes.
    pub waiting: u64,
    /// Requests refused since the start.
    pub refused: u64,
}

/// All limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitsStatus {
    /// The limits.
    pub rows: Vec<LimitRow>,
    /// Clients that were forgotten, for lack of space, while their requests still counted.
    pub forgotten: u64,
}

pub(super) fn append_text(out: &mut String, limits: &LimitsStatus) {
    for row in &limits.rows {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "limit: {} line {}: {}: {} requests refused, {} waiting",
            row.site, row.line, row.limit, row.refused, row.waiting
        );
    }
    if limits.forgotten > 0 {
        let _ = writeln!(
            out,
            "limits: the counters of {} clients were dropped early, because the table was full",
            limits.forgotten
        );
    }
}

/// The name of a family, and its value for a limit.
type LimitValue = (&'static str, fn(&LimitRow) -> u64);

pub(super) fn append_metrics(m: &mut MetricsText, limits: &LimitsStatus) {
    if limits.rows.is_empty() {
        return;
    }
    const VALUES: &[LimitValue] = &[
        ("howdah_limited_requests_total", |row| row.refused),
        ("howdah_limit_waiting_requests", |row| row.waiting),
    ];
    for (name, value) in VALUES {
        let mut family = m.family(name);
        for row in &limits.rows {
            family.add(&[&row.site, &row.line.to_string()], value(row));
        }
    }
    m.single("howdah_limits_forgotten_total", limits.forgotten);
}
