//! The generations of the page cache, which outlive a configuration. After a reload the memory is empty, but scripts
//! that began before it continue to run, write and purge, and the writes must invalidate the pages of the new
//! configuration as well. A site that keeps its name therefore keeps its generations, and purges under either
//! configuration apply to them. If it is unknown which site a former run belongs to, because the site was renamed or
//! had the cache off, all pages are invalidated when the last such run has ended.
//!
//! Sites with a disk are not covered here; their generations are the disk's (`howdah_cache::store::disk`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use howdah_cache::generation::{Force, Generations, Purge};

use super::PageCache;

/// The generations of all configurations of a process that are still in use, by the name of the site.
#[derive(Debug, Default)]
pub struct CarriedGenerations(Mutex<HashMap<String, Weak<Generations>>>);

impl CarriedGenerations {
    /// Returns the generations of a site: those of a former configuration while something still uses them, else new
    /// ones.
    pub(super) fn generations(&self, site: &str) -> Arc<Generations> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, generations| generations.strong_count() > 0);
        if let Some(live) = known.get(site).and_then(Weak::upgrade) {
            return live;
        }
        let new = Arc::default();
        known.insert(site.to_owned(), Arc::downgrade(&new));
        new
    }
}

impl PageCache {
    /// Returns the generations of every site that has the cache on.
    pub fn generations(&self) -> Vec<Arc<Generations>> {
        let sites = self.sites.iter().flatten();
        sites.map(|site| site.generations.clone()).collect()
    }

    /// Invalidates all pages of all sites.
    pub fn invalidate_all(&self) {
        for generations in self.generations() {
            generations.purge(&Purge::All, Force::Hard);
        }
    }

    /// Invalidates the pages of all sites whose generations are not among `former`. It is called after the last run of
    /// the configuration with the generations `former` has ended, because the other sites were not notified of that
    /// configuration's last writes.
    pub fn retire_generations(&self, former: &[Arc<Generations>]) {
        for own in self.generations() {
            if !former.iter().any(|theirs| Arc::ptr_eq(theirs, &own)) {
                own.purge(&Purge::All, Force::Hard);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carried_generations_are_shared_while_any_configuration_uses_them() {
        let all = CarriedGenerations::default();
        let first = all.generations("a");
        first.purge(&Purge::All, Force::Hard);
        assert!(Arc::ptr_eq(&first, &all.generations("a")));
        assert!(!Arc::ptr_eq(&first, &all.generations("b")));
        let last = first.now();
        drop(first);
        assert!(all.generations("a").now() < last, "nobody knew it any more");
    }
}
