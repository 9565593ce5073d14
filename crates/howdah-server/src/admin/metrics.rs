//! The table of all metrics: samples are written by it, and `docs/metrics.md` is made from it. Names follow php-fpm's
//! exporter where it has one (`phpfpm_*` becomes `howdah_pool_*`), and Prometheus' conventions: base units, `_total`
//! for counters.

/// The type of a family's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that goes up and down.
    Gauge,
    /// A count since the start; a reload resets those of pools.
    Counter,
    /// Counts by upper bounds (`le`), with their total count and sum.
    Histogram,
}

impl MetricKind {
    /// Returns the name of the type in both text formats.
    pub fn word(self) -> &'static str {
        match self {
            MetricKind::Gauge => "gauge",
            MetricKind::Counter => "counter",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// A family of samples.
#[derive(Clone, Copy, Debug)]
pub struct MetricFamily {
    /// The name, as queries use it.
    pub name: &'static str,
    /// The type of the samples.
    pub kind: MetricKind,
    /// The labels of each sample. A label without a value is omitted.
    pub labels: &'static [&'static str],
    /// The description, one sentence.
    pub help: &'static str,
}

impl MetricFamily {
    /// Returns the unit, which the name ends with.
    pub fn unit(&self) -> Option<&'static str> {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        ["seconds", "bytes"]
            .into_iter()
            .find(|unit| name.ends_with(unit))
    }

    /// Returns the family of that name.
    ///
    /// # Panics
    /// If the table has no such family.
    pub(super) fn find(name: &str) -> &'static MetricFamily {
        let mut all = SECTIONS.iter().flat_map(|(_, families)| *families);
        all.find(|family| family.name == name)
            .unwrap_or_else(|| panic!("metric {name} is not in the table"))
    }
}

macro_rules! families {
    ($($section:literal { $($name:ident $kind:ident [$($label:ident),*] $help:literal;)* })*) => {
        /// All families by section.
        pub const SECTIONS: &[(&str, &[MetricFamily])] = &[$(($section, &[$(MetricFamily {
            name: stringify!($name),
            kind: MetricKind::$kind,
            labels: &[$(stringify!($label)),*],
            help: $help,
        },)*]),)*];
    };
}

