//! What has happened to requests outside of the server: the versions in the database, and the faults that excuse a
//! response other than the expected one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The number of boards: pages that are cached and show a version from the database.
pub const BOARDS: usize = 3;

/// What a child did to the request that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildFault {
    Died,
    Stalled,
}

/// The ledger of a simulation, which its participants share.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Entries>>);

/// The entries of the ledger.
#[derive(Default)]
pub struct Entries {
    /// The version of each board in the database.
    pub versions: [u64; BOARDS],
    /// The oldest version of each board that the response to a request which begins now may show: that of the latest
    /// write or purge whose response a client has received.
    pub confirmed: [u64; BOARDS],
    child_faults: Vec<(String, ChildFault)>,
    /// Whether a zygote has died. If so, the pool may have been down.
    pub zygote_died: bool,
    /// Whether a pool has been drained. If so, requests may have been ended at the limit of the drain.
    pub drained: bool,
    /// Whether there was a time in which no file could be written.
    pub disk_was_full: bool,
}

impl Ledger {
    pub fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Properties of a pool that decide which refusals are possible.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    pub queue_timeout: Duration,
    pub queue_size: u32,
    /// The largest number of requests that have waited at once.
    pub max_queue: u32,
}

impl Entries {
    /// Records a fault of the child that had the request with this key.
    pub fn add_child_fault(&mut self, key: &str, fault: ChildFault) {
        self.child_faults.push((key.to_owned(), fault));
    }

    /// Whether a child that had a request whose key begins with `key` has died or stalled.
    pub fn has_child_fault(&self, key: &str) -> bool {
        self.child_faults.iter().any(|(k, _)| k.starts_with(key))
    }

    fn has_fault(&self, key: &str, fault: ChildFault) -> bool {
        let mut faults = self.child_faults.iter();
        faults.any(|(k, f)| k.starts_with(key) && *f == fault)
    }

    /// Checks the failure with this name of a request that has waited this long.
    ///
    /// # Errors
    /// Nothing that has happened explains the failure.
    pub fn excuse(
        &self,
        name: &str,
        key: &str,
        waited: Duration,
        limits: &QueueLimits,
    ) -> Result<(), String> {
        let excused = match name {
            "ChildDied" => self.has_fault(key, ChildFault::Died),
            "TerminateTimeout" => self.has_fault(key, ChildFault::Stalled),
            "QueueFull" => limits.max_queue >= limits.queue_size,
            "QueueTimeout" => waited >= limits.queue_timeout,
            "Stopping" => self.drained,
            "SpillFull" => self.disk_was_full,
            "ZygoteDied" | "ZygoteRestarting" | "PoolDown" => self.zygote_died,
            _ => false,
        };
        match excused {
            true => Ok(()),
            false => Err(format!(
                "a request failed as {name} after {:.3} s, which nothing that has happened explains",
                waited.as_secs_f64()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_without_its_cause_is_not_excused() {
        let limits = QueueLimits {
            queue_timeout: Duration::from_secs(5),
            queue_size: 10,
            max_queue: 9,
        };
        let mut entries = Entries::default();
        let excuse = |entries: &Entries, name: &str, seconds| {
            let waited = Duration::from_secs(seconds);
            entries.excuse(name, "secret", waited, &limits).is_ok()
        };
        entries.add_child_fault("other-1", ChildFault::Died);
        entries.add_child_fault("secret-1", ChildFault::Stalled);
        assert!(!excuse(&entries, "ChildDied", 0));
        assert!(excuse(&entries, "TerminateTimeout", 0));
        assert!(!excuse(&entries, "QueueTimeout", 4) && excuse(&entries, "QueueTimeout", 5));
        assert!(!excuse(&entries, "QueueFull", 9) && !excuse(&entries, "Stopping", 9));
        entries.add_child_fault("secret-2", ChildFault::Died);
        entries.drained = true;
        assert!(excuse(&entries, "ChildDied", 0) && excuse(&entries, "Stopping", 0));
        assert!(!excuse(&entries, "ResponseCorrupt", 0));
    }
}
