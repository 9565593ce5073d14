//! Pages in memory. They are bounded by bytes and evicted by S3-FIFO (quick_cache), so a crawler that requests every
//! page once does not evict the pages that people read. The variants of a URL are pages like any others; only the byte
//! limit bounds their number, so unusual variants cannot keep other pages out.
//!
//! With a disk below, pages stored here are also written there, pages found there are loaded into memory, and an
//! evicted page is written again if it has gained encoded forms.
//!
//! Keys are compared in full, so two URLs can never collide through a hash. The hash has a different seed in each
//! process, so no client can choose keys that collide.

use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quick_cache::sync::{Cache, EntryAction, GuardResult};
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use super::disk::DiskSites;
use super::disk::format::RecordContent;
use crate::Millis;
use crate::coalescer::{Coalescer, Join, Leader, RenderOutcome};
use crate::generation::Generations;
use crate::object::Object;
use crate::pass::Pass;
use crate::policy::PageState;

/// Maximum number of headers by which all responses of a URL together may vary.
const MAX_VARY_NAMES: usize = 16;

/// Returns the longest body that fits into a memory of `capacity` bytes: every stored page is in memory while it is
/// sent, once for all its readers.
pub fn max_body_bytes(capacity: u64) -> u64 {
    capacity / 2
}

/// The entry under a key.
#[derive(Clone, Debug)]
enum MemoryEntry {
    Page(Arc<Object>, PageWeight),
    Varies(Arc<Variants>),
}

/// The weight of a page when it was last counted, and the forms that had been made then. A page grows when a client
/// requests it encoded, and the amount subtracted from a sum must be the amount that was added.
#[derive(Clone, Copy, Debug)]
struct PageWeight {
    forms: u8,
    weight: u64,
}

impl PageWeight {
    fn of(page: &Object) -> PageWeight {
        // The forms are read before the bytes: a form that is made in between is missing in `forms`, so it is counted
        // again later.
        let forms = page.existing_forms();
        let weight = page.memory_bytes();
        PageWeight { forms, weight }
    }
}

impl MemoryEntry {
    fn of(page: Arc<Object>) -> MemoryEntry {
        let counted = PageWeight::of(&page);
        MemoryEntry::Page(page, counted)
    }
}

/// The headers by which a URL's responses vary.
#[derive(Debug)]
pub struct Variants {
    names: Vec<Vec<u8>>,
}

impl Variants {
    /// Returns the names of the headers, in lower case, sorted.
    pub fn names(&self) -> &[Vec<u8>] {
        &self.names
    }
}

#[derive(Clone, Debug)]
struct ByteWeighter;

impl Weighter<Box<[u8]>, MemoryEntry> for ByteWeighter {
    fn weight(&self, key: &Box<[u8]>, slot: &MemoryEntry) -> u64 {
        key.len() as u64
            + match slot {
                MemoryEntry::Page(_, counted) => counted.weight,
                MemoryEntry::Varies(variants) => {
                    variants.names.iter().map(Vec::len).sum::<usize>() as u64 + 512
                }
            }
    }
}

#[derive(Clone, Debug, Default)]
struct Evictions {
    count: Arc<AtomicU64>,
    disk: Option<Arc<DiskSites>>,
}

impl Lifecycle<Box<[u8]>, MemoryEntry> for Evictions {
    type RequestState = ();

    fn begin_request(&self) {}

    /// This is not `on_evict`, because that is also called for replaced entries.
    fn before_evict(&self, (): &mut (), key: &Box<[u8]>, slot: &mut MemoryEntry) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if let (Some(below), MemoryEntry::Page(page, _)) = (&self.disk, slot) {
            below.write(key, page);
        }
    }
}

/// The result of looking a key up in the store.
#[derive(Debug)]
pub enum PageLookup {
    /// A page and how it may be used.
    Page(Arc<Object>, PageState),
    /// The store has no page under this key.
    NotFound,
}

/// How full the store is, for the status page and the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Pages, and entries that list the headers by which the pages of a URL vary.
    pub entries: u64,
    /// Bytes that the entries use, with encoded forms estimated.
    pub bytes: u64,
    /// Maximum bytes of the entries.
    pub capacity: u64,
    /// Entries that were evicted to make room for others.
    pub evictions: u64,
}