families! {
    "The server" {
        howdah_build_info Gauge [version] "Always 1; the label is the version.";
        howdah_uptime_seconds Gauge [] "Time since the front started.";
        howdah_reloads_total Counter [] "Reloads that took effect.";
        howdah_connections Gauge [] "Open client connections.";
        howdah_connections_limit Gauge [] "Maximum number of open client connections.";
        howdah_connections_accepted_total Counter [] "Accepted client connections.";
        howdah_memory_bytes Gauge [] "Memory that the front uses.";
        howdah_memory_limit_bytes Gauge [] "Maximum memory of the front: limits.memory and the page cache.";
        howdah_spilled_bytes Gauge [] "Size of the request bodies and responses that are stored in temporary files.";
        howdah_spilled_limit_bytes Gauge [] "Maximum size of the temporary files for request bodies and responses: limits.spill_total.";
        howdah_long_turns_total Counter [] "Turns of an event loop that took more than 1 ms of CPU time while other connections waited.";
        howdah_longest_turn_seconds Gauge [] "CPU time of the longest turn of an event loop.";
        howdah_log_lines_lost_total Counter [log] "Log lines that could not be written.";
        howdah_spans_exported_total Counter [] "Spans that the trace collector accepted.";
        howdah_spans_dropped_total Counter [] "Spans that the trace collector refused or did not accept in time.";
        howdah_status_connections Gauge [] "Open connections of the status listener.";
        howdah_status_requests_total Counter [] "Requests to the status listener.";
    }
    "Requests" {
        howdah_requests_active Gauge [] "Requests in progress.";
        howdah_requests_refused_total Counter [] "Requests refused because their header could not be parsed.";
        howdah_responses_total Counter [status] "Responses by status; 499 means that the client disconnected first.";
        howdah_response_bytes_total Counter [] "Bytes sent as response bodies.";
        howdah_request_duration_seconds Histogram [] "Duration of finished requests.";
        howdah_failures_total Counter [name] "Failures by name, as in failures.md.";
    }
    "Client limits" {
        howdah_limited_requests_total Counter [site, line] "Requests refused by the limit on this line of the configuration.";
        howdah_limit_waiting_requests Gauge [site, line] "Requests that wait because their client already has as many PHP processes as it may have.";
        howdah_limits_forgotten_total Counter [] "Clients whose counters were dropped early because the table was full.";
    }
    "HTTPS" {
        howdah_tls_handshakes_total Counter [protocol, resumed] "Completed TLS handshakes.";
        howdah_tls_certificate_remaining_seconds Gauge [name, certificate] "Time until the certificate expires; negative if it has expired.";
        howdah_certificate_order_failures Gauge [name, failure] "Consecutive failed attempts to get a certificate for the name.";
    }
    "PHP" {
        howdah_pool_info Gauge [pool, process_manager, php, opcache] "Always 1; the labels describe the pool.";
        howdah_pool_php_outdated Gauge [pool, disk] "1 if the PHP on disk differs from the PHP that is running; the label is the version on disk.";
        howdah_pool_up Gauge [pool] "1 if the pool can run scripts.";
        howdah_pool_uptime_seconds Gauge [pool] "Time since the pool started; a reload sets it to 0.";
        howdah_pool_accepted_requests_total Counter [pool] "Requests that a child accepted.";
        howdah_pool_listen_queue Gauge [pool] "Requests that wait for a child.";
        howdah_pool_max_listen_queue Gauge [pool] "Highest number of requests that waited at the same time.";
        howdah_pool_listen_queue_length Gauge [pool] "Maximum number of waiting requests: queue_size.";
        howdah_pool_idle_processes Gauge [pool] "Idle children.";
        howdah_pool_active_processes Gauge [pool] "Busy children.";
        howdah_pool_max_active_processes Gauge [pool] "Highest number of children that were busy at the same time.";
        howdah_pool_max_children Gauge [pool] "Maximum number of children; absent for FastCGI backends.";
        howdah_pool_max_children_reached_total Counter [pool] "Requests that had to wait because max_children children were busy.";
        howdah_pool_slow_requests_total Counter [pool] "Requests that took longer than request_slowlog_timeout.";
        howdah_pool_bailouts_total Counter [pool] "Children and workers that exited because PHP bailed out of a request.";
        howdah_pool_memory_bytes Gauge [pool] "Resident memory of the children; shared memory is counted for each of them.";
        howdah_pool_failures_total Counter [pool, name] "Failures of the pool by name.";
        howdah_shared_cache_size_bytes Gauge [pool] "Size of the shared cache.";
        howdah_shared_cache_used_bytes Gauge [pool] "Memory of the shared cache that is in use.";
        howdah_shared_cache_values Gauge [pool] "Values in the shared cache.";
        howdah_shared_cache_hits_total Counter [pool] "Lookups in the shared cache that found a value.";
        howdah_shared_cache_misses_total Counter [pool] "Lookups in the shared cache that found no value.";
        howdah_shared_cache_evictions_total Counter [pool] "Values evicted from the shared cache.";
    }
    "Background jobs" {
        howdah_job_processes Gauge [job] "Running processes of the job.";
        howdah_job_memory_bytes Gauge [job] "Resident memory of the job's processes, without their child processes.";
        howdah_job_starts_total Counter [job] "Processes that were started for the job.";
        howdah_job_runs_elsewhere_total Counter [job] "Scheduled runs that other members of the fleet carried out.";
        howdah_job_output_lines_dropped_total Counter [job] "Output lines that were not logged because there were too many.";
        howdah_job_last_end_timestamp_seconds Gauge [job] "Time at which the job's last process exited.";
        howdah_job_failures_total Counter [job, name] "Failures of the job by name.";
    }
    "FastCGI backends and proxied servers" {
        howdah_backend_up Gauge [pool, address, health] "1 if the server is reachable. `pool` names the pool of a FastCGI backend, `health` the path of a proxied server's health check.";
        howdah_backend_busy Gauge [pool, address, health] "Requests that the server is processing.";
        howdah_backend_kept Gauge [pool, address, health] "Idle connections to the server that can be reused.";
        howdah_backend_requests_total Counter [pool, address, health] "Requests that the server answered.";
        howdah_backend_connects_total Counter [pool, address, health] "Connections that were opened to the server.";
        howdah_backend_failures_total Counter [pool, address, health] "Failed attempts to use the server.";
        howdah_backend_overflows_total Counter [pool, address, health] "Times that the server's backlog was full (FastCGI only).";
    }
    "The page cache" {
        howdah_cache_entries Gauge [] "Pages and variants in memory.";
        howdah_cache_bytes Gauge [] "Size of the pages and variants in memory.";
        howdah_cache_evictions_total Counter [] "Pages evicted from memory.";
        howdah_cache_private_entries Gauge [] "Private pages in memory.";
        howdah_cache_private_bytes Gauge [] "Size of the private pages in memory.";
        howdah_cache_private_evictions_total Counter [] "Private pages evicted from memory.";
        howdah_cache_requests_total Counter [site, result] "Requests by the cache's result: hit, stale or stored; private_hit or private_stored for a page of the visitor's own.";
        howdah_cache_passes_total Counter [site, name] "Requests that bypassed the cache, by reason.";
        howdah_cache_purges_total Counter [site] "Purges, and writes that invalidated pages.";
        howdah_cache_checks_total Counter [site, result] "Stored pages compared with a fresh response, in a dry run or by the shadow check.";
        howdah_cache_dry_run_total Counter [site, result] "Requests in a dry run, by the result that the cache would have had.";
        howdah_fleet_members Gauge [] "Members of the fleet.";
        howdah_fleet_members_silent Gauge [] "Silent members of the fleet. While any member is silent, no member serves stored pages.";
        howdah_fleet_lease_seconds Gauge [] "Time until the lease expires; while it is valid, this member may serve stored pages.";
        howdah_fleet_confirmation_seconds Histogram [] "Time from a write until all members have confirmed it.";
        howdah_fleet_unheard_writes_total Counter [] "Writes that the other members did not confirm.";
        howdah_fleet_applied_total Counter [] "Purges received from other members.";
        howdah_fleet_renders_total Counter [name] "Pages that one member rendered for others, by outcome.";
        howdah_cache_disk_entries Gauge [] "Pages and variants on disk.";
        howdah_cache_disk_bytes Gauge [] "Size of the pages and variants on disk.";
        howdah_cache_disk_waiting Gauge [] "Pages that wait to be written to disk.";
        howdah_cache_disk_writable Gauge [] "1 if pages and purges can be written to disk, 0 during a fault.";
        howdah_cache_disk_hits_total Counter [] "Cache hits that were served from a file on disk.";
        howdah_cache_disk_writes_total Counter [] "Pages written to disk.";
        howdah_cache_disk_evictions_total Counter [] "Pages evicted from disk.";
        howdah_cache_disk_faults_total Counter [name] "Disk faults by name.";
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    /// Returns the text of the reference page.
    fn page() -> String {
        let mut page = String::from(
            "# Metrics\n\n<!-- made from the table of metrics: `HOWDAH_BLESS=1 cargo test -p howdah-server metrics` -->\n\n\
             `/metrics` of the [status listener](monitoring.md) has the metrics below. Metrics without\n\
             samples are omitted, such as those of a page cache that is off.\n",
        );
        for (section, families) in SECTIONS {
            let _ = write!(
                page,
                "\n## {section}\n\n| name | kind | labels | |\n|---|---|---|---|\n"
            );
            for family in *families {
                let labels: Vec<_> = family.labels.iter().map(|l| format!("`{l}`")).collect();
                let _ = writeln!(
                    page,
                    "| `{}` | {} | {} | {} |",
                    family.name,
                    family.kind.word(),
                    labels.join(", "),
                    family.help
                );
            }
        }
        page
    }

    #[test]
    fn metrics_page_matches_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        if std::env::var_os("HOWDAH_BLESS").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        assert!(
            std::fs::read_to_string(path).is_ok_and(|text| text == page()),
            "docs/metrics.md is stale: HOWDAH_BLESS=1 cargo test -p howdah-server metrics"
        );
    }

    #[test]
    fn metric_counters_end_with_total_and_nothing_else_does() {
        for family in SECTIONS.iter().flat_map(|(_, families)| *families) {
            let total = family.name.ends_with("_total");
            assert_eq!(total, family.kind == MetricKind::Counter, "{}", family.name);
        }
    }
}
