//! The page cache in the server: connects the policy and the stores of `howdah-cache` to requests and runs. Whether a
//! page may be stored is decided by the policy, not here.
//!
//! - [`candidate`]: learns from a visitor's own response whether its page could be stored; [`fitness`]: whether any
//!   page of a site can.
//! - [`body_collector`]: collects a body.
//! - [`vendor_headers`]: cache instructions in headers of other vendors.
//! - [`disk`]: the owners of pages on disk.
//! - [`lookup`]: looks up a page before the script runs, or says why the cache is bypassed.
//! - [`private_page`]: responses that are stored for their own visitor alone; [`visitor_effects`]: when they are
//!   forgotten.
//! - [`purge_protocol`]: purge requests over HTTP, and who may send them.
//! - [`send`]: sends a stored page as a response.
//! - [`render`]: renders a page for the cache, with a request that the server makes itself.
//! - [`judge`]: a head as the policy reads it; [`subrequest`]: the requests that the server makes itself.
//! - [`admin`]: purges for an administrator; [`explain`]: explanations.
//! - [`carried_generations`]: what a reload hands over.
//! - [`tee`]: copies a visitor's own response while it is sent (`cache = rfc`).
//! - [`run_effects`]: the side effects of a run; [`reasons`]: a record of them for administrators.
//! - [`checks`]: compares stored pages with the application's current responses.
//! - [`fleet`]: several servers with one page cache.
//! - [`successor`]: two processes during an upgrade.
//! - [`shared_renders`]: one render of a page for all members of a fleet.
//! - [`write`]: what a write, or a purge, invalidates.
//!
//! Each configuration has a [`PageCache`] of its own: a reload, which may bring new code, begins with an empty memory
//! and keeps the sites' generations. The disk store is shared by all configurations of a process; a reload empties it
//! as well.

pub mod admin;
mod body_collector;
pub mod candidate;
pub mod carried_generations;
pub mod checks;
mod disk;
pub(crate) mod explain;
pub mod fitness;
pub mod fleet;
pub mod judge;
pub mod lookup;
pub mod private_page;
pub mod purge_protocol;
pub mod reasons;
pub mod render;
pub mod run_effects;
pub mod send;
mod shared_renders;
pub mod subrequest;
pub mod successor;
pub mod tee;
pub mod vendor_headers;
pub mod visitor_effects;
pub mod write;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use howdah_cache::admission::Admission;
pub use howdah_cache::esi::{EsiPath, EsiRules};
use howdah_cache::generation::{Force, Generations, Purge};
use howdah_cache::key::PageKey;
use howdah_cache::pass::PassCounters;
pub use howdah_cache::policy::{CacheRules, CacheScheme, PrivateRules};
pub use howdah_cache::preset::{PRESETS, Preset};
use howdah_cache::status::CacheVerdict;
pub use howdah_cache::store::disk as disk_store;
use howdah_cache::store::disk::{DiskSites, DiskStore};
use howdah_cache::store::{MemoryStore, PrivateStore};
use howdah_cache::{Millis, coalescer::Coalescer};
use howdah_fleet::{Fleet, FleetStatus};
use howdah_os::clock;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use carried_generations::CarriedGenerations;
pub use disk::DiskStatus;
use shared_renders::SharedRenders;
use successor::Successor;

pub use howdah_site::cache_config::CacheConfig;
use howdah_site::encoding::EncodingConfig;
use howdah_site::sharded_counter::ShardedCounter;
use howdah_site::site::{Site, Sites};

/// After this many renders in a row that were not stored, a render is tried only when their number is a power of two:
/// 16, 32, 64, 128 …
const TRY_RARELY_AFTER: u32 = 16;

/// The page cache of one site: its configuration, purges and counters.
#[derive(Debug)]
pub struct SiteCache {
    /// The site's configuration of the cache.
    pub config: CacheConfig,
    /// The site's generations, which all configurations of the process that have the site share.
    pub generations: Arc<Generations>,
    // Every hit of every thread is counted here, so the counter must not share a cache line with the fields that all
    // threads read.
    hits: ShardedCounter,
    stale: AtomicU64,
    stored: AtomicU64,
    private_hits: AtomicU64,
    private_stored: AtomicU64,
    passes: PassCounters,
    /// The fleet that this server is a member of.
    fleet: Option<Arc<Fleet>>,
    /// The process that takes over during an upgrade.
    successor: Arc<Successor>,
    /// The renders that the fleet's members share, if they do.
    shared_renders: Option<SharedRenders>,
    /// The generation at which this configuration started.
    first_generation: u64,
    /// The number of changes of `.htaccess` files that had been counted when the stored pages were made.
    htaccess_changes: AtomicU64,
    /// The number of renders for the cache, in a row, that were not stored or not tried.
    unstored_renders: AtomicU32,
    /// The number of administrators' purges. Knowledge about pages from before the last purge no longer counts.
    epoch: AtomicU64,
    /// Whether visitors' own responses could be stored.
    pub fitness: fitness::Fitness,
    /// Why pages were not stored, and which writes invalidated pages, for `howdah cache explain`.
    pub reasons: reasons::CacheReasons,
    /// Comparisons of stored pages with the application's current responses.
    pub checks: checks::CacheChecks,
}

