//! The page cache at work: joins `howdah-cache`'s policy and stores to requests and runs. Decides
//! nothing about what may be kept; that is the policy's.
//!
//! - [`candidate`]: a visitor's own answer shows whether its page could be stored; [`fitness`]: whether
//!   any page of a site can.
//! - [`collect`]: a body is put together.
//! - [`vendor_headers`]: what a script's head says by header fields of other vendors.
//! - [`disk`]: whose the pages on disk are.
//! - [`lookup`]: before the script: is there a page, or why is none looked for.
//! - [`protocol`]: purge requests over HTTP, and who may send them.
//! - [`send`]: a stored page becomes an answer.
//! - [`fill`]: a page is rendered for the cache, by a request the server makes itself.
//! - [`judge`]: a head as the policy reads it; [`subrequest`]: the requests the server makes itself.
//! - [`admin`]: purges for an administrator; [`explain`]: explanations.
//! - [`carried_generations`]: what a reload hands over.
//! - [`tee`]: a visitor's own answer is kept while it is sent (`cache = rfc`).
//! - [`run_effects`]: what a run does beside answering; [`reasons`]: what is remembered of it for people.
//! - [`checks`]: comparing what is kept with what the application answers now.
//! - [`fleet`]: several servers with one page cache.
//! - [`successor`]: two processes during an upgrade.
//! - [`shared_renders`]: one render of a page for all of them.
//! - [`write`]: what a write, or a purge, makes invalid.
//!
//! One value per configuration: a reload, which may bring new code, begins with an empty memory, and
//! goes on with the sites' generations. The disk below it is one for all configurations of a process; a
//! reload empties it as well.

pub mod admin;
pub mod candidate;
pub mod carried_generations;
pub mod checks;
mod collect;
mod disk;
pub(crate) mod explain;
pub mod fill;
pub mod fitness;
pub mod fleet;
pub mod judge;
pub mod lookup;
pub mod protocol;
pub mod reasons;
pub mod run_effects;
pub mod send;
mod shared_renders;
pub mod subrequest;
pub mod successor;
pub mod tee;
pub mod vendor_headers;
pub mod write;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use howdah_cache::admission::Admission;
use howdah_cache::generation::{Force, Generations, Purge};
use howdah_cache::pass::PassCounters;
pub use howdah_cache::policy::{Rules, Scheme};
pub use howdah_cache::preset::{PRESETS, Preset};
use howdah_cache::status::Verdict;
use howdah_cache::store::Memory;
pub use howdah_cache::store::disk as disk_store;
use howdah_cache::store::disk::{Disk, DiskSites};
use howdah_cache::{Millis, coalescer::Coalescer};
use howdah_fleet::{Fleet, FleetStatus};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use carried_generations::CarriedGenerations;
pub use disk::DiskStatus;
use shared_renders::SharedRenders;
use successor::Successor;

pub use crate::cache_config::CacheConfig;
use crate::encoding::EncodingConfig;
use crate::site::{Site, Sites};
use crate::tally::Tally;

/// After so many renders in a row that were not stored only those are tried whose number is a power of
/// two: the 32nd, the 64th, the 128th …
const RARELY: u32 = 16;

/// The page cache of one site: its configuration, purges and counters.
#[derive(Debug)]
pub struct SiteCache {
    /// The site's configuration of the cache.
    pub config: CacheConfig,
    /// Its purges; every configuration of the process that knows the site has the same.
    pub generations: Arc<Generations>,
    // Every hit of every thread counts here: not beside what they all read.
    hits: Tally,
    stale: AtomicU64,
    stored: AtomicU64,
    passes: PassCounters,
    /// The fleet that this server is a member of.
    fleet: Option<Arc<Fleet>>,
    /// The process that takes over at an upgrade.
    successor: Arc<Successor>,
    /// Renders that its members share, if they do.
    shared_renders: Option<SharedRenders>,
    /// The generation it began with.
    first: u64,
    /// How often `.htaccess` files had changed when the pages that are kept were made.
    htaccess: AtomicU64,
    /// Renders for the cache, in a row, that were not stored, and those that were not tried.
    unstored: AtomicU32,
    /// How often somebody has purged by hand: what was learnt of pages before counts no more.
    epoch: AtomicU64,
    /// Whether visitors' own answers could be stored.
    pub fitness: fitness::Fitness,
    /// Why pages were not stored, and which writes invalidated pages, for `howdah cache explain`.
    pub reasons: reasons::Reasons,
    /// Comparisons of what is kept with what the application answers now.
    pub checks: checks::Checks,
}

