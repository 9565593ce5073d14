//! The status of pages on disk, as text and as metrics.

use std::fmt::Write;

use super::format::{MetricsText, append_counts};
use crate::cache::DiskStatus;

/// Appends the disk store's part of the status page as text.
pub(super) fn append_text(out: &mut String, disk: &DiskStatus) {
    let state = match (&disk.condition, disk.indexing) {
        (Some(fault), _) => format!(", no pages are written: {fault}"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_says_whether_pages_are_written() {
        let mut disk = DiskStatus {
            entries: 3,
            bytes: 4096,
            capacity: 1 << 20,
            evictions: 1,
            hits: 5,
            written: 6,
            ..DiskStatus::default()
        };
        let text = |disk: &DiskStatus| {
            let mut out = String::new();
            append_text(&mut out, disk);
            out
        };
        let counts = "  on disk: 3 entries, 4 of 1024 KB, 1 evicted, 5 hits, 6 written";
        assert_eq!(text(&disk), format!("{counts}\n"));
        disk.indexing = true;
        assert_eq!(text(&disk), format!("{counts}, being scanned\n"));
        disk.condition = Some("DiskFull".to_owned());
        disk.faults = vec![("DiskFull".to_owned(), 2)];
        let full = text(&disk);
        let (first, rest) = full.split_once('\n').unwrap();
        assert_eq!(first, format!("{counts}, no pages are written: DiskFull"));
        assert!(
            rest.starts_with("    faults") && rest.contains("DiskFull"),
            "{rest}"
        );
    }
}
