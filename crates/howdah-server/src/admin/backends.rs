//! The backends of FastCGI pools and the servers that rules pass requests on to, in the forms of the status.

use std::fmt::Write;

use howdah_executor::status::BackendRow;

use super::format::{Metrics, duration, sample};
use super::status::ServerStatus;
use crate::proxy::server::ServerRow;

/// The backends of a pool, for people.
pub(super) fn text(out: &mut String, backends: &[BackendRow]) {
    for b in backends {
        let _ = writeln!(
            out,
            "  {} {}: {} busy of {}, {} kept; {} requests, {} connects, {} failures, {} overflows {}",
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

/// The proxied servers, for people.
pub(super) fn proxied_text(out: &mut String, servers: &[ServerRow]) {
    if !servers.is_empty() {
        out.push_str("\nproxied servers:\n");
    }
    for s in servers {
        let _ = write!(
            out,
            "  {} {}: {} busy, {} kept; {} requests, {} connects, {} failures",
            s.address, s.state, s.busy, s.kept, s.requests, s.connects, s.failures
        );
        let _ = match &*s.why {
            "" => writeln!(out),
            why => writeln!(out, "; for {}: {why}", duration(s.since as u64)),
        };
    }
}

/// A gauge or counter: name, kind, help, its value for a FastCGI backend and for a proxied server.
type BackendGauge = (
    &'static str,
    &'static str,
    &'static str,
    fn(&BackendRow) -> u64,
    Option<fn(&ServerRow) -> u64>,
);

const FAMILIES: &[BackendGauge] = &[
    (
        "up",
        "gauge",
        "Whether the backend can be reached.",
        |b| u64::from(b.state == "Up"),
        Some(|s| u64::from(s.state == "Up")),
    ),
    (
        "busy",
        "gauge",
        "Requests in progress at the backend.",
        |b| u64::from(b.busy),
        Some(|s| u64::from(s.busy)),
    ),
    (
        "kept",
        "gauge",
        "Idle connections to the backend.",
        |b| u64::from(b.kept),
        Some(|s| u64::from(s.kept)),
    ),
    (
        "requests",
        "counter",
        "Requests that the backend answered.",
        |b| b.requests,
        Some(|s| s.requests),
    ),
    (
        "connects",
        "counter",
        "Connections opened to the backend.",
        |b| b.connects,
        Some(|s| s.connects),
    ),
    (
        "failures",
        "counter",
        "Failed attempts to use the backend.",
        |b| b.failures,
        Some(|s| s.failures),
    ),
    (
        "overflows",
        "counter",
        "Times the backend's backlog was full.",
        |b| b.overflows,
        None,
    ),
];

/// The backends of all pools, labelled by pool and address, and the proxied servers, labelled by address and
/// by the path they are asked for, for Prometheus.
pub(super) fn metrics(m: &mut Metrics, s: &ServerStatus) {
    let of_pools = s.pools.iter().any(|pool| !pool.backends.is_empty());
    for (name, kind, help, backend_value, server_value) in FAMILIES {
        if !of_pools && (s.proxied.is_empty() || server_value.is_none()) {
            continue;
        }
        let family = format!("howdah_backend_{name}");
        m.family(&family, kind, help);
        let sample = sample(&family, kind);
        for pool in &s.pools {
            for backend in &pool.backends {
                let labels = [("pool", pool.pool.as_str()), ("address", &backend.address)];
                m.value(&sample, &labels, backend_value(backend));
            }
        }
        let Some(server_value) = server_value else {
            continue;
        };
        for server in &s.proxied {
            let labels = [("address", &*server.address), ("health", &server.health)];
            // A label without a value is as none.
            let labels = &labels[..1 + usize::from(!server.health.is_empty())];
            m.value(&sample, labels, server_value(server));
        }
    }
}