/// The store of pages in memory, above the disk if there is one.
#[derive(Debug)]
pub struct MemoryStore {
    pages: Cache<Box<[u8]>, MemoryEntry, ByteWeighter, RandomState, Evictions>,
    evictions: Evictions,
    capacity: u64,
    disk: Option<Arc<DiskSites>>,
    /// The reads from disk in progress, so each file is read only once at a time.
    reads: Coalescer,
}

impl MemoryStore {
    /// Creates an empty store for at most `capacity` bytes; `largest` is the longest body that must fit.
    pub fn new(capacity: u64, largest: u64) -> MemoryStore {
        MemoryStore::with_disk(None, capacity, largest)
    }

    /// Does the same as [`MemoryStore::new`], above a disk.
    pub fn with_disk(below: Option<Arc<DiskSites>>, capacity: u64, largest: u64) -> MemoryStore {
        // The bytes are divided among the shards, and an object must fit into one.
        let shards = (capacity / (largest * 2).max(1)).clamp(1, 16) as usize;
        let options = OptionsBuilder::new()
            .estimated_items_capacity((capacity / 16_384).clamp(64, 1 << 20) as usize)
            .weight_capacity(capacity)
            .shards(shards)
            .build();
        let evictions = Evictions {
            disk: below.clone(),
            ..Evictions::default()
        };
        // All required options are set.
        let options = options.unwrap_or_else(|_| unreachable!("capacity and items are given"));
        MemoryStore {
            pages: Cache::with_options(
                options,
                ByteWeighter,
                RandomState::new(),
                evictions.clone(),
            ),
            evictions,
            capacity,
            disk: below,
            reads: Coalescer::default(),
        }
    }

    /// Returns the disk below, if there is one.
    pub fn disk(&self) -> Option<&DiskSites> {
        self.disk.as_deref()
    }

    /// Returns the headers by which the URL's responses vary, if any.
    pub fn variants(&self, key: &[u8]) -> Option<Arc<Variants>> {
        match self.pages.peek(key) {
            Some(MemoryEntry::Varies(variants)) => Some(variants),
            _ => None,
        }
    }

    /// Looks up the page under `key`, or under the variant key that `variant` makes for the given names. A purged page
    /// is removed.
    pub fn find(
        &self,
        key: &[u8],
        variant: impl FnOnce(&[Vec<u8>]) -> Vec<u8>,
        generations: &Generations,
        now: Millis,
    ) -> PageLookup {
        match self.pages.get(key) {
            Some(MemoryEntry::Page(page, counted)) => {
                self.recount(key, &page, counted);
                self.check_usable(key, page, generations, now)
            }
            Some(MemoryEntry::Varies(variants)) => {
                let key = variant(&variants.names);
                match self.pages.get(&key[..]) {
                    Some(MemoryEntry::Page(page, counted)) => {
                        self.recount(&key, &page, counted);
                        self.check_usable(&key, page, generations, now)
                    }
                    _ => PageLookup::NotFound,
                }
            }
            None => PageLookup::NotFound,
        }
    }

    /// Counts a page again if forms of it were made since the last count.
    fn recount(&self, key: &[u8], page: &Arc<Object>, counted: PageWeight) {
        if page.existing_forms() == counted.forms {
            return;
        }
        let key: Box<[u8]> = key.into();
        // Only the entry that is there now is changed, since another page may have been stored meanwhile.
        let _ = self.pages.entry(&key, Some(Duration::ZERO), |_, slot| {
            if let MemoryEntry::Page(there, counted) = slot
                && Arc::ptr_eq(there, page)
            {
                *counted = PageWeight::of(page);
            }
            EntryAction::Retain(())
        });
    }

    fn check_usable(
        &self,
        key: &[u8],
        page: Arc<Object>,
        generations: &Generations,
        now: Millis,
    ) -> PageLookup {
        match page.state(generations, now) {
            Some(state) => PageLookup::Page(page, state),
            None => {
                let same = |slot: &MemoryEntry| matches!(slot, MemoryEntry::Page(p, _) if Arc::ptr_eq(p, &page));
                self.pages.remove_if(key, same);
                PageLookup::NotFound
            }
        }
    }

