//! The page cache in the status, as text and as metrics.

use std::fmt::Write;

use super::format::{MetricsText, append_counts};
use super::{cache_disk, fleet};
use crate::cache::{CacheStatus, SiteCacheStatus};

/// Appends the cache's part of the status page as text.
pub(super) fn append_text(out: &mut String, cache: &CacheStatus) {
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "\npage cache: {} entries, {} of {} KB, {} evicted",
        cache.entries,
        cache.bytes / 1024,
        cache.capacity / 1024,
        cache.evictions
    );
    if let Some(private) = &cache.private {
        let _ = writeln!(
            out,
            "  private pages: {}, {} of {} KB, {} evicted",
            private.pages,
            private.bytes / 1024,
            private.capacity / 1024,
            private.evictions
        );
    }
    if let Some(disk) = &cache.disk {
        cache_disk::append_text(out, disk);
    }
    if let Some(fleet) = &cache.fleet {
        fleet::append_text(out, fleet);
    }
    for site in &cache.sites {
        let _ = writeln!(
            out,
            "  {}: {} hits, {} stale, {} stored, {} purges and writes; {}.{} % of requests answered from the cache",
            site.site,
            site.hits,
            site.stale,
            site.stored,
            site.purges,
            site.hit_permille / 10,
            site.hit_permille % 10
        );
        if cache.private.is_some() {
            let _ = writeln!(
                out,
                "    private pages: {} hits, {} stored",
                site.private_hits, site.private_stored
            );
        }
        append_checks(out, site);
        append_counts(out, "    not from the cache", site.passes.iter().cloned());
        if let Some(text) = site.fitness.message() {
            let _ = writeln!(out, "    {text}");
        }
        append_counts(out, "    unknown cookies", site.cookies.iter().cloned());
    }
}

fn append_checks(out: &mut String, site: &SiteCacheStatus) {
    let c = &site.checks;
    if !site.dry_run && site.shadow == 0 {
        return;
    }
    let what = match site.dry_run {
        true => format!(
            "dry run: {} would hit, {} would miss",
            c.would_hit, c.would_miss
        ),
        false => format!("shadow check of one hit in {}", site.shadow),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "    {what}; {} same, {} same except for nonces, {} different, {} unchecked",
        c.same, c.noise, c.different, c.unchecked
    );
    if !c.last.is_empty() {
        let _ = writeln!(out, "    last: {}", c.last);
    }
}

pub(super) fn append_metrics(m: &mut MetricsText, cache: &CacheStatus) {
    m.single("howdah_cache_entries", cache.entries);
    m.single("howdah_cache_bytes", cache.bytes);
    m.single("howdah_cache_evictions_total", cache.evictions);
    if let Some(private) = &cache.private {
        m.single("howdah_cache_private_entries", private.pages);
        m.single("howdah_cache_private_bytes", private.bytes);
        m.single("howdah_cache_private_evictions_total", private.evictions);
    }
    let mut requests = m.family("howdah_cache_requests_total");
    for site in &cache.sites {
        for (result, n) in [
            ("hit", site.hits),
            ("stale", site.stale),
            ("stored", site.stored),
        ] {
            requests.add(&[&site.site, result], n);
        }
        if cache.private.is_some() {
            requests.add(&[&site.site, "private_hit"], site.private_hits);
            requests.add(&[&site.site, "private_stored"], site.private_stored);
        }
    }
    let mut passes = m.family("howdah_cache_passes_total");
    for site in &cache.sites {
        for (name, n) in &site.passes {
            passes.add(&[&site.site, name], n);
        }
    }
    let mut purges = m.family("howdah_cache_purges_total");
    for site in &cache.sites {
        purges.add(&[&site.site], site.purges);
    }
    append_check_metrics(m, cache);
    if let Some(fleet) = &cache.fleet {
        fleet::append_metrics(m, fleet);
    }
    if let Some(disk) = &cache.disk {
        cache_disk::append_metrics(m, disk);
    }
}

/// Adds the results of dry runs and shadow checks.
fn append_check_metrics(m: &mut MetricsText, cache: &CacheStatus) {
    let mut checks = m.family("howdah_cache_checks_total");
    for site in &cache.sites {
        let c = &site.checks;
        for (result, n) in [
            ("same", c.same),
            ("nonces", c.noise),
            ("different", c.different),
            ("unchecked", c.unchecked),
        ] {
            checks.add(&[&site.site, result], n);
        }
    }
    let mut dry_run = m.family("howdah_cache_dry_run_total");
    for site in cache.sites.iter().filter(|site| site.dry_run) {
        let c = &site.checks;
        for (result, n) in [("hit", c.would_hit), ("miss", c.would_miss)] {
            dry_run.add(&[&site.site, result], n);
        }
    }
}
