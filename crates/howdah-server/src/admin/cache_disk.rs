//! The status of pages on disk, as text and as metrics.

use std::fmt::Write;

use super::format::{MetricsText, append_counts};
use crate::cache::DiskStatus;

/// Appends the disk store's part of the status page as text.
pub(super) fn append_text(out: &mut String, disk: &DiskStatus) {
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
    append_counts(out, "    faults", disk.faults.iter().cloned());
}

/// Appends the disk store's metrics.
pub(super) fn append_metrics(m: &mut MetricsText, disk: &DiskStatus) {
    m.single("howdah_cache_disk_entries", disk.entries);
    m.single("howdah_cache_disk_bytes", disk.bytes);
    m.single("howdah_cache_disk_waiting", disk.waiting);
    m.single(
        "howdah_cache_disk_writable",
        u8::from(disk.condition.is_none()),
    );
    m.single("howdah_cache_disk_hits_total", disk.hits);
    m.single("howdah_cache_disk_writes_total", disk.written);
    m.single("howdah_cache_disk_evictions_total", disk.evictions);
    let mut faults = m.family("howdah_cache_disk_faults_total");
    for (name, n) in &disk.faults {
        faults.add(&[name], n);
    }
}
