//! Faults of the disk, by name: the same word is used in the log, the status, the metrics and docs/cache.md. Each leads
//! to a miss or an empty cache, never to a wrong response.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use strum::{Display, EnumMessage, IntoStaticStr, VariantArray};

use super::format::FileDamage;
use super::journal::FreshStart;

/// A fault of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, IntoStaticStr, VariantArray)]
#[repr(u8)]
pub enum DiskFault {
    /// A page's file has the wrong length; the file was removed.
    FileTruncated,
    /// A page's file does not match its checksum; the file was removed.
    FileCorrupt,
    /// A file has another version of the format, or is not a page at all; the file was removed.
    FileForeign,
    /// A file contains a different page from the one that its name stands for; the file was removed.
    FileMisplaced,
    /// A page's file could not be read.
    FileUnreadable,
    /// The disk has no room for another page, so pages are stored only in memory.
    DiskFull,
    /// The directory cannot be written to; pages are stored only in memory.
    DiskUnwritable,
    /// After an upgrade, the previous process uses the directory until it exits. Pages are stored only in memory.
    DiskHeld,
    /// The disk is too slow: a page was not written, or not read.
    DiskBusy,
    /// The headers and tags of a page exceed the limit for a file; the page is stored only in memory.
    DescriptionTooLong,
    /// Purges cannot be recorded on disk. The record was removed, so the cache will be empty at the next start.
    JournalFailed,
    /// The record of purges is damaged or has another format version, so the cache started empty.
    JournalCorrupt,
    /// The machine stopped before the cache was closed, so the cache started empty.
    MachineStopped,
    /// The clock shows an earlier time than the one at which pages were stored, so the cache started empty.
    ClockWentBack,
}

impl From<FileDamage> for DiskFault {
    fn from(damage: FileDamage) -> DiskFault {
        match damage {
            FileDamage::Foreign => DiskFault::FileForeign,
            FileDamage::Truncated => DiskFault::FileTruncated,
            FileDamage::Corrupt => DiskFault::FileCorrupt,
        }
    }
}

impl DiskFault {
    /// All faults, in the order in which they are declared.
    pub const ALL: &[DiskFault] = DiskFault::VARIANTS;

    /// Returns the fault's name in the log, the status, the metrics and docs/cache.md.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns what happened, in one sentence for people: the variant's doc comment.
    pub fn meaning(self) -> &'static str {
        self.get_documentation().unwrap_or_default()
    }

    /// Returns the fault that makes a cache begin empty; `None` if the reason is not a fault.
    pub(super) fn from_fresh(fresh: FreshStart) -> Option<DiskFault> {
        match fresh {
            FreshStart::NoJournal => None,
            FreshStart::Corrupt => Some(DiskFault::JournalCorrupt),
            FreshStart::MachineStopped => Some(DiskFault::MachineStopped),
            FreshStart::ClockWentBack => Some(DiskFault::ClockWentBack),
        }
    }

    /// Returns the fault for a failed write.
    pub(super) fn from_write_error(error: &io::Error) -> DiskFault {
        match error.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => DiskFault::DiskFull,
            _ => DiskFault::DiskUnwritable,
        }
    }
}

/// How often each fault has occurred since the start.
#[derive(Debug)]
pub struct FaultCounters([AtomicU64; DiskFault::ALL.len()]);

impl Default for FaultCounters {
    fn default() -> Self {
        FaultCounters(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl FaultCounters {
    pub(super) fn add(&self, fault: DiskFault) {
        self.0[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the faults that have occurred, by name, each with its count.
    pub fn counts(&self) -> Vec<(String, u64)> {
        let all = DiskFault::ALL.iter().zip(&self.0);
        all.map(|(fault, n)| (fault.name().to_owned(), n.load(Ordering::Relaxed)))
            .filter(|(_, n)| *n > 0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_names_are_unique_in_the_documentation() {
        let others = [
            include_str!("../../../../../docs/pools.md"),
            include_str!("../../../../../docs/failures.md"),
        ];
        for fault in DiskFault::ALL {
            let row = format!("`{}`", fault.name());
            let taken = others.iter().any(|text| text.contains(&row));
            assert!(!taken, "{row} is the name of something else");
        }
    }
}
