//! The backends of FastCGI pools and the servers of `proxy` rules, in the formats of the status.

use std::fmt::Write;

use howdah_executor::status::BackendRow;

use super::format::{MetricsText, duration};
use super::status::ServerStatus;
use crate::proxy::server::ServerRow;

/// Appends the backends of a pool as text.
pub(super) fn append_text(out: &mut String, backends: &[BackendRow]) {
    for b in backends {
        let _ = writeln!(
            out,
            "  {} {}: {} of {} connections busy, {} idle; {} requests, {} connections opened, {} failures, backlog full {} times {}",
            b.address,
            b.state,
            b.busy,
            b.limit,
            b.kept,
            b.requests,
            b.connects,
            b.failures,
            b.overflows,
            b.why
        );
    }
}

/// Appends the proxied servers as text.
pub(super) fn append_proxied_text(out: &mut String, servers: &[ServerRow]) {
    if !servers.is_empty() {
        out.push_str("\nproxied servers:\n");
    }
    for s in servers {
        let _ = write!(
            out,
            "  {} {}: {} connections busy, {} idle; {} requests, {} connections opened, {} failures",
            s.address, s.state, s.busy, s.kept, s.requests, s.connects, s.failures
        );
        let _ = match &*s.why {
            "" => writeln!(out),
            why => writeln!(out, "; for {}: {why}", duration(s.since as u64)),
        };
    }
}

/// The name of a family, and its value for a FastCGI backend and for a proxied server.
type BackendValue = (
    &'static str,
    fn(&BackendRow) -> u64,
    Option<fn(&ServerRow) -> u64>,
);

const VALUES: &[BackendValue] = &[
    (
        "howdah_backend_up",
        |b| u64::from(b.state == "Up"),
        Some(|s| u64::from(s.state == "Up")),
    ),
    (
        "howdah_backend_busy",
        |b| u64::from(b.busy),
        Some(|s| u64::from(s.busy)),
    ),
    (
        "howdah_backend_kept",
        |b| u64::from(b.kept),
        Some(|s| u64::from(s.kept)),
    ),
    (
        "howdah_backend_requests_total",
        |b| b.requests,
        Some(|s| s.requests),
    ),
    (
        "howdah_backend_connects_total",
        |b| b.connects,
        Some(|s| s.connects),
    ),
    (
        "howdah_backend_failures_total",
        |b| b.failures,
        Some(|s| s.failures),
    ),
    ("howdah_backend_overflows_total", |b| b.overflows, None),
];

/// Adds the metrics of all pools' backends and of the proxied servers.
pub(super) fn append_metrics(m: &mut MetricsText, s: &ServerStatus) {
    let of_pools = s.pools.iter().any(|pool| !pool.backends.is_empty());
    for (name, backend_value, server_value) in VALUES {
        if !of_pools && (s.proxied.is_empty() || server_value.is_none()) {
            continue;
        }
        let mut family = m.family(name);
        for pool in &s.pools {
            for backend in &pool.backends {
                family.add(&[&pool.pool, &backend.address, ""], backend_value(backend));
            }
        }
        let Some(server_value) = server_value else {
            continue;
        };
        for server in &s.proxied {
            family.add(&["", &server.address, &server.health], server_value(server));
        }
    }
}