    /// Does the same as [`MemoryStore::find`] on disk: a page found there is loaded into memory. All callers that need
    /// the same page wait for one read of its file. Call it when [`MemoryStore::find`] found nothing; it waits only if
    /// there may be a file.
    pub async fn find_on_disk(
        &self,
        key: &[u8],
        variant: impl Fn(&[Vec<u8>]) -> Vec<u8>,
        generations: &Generations,
        now: Millis,
    ) -> PageLookup {
        let Some(below) = &self.disk else {
            return PageLookup::NotFound;
        };
        // The second round is for the variant, once the variants are known; more are needed only if other variants are
        // stored meanwhile.
        for _ in 0..4 {
            let own = match self.variants(key) {
                Some(variants) => variant(&variants.names),
                None => key.to_vec(),
            };
            if !self.may_be_on_disk(&own, now) {
                return PageLookup::NotFound;
            }
            let outcome = match self.reads.join(&own) {
                Join::Follower(follower) => follower.wait().await,
                // A caller that read the file before has put the page into memory before it completed.
                Join::Leader(leader) => match self.pages.get(&own[..]) {
                    Some(there) => complete_read(there, leader),
                    None => {
                        let what = below.read(&own).await;
                        self.load(&own, what, leader)
                    }
                },
            };
            match outcome {
                RenderOutcome::Stored(page) => {
                    return self.check_usable(&own, page, generations, now);
                }
                RenderOutcome::Retry => {}
                RenderOutcome::Passed(_) => return PageLookup::NotFound,
            }
        }
        PageLookup::NotFound
    }

    /// Returns whether a request would search the disk for a key. A file that does not fit into memory (the limit may
    /// be lower than when the file was written) is not read, because each reader would have a copy.
    pub fn may_be_on_disk(&self, key: &[u8], now: Millis) -> bool {
        let below = self.disk.as_ref();
        below.is_some_and(|below| below.may_contain(key, now, self.capacity))
    }

    /// Puts the content of a file into memory, unless a newer entry is there.
    fn load(&self, own: &[u8], what: Option<RecordContent>, leader: Leader) -> RenderOutcome {
        let own: Box<[u8]> = own.into();
        let slot = match what {
            Some(RecordContent::Page(page))
                if page.body.len() as u64 > max_body_bytes(self.capacity) =>
            {
                return RenderOutcome::Passed(Pass::TooLarge);
            }
            Some(RecordContent::Page(page)) => MemoryEntry::of(Arc::from(page)),
            Some(RecordContent::Varies(names)) => MemoryEntry::Varies(Arc::new(Variants { names })),
            // The leader is dropped here, which wakes the followers.
            None => return RenderOutcome::Passed(Pass::FlightFailed),
        };
        let there = match self.pages.get_value_or_guard(&own, Some(Duration::ZERO)) {
            GuardResult::Value(newer) => newer,
            GuardResult::Guard(guard) => {
                // If there is no room at the moment, the response is still sent from what was read.
                let _ = guard.insert(slot.clone());
                slot
            }
            GuardResult::Timeout => slot,
        };
        complete_read(there, leader)
    }

    /// Stores a page that varies by `vary`, and returns it. `variant` makes the key from the names that count now:
    /// those of all of the URL's responses together, since a page that does not mention a header on which another
    /// variant depends says nothing about the others.
    pub fn store(
        &self,
        key: &[u8],
        vary: &[Vec<u8>],
        variant: impl FnOnce(&[Vec<u8>]) -> Vec<u8>,
        page: Object,
    ) -> Result<Arc<Object>, Pass> {
        let page = Arc::new(page);
        match self.add_vary_names(key, vary)? {
            Some(variants) => self.insert(&variant(&variants.names), &page),
            None => self.insert(key, &page),
        }
        Ok(page)
    }

    /// Returns the headers by which the URL's responses vary, together with `vary`; sorted.
    pub fn all_vary_names(&self, key: &[u8], vary: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let known = self.variants(key);
        let mut names = known.map_or_else(Vec::new, |known| known.names.clone());
        names.extend_from_slice(vary);
        names.sort();
        names.dedup();
        names
    }

