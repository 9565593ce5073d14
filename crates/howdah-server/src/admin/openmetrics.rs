//! [`ServerStatus`] for Prometheus and its kin, as OpenMetrics 1.0. Names follow php-fpm's exporter where
//! it has one (`phpfpm_*` becomes `howdah_pool_*`).

use howdah_executor::status::PoolStatus;

use super::format::{Metrics, sample};
use super::status::ServerStatus;
use super::{backends, cache, limits};

/// Writes a status as OpenMetrics, or in Prometheus' own text format.
pub(super) fn metrics(s: &ServerStatus, openmetrics: bool) -> String {
    let mut m = Metrics::new(openmetrics);
    m.single(
        "howdah_uptime_seconds",
        "gauge",
        "Seconds since the start.",
        s.uptime,
    );
    m.single(
        "howdah_reloads",
        "counter",
        "Configuration swaps.",
        s.reloads,
    );
    if let Some(cache) = &s.cache {
        cache::metrics(&mut m, cache);
    }
    m.single(
        "howdah_connections",
        "gauge",
        "Open connections.",
        s.connections.open,
    );
    m.single(
        "howdah_connections_accepted",
        "counter",
        "Accepted connections.",
        s.connections.accepted,
    );
    m.single(
        "howdah_memory_bytes",
        "gauge",
        "Bytes the front keeps in memory.",
        s.memory.used,
    );
    m.single(
        "howdah_spilled_bytes",
        "gauge",
        "Bytes of request bodies and of answers to slow clients, in files.",
        s.spilled.used,
    );
    m.single(
        "howdah_long_turns",
        "counter",
        "Turns of the event loop over 1 ms of CPU time, in which other connections waited.",
        s.turns.long,
    );
    m.single(
        "howdah_longest_turn_seconds",
        "gauge",
        "CPU time of the longest turn of the event loop.",
        s.turns.longest,
    );
    m.single(
        "howdah_requests_active",
        "gauge",
        "Requests in progress.",
        s.requests_active,
    );
    m.single(
        "howdah_response_bytes",
        "counter",
        "Bytes of response bodies.",
        s.bytes_sent,
    );
    answers(&mut m, s);
    limits::metrics(&mut m, &s.limits);
    tls(&mut m, s);
    pools(&mut m, s);
    m.end()
}

/// Lines lost, and answers by status, failure and time.
fn answers(m: &mut Metrics, s: &ServerStatus) {
    m.family(
        "howdah_log_lines_lost",
        "counter",
        "Log lines that could not be written.",
    );
    for (log, lost) in s.log_lines_lost() {
        m.value("howdah_log_lines_lost_total", &[("log", log)], lost);
    }
    m.family(
        "howdah_responses",
        "counter",
        "Answers by status; 499: the client left first.",
    );
    for (status, n) in &s.statuses {
        m.value(
            "howdah_responses_total",
            &[("status", &status.to_string())],
            *n,
        );
    }
    m.family("howdah_failures", "counter", "Failures by name.");
    for (name, n) in &s.failures {
        m.value("howdah_failures_total", &[("name", name)], *n);
    }
    m.family(
        "howdah_request_duration_seconds",
        "histogram",
        "Time of finished requests.",
    );
    let mut total = 0;
    for (bound, n) in &s.durations {
        total += n;
        let bound = bound.map_or_else(|| "+Inf".to_owned(), |b| format!("{b:?}"));
        m.value(
            "howdah_request_duration_seconds_bucket",
            &[("le", &bound)],
            total,
        );
    }
    m.value("howdah_request_duration_seconds_count", &[], total);
    m.value(
        "howdah_request_duration_seconds_sum",
        &[],
        s.request_seconds,
    );
}

fn tls(m: &mut Metrics, s: &ServerStatus) {
    if !s.failing_orders.is_empty() {
        m.family(
            "howdah_certificate_order_failures",
            "gauge",
            "Attempts in a row that gave a name no certificate.",
        );
    }
    for order in &s.failing_orders {
        m.value(
            "howdah_certificate_order_failures",
            &[("name", &order.name), ("failure", &order.failure)],
            order.attempts,
        );
    }
    if s.certificates.is_empty() {
        return;
    }
    m.family(
        "howdah_tls_handshakes",
        "counter",
        "Completed TLS handshakes.",
    );
    for (protocol, resumed, n) in &s.handshakes {
        let resumed = if *resumed { "yes" } else { "no" };
        let labels = [("protocol", protocol.as_str()), ("resumed", resumed)];
        m.value("howdah_tls_handshakes_total", &labels, *n);
    }
    m.family(
        "howdah_tls_certificate_seconds_left",
        "gauge",
        "Time until the certificate ends; below 0: it has ended.",
    );
    for (at, certificate) in s.certificates.iter().enumerate() {
        let name = certificate.names.first().map_or("", String::as_str);
        let number = at.to_string();
        m.value(
            "howdah_tls_certificate_seconds_left",
            &[("name", name), ("certificate", &number)],
            certificate.seconds_left,
        );
    }
}

/// A gauge or counter of pools: name, kind, help, value.
type PoolGauge = (
    &'static str,
    &'static str,
    &'static str,
    fn(&PoolStatus) -> u64,
);

fn pools(m: &mut Metrics, s: &ServerStatus) {
    const FAMILIES: &[PoolGauge] = &[
        ("up", "gauge", "Whether the pool can run scripts.", |p| {
            u64::from(p.is_up())
        }),
        (
            "start_since",
            "gauge",
            "Seconds since the pool started.",
            |p| p.uptime,
        ),
        (
            "accepted_requests",
            "counter",
            "Requests taken by a child.",
            |p| p.accepted_requests,
        ),
        (
            "listen_queue",
            "gauge",
            "Requests waiting for a child.",
            |p| u64::from(p.queue),
        ),
        (
            "max_listen_queue",
            "gauge",
            "Most requests that waited at once.",
            |p| u64::from(p.max_queue),
        ),
        ("listen_queue_length", "gauge", "Configured limit.", |p| {
            u64::from(p.queue_size)
        }),
        ("idle_processes", "gauge", "Idle children.", |p| {
            u64::from(p.idle_processes)
        }),
        ("active_processes", "gauge", "Busy children.", |p| {
            u64::from(p.active_processes)
        }),
        (
            "max_active_processes",
            "gauge",
            "Most children that were busy at once.",
            |p| u64::from(p.max_active_processes),
        ),
        (
            "max_children_reached",
            "counter",
            "Times a request waited because all children were busy.",
            |p| p.max_children_reached,
        ),
        (
            "slow_requests",
            "counter",
            "Requests beyond request_slowlog_timeout.",
            |p| p.slow_requests,
        ),
    ];
    for (name, kind, help, value) in FAMILIES {
        let family = format!("howdah_pool_{name}");
        m.family(&family, kind, help);
        let sample = sample(&family, kind);
        for pool in &s.pools {
            m.value(&sample, &[("pool", &pool.pool)], value(pool));
        }
    }
    backends::metrics(m, s);
    m.family(
        "howdah_pool_failures",
        "counter",
        "Failures of a pool by name.",
    );
    for pool in &s.pools {
        for (name, n) in &pool.failures {
            m.value(
                "howdah_pool_failures_total",
                &[("pool", &pool.pool), ("name", name)],
                *n,
            );
        }
    }
}
