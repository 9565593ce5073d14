//! The page cache in the status, for people and as metrics.

use std::fmt::Write;

use super::cache_disk;
use super::format::{Metrics, list};
use crate::cache::{CacheStatus, SiteCacheStatus};

/// Appends the cache's part of the status page as text.
pub(super) fn text(out: &mut String, cache: &CacheStatus) {
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
        checks(out, site);
        list(out, "    passes", site.passes.iter().cloned());
        if let Some(text) = site.fitness.in_words() {
            let _ = writeln!(out, "    {text}");
        }
        list(out, "    unknown cookies", site.cookies.iter().cloned());
    }
}

fn checks(out: &mut String, site: &SiteCacheStatus) {
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

/// Appends the cache's metrics in OpenMetrics' text format.
pub(super) fn metrics(m: &mut Metrics, cache: &CacheStatus) {
    m.single(
        "howdah_cache_entries",
        "gauge",
        "Pages and variants in memory.",
        cache.entries,
    );
    m.single(
        "howdah_cache_bytes",
        "gauge",
        "Bytes of pages and variants in memory.",
        cache.bytes,
    );
    m.single(
        "howdah_cache_evictions",
        "counter",
        "Pages evicted from memory.",
        cache.evictions,
    );
    if let Some(disk) = &cache.disk {
        cache_disk::metrics(m, disk);
    }
    request_metrics(m, cache);
    check_metrics(m, cache);
    m.family("howdah_cache_purges", "counter", "Purges and writes.");
    for site in &cache.sites {
        m.value(
            "howdah_cache_purges_total",
            &[("site", &site.site)],
            site.purges,
        );
    }
}

fn request_metrics(m: &mut Metrics, cache: &CacheStatus) {
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
        "Requests that bypassed the page cache, by reason.",
    );
    for site in &cache.sites {
        for (name, n) in &site.passes {
            let labels = [("site", &site.site[..]), ("name", &name[..])];
            m.value("howdah_cache_passes_total", &labels, *n);
        }
    }
}

/// What dry runs and shadows have found.
fn check_metrics(m: &mut Metrics, cache: &CacheStatus) {
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
}