impl SiteCache {
    /// Whether `.htaccess` files have changed since: then all pages are, too, since each has fields that
    /// they set. None: nothing is known of changes.
    pub fn is_outdated(&self, changes: Option<u64>) -> bool {
        let Some(changes) = changes else { return false };
        if self.htaccess.swap(changes, Ordering::Relaxed) == changes {
            return false;
        }
        self.generations.purge(&Purge::All, Force::Hard);
        true
    }

    fn new(config: CacheConfig) -> SiteCache {
        SiteCache {
            htaccess: AtomicU64::new(0),
            config,
            fleet: None,
            successor: Arc::default(),
            shared_renders: None,
            first: 1,
            generations: Arc::default(),
            hits: Tally::default(),
            stale: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            passes: PassCounters::default(),
            unstored: AtomicU32::new(0),
            epoch: AtomicU64::new(0),
            fitness: fitness::Fitness::default(),
            reasons: reasons::Reasons::default(),
            checks: checks::Checks::default(),
        }
    }

    /// What the site has configured for the cache policy.
    pub fn rules(&self) -> &Rules {
        &self.config.rules
    }

    /// Counts what happened to a request.
    pub fn count(&self, verdict: Verdict) {
        match verdict {
            Verdict::Hit { ttl } if ttl < 0 => &self.stale,
            Verdict::Hit { .. } => return self.hits.add(),
            Verdict::Stored { .. } | Verdict::Validated => &self.stored,
            Verdict::Pass(why) => return self.passes.add(why),
        }
        .fetch_add(1, Ordering::Relaxed);
    }

    /// Whether rendering for the cache is worth a try: an application that gives the clean room other
    /// answers than visitors is asked for each page once too often otherwise.
    pub(crate) fn is_worth_a_try(&self) -> bool {
        let unstored = self.unstored.load(Ordering::Relaxed);
        unstored < RARELY
            || self
                .unstored
                .fetch_add(1, Ordering::Relaxed)
                .is_power_of_two()
    }

