//! Forms of [`ServerStatus`]: text for people, JSON for programs, OpenMetrics for Prometheus. Metric
//! names follow php-fpm's exporter where it has one (`phpfpm_*` becomes `howdah_pool_*`).

use std::fmt::Write;

use howdah_executor::status::BackendRow;

use super::cache_disk;
use super::cache_tables;
use super::status::ServerStatus;
use crate::cache::{CacheStatus, SiteCacheStatus};
use crate::http::message::RequestHead;
use crate::log::escape;

/// How a status is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusForm {
    /// For people.
    #[default]
    Text,
    /// An object.
    Json,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl StatusForm {
    /// By the query (`?json`, `?openmetrics`, `?text`, as php-fpm's page) or else by `Accept`.
    pub fn of(request: &RequestHead) -> StatusForm {
        match request.query().unwrap_or_default() {
            b"json" => return StatusForm::Json,
            b"openmetrics" => return StatusForm::OpenMetrics,
            b"text" => return StatusForm::Text,
            _ => {}
        }
        let accept = request.header(b"accept").unwrap_or_default();
        let names = |media: &[u8]| accept.windows(media.len()).any(|w| w == media);
        if names(b"application/openmetrics-text") {
            StatusForm::OpenMetrics
        } else if names(b"application/json") {
            StatusForm::Json
        } else {
            StatusForm::Text
        }
    }

    /// `Content-Type`
    pub fn content_type(self) -> &'static str {
        match self {
            StatusForm::Text => "text/plain; charset=utf-8",
            StatusForm::Json => "application/json",
            StatusForm::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Writes a status.
    pub fn write(self, status: &ServerStatus) -> String {
        match self {
            StatusForm::Text => text(status),
            StatusForm::Json => {
                // The type has only strings for keys and finite numbers.
                serde_json::to_string(status).unwrap_or_default() + "\n"
            }
            StatusForm::OpenMetrics => openmetrics(status),
        }
    }
}

/// For people: a head, then a table of children for each pool.
pub fn text(s: &ServerStatus) -> String {
    let mut out = String::new();
    let uptime = duration(s.uptime);
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "howdah {} pid {}, up {uptime}, {} reloads",
        s.version, s.pid, s.reloads
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
        "memory: {} of {} MiB; bodies and answers in files: {} of {} MiB",
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
    list(
        &mut out,
        "statuses",
        s.statuses.iter().map(|(code, n)| (code.to_string(), *n)),
    );
    list(&mut out, "failures", s.failures.iter().cloned());
    if s.turns.long > 0 {
        let _ = writeln!(
            out,
            "event loop: {} turns over 1 ms, the longest {:.1} ms ({})",
            s.turns.long,
            s.turns.longest * 1e3,
            s.turns.doing
        );
    }
    for (log, lost) in s.log_lines_lost() {
        if lost > 0 {
            let _ = writeln!(out, "{log} log: {lost} lines lost");
        }
    }
    if let Some(cache) = &s.cache {
        cache_text(&mut out, cache);
    }
    for p in &s.pools {
        let opcache = if p.opcache { "on" } else { "OFF" };
        // Of a PHP that somebody else runs, or that has not started, neither is known.
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
        let _ = writeln!(
            out,
            "  {} active (at most {}), {} idle; queue {} of {} (at most {}); {} requests, {} slow, max_children reached {} times",
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
        list(&mut out, "  failures", p.failures.iter().cloned());
        backends_text(&mut out, &p.backends);
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
    out
}

fn backends_text(out: &mut String, backends: &[BackendRow]) {
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

/// The page cache's part of the text.
pub fn cache_text(out: &mut String, cache: &CacheStatus) {
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "\npage cache: {} entries, {} of {} KB, {} evicted",
        cache.entries,
        cache.bytes / 1024,
        cache.capacity / 1024,
        cache.evictions
    );
    if let Some(disk) = &cache.disk {
        cache_disk::text(out, disk);
    }
    for site in &cache.sites {
        let _ = writeln!(
            out,
            "  {}: {} hits, {} stale, {} stored, {} purges and writes; {}.{} % of requests from the store",
            site.site,
            site.hits,
            site.stale,
            site.stored,
            site.purges,
            site.hit_permille / 10,
            site.hit_permille % 10
        );
        cache_tables::text(out, site);
        checks_text(out, site);
        list(out, "    passes", site.passes.iter().cloned());
        if let Some(text) = site.fitness.in_words() {
            let _ = writeln!(out, "    {text}");
        }
        list(out, "    cookies not known", site.cookies.iter().cloned());
    }
}

fn checks_text(out: &mut String, site: &SiteCacheStatus) {
    let c = &site.checks;
    if !site.dry_run && site.shadow == 0 {
        return;
    }
    let what = match site.dry_run {
        true => format!(
            "dry run: {} would hit, {} would miss",
            c.would_hit, c.would_miss
        ),
        false => format!("shadow of one hit in {}", site.shadow),
    };
    // As above.
    let _ = writeln!(
        out,
        "    {what}; {} same, {} but for nonces, {} different, {} unchecked",
        c.same, c.noise, c.different, c.unchecked
    );
    if !c.last.is_empty() {
        let _ = writeln!(out, "    last: {}", c.last);
    }
}

/// The page cache's metrics.
fn cache_metrics(m: &mut Metrics, cache: &CacheStatus) {
    m.family(
        "howdah_cache_entries",
        "gauge",
        "Pages and variants in memory.",
    );
    m.value("howdah_cache_entries", &[], cache.entries);
    m.family("howdah_cache_bytes", "gauge", "Bytes they take.");
    m.value("howdah_cache_bytes", &[], cache.bytes);
    m.family(
        "howdah_cache_evictions",
        "counter",
        "Pages pushed out by others.",
    );
    m.value("howdah_cache_evictions_total", &[], cache.evictions);
    if let Some(disk) = &cache.disk {
        cache_disk::metrics(m, disk);
    }
    m.family(
        "howdah_cache_requests",
        "counter",
        "Requests by what the page cache did: hit, stale, stored.",
    );
    for site in &cache.sites {
        for (result, n) in [
            ("hit", site.hits),
            ("stale", site.stale),
            ("stored", site.stored),
        ] {
            let labels = [("site", &site.site[..]), ("result", result)];
            m.value("howdah_cache_requests_total", &labels, n);
        }
    }
    m.family(
        "howdah_cache_passes",
        "counter",
        "Requests the page cache had no business with, by reason.",
    );
    for site in &cache.sites {
        for (name, n) in &site.passes {
            let labels = [("site", &site.site[..]), ("name", &name[..])];
            m.value("howdah_cache_passes_total", &labels, *n);
        }
    }
    m.family(
        "howdah_cache_checks",
        "counter",
        "Pages compared with a fresh answer, in a dry run or as a shadow.",
    );
    for site in &cache.sites {
        let c = &site.checks;
        for (result, n) in [
            ("same", c.same),
            ("nonces", c.noise),
            ("different", c.different),
            ("unchecked", c.unchecked),
        ] {
            let labels = [("site", &site.site[..]), ("result", result)];
            m.value("howdah_cache_checks_total", &labels, n);
        }
    }
    m.family(
        "howdah_cache_dry_run",
        "counter",
        "Requests by what the page cache would have done.",
    );
    for site in cache.sites.iter().filter(|site| site.dry_run) {
        let c = &site.checks;
        for (result, n) in [("hit", c.would_hit), ("miss", c.would_miss)] {
            let labels = [("site", &site.site[..]), ("result", result)];
            m.value("howdah_cache_dry_run_total", &labels, n);
        }
    }
    cache_tables::metrics(m, cache);
    m.family("howdah_cache_purges", "counter", "Purges and writes.");
    for site in &cache.sites {
        m.value(
            "howdah_cache_purges_total",
            &[("site", &site.site)],
            site.purges,
        );
    }
}

pub(super) fn list(out: &mut String, title: &str, items: impl Iterator<Item = (String, u64)>) {
    let items: Vec<_> = items
        .filter(|(_, n)| *n > 0)
        .map(|(name, n)| format!("{name} {n}"))
        .collect();
    if !items.is_empty() {
        let _ = writeln!(out, "{title}: {}", items.join(", "));
    }
}

fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match seconds {
        86_400.. => format!("{days} d {hours} h"),
        3600.. => format!("{hours} h {minutes} min"),
        60.. => format!("{minutes} min {} s", seconds % 60),
        _ => format!("{seconds} s"),
    }
}

/// OpenMetrics 1.0 text.
pub fn openmetrics(s: &ServerStatus) -> String {
    let mut m = Metrics(String::new());
    m.family("howdah_uptime_seconds", "gauge", "Seconds since the start.");
    m.value("howdah_uptime_seconds", &[], s.uptime);
    m.family("howdah_reloads", "counter", "Configuration swaps.");
    m.value("howdah_reloads_total", &[], s.reloads);
    if let Some(cache) = &s.cache {
        cache_metrics(&mut m, cache);
    }
    m.family("howdah_connections", "gauge", "Open connections.");
    m.value("howdah_connections", &[], s.connections.open);
    m.family(
        "howdah_connections_accepted",
        "counter",
        "Accepted connections.",
    );
    m.value(
        "howdah_connections_accepted_total",
        &[],
        s.connections.accepted,
    );
    let help = "Bytes the front keeps in memory.";
    m.family("howdah_memory_bytes", "gauge", help);
    m.value("howdah_memory_bytes", &[], s.memory.used);
    let help = "Bytes of request bodies and of answers to slow clients, in files.";
    m.family("howdah_spilled_bytes", "gauge", help);
    m.value("howdah_spilled_bytes", &[], s.spilled.used);
    m.family(
        "howdah_long_turns",
        "counter",
        "Turns of the event loop over 1 ms of CPU time, in which other connections waited.",
    );
    m.value("howdah_long_turns_total", &[], s.turns.long);
    m.family(
        "howdah_longest_turn_seconds",
        "gauge",
        "CPU time of the longest such turn.",
    );
    m.value("howdah_longest_turn_seconds", &[], s.turns.longest);
    m.family("howdah_requests_active", "gauge", "Requests in progress.");
    m.value("howdah_requests_active", &[], s.requests_active);
    m.family(
        "howdah_response_bytes",
        "counter",
        "Bytes of response bodies.",
    );
    m.value("howdah_response_bytes_total", &[], s.bytes_sent);
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
    pools(&mut m, s);
    m.0.push_str("# EOF\n");
    m.0
}

type PoolGauge = (
    &'static str,
    &'static str,
    &'static str,
    fn(&howdah_executor::status::PoolStatus) -> u64,
);

fn pools(m: &mut Metrics, s: &ServerStatus) {
    const FAMILIES: &[PoolGauge] = &[
        ("up", "gauge", "Whether the pool can run scripts.", |p| {
            u64::from(matches!(p.state.as_str(), "Ready" | "Asleep"))
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
        ("max_listen_queue", "gauge", "Most that ever waited.", |p| {
            u64::from(p.max_queue)
        }),
        ("listen_queue_length", "gauge", "Configured limit.", |p| {
            u64::from(p.queue_size)
        }),
        (
            "idle_processes",
            "gauge",
            "Children between requests.",
            |p| u64::from(p.idle_processes),
        ),
        ("active_processes", "gauge", "Children at work.", |p| {
            u64::from(p.active_processes)
        }),
        ("max_active_processes", "gauge", "Most ever at work.", |p| {
            u64::from(p.max_active_processes)
        }),
        (
            "max_children_reached",
            "counter",
            "Waits because all children were at work.",
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
        let sample = if *kind == "counter" {
            family + "_total"
        } else {
            family
        };
        for pool in &s.pools {
            m.value(&sample, &[("pool", &pool.pool)], value(pool));
        }
    }
    backends(m, s);
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

/// A gauge or counter of FastCGI backends: name, kind, help, value.
type BackendGauge = (
    &'static str,
    &'static str,
    &'static str,
    fn(&BackendRow) -> u64,
);

fn backends(m: &mut Metrics, s: &ServerStatus) {
    const FAMILIES: &[BackendGauge] = &[
        ("up", "gauge", "Whether the backend can be reached.", |b| {
            u64::from(b.state == "Up")
        }),
        ("busy", "gauge", "Requests it has now.", |b| {
            u64::from(b.busy)
        }),
        (
            "kept",
            "gauge",
            "Connections kept without a request.",
            |b| u64::from(b.kept),
        ),
        ("requests", "counter", "Requests it has answered.", |b| {
            b.requests
        }),
        ("connects", "counter", "Connections made to it.", |b| {
            b.connects
        }),
        ("failures", "counter", "Attempts that failed.", |b| {
            b.failures
        }),
        ("overflows", "counter", "Times its backlog was full.", |b| {
            b.overflows
        }),
    ];
    if s.pools.iter().all(|pool| pool.backends.is_empty()) {
        return;
    }
    for (name, kind, help, value) in FAMILIES {
        let family = format!("howdah_backend_{name}");
        m.family(&family, kind, help);
        let sample = match *kind {
            "counter" => family + "_total",
            _ => family,
        };
        for pool in &s.pools {
            for backend in &pool.backends {
                let labels = [("pool", pool.pool.as_str()), ("address", &backend.address)];
                m.value(&sample, &labels, value(backend));
            }
        }
    }
}

pub(super) struct Metrics(String);

impl Metrics {
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}\n# HELP {name} {help}");
    }

    pub(super) fn value(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        value: impl std::fmt::Display,
    ) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            self.0.push(if at == 0 { '{' } else { ',' });
            let text = text
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _ = write!(self.0, "{label}=\"{text}\"");
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use howdah_executor::status::{ChildRow, PoolStatus};

    use super::*;
    use crate::testing::request;

    fn status() -> ServerStatus {
        ServerStatus {
            version: "0.1.0".into(),
            uptime: 3700,
            requests: 12,
            requests_active: 1,
            request_seconds: 0.5,
            durations: vec![(Some(0.001), 4), (Some(0.5), 6), (None, 1)],
            statuses: vec![(200, 10), (503, 1)],
            failures: vec![("QueueFull".into(), 1)],
            pools: vec![PoolStatus {
                pool: "w\"w".into(),
                state: "Ready".into(),
                php: "8.2.1".into(),
                children: vec![ChildRow {
                    state: "Busy".into(),
                    method: "GET".into(),
                    uri: "/a\x1b[2J".into(),
                    memory: 9 << 20,
                    ..ChildRow::default()
                }],
                ..PoolStatus::default()
            }],
            ..ServerStatus::default()
        }
    }

    #[test]
    fn people_see_what_each_child_runs_and_no_control_character() {
        let text = text(&status());
        assert!(text.contains("up 1 h 1 min"), "{text}");
        assert!(
            text.contains("statuses: 200 10, 503 1\nfailures: QueueFull 1\n"),
            "{text}"
        );
        assert!(text.contains(", PHP 8.2.1, opcache OFF, up"), "{text}");
        assert!(text.contains("9216 GET /a\\x1B[2J\n"), "{text}");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn a_pool_that_has_not_started_php_is_up_and_says_nothing_of_it() {
        let mut asleep = status();
        asleep.pools[0].state = "Asleep".into();
        asleep.pools[0].php = String::new();
        let page = text(&asleep);
        assert!(
            page.contains(": Asleep, ") && !page.contains("opcache"),
            "{page}"
        );
        let metrics = openmetrics(&asleep);
        assert!(
            metrics.contains("howdah_pool_up{pool=\"w\\\"w\"} 1"),
            "{metrics}"
        );
    }

    #[test]
    fn metrics_are_openmetrics() {
        let text = openmetrics(&status());
        for line in [
            "howdah_responses_total{status=\"200\"} 10",
            "howdah_failures_total{name=\"QueueFull\"} 1",
            "howdah_request_duration_seconds_bucket{le=\"0.001\"} 4",
            "howdah_request_duration_seconds_bucket{le=\"0.5\"} 10",
            "howdah_request_duration_seconds_bucket{le=\"+Inf\"} 11",
            "howdah_request_duration_seconds_count 11",
            "howdah_pool_up{pool=\"w\\\"w\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(
                name.starts_with("howdah_") && value.parse::<f64>().is_ok(),
                "{line}"
            );
        }
    }

    #[test]
    fn the_form_is_asked_for_by_query_or_accept() {
        for (target, accept, form) in [
            ("/s", "*/*", StatusForm::Text),
            ("/s?json", "*/*", StatusForm::Json),
            ("/s?openmetrics", "", StatusForm::OpenMetrics),
            (
                "/s",
                "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
                StatusForm::OpenMetrics,
            ),
            ("/s", "application/json", StatusForm::Json),
            ("/s?text", "application/json", StatusForm::Text),
        ] {
            assert_eq!(
                StatusForm::of(&request("GET", target, &[("Accept", accept)])),
                form,
                "{target} {accept}"
            );
        }
        let json: serde_json::Value =
            serde_json::from_str(&StatusForm::Json.write(&status())).unwrap();
        assert_eq!(json["pools"][0]["children"][0]["state"], "Busy");
    }
}
