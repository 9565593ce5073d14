//! The status of pages on disk, for people and as metrics.

use std::fmt::Write;

use super::format::{Metrics, list};
use crate::cache::DiskStatus;

/// Appends the disk store's part of the status page as text.
pub(super) fn text(out: &mut String, disk: &DiskStatus) {
    let state = match (&disk.condition, disk.indexing) {
        (Some(fault), _) => format!(", not written: {fault}"),
        (None, true) => ", being scanned".to_owned(),
        (None, false) => String::new(),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "  on disk: {} entries, {} of {} KB, {} evicted, {} hits, {} written{state}",
        disk.entries,
        disk.bytes / 1024,
        disk.capacity / 1024,
        disk.evictions,
        disk.hits,
        disk.written
    );
    list(out, "    faults", disk.faults.iter().cloned());
}

/// Appends the disk store's metrics in OpenMetrics' text format.
pub(super) fn metrics(m: &mut Metrics, disk: &DiskStatus) {
    for (name, value, help) in [
        (
            "howdah_cache_disk_entries",
            disk.entries,
            "Pages and variants on disk.",
        ),
        (
            "howdah_cache_disk_bytes",
            disk.bytes,
            "Bytes of pages and variants on disk.",
        ),
        (
            "howdah_cache_disk_waiting",
            disk.waiting,
            "Pages that wait to be written.",
        ),
        (
            "howdah_cache_disk_writable",
            u64::from(disk.condition.is_none()),
            "1 if pages and purges can be written, 0 during a fault.",
        ),
    ] {
        m.single(name, "gauge", help, value);
    }
    for (name, value, help) in [
        (
            "howdah_cache_disk_hits",
            disk.hits,
            "Hits answered from a file.",
        ),
        ("howdah_cache_disk_writes", disk.written, "Pages written."),
        (
            "howdah_cache_disk_evictions",
            disk.evictions,
            "Pages evicted from disk.",
        ),
    ] {
        m.single(name, "counter", help, value);
    }
    m.family(
        "howdah_cache_disk_faults",
        "counter",
        "Faults of the disk by name.",
    );
    for (name, n) in &disk.faults {
        m.value("howdah_cache_disk_faults_total", &[("name", name)], *n);
    }
}
