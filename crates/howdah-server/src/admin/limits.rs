//! What of the status is about limits of clients.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::format::Metrics;

/// A limit, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitRow {
    /// The site's name.
    pub site: String,
    /// The line of the rule in the configuration file.
    pub line: usize,
    /// The limit, as the configuration has it.
    pub limit: String,
    /// Requests that wait for PHP processes of their own client.
    pub waiting: u64,
    /// Requests refused since the start.
    pub refused: u64,
}

/// All limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Each of them.
    pub rows: Vec<LimitRow>,
    /// Clients that were forgotten, for want of room, while something counted against them.
    pub forgotten: u64,
}

pub(super) fn text(out: &mut String, limits: &Limits) {
    for row in &limits.rows {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "limit: {} line {}: {}: {} requests refused, {} waiting",
            row.site, row.line, row.limit, row.refused, row.waiting
        );
    }
    if limits.forgotten > 0 {
        let _ = writeln!(out, "limits: {} clients forgotten early", limits.forgotten);
    }
}

pub(super) fn metrics(m: &mut Metrics, limits: &Limits) {
    if limits.rows.is_empty() {
        return;
    }
    let name = "howdah_limited_requests";
    m.family(name, "counter", "Requests refused by a limit.");
    for row in &limits.rows {
        let line = row.line.to_string();
        let labels = [("site", row.site.as_str()), ("line", &line)];
        m.value("howdah_limited_requests_total", &labels, row.refused);
    }
    let name = "howdah_limit_waiting_requests";
    m.family(
        name,
        "gauge",
        "Requests that wait for PHP processes of their own client.",
    );
    for row in &limits.rows {
        let line = row.line.to_string();
        let labels = [("site", row.site.as_str()), ("line", &line)];
        m.value(name, &labels, row.waiting);
    }
    m.single(
        "howdah_limits_forgotten",
        "counter",
        "Clients forgotten, for want of room, while something counted against them.",
        limits.forgotten,
    );
}
