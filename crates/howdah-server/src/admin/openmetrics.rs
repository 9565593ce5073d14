//! [`ServerStatus`] as metrics for Prometheus and compatible programs: the samples of the families in
//! [`super::metrics`].

use howdah_executor::status::{PoolStatus, SharedCacheStatus};

use super::format::MetricsText;
use super::status::ServerStatus;
use super::{backends, cache, jobs, limits};

/// Writes a status as OpenMetrics 1.0, or in Prometheus' own text format.
pub(super) fn metrics(s: &ServerStatus, openmetrics: bool) -> String {
    let mut m = MetricsText::new(openmetrics);
    server(&mut m, s);
    requests(&mut m, s);
    limits::append_metrics(&mut m, &s.limits);
    tls(&mut m, s);
    pools(&mut m, s);
    backends::append_metrics(&mut m, s);
    jobs::append_metrics(&mut m, &s.jobs);
    if let Some(cache) = &s.cache {
        cache::append_metrics(&mut m, cache);
    }
    m.finish()
}

fn server(m: &mut MetricsText, s: &ServerStatus) {
    m.family("howdah_build_info").add(&[&s.version], 1);
    m.single("howdah_uptime_seconds", s.uptime);
    m.single("howdah_reloads_total", s.reloads);
    m.single("howdah_connections", s.connections.open);
    m.single("howdah_connections_limit", s.connections.limit);
    m.single("howdah_connections_accepted_total", s.connections.accepted);
    m.single("howdah_memory_bytes", s.memory.used);
    m.single("howdah_memory_limit_bytes", s.memory.limit);
    m.single("howdah_spilled_bytes", s.spilled.used);
    m.single("howdah_spilled_limit_bytes", s.spilled.limit);
    m.single("howdah_long_turns_total", s.turns.long);
    m.single("howdah_longest_turn_seconds", s.turns.longest);
    let mut lost = m.family("howdah_log_lines_lost_total");
    for (log, lines) in s.log_lines_lost() {
        lost.add(&[log], lines);
    }
    if let Some(spans) = s.spans {
        m.single("howdah_spans_exported_total", spans.exported);
        m.single("howdah_spans_dropped_total", spans.dropped);
    }
    if let Some(own) = &s.status_listener {
        m.single("howdah_status_connections", own.connections);
        m.single("howdah_status_requests_total", own.requests);
    }
}

fn requests(m: &mut MetricsText, s: &ServerStatus) {
    m.single("howdah_requests_active", s.requests_active);
    m.single("howdah_requests_refused_total", s.connections.refused);
    let mut responses = m.family("howdah_responses_total");
    for (status, n) in &s.statuses {
        responses.add(&[&status.to_string()], n);
    }
    m.single("howdah_response_bytes_total", s.bytes_sent);
    m.family("howdah_request_duration_seconds")
        .histogram(&s.durations, s.request_seconds);
    let mut failures = m.family("howdah_failures_total");
    for (name, n) in &s.failures {
        failures.add(&[name], n);
    }
}

fn tls(m: &mut MetricsText, s: &ServerStatus) {
    if !s.failing_orders.is_empty() {
        let mut failing = m.family("howdah_certificate_order_failures");
        for order in &s.failing_orders {
            failing.add(&[&order.name, &order.failure], order.attempts);
        }
    }
    if s.certificates.is_empty() {
        return;
    }
    let mut handshakes = m.family("howdah_tls_handshakes_total");
    for (protocol, resumed, n) in &s.handshakes {
        handshakes.add(&[protocol, if *resumed { "yes" } else { "no" }], n);
    }
    let mut remaining = m.family("howdah_tls_certificate_remaining_seconds");
    for (at, certificate) in s.certificates.iter().enumerate() {
        let name = certificate.names.first().map_or("", String::as_str);
        remaining.add(&[name, &at.to_string()], certificate.seconds_left);
    }
}

/// The name of a pool's family with one value, and the function that reads the value.
type PoolValue = (&'static str, fn(&PoolStatus) -> u64);

fn pools(m: &mut MetricsText, s: &ServerStatus) {
    const VALUES: &[PoolValue] = &[
        ("howdah_pool_up", |p| u64::from(p.is_up())),
        ("howdah_pool_uptime_seconds", |p| p.uptime),
        ("howdah_pool_accepted_requests_total", |p| {
            p.accepted_requests
        }),
        ("howdah_pool_listen_queue", |p| u64::from(p.queue)),
        ("howdah_pool_max_listen_queue", |p| u64::from(p.max_queue)),
        ("howdah_pool_listen_queue_length", |p| {
            u64::from(p.queue_size)
        }),
        ("howdah_pool_idle_processes", |p| {
            u64::from(p.idle_processes)
        }),
        ("howdah_pool_active_processes", |p| {
            u64::from(p.active_processes)
        }),
        ("howdah_pool_max_active_processes", |p| {
            u64::from(p.max_active_processes)
        }),
        ("howdah_pool_max_children_reached_total", |p| {
            p.max_children_reached
        }),
        ("howdah_pool_slow_requests_total", |p| p.slow_requests),
        ("howdah_pool_bailouts_total", |p| p.bailouts),
        ("howdah_pool_memory_bytes", |p| {
            p.children.iter().map(|child| child.memory).sum()
        }),
    ];
    if s.pools.is_empty() {
        return;
    }
    let mut info = m.family("howdah_pool_info");
    for pool in &s.pools {
        let opcache = if pool.opcache { "on" } else { "off" };
        info.add(&[&pool.pool, &pool.process_manager, &pool.php, opcache], 1);
    }
    let mut outdated = m.family("howdah_pool_php_outdated");
    for pool in s.pools.iter().filter(|pool| !pool.php.is_empty()) {
        match &pool.php_update {
            Some(update) => outdated.add(&[&pool.pool, &update.version], 1),
            None => outdated.add(&[&pool.pool, &pool.php], 0),
        }
    }
    for (name, value) in VALUES {
        let mut family = m.family(name);
        for pool in &s.pools {
            family.add(&[&pool.pool], value(pool));
        }
    }
    let mut most = m.family("howdah_pool_max_children");
    for pool in s.pools.iter().filter(|pool| pool.max_children > 0) {
        most.add(&[&pool.pool], pool.max_children);
    }
    let mut failures = m.family("howdah_pool_failures_total");
    for pool in &s.pools {
        for (name, n) in &pool.failures {
            failures.add(&[&pool.pool, name], n);
        }
    }
    shared_caches(m, s);
}

type SharedCacheValue = (&'static str, fn(&SharedCacheStatus) -> u64);

fn shared_caches(m: &mut MetricsText, s: &ServerStatus) {
    const VALUES: &[SharedCacheValue] = &[
        ("howdah_shared_cache_size_bytes", |c| c.size),
        ("howdah_shared_cache_used_bytes", |c| c.used),
        ("howdah_shared_cache_values", |c| c.values),
        ("howdah_shared_cache_hits_total", |c| c.hits),
        ("howdah_shared_cache_misses_total", |c| c.misses),
        ("howdah_shared_cache_evictions_total", |c| c.evicted),
    ];
    let pools = s.pools.iter();
    let caches: Vec<_> = pools
        .filter_map(|pool| Some((pool, pool.shared_cache.as_ref()?)))
        .collect();
    if caches.is_empty() {
        return;
    }
    for (name, value) in VALUES {
        let mut family = m.family(name);
        for (pool, cache) in &caches {
            family.add(&[&pool.pool], value(cache));
        }
    }
}
