//! The disk as one configuration sees it: by keys that begin with the number a site has there.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::fault::Fault;
use super::format::{Owner, What};
use super::job::WriteJob;
use super::{Disk, WAITING, reader};
use crate::Millis;
use crate::generation::{Generations, without_site};
use crate::object::Object;

/// The disk store under the site numbers of one configuration.
#[derive(Debug)]
pub struct DiskSites {
    disk: Arc<Disk>,
    /// What identifies each site on disk, and its generations, by the site's number; none: its pages
    /// are not kept.
    sites: Vec<Option<(Owner, Arc<Generations>)>>,
}

impl DiskSites {
    /// Begins with these sites; see [`Disk::begin`]. None: a site whose pages are not kept.
    pub fn new(disk: Arc<Disk>, owners: &[Option<Owner>]) -> DiskSites {
        let known: Vec<Owner> = owners.iter().copied().flatten().collect();
        let mut generations = disk.begin(&known).into_iter();
        let sites = owners
            .iter()
            .map(|owner| Some(((*owner)?, generations.next()?)))
            .collect();
        DiskSites { disk, sites }
    }

    /// The store that all configurations of the process share.
    pub fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// A site's generations, which are written down.
    pub fn generations(&self, site: u32) -> Option<&Arc<Generations>> {
        let (_, generations) = self.sites.get(site as usize)?.as_ref()?;
        Some(generations)
    }

    fn site(&self, key: &[u8]) -> Option<&(Owner, Arc<Generations>)> {
        let number = u32::from_le_bytes(*key.first_chunk()?);
        self.sites.get(number as usize)?.as_ref()
    }

    /// Has a page written, if the disk lacks it or a form of it.
    pub fn write(&self, key: &[u8], page: &Arc<Object>) {
        let Some((owner, _)) = self.site(key) else {
            return;
        };
        if !page.disk_lacks(page.forms_made()) {
            return;
        }
        let shared = &self.disk.shared;
        let bytes = page.body.len() as u64;
        let waiting = shared.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let order = WriteJob::Page {
            owner: *owner,
            key: key.into(),
            page: page.clone(),
        };
        // A longer one than may wait goes alone.
        let too_long = waiting > 0 && waiting + bytes > WAITING;
        if too_long || !shared.order(order) {
            shared.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            shared.fault(Fault::DiskBusy, || match too_long {
                true => format!("{} MB of pages wait to be written", waiting >> 20),
                false => "too many orders wait".to_owned(),
            });
        }
    }

    /// Has the names written that a URL's pages vary by.
    pub fn write_varies(&self, key: &[u8], names: &[Vec<u8>]) {
        let Some((owner, _)) = self.site(key) else {
            return;
        };
        let order = WriteJob::Varies {
            owner: *owner,
            key: without_site(key).to_vec(),
            names: names.to_vec(),
        };
        if !self.disk.shared.order(order) {
            self.disk
                .shared
                .fault(Fault::DiskBusy, || "too many orders wait".to_owned());
        }
    }

    /// Whether it is worth the while to read: no file is touched to know. One that takes more than
    /// `longest` bytes is not.
    pub fn may_have(&self, key: &[u8], now: Millis, longest: u64) -> bool {
        let Some((owner, generations)) = self.site(key) else {
            return false;
        };
        let shared = &self.disk.shared;
        let name = shared.name(owner, without_site(key));
        // Asked first: what the index lacks after that was not there.
        let looked_through = shared.looked_through.load(Ordering::Acquire);
        match shared.index.get(name) {
            Some(entry) => {
                !entry
                    .born
                    .is_some_and(|born| generations.are_all_gone(born))
                    && entry.useless_at > now
                    && entry.bytes <= longest
            }
            None => !looked_through,
        }
    }

    /// What is on disk under a key, every byte of it verified.
    pub async fn read(&self, key: &[u8]) -> Option<What> {
        let (owner, _) = self.site(key)?;
        let shared = &self.disk.shared;
        let own = without_site(key);
        let mut what = reader::ask(shared, *owner, own.to_vec())?.await.ok()??;
        if let What::Page(page) = &mut what {
            shared.hits.fetch_add(1, Ordering::Relaxed);
            let number = &key[..key.len() - own.len()];
            page.url_key = [number, &page.url_key].concat();
            page.is_on_disk(page.forms_made());
        }
        Some(what)
    }
}