    /// Notes that the URL's responses vary by these headers in addition to the known ones. Returns all of them, or
    /// `None` if the URL does not vary.
    pub fn add_vary_names(
        &self,
        key: &[u8],
        vary: &[Vec<u8>],
    ) -> Result<Option<Arc<Variants>>, Pass> {
        let known = self.variants(key);
        let knows = |known: &Arc<Variants>| vary.iter().all(|name| known.names.contains(name));
        if known.as_ref().map_or(vary.is_empty(), knows) {
            return Ok(known);
        }
        let names = self.all_vary_names(key, vary);
        if names.len() > MAX_VARY_NAMES {
            return Err(Pass::VaryUnbounded);
        }
        let variants = Arc::new(Variants { names });
        self.pages
            .insert(key.into(), MemoryEntry::Varies(variants.clone()));
        if let Some(below) = &self.disk {
            below.write_varies(key, &variants.names);
        }
        Ok(Some(variants))
    }

    fn insert(&self, key: &[u8], page: &Arc<Object>) {
        self.pages.insert(key.into(), MemoryEntry::of(page.clone()));
        if let Some(below) = &self.disk {
            below.write(key, page);
        }
    }

    /// Removes the entry under the key itself.
    pub fn remove(&self, key: &[u8]) {
        self.pages.remove(key);
    }

    /// Counts the pages for which `is` returns true. Iterates over all pages.
    pub fn count(&self, is: impl Fn(&Object) -> bool) -> usize {
        let slots = self.pages.iter();
        slots
            .filter(|(_, slot)| matches!(slot, MemoryEntry::Page(page, _) if is(page)))
            .count()
    }

    /// Returns the figures for the status page and the metrics.
    pub fn usage(&self) -> MemoryUsage {
        MemoryUsage {
            entries: self.pages.len() as u64,
            bytes: self.pages.weight(),
            capacity: self.capacity,
            evictions: self.evictions.count.load(Ordering::Relaxed),
        }
    }
}