impl SiteCache {
    /// Purges all pages if `.htaccess` files have changed since the last call, because each page has headers that they
    /// set. Returns whether it has done so. `changes` is `None` if it is unknown whether the files have changed.
    pub fn purge_if_htaccess_changed(&self, changes: Option<u64>) -> bool {
        let Some(changes) = changes else { return false };
        if self.htaccess_changes.swap(changes, Ordering::Relaxed) == changes {
            return false;
        }
        self.generations.purge(&Purge::All, Force::Hard);
        true
    }

    fn new(config: CacheConfig) -> SiteCache {
        SiteCache {
            htaccess_changes: AtomicU64::new(0),
            config,
            fleet: None,
            successor: Arc::default(),
            shared_renders: None,
            first_generation: 1,
            generations: Arc::default(),
            hits: ShardedCounter::default(),
            stale: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            private_hits: AtomicU64::new(0),
            private_stored: AtomicU64::new(0),
            passes: PassCounters::default(),
            unstored_renders: AtomicU32::new(0),
            epoch: AtomicU64::new(0),
            fitness: fitness::Fitness::default(),
            reasons: reasons::CacheReasons::default(),
            checks: checks::CacheChecks::default(),
        }
    }

    /// Returns the site's settings for the cache policy.
    pub fn rules(&self) -> &CacheRules {
        &self.config.rules
    }

    /// Counts the result of a request.
    pub fn count(&self, verdict: CacheVerdict) {
        match verdict {
            CacheVerdict::Hit { ttl } if ttl < 0 => &self.stale,
            CacheVerdict::Hit { .. } => return self.hits.increment(),
            CacheVerdict::Stored { .. } | CacheVerdict::Validated => &self.stored,
            CacheVerdict::PrivateHit { .. } => &self.private_hits,
            CacheVerdict::PrivateStored => &self.private_stored,
            CacheVerdict::Pass(why) => return self.passes.add(why),
        }
        .fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether a render for the cache should be tried. Without this limit, each page of an application that
    /// responds to clean requests differently than to visitors would be rendered once in vain.
    pub(crate) fn should_try_render(&self) -> bool {
        let unstored = self.unstored_renders.load(Ordering::Relaxed);
        unstored < TRY_RARELY_AFTER
            || self
                .unstored_renders
                .fetch_add(1, Ordering::Relaxed)
                .is_power_of_two()
    }

    /// Returns the number of administrators' purges so far. [`Admission`] uses only what it learnt since the last of
    /// them.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Purges a page after a response that shows that the page no longer exists, or that it may no longer be shared.
    pub(crate) fn purge_url(&self, key: &PageKey) {
        let url = Purge::Url(key.as_bytes().to_vec());
        self.generations.purge(&url, Force::Hard);
    }

    /// Carries out an administrator's purge. It may follow a deployment, so pages that could not be stored are tried
    /// again.
    pub(crate) fn purge(&self, what: &Purge, force: Force) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        self.unstored_renders.store(0, Ordering::Relaxed);
        self.generations.purge(what, force);
    }

    /// Returns how many of a thousand requests were served from the store.
    fn hit_permille(&self) -> u64 {
        let n = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let hits = self.hits.sum() + n(&self.stale) + n(&self.private_hits);
        let passes: u64 = self.passes.counts().iter().map(|(_, n)| n).sum();
        let stored = n(&self.stored) + n(&self.private_stored);
        (hits * 1000)
            .checked_div(hits + stored + passes)
            .unwrap_or(0)
    }