    /// The number of the time since the last purge by hand: [`Admission`] knows what it learnt since.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Carries out a purge that somebody has ordered, perhaps after a deployment: pages that could not be
    /// stored are tried again.
    pub(crate) fn purge(&self, what: &Purge, force: Force) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        self.unstored.store(0, Ordering::Relaxed);
        self.generations.purge(what, force);
    }

    /// Of a thousand requests, how many were answered from the store.
    fn hit_permille(&self) -> u64 {
        let n = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let hits = self.hits.sum() + n(&self.stale);
        let passes: u64 = self.passes.sums().iter().map(|(_, n)| n).sum();
        (hits * 1000)
            .checked_div(hits + n(&self.stored) + passes)
            .unwrap_or(0)
    }

    fn rendered(&self, stored: bool) {
        if stored {
            self.unstored.store(0, Ordering::Relaxed);
        } else {
            self.unstored.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The page cache of a configuration.
#[derive(Debug)]
pub struct PageCache {
    /// The store of pages in memory, with the disk below it if there is one.
    pub memory: Memory,
    /// The renders in progress, so that each page is rendered once at a time.
    pub coalescer: Coalescer,
    /// Decides which pages are rendered, by what their visitors got.
    pub admission: Admission,
    /// Places for renders that nobody waits for.
    pub(crate) background: Arc<Semaphore>,
    /// The fleet that this server is a member of.
    fleet: Option<Arc<Fleet>>,
    /// The process that takes over at an upgrade.
    successor: Arc<Successor>,
    /// The status of a disk store that is configured but could not be opened.
    closed_disk: Option<DiskStatus>,
    /// The cache of each site, by the site's number; none: the site has `cache = off`.
    sites: Vec<Option<SiteCache>>,
}

/// Where pages are kept, and what a reload hands over.
pub struct Stores {
    /// `cache.memory`: bytes of pages kept in memory.
    pub memory: u64,
    /// `cache.path`: pages on disk.
    pub disk: Option<Arc<Disk>>,
    /// The status of a disk store that is configured but could not be opened.
    pub closed_disk: Option<DiskStatus>,
    /// The generations that former configurations still use.
    pub carried: Arc<CarriedGenerations>,
    /// `[fleet]`: the fleet that this server is a member of.
    pub fleet: Option<Arc<Fleet>>,
    /// The process that takes over at an upgrade.
    pub successor: Arc<Successor>,
    /// `[fleet] release`: which code the sites run; members of one release share renders.
    pub release: Option<Arc<str>>,
}

/// The longest body that a cache with this much memory stores: one page must not push out most others,
/// and what is read from disk has to fit.
fn longest_body(memory: u64) -> u64 {
    const USUAL: u64 = 8 << 20;
    (memory / 16)
        .max(USUAL)
        .min(howdah_cache::store::memory::longest(memory))
}

impl PageCache {
    /// The cache of these sites; none if all have it off. `encoding`: the forms that pages are kept in.
    pub fn new(sites: &Sites, stores: Stores, encoding: &EncodingConfig) -> Option<PageCache> {
        let Stores {
            memory,
            disk,
            closed_disk,
            carried,
            fleet,
            successor,
            release,
        } = stores;
        let disk = disk.map(|disk| {
            let owners = disk::owners(sites, encoding);
            Arc::new(DiskSites::new(disk, &owners))
        });
        let longest = longest_body(memory);
        let within = |mut config: CacheConfig| {
            config.rules.max_object = longest;
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
                    None => carried.generations(&site.config().name),
                };
                part.successor = successor.clone();
                part.join(&site.config().name, fleet.as_ref());
                if let Some(fleet) = &fleet {
                    let owner = disk::owner(site, encoding);
                    let (release, generations) = (release.as_ref(), &part.generations);
                    part.shared_renders = SharedRenders::new(fleet, release, owner, generations);
                }
                part.first = part.generations.now();
            }
        }
        parts.iter().flatten().next()?;
        Some(PageCache {
            fleet,
            successor,
            closed_disk,
            memory: Memory::over(disk, memory, longest),
            coalescer: Coalescer::default(),
            admission: Admission::default(),
            background: Arc::new(Semaphore::new(max_background_renders())),
            sites: parts,
        })
    }

    /// A site's part, if it has the cache on.
    pub fn site(&self, site: &Site) -> Option<&SiteCache> {
        self.site_by_number(site.number())
    }

    /// The part of the site with this number.
    pub fn site_by_number(&self, number: u32) -> Option<&SiteCache> {
        self.sites.get(number as usize)?.as_ref()
    }

    /// The cache's part of the status page and the metrics.
    pub fn status(&self, sites: &Sites) -> CacheStatus {
        let usage = self.memory.usage();
        let each = sites.all().iter().zip(&self.sites);
        CacheStatus {
            entries: usage.entries,
            bytes: usage.bytes,
            capacity: usage.capacity,
            evictions: usage.evictions,
            fleet: self.fleet.as_ref().map(|fleet| fleet.status()),
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
                    purges: cache.generations.now() - cache.first,
                    passes: cache.passes.sums(),
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
    /// Bytes they take, encoded forms estimated.
    pub bytes: u64,
    /// `cache.memory`: how many bytes the pages in memory may take.
    pub capacity: u64,
    /// Pages evicted to make room for others.
    pub evictions: u64,
    /// The disk below, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskStatus>,
    /// The fleet that this server is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetStatus>,
    /// A site each that has the cache on.
    pub sites: Vec<SiteCacheStatus>,
}

/// The page cache of one site at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteCacheStatus {
    /// The site's name.
    pub site: String,
    /// Requests answered by a fresh page.
    pub hits: u64,
    /// Requests answered by a page beyond its lifetime, within its grace.
    pub stale: u64,
    /// Requests answered by a render that was stored.
    pub stored: u64,
    /// Purges of the site's pages, and writes that made them old.
    pub purges: u64,
    /// Requests that bypassed the cache, by reason.
    pub passes: Vec<(String, u64)>,
    /// Of a thousand requests, how many were answered from the store.
    pub hit_permille: u64,
    /// Whether the site has `cache = "dry-run"`.
    pub dry_run: bool,
    /// `cache_shadow`: one hit in this many is checked by a fresh render; 0: none.
    pub shadow: u64,
    /// Whether visitors' own answers could have been stored.
    #[serde(default)]
    pub fitness: fitness::FitnessStatus,
    /// Cookies by which requests pass because they are not known, about how often; the most frequent.
    #[serde(default)]
    pub cookies: Vec<(String, u64)>,
    /// Comparisons of what is kept with what the application answers now.
    pub checks: checks::ChecksStatus,
}

/// Renders that nobody waits for, at a time: as many as can run, so that no visitor's request waits for
/// more than one of them.
fn max_background_renders() -> usize {
    std::thread::available_parallelism().map_or(2, NonZeroUsize::get)
}

/// A header field: name and value.
pub type FieldLine = (Vec<u8>, Vec<u8>);

/// The time as the cache counts it.
pub fn now() -> Millis {
    static START: OnceLock<Instant> = OnceLock::new();
    static CLOCK: SteadyClock = SteadyClock(AtomicU64::new(0));
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let wall = since.map_or(0, |since| since.as_millis() as Millis);
    CLOCK.read(
        wall,
        START.get_or_init(Instant::now).elapsed().as_millis() as Millis,
    )
}

/// The wall clock, but for its steps back: pages would be as young again as they were. Holds the
/// largest distance seen between the wall clock and one that only goes on.
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

/// A response head's fields as the policy reads them.
pub(crate) fn fields(head: &[FieldLine]) -> Vec<(&[u8], &[u8])> {
    head.iter().map(|(n, v)| (&n[..], &v[..])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_set_back_goes_on_and_one_set_forward_is_followed() {
        let clock = SteadyClock(AtomicU64::new(0));
        assert_eq!(clock.read(1_000_000, 0), 1_000_000);
        assert_eq!(clock.read(1_000_500, 500), 1_000_500);
        assert_eq!(clock.read(400_000, 1000), 1_001_000);
        assert_eq!(clock.read(5_000_000, 2000), 5_000_000);
        assert_eq!(clock.read(1_003_000, 3000), 5_001_000);
    }

    #[test]
    fn a_site_that_stores_nothing_is_tried_ever_more_rarely_and_one_success_ends_that() {
        let site = SiteCache::new(CacheConfig::default());
        for _ in 0..RARELY {
            assert!(site.is_worth_a_try());
            site.rendered(false);
        }
        let tried = (16..=1024).filter(|_| site.is_worth_a_try()).count();
        assert_eq!(tried, 7);
        site.purge(&Purge::All, Force::Hard);
        assert!(site.is_worth_a_try());
        site.unstored.store(RARELY, Ordering::Relaxed);
        site.rendered(true);
        assert!(site.is_worth_a_try());
    }
}