/// Passes the entry in memory to all callers that wait for it.
fn complete_read(there: MemoryEntry, leader: Leader) -> RenderOutcome {
    let outcome = match there {
        MemoryEntry::Page(page, _) => RenderOutcome::Stored(page),
        MemoryEntry::Varies(_) => RenderOutcome::Retry,
    };
    leader.complete(outcome.clone());
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::{Force, Purge};
    use crate::object::ResponseForm;
    use crate::object::tests::page;

    fn no_variant(_: &[Vec<u8>]) -> Vec<u8> {
        panic!("this page does not vary")
    }

    fn body(found: PageLookup) -> Option<String> {
        match found {
            PageLookup::Page(page, _) => Some(String::from_utf8_lossy(&page.body).into_owned()),
            PageLookup::NotFound => None,
        }
    }

    #[test]
    fn page_is_found_until_it_is_purged() {
        let (memory, generations) = (MemoryStore::new(1 << 20, 1 << 16), Generations::default());
        assert_eq!(body(memory.find(b"k", no_variant, &generations, 1)), None);
        memory
            .store(b"k", &[], no_variant, page(&[], "text"))
            .unwrap();
        assert_eq!(
            body(memory.find(b"k", no_variant, &generations, 1)).unwrap(),
            "text"
        );
        assert_eq!(
            body(memory.find(b"other", no_variant, &generations, 1)),
            None
        );
        generations.purge(&Purge::Url(b"key".to_vec()), Force::Hard);
        assert_eq!(body(memory.find(b"k", no_variant, &generations, 1)), None);
        assert_eq!(memory.usage().entries, 0, "what was purged takes no room");
    }

    #[test]
    fn variants_are_found_by_their_values() {
        let (memory, generations) = (MemoryStore::new(1 << 20, 1 << 16), Generations::default());
        let key = |value: &'static str| {
            move |names: &[Vec<u8>]| [&b"k"[..], &names.concat(), value.as_bytes()].concat()
        };
        let vary = [b"foo".to_vec()];
        memory
            .store(b"k", &vary, key("1"), page(&[], "one"))
            .unwrap();
        memory
            .store(b"k", &vary, key("2"), page(&[], "two"))
            .unwrap();
        // A page that does not declare what it varies by is still stored as a variant.
        memory
            .store(b"k", &[], key("3"), page(&[], "three"))
            .unwrap();
        let look = |value| body(memory.find(b"k", key(value), &generations, 1));
        assert_eq!(look("1").unwrap(), "one");
        assert_eq!(look("2").unwrap(), "two");
        assert_eq!(look("3").unwrap(), "three");
        assert_eq!(look("4"), None);
        memory
            .store(b"k", &[b"bar".to_vec()], key("1"), page(&[], "new"))
            .unwrap();
        assert_eq!(
            memory.variants(b"k").unwrap().names(),
            [b"bar".to_vec(), b"foo".to_vec()]
        );
        assert_eq!(look("1").unwrap(), "new");
        assert_eq!(look("2"), None);
    }

    #[test]
    fn unread_variants_evict_each_other_and_not_the_read_one() {
        let (memory, generations) = (MemoryStore::new(100_000, 10_000), Generations::default());
        let keep = |value: String| {
            let key = move |_: &[Vec<u8>]| [b"k ", value.as_bytes()].concat();
            memory
                .store(b"k", &[b"foo".to_vec()], key, page(&[], "x"))
                .unwrap();
        };
        let look = || body(memory.find(b"k", |_| b"k read".to_vec(), &generations, 1));
        keep("read".to_owned());
        for n in 0..3000 {
            if n % 50 == 0 {
                assert_eq!(look().as_deref(), Some("x"), "after {n} others");
            }
            keep(n.to_string());
        }
        assert!(memory.usage().bytes <= 100_000);
    }

    #[test]
    fn encoded_forms_count_once_they_are_made() {
        let (memory, generations) = (MemoryStore::new(1 << 20, 1 << 16), Generations::default());
        memory.store(b"k", &[], no_variant, page(&[], "x")).unwrap();
        let before = memory.usage().bytes;
        let PageLookup::Page(there, _) = memory.find(b"k", no_variant, &generations, 1) else {
            panic!("it was kept");
        };
        there.form(1, || ResponseForm {
            head: Default::default(),
            body: vec![0; 5000].into(),
            encodable: true,
        });
        for _ in 0..2 {
            assert!(body(memory.find(b"k", no_variant, &generations, 1)).is_some());
            assert_eq!(memory.usage().bytes, before + 5000);
        }
        memory.remove(b"k");
        assert_eq!(memory.usage().bytes, 0);
    }

    #[test]
    fn url_with_too_many_vary_names_is_not_stored() {
        let memory = MemoryStore::new(1 << 20, 1 << 16);
        for n in 0..MAX_VARY_NAMES + 3 {
            let kept = memory.add_vary_names(b"k", &[n.to_string().into_bytes()]);
            let expected = (n >= MAX_VARY_NAMES).then_some(Pass::VaryUnbounded);
            assert_eq!(kept.err(), expected, "{n}");
        }
    }

    #[test]
    fn crawler_does_not_evict_pages_that_are_read() {
        let (memory, generations) = (MemoryStore::new(100_000, 10_000), Generations::default());
        for n in 0..10 {
            let key = format!("read{n}").into_bytes();
            memory.store(&key, &[], no_variant, page(&[], "x")).unwrap();
            for _ in 0..3 {
                assert!(body(memory.find(&key, no_variant, &generations, 1)).is_some());
            }
        }
        for n in 0..2000 {
            let key = format!("crawled{n}").into_bytes();
            memory.store(&key, &[], no_variant, page(&[], "x")).unwrap();
        }
        let usage = memory.usage();
        assert!(
            usage.bytes <= 100_000 && usage.evictions > 1500,
            "{usage:?}"
        );
        let left = (0..10)
            .filter(|n| {
                let key = format!("read{n}").into_bytes();
                body(memory.find(&key, no_variant, &generations, 1)).is_some()
            })
            .count();
        assert!(left >= 8, "{left} of 10 pages that are read were left");
    }
}