    fn record_render(&self, stored: bool) {
        if stored {
            self.unstored_renders.store(0, Ordering::Relaxed);
        } else {
            self.unstored_renders.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The page cache of a configuration.
#[derive(Debug)]
pub struct PageCache {
    /// The store of pages in memory, with the disk below it if there is one.
    pub memory: MemoryStore,
    /// The pages that are stored for single visitors.
    pub private: PrivatePages,
    /// The renders in progress, so that each page is rendered once at a time.
    pub coalescer: Coalescer,
    /// Decides which pages are rendered, by the responses that visitors got.
    pub admission: Admission,
    /// The permits of background renders, for which no request waits.
    pub(crate) background: Arc<Semaphore>,
    /// What the page caches of all configurations share.
    process: Arc<CacheProcessState>,
    /// The status of a disk store that is configured but could not be opened.
    closed_disk: Option<DiskStatus>,
    /// The cache of each site, by the site's number; `None` for a site with `cache = off`.
    sites: Vec<Option<SiteCache>>,
}

/// The private pages of a configuration.
#[derive(Debug)]
pub struct PrivatePages {
    /// The store, which all configurations share, because a run of a former configuration may still write what the pages
    /// of the current one show.
    pub store: Arc<PrivateStore>,
    /// The number of the configuration, which is part of its keys.
    pub configuration: u64,
}

/// What the page caches of all configurations of a process share.
#[derive(Debug, Default)]
pub struct CacheProcessState {
    /// What a configuration hands over to the next one.
    pub carried_generations: CarriedGenerations,
    /// The pages that are stored for single visitors.
    pub private: Arc<PrivateStore>,
    /// `[fleet]`: the fleet that this server is a member of.
    pub fleet: Option<Arc<Fleet>>,
    /// The process that takes over during an upgrade.
    pub successor: Arc<Successor>,
}

/// The store of pages on disk of a configuration that has one (`cache.path`).
#[derive(Clone, Debug)]
pub enum CacheDiskState {
    /// The open store.
    Open(Arc<DiskStore>),
    /// The status of a store that could not be opened.
    Closed(DiskStatus),
}

impl CacheDiskState {
    /// Returns the store if it is open.
    pub fn store(&self) -> Option<&Arc<DiskStore>> {
        match self {
            CacheDiskState::Open(store) => Some(store),
            CacheDiskState::Closed(_) => None,
        }
    }
}

/// The settings of the page cache that do not belong to a site.
#[derive(Clone, Copy)]
pub struct PageCacheConfig<'c> {
    /// `cache.memory`: the maximum size of the pages in memory, in bytes.
    pub memory: u64,
    /// `cache.path`: the store of pages on disk, if one is configured.
    pub disk: Option<&'c CacheDiskState>,
    /// `[fleet] release`: the version of the sites' code; members with the same release share renders.
    pub release: Option<&'c Arc<str>>,
    /// `[compression]`: determines the encoded forms of pages.
    pub encoding: &'c EncodingConfig,
}

/// Returns how much of `cache.memory` private pages may use: a quarter, if any site stores them.
fn private_share(memory: u64, sites: &Sites, process: &CacheProcessState) -> u64 {
    let mut configured = sites
        .all()
        .iter()
        .filter_map(|site| site.config().cache.as_ref());
    match configured.any(|config| stores_private_pages(config, process)) {
        true => memory / 4,
        false => 0,
    }
}

/// Returns whether a site stores private pages. A dry run serves none, and the members of a fleet store none, because no
/// member would be told what a visitor writes on another one.
fn stores_private_pages(config: &CacheConfig, process: &CacheProcessState) -> bool {
    config.rules.private.is_some() && !config.dry_run && process.fleet.is_none()
}

/// Returns the longest body that a cache with this much memory stores, in bytes: one page must not evict most others,
/// and pages that are read from disk have to fit.
fn max_body_bytes(memory: u64) -> u64 {
    const USUAL: u64 = 8 << 20;
    (memory / 16)
        .max(USUAL)
        .min(howdah_cache::store::memory::max_body_bytes(memory))
}

impl PageCache {
    /// Returns the cache of these sites; `None` if all have it off.
    pub fn new(
        sites: &Sites,
        config: PageCacheConfig<'_>,
        process: &Arc<CacheProcessState>,
    ) -> Option<PageCache> {
        let PageCacheConfig {
            memory,
            disk,
            release,
            encoding,
        } = config;
        let closed_disk = match disk {
            Some(CacheDiskState::Closed(status)) => Some(status.clone()),
            Some(CacheDiskState::Open(_)) | None => None,
        };
        let disk = disk.and_then(CacheDiskState::store).map(|disk| {
            let owners = disk::owners(sites, encoding);
            Arc::new(DiskSites::new(disk.clone(), &owners))
        });
        let private = private_share(memory, sites, process);
        let memory = memory - private;
        let longest = max_body_bytes(memory);
        let within = |mut config: CacheConfig| {
            config.rules.max_object = longest;
            if !stores_private_pages(&config, process) {
                config.rules.private = None;
            }
            SiteCache::new(config)
        };
        let mut parts: Vec<_> = sites
            .all()
            .iter()
            .map(|site| site.config().cache.clone().map(within))
            .collect();
        for (part, site) in parts.iter_mut().zip(sites.all()) {
            let written = disk.as_ref().and_then(|d| d.generations(site.number()));
            if let Some(part) = part {
                part.generations = match written {
                    Some(generations) => generations.clone(),
                    None => process.carried_generations.generations(&site.config().name),
                };
                part.successor = process.successor.clone();
                part.join_fleet(&site.config().name, process.fleet.as_ref());
                if let Some(fleet) = &process.fleet {
                    let owner = disk::owner(site, encoding);
                    let generations = &part.generations;
                    part.shared_renders = SharedRenders::new(fleet, release, owner, generations);
                }
                part.first_generation = part.generations.now();
            }
        }
        parts.iter().flatten().next()?;
        Some(PageCache {
            process: process.clone(),
            closed_disk,
            memory: MemoryStore::with_disk(disk, memory, longest),
            private: PrivatePages {
                store: process.private.clone(),
                configuration: process.private.begin_configuration(private),
            },
            coalescer: Coalescer::default(),
            admission: Admission::default(),
            background: Arc::new(Semaphore::new(max_background_renders())),
            sites: parts,
        })
    }

    /// Returns the cache of a site that has it on.
    pub fn site(&self, site: &Site) -> Option<&SiteCache> {
        self.site_by_number(site.number())
    }

    /// Returns the cache of the site with this number.
    pub fn site_by_number(&self, number: u32) -> Option<&SiteCache> {
        self.sites.get(number as usize)?.as_ref()
    }

    /// Returns the cache's part of the status page and the metrics.
    pub fn status(&self, sites: &Sites) -> CacheStatus {
        let usage = self.memory.usage();
        let private = self.private.store.usage();
        let each = sites.all().iter().zip(&self.sites);
        CacheStatus {
            entries: usage.entries,
            bytes: usage.bytes,
            capacity: usage.capacity,
            evictions: usage.evictions,
            private: (private.capacity > 0).then_some(PrivateStatus {
                pages: private.pages,
                bytes: private.bytes,
                capacity: private.capacity,
                evictions: private.evictions,
            }),
            fleet: self.process.fleet.as_ref().map(|fleet| fleet.status()),
            disk: match self.memory.disk() {
                Some(disk) => Some(disk.disk().usage().into()),
                None => self.closed_disk.clone(),
            },
            sites: each
                .filter_map(|(site, cache)| Some((site, cache.as_ref()?)))
                .map(|(site, cache)| SiteCacheStatus {
                    site: site.config().name.clone(),
                    hits: cache.hits.sum(),
                    stale: cache.stale.load(Ordering::Relaxed),
                    stored: cache.stored.load(Ordering::Relaxed),
                    private_hits: cache.private_hits.load(Ordering::Relaxed),
                    private_stored: cache.private_stored.load(Ordering::Relaxed),
                    purges: cache.generations.now() - cache.first_generation,
                    passes: cache.passes.counts(),
                    hit_permille: cache.hit_permille(),
                    dry_run: cache.config.dry_run,
                    shadow: cache.config.shadow,
                    fitness: cache.fitness.status(),
                    cookies: cache.reasons.cookies(),
                    checks: cache.checks.status(),
                })
                .collect(),
        }
    }
}

/// The page cache at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheStatus {
    /// Pages and variants in memory.
    pub entries: u64,
    /// The size of these entries in bytes; the size of encoded forms is estimated.
    pub bytes: u64,
    /// `cache.memory`: the maximum size of the pages in memory, in bytes.
    pub capacity: u64,
    /// Pages evicted to make room for others.
    pub evictions: u64,
    /// The pages of single visitors, if any site stores them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private: Option<PrivateStatus>,
    /// The disk store, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskStatus>,
    /// The fleet that this server is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetStatus>,
    /// The sites that have the cache on.
    pub sites: Vec<SiteCacheStatus>,
}

/// The private pages of all sites at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateStatus {
    /// The number of pages.
    pub pages: u64,
    /// The bytes that the pages use at most, with their encoded forms.
    pub bytes: u64,
    /// The maximum of these bytes: a quarter of `cache.memory`.
    pub capacity: u64,
    /// Pages that were evicted to make room for others.
    pub evictions: u64,
}

