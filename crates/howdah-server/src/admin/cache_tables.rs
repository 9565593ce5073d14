//! Table versions of the page cache (`cache_tables`) in the status and the metrics.

use std::fmt::Write as _;

use super::openmetrics::Metrics;
use crate::cache::{CacheStatus, SiteCacheStatus};

/// A line of a site that has them on.
pub(super) fn text(out: &mut String, site: &SiteCacheStatus) {
    let Some(tables) = &site.tables else { return };
    // A String takes everything.
    let _ = writeln!(
        out,
        "    tables: known of {} pages stored, unknown of {}; {} writes to one table, {} to any",
        tables.known, tables.unknown, tables.narrow, tables.wide
    );
}

/// The counters of all sites that have them on.
pub(super) fn metrics(m: &mut Metrics, cache: &CacheStatus) {
    let sites = || {
        let sites = cache.sites.iter();
        sites.filter_map(|site| Some((&site.site[..], site.tables.as_ref()?)))
    };
    m.family(
        "howdah_cache_tables_pages",
        "counter",
        "Pages stored: whether it is known which tables they are made of.",
    );
    for (site, tables) in sites() {
        for (result, n) in [("known", tables.known), ("unknown", tables.unknown)] {
            let labels = [("site", site), ("tables", result)];
            m.value("howdah_cache_tables_pages_total", &labels, n);
        }
    }
    m.family(
        "howdah_cache_tables_writes",
        "counter",
        "Writes: whether they made pages of one table old, or all.",
    );
    for (site, tables) in sites() {
        for (result, n) in [("one", tables.narrow), ("any", tables.wide)] {
            let labels = [("site", site), ("table", result)];
            m.value("howdah_cache_tables_writes_total", &labels, n);
        }
    }
}
