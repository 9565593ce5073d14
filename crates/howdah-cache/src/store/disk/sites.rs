//! The disk as one configuration sees it: keys begin with the number that a site has in that configuration.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::fault::DiskFault;
use super::format::{Owner, RecordContent};
use super::write_job::WriteJob;
use super::{DiskStore, MAX_WAITING_BYTES, reader};
use crate::Millis;
use crate::generation::{Generations, without_site};
use crate::object::Object;

/// The disk store under the site numbers of one configuration.
#[derive(Debug)]
pub struct DiskSites {
    disk: Arc<DiskStore>,
    /// The identity of each site on disk, and its generations, by the site's number; `None` if its pages are not kept.
    sites: Vec<Option<(Owner, Arc<Generations>)>>,
}

impl DiskSites {
    /// Keeps only the pages of these sites from now on; see [`DiskStore::begin`]. `None` is a site whose pages are not
    /// kept.
    pub fn new(disk: Arc<DiskStore>, owners: &[Option<Owner>]) -> DiskSites {
        let known: Vec<Owner> = owners.iter().copied().flatten().collect();
        let mut generations = disk.begin(&known).into_iter();
        let sites = owners
            .iter()
            .map(|owner| Some(((*owner)?, generations.next()?)))
            .collect();
        DiskSites { disk, sites }
    }

    /// Returns the store that all configurations of the process share.
    pub fn disk(&self) -> &Arc<DiskStore> {
        &self.disk
    }

    /// Returns a site's generations, whose purges are recorded.
    pub fn generations(&self, site: u32) -> Option<&Arc<Generations>> {
        let (_, generations) = self.sites.get(site as usize)?.as_ref()?;
        Some(generations)
    }

    fn site(&self, key: &[u8]) -> Option<&(Owner, Arc<Generations>)> {
        let number = u32::from_le_bytes(*key.first_chunk()?);
        self.sites.get(number as usize)?.as_ref()
    }

    /// Queues a page to be written to disk, unless all of its forms are already there.
    pub fn write(&self, key: &[u8], page: &Arc<Object>) {
        let Some((owner, _)) = self.site(key) else {
            return;
        };
        if !page.disk_lacks(page.existing_forms()) {
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
        // A page that exceeds the limit by itself is written when no other page waits.
        let too_long = waiting > 0 && waiting + bytes > MAX_WAITING_BYTES;
        if too_long || !shared.send_order(order) {
            shared.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            shared.report_fault(DiskFault::DiskBusy, || match too_long {
                true => format!("{} MB of pages wait to be written", waiting >> 20),
                false => "too many write jobs wait".to_owned(),
            });
        }
    }

    /// Orders the writer to store the names of the headers by which a URL's pages vary.
    pub fn write_varies(&self, key: &[u8], names: &[Vec<u8>]) {
        let Some((owner, _)) = self.site(key) else {
            return;
        };
        let order = WriteJob::Varies {
            owner: *owner,
            key: without_site(key).to_vec(),
            names: names.to_vec(),
        };
        if !self.disk.shared.send_order(order) {
            self.disk.shared.report_fault(DiskFault::DiskBusy, || {
                "too many write jobs wait".to_owned()
            });
        }
    }

    /// Returns whether reading is worthwhile, without touching a file. A file that uses more than `longest` bytes is
    /// not read.
    pub fn may_contain(&self, key: &[u8], now: Millis, longest: u64) -> bool {
        let Some((owner, generations)) = self.site(key) else {
            return false;
        };
        let shared = &self.disk.shared;
        let name = shared.file_name(owner, without_site(key));
        // This is read before the index: if the scan is complete and the index then lacks the file, the file did not
        // exist.
        let looked_through = shared.is_scanned.load(Ordering::Acquire);
        match shared.index.get(name) {
            Some(entry) => {
                !entry
                    .born
                    .is_some_and(|born| generations.all_purged_since(born))
                    && entry.expires_at > now
                    && entry.bytes <= longest
            }
            None => !looked_through,
        }
    }

    /// Reads the page under a key from disk and verifies every byte of it.
    pub async fn read(&self, key: &[u8]) -> Option<RecordContent> {
        let (owner, _) = self.site(key)?;
        let shared = &self.disk.shared;
        let own = without_site(key);
        let mut what = reader::queue_read(shared, *owner, own.to_vec())?
            .await
            .ok()??;
        if let RecordContent::Page(page) = &mut what {
            shared.hits.fetch_add(1, Ordering::Relaxed);
            let number = &key[..key.len() - own.len()];
            page.url_key = [number, &page.url_key].concat();
            page.mark_on_disk(page.existing_forms());
        }
        Some(what)
    }
}
