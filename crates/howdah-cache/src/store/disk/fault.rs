//! Faults of the disk, by name: the same word is used in the log, the status, the metrics and docs/cache.md. Each leads
//! to a miss or an empty cache, never to a wrong response.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use strum::{Display, EnumMessage, IntoStaticStr, VariantArray};

use super::format::Damage;
use super::journal::Fresh;

/// A fault of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, IntoStaticStr, VariantArray)]
#[repr(u8)]
pub enum Fault {
    /// A page's file has the wrong length; it was removed.
    FileTruncated,
    /// A page's file does not match its checksum; it was removed.
    FileCorrupt,
    /// A file has another version of the format, or is no page; it was removed.
    FileForeign,
    /// A page's file holds another page than its name says; it was removed.
    FileMisplaced,
    /// A page's file could not be read.
    FileUnreadable,
    /// There is no room for a page; pages are kept in memory.
    DiskFull,
    /// The directory cannot be written; pages are kept in memory.
    DiskUnwritable,
    /// After an upgrade the former process has the directory until it ends; pages are kept in memory.
    DiskHeld,
    /// The disk is too slow: a page was not written, or not read.
    DiskBusy,
    /// A page's description exceeds a file's limit; the page is kept in memory.
    DescriptionTooLong,
    /// Purges cannot be recorded; the journal was removed, so that the next start begins empty.
    JournalFailed,
    /// The journal is damaged, or of another version: the cache began empty.
    JournalCorrupt,
    /// The machine stopped before the cache was closed: the cache began empty.
    MachineStopped,
    /// The clock is earlier than when pages were stored: the cache began empty.
    ClockWentBack,
}

impl From<Damage> for Fault {
    fn from(damage: Damage) -> Fault {
        match damage {
            Damage::Foreign => Fault::FileForeign,
            Damage::Truncated => Fault::FileTruncated,
            Damage::Corrupt => Fault::FileCorrupt,
        }
    }
}

impl Fault {
    /// All faults, in the order in which they are declared.
    pub const ALL: &[Fault] = Fault::VARIANTS;

    /// Returns the fault's name in the log, the status, the metrics and docs/cache.md.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns what happened, in one sentence for people: the variant's doc comment.
    pub fn meaning(self) -> &'static str {
        self.get_documentation().unwrap_or_default()
    }

    /// Returns the fault because of which a cache begins empty, if it is one.
    pub(super) fn of_fresh(fresh: Fresh) -> Option<Fault> {
        match fresh {
            Fresh::None => None,
            Fresh::Corrupt => Some(Fault::JournalCorrupt),
            Fresh::MachineStopped => Some(Fault::MachineStopped),
            Fresh::ClockWentBack => Some(Fault::ClockWentBack),
        }
    }

    /// Returns the fault for a failed write.
    pub(super) fn of_write(error: &io::Error) -> Fault {
        match error.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Fault::DiskFull,
            _ => Fault::DiskUnwritable,
        }
    }
}

/// How often each fault has occurred since the start.
#[derive(Debug)]
pub struct FaultCounters([AtomicU64; Fault::ALL.len()]);

impl Default for FaultCounters {
    fn default() -> Self {
        FaultCounters(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl FaultCounters {
    pub(super) fn add(&self, fault: Fault) {
        self.0[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the faults that have occurred, by name, each with its count.
    pub fn sums(&self) -> Vec<(String, u64)> {
        let all = Fault::ALL.iter().zip(&self.0);
        all.map(|(fault, n)| (fault.name().to_owned(), n.load(Ordering::Relaxed)))
            .filter(|(_, n)| *n > 0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_s_name_means_nothing_else_elsewhere() {
        let others = [
            include_str!("../../../../../docs/pools.md"),
            include_str!("../../../../../docs/failures.md"),
        ];
        for fault in Fault::ALL {
            let row = format!("`{}`", fault.name());
            let taken = others.iter().any(|text| text.contains(&row));
            assert!(!taken, "{row} is the name of something else");
        }
    }
}