/// The page cache of one site at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteCacheStatus {
    /// The site's name.
    pub site: String,
    /// Requests for which a fresh page was served.
    pub hits: u64,
    /// Requests for which a page was served after its lifetime, within its grace period.
    pub stale: u64,
    /// Requests that were answered by a render that was stored.
    pub stored: u64,
    /// Requests for which a page of the visitor's own was served.
    #[serde(default)]
    pub private_hits: u64,
    /// Responses that were stored for their visitor alone.
    #[serde(default)]
    pub private_stored: u64,
    /// Purges of the site's pages, and writes that invalidated them.
    pub purges: u64,
    /// Requests that bypassed the cache, by reason.
    pub passes: Vec<(String, u64)>,
    /// How many of a thousand requests were served from the store.
    pub hit_permille: u64,
    /// Whether the site has `cache = "dry-run"`.
    pub dry_run: bool,
    /// `cache_shadow`: one hit in this many is checked by a fresh render; 0 for none.
    pub shadow: u64,
    /// Whether visitors' own responses could have been stored.
    #[serde(default)]
    pub fitness: fitness::FitnessStatus,
    /// The most frequent unknown cookies that made requests bypass the cache, with their approximate counts.
    #[serde(default)]
    pub cookies: Vec<(String, u64)>,
    /// Comparisons of stored pages with the application's current responses.
    pub checks: checks::ChecksStatus,
}

