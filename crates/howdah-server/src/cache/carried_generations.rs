//! What of the page cache outlives a configuration: the generations. After a reload the memory is
//! empty, but scripts that began before it run on, write and purge; pages made since must not be
//! older than that. So a site that keeps its name keeps its generations, in which both
//! configurations purge. Where it is not known which site a former run belongs to (another name,
//! the cache was off), all pages are invalidated when the last run has ended.
//!
//! Not here: sites with a disk, whose generations are the disk's (`howdah_cache::store::disk`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use howdah_cache::generation::{Force, Generations, Purge};

use super::PageCache;

/// The generations of all configurations of a process that are still in use, by the site's name.
#[derive(Debug, Default)]
pub struct CarriedGenerations(Mutex<HashMap<String, Weak<Generations>>>);

impl CarriedGenerations {
    /// The generations of a site: a former configuration's while something still uses it, else new
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
    /// The generations of every site that has the cache on.
    pub fn generations(&self) -> Vec<Arc<Generations>> {
        let sites = self.sites.iter().flatten();
        sites.map(|site| site.generations.clone()).collect()
    }

    /// Makes all pages of all sites old.
    pub fn invalidate_all(&self) {
        for generations in self.generations() {
            generations.purge(&Purge::All, Force::Hard);
        }
    }

    /// The last run of a former configuration, with these generations, has ended: whatever it wrote
    /// last, sites that do not share them have heard nothing of.
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
    fn a_site_has_one_generation_for_as_long_as_any_configuration_knows_it() {
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
