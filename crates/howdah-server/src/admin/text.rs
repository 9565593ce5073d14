//! [`ServerStatus`] as text for people: a summary, the page cache, then a table of children for each pool.

use std::fmt::Write;
use std::time::SystemTime;

use howdah_executor::status::{PhpUpdateStatus, PoolStatus, SharedCacheStatus};

use super::format::{append_counts, duration};
use super::status::ServerStatus;
use super::{backends, cache, jobs, limits};
use howdah_log::log::escape;

/// Returns a status as text.
pub(super) fn text(s: &ServerStatus) -> String {
    let mut out = String::new();
    let uptime = duration(s.uptime);
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "howdah {} pid {}, up {uptime}, {}",
        s.version,
        s.pid,
        plural(s.reloads, "reload")
    );
    let c = &s.connections;
    let _ = writeln!(
        out,
        "connections: {} open of {}, {} accepted, {} requests refused",
        c.open, c.limit, c.accepted, c.refused
    );
    let mega = |bytes: u64| bytes >> 20;
    let (memory, spilled) = (s.memory, s.spilled);
    let _ = writeln!(
        out,
        "memory: {} of {} MiB; bodies and responses in files: {} of {} MiB",
        mega(memory.used),
        mega(memory.limit),
        mega(spilled.used),
        mega(spilled.limit)
    );
    let finished: u64 = s.statuses.iter().map(|(_, n)| n).sum();
    let mean = if finished > 0 {
        s.request_seconds / finished as f64 * 1e3
    } else {
        0.0
    };
    let _ = writeln!(
        out,
        "requests: {}, {} in progress, {mean:.3} ms on average, {} bytes sent",
        s.requests, s.requests_active, s.bytes_sent
    );
    append_counts(
        &mut out,
        "statuses",
        s.statuses.iter().map(|(code, n)| (code.to_string(), *n)),
    );
    append_counts(&mut out, "failures", s.failures.iter().cloned());
    limits::append_text(&mut out, &s.limits);
    tls(&mut out, s);
    if s.turns.long > 0 {
        let _ = writeln!(
            out,
            "event loop: {} longer than 1 ms, the longest {:.1} ms ({})",
            plural(s.turns.long, "turn"),
            s.turns.longest * 1e3,
            s.turns.doing
        );
    }
    for (log, lost) in s.log_lines_lost() {
        if lost > 0 {
            let _ = writeln!(out, "{log} log: {lost} lines lost");
        }
    }
    if let Some(spans) = s.spans {
        let _ = writeln!(
            out,
            "traces: {} spans exported, {} dropped",
            spans.exported, spans.dropped
        );
    }
    if let Some(cache) = &s.cache {
        cache::append_text(&mut out, cache);
    }
    for p in &s.pools {
        pool(&mut out, p);
    }
    backends::append_proxied_text(&mut out, &s.proxied);
    jobs::append_text(&mut out, &s.jobs, jobs::unix_seconds(SystemTime::now()));
    out
}

/// Returns a count with its noun: `1 reload`, `2 reloads`.
fn plural(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn pool(out: &mut String, p: &PoolStatus) {
    let opcache = if p.opcache { "on" } else { "OFF" };
    // Both are unknown for a PHP that another program runs, or that has not started.
    let php = match p.backends.is_empty() && !p.php.is_empty() {
        true => format!(", PHP {}, opcache {opcache}", p.php),
        false => String::new(),
    };
    let _ = writeln!(
        out,
        "\npool {}: {}, {}{php}, up {}",
        p.pool,
        p.state,
        p.process_manager,
        duration(p.uptime)
    );
    if let Some(update) = &p.php_update {
        let versions = PhpUpdateStatus::both_versions(&p.php, &update.version);
        let _ = writeln!(out, "  {versions}: {}", update.state);
    }
    let _ = writeln!(
        out,
        "  {} active (highest {}), {} idle; queue {} of {} (highest {}); {} requests, {} slow, max_children reached {} times",
        p.active_processes,
        p.max_active_processes,
        p.idle_processes,
        p.queue,
        p.queue_size,
        p.max_queue,
        p.accepted_requests,
        p.slow_requests,
        p.max_children_reached
    );
    append_counts(out, "  failures", p.failures.iter().cloned());
    if let Some(cache) = &p.shared_cache {
        shared_cache(out, cache);
    }
    backends::append_text(out, &p.backends);
    if !p.children.is_empty() {
        let _ = writeln!(
            out,
            "  child     pid state          since requests memory/KB request"
        );
    }
    for child in &p.children {
        let mut request = Vec::new();
        escape::message(&mut request, child.method.as_bytes(), 16);
        request.push(b' ');
        escape::message(&mut request, child.uri.as_bytes(), 100);
        let request = String::from_utf8_lossy(&request);
        let _ = writeln!(
            out,
            "  {:>5} {:>7} {:<11} {:>8.1} {:>8} {:>9} {}",
            child.index,
            child.pid,
            child.state,
            child.since,
            child.requests,
            child.memory / 1024,
            request.trim_end()
        );
    }
}

fn shared_cache(out: &mut String, cache: &SharedCacheStatus) {
    let asked = cache.hits.saturating_add(cache.misses).max(1);
    let _ = writeln!(
        out,
        "  shared cache: {:.1} of {} MB, {} values, {} hits ({:.1} %), {} misses, {} evicted{}",
        cache.used as f64 / f64::from(1 << 20),
        cache.size >> 20,
        cache.values,
        cache.hits,
        cache.hits as f64 * 100.0 / asked as f64,
        cache.misses,
        cache.evicted,
        if cache.open {
            ""
        } else {
            "; scripts do not use it until the previous pool has finished its requests"
        }
    );
}

fn tls(out: &mut String, s: &ServerStatus) {
    let count = |wanted: bool| -> u64 {
        let these = s
            .handshakes
            .iter()
            .filter(|(_, resumed, _)| *resumed == wanted);
        these.map(|(_, _, n)| n).sum()
    };
    if !s.certificates.is_empty() {
        let (full, resumed) = (count(false), count(true));
        let _ = writeln!(out, "TLS handshakes: {full} full, {resumed} resumed");
    }
    for certificate in &s.certificates {
        let names = certificate.names.join(", ");
        let days = certificate.seconds_left / (24 * 3600);
        let _ = match certificate.seconds_left {
            ..=0 => writeln!(out, "certificate: {names}: EXPIRED {} days ago", -days),
            _ => writeln!(out, "certificate: {names}: {days} days left"),
        };
    }
}