/// Returns the maximum number of background renders: as many as can run at once, so no visitor's request waits for more
/// than one of them.
fn max_background_renders() -> usize {
    std::thread::available_parallelism().map_or(2, NonZeroUsize::get)
}

/// A header: name and value.
pub type OwnedHeader = (Vec<u8>, Vec<u8>);

/// Returns the time of the cache's clock.
pub fn now() -> Millis {
    static START: OnceLock<Instant> = OnceLock::new();
    static CLOCK: SteadyClock = SteadyClock(AtomicU64::new(0));
    let since = clock::wall().duration_since(SystemTime::UNIX_EPOCH);
    let wall = since.map_or(0, |since| since.as_millis() as Millis);
    CLOCK.read(
        wall,
        clock::now()
            .duration_since(*START.get_or_init(clock::now))
            .as_millis() as Millis,
    )
}

/// A wall clock that never goes backwards: stored pages would otherwise become younger. The value is the largest
/// difference seen between the wall clock and a monotonic one.
#[derive(Debug)]
struct SteadyClock(AtomicU64);

impl SteadyClock {
    fn read(&self, wall: Millis, steady: Millis) -> Millis {
        let distance = wall.saturating_sub(steady);
        let mut largest = self.0.load(Ordering::Relaxed);
        if distance > largest {
            largest = self.0.fetch_max(distance, Ordering::Relaxed).max(distance);
        }
        largest + steady
    }
}

/// Returns the headers of a response in the form that the policy reads.
pub(crate) fn header_slices(head: &[OwnedHeader]) -> Vec<(&[u8], &[u8])> {
    head.iter().map(|(n, v)| (&n[..], &v[..])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_clock_ignores_steps_back_and_follows_steps_forward() {
        let clock = SteadyClock(AtomicU64::new(0));
        assert_eq!(clock.read(1_000_000, 0), 1_000_000);
        assert_eq!(clock.read(1_000_500, 500), 1_000_500);
        assert_eq!(clock.read(400_000, 1000), 1_001_000);
        assert_eq!(clock.read(5_000_000, 2000), 5_000_000);
        assert_eq!(clock.read(1_003_000, 3000), 5_001_000);
    }

    #[test]
    fn renders_are_tried_rarely_while_nothing_is_stored() {
        let site = SiteCache::new(CacheConfig::default());
        for _ in 0..TRY_RARELY_AFTER {
            assert!(site.should_try_render());
            site.record_render(false);
        }
        let tried = (16..=1024).filter(|_| site.should_try_render()).count();
        assert_eq!(tried, 7);
        site.purge(&Purge::All, Force::Hard);
        assert!(site.should_try_render());
        site.unstored_renders
            .store(TRY_RARELY_AFTER, Ordering::Relaxed);
        site.record_render(true);
        assert!(site.should_try_render());
    }
}
