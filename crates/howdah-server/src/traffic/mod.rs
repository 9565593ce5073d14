//! What was requested of each site in the last hour: requests, errors, cache hits, statuses, and the busiest and slowest
//! pages. It is kept for people who look at the server after something has happened. No decision depends on it.
//!
//! Each thread counts in a share of its own, so its lock is free except while a status is collected. The counts cover
//! between [`WINDOW`] and twice that time: at the end of each window, they replace those of the window before.

mod page_name;
mod page_table;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use howdah_os::clock;
use howdah_site::sharded_counter::{SHARES, share_of_this_thread};
use serde::{Deserialize, Serialize};

use page_table::{PageCounts, PageTable};

/// After this time, the counts of the current window replace those of the previous one.
const WINDOW: Duration = Duration::from_secs(30 * 60);
/// The maximum number of pages of one site, and of all sites together, that are counted one by one.
const MAX_PAGES_PER_SITE: usize = 64;
const MAX_PAGES: usize = 4096;

/// Returns the status under which a response is counted. Status 0, for a request without a response, is counted as 499.
pub fn counted_status(status: u16) -> u16 {
    if status == 0 { 499 } else { status }
}

/// A finished request, as far as it is counted.
#[derive(Clone, Copy, Debug)]
pub struct CountedRequest<'a> {
    /// The path that the client requested, without the query.
    pub path: &'a [u8],
    /// The status of the response; 0 if there was none.
    pub status: u16,
    /// Whether the response came from the page cache.
    pub from_cache: bool,
}

impl CountedRequest<'_> {
    fn is_error(&self) -> bool {
        self.status >= 500
    }
}

/// The requests of one site in the last hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SiteStatus {
    /// The site's name.
    pub site: String,
    /// How many seconds these counts cover: at most an hour.
    pub period: u64,
    /// The number of finished requests.
    pub requests: u64,
    /// Responses with a status from 500 on.
    pub errors: u64,
    /// Responses from the page cache.
    pub cache_hits: u64,
    /// The total time of the requests, in seconds.
    pub seconds: f64,
    /// Responses by status; 499 means that the client disconnected first.
    pub statuses: Vec<(u16, u64)>,
    /// The pages with the most requests or the most time in total, the most frequent first.
    pub pages: Vec<PageTraffic>,
}

/// The requests of one page of a site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageTraffic {
    /// The path. `*` replaces numbers, hashes, tokens and e-mail addresses.
    pub path: String,
    /// The number of finished requests.
    pub requests: u64,
    /// Responses with a status from 500 on.
    pub errors: u64,
    /// Responses from the page cache.
    pub cache_hits: u64,
    /// The total time of the requests, in seconds.
    pub seconds: f64,
    /// The time of the slowest request, in seconds.
    pub longest: f64,
}

#[derive(Clone, Default)]
struct TrafficCounts {
    requests: u64,
    errors: u64,
    cache_hits: u64,
    microseconds: u64,
    /// Sites respond with few different statuses, so a linear search is fast.
    statuses: Vec<(u16, u64)>,
}

impl TrafficCounts {
    fn count(&mut self, request: &CountedRequest<'_>, microseconds: u64) {
        self.requests += 1;
        self.errors += u64::from(request.is_error());
        self.cache_hits += u64::from(request.from_cache);
        self.microseconds += microseconds;
        self.count_status(request.status, 1);
    }

    fn count_status(&mut self, status: u16, times: u64) {
        let known = self.statuses.iter_mut().find(|(known, _)| *known == status);
        match known {
            Some((_, sum)) => *sum += times,
            None => self.statuses.push((status, times)),
        }
    }

    fn add(&mut self, other: &TrafficCounts) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.cache_hits += other.cache_hits;
        self.microseconds += other.microseconds;
        for (status, times) in &other.statuses {
            self.count_status(*status, *times);
        }
    }
}

/// What one group of threads has counted in the current window.
struct TrafficShare {
    counts: TrafficCounts,
    pages: PageTable,
}

/// Counts that are not divided into shares.
#[derive(Default)]
struct TrafficSum {
    counts: TrafficCounts,
    pages: Vec<PageCounts>,
}

/// The counters of one site. They survive reloads.
pub struct SiteTraffic {
    max_pages: usize,
    /// A share is created when its thread counts for the first time: most sites of a large server are not requested by
    /// every thread.
    shares: [OnceLock<Box<CachePadded<Mutex<TrafficShare>>>>; SHARES],
    windows: Mutex<TrafficWindows>,
}

struct TrafficWindows {
    /// The counts of the previous window, and when it began.
    previous: Option<(Instant, TrafficSum)>,
    /// When the current window began.
    began: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SiteTraffic {
    fn new(max_pages: usize) -> SiteTraffic {
        SiteTraffic {
            max_pages,
            shares: std::array::from_fn(|_| OnceLock::new()),
            windows: Mutex::new(TrafficWindows {
                previous: None,
                began: clock::now(),
            }),
        }
    }

    /// Counts a finished request that took this time.
    pub fn count(&self, request: &CountedRequest<'_>, time: Duration) {
        let share = self.shares[share_of_this_thread()].get_or_init(|| {
            Box::new(CachePadded::new(Mutex::new(TrafficShare {
                counts: TrafficCounts::default(),
                pages: PageTable::new(self.max_pages),
            })))
        });
        let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let request = CountedRequest {
            status: counted_status(request.status),
            ..*request
        };
        let mut share = lock(share);
        share.counts.count(&request, microseconds);
        share.pages.count(&request, microseconds);
    }

    /// Begins another window if the current one has lasted long enough.
    fn turn_over(&self, now: Instant) {
        let mut windows = lock(&self.windows);
        if now.duration_since(windows.began) < WINDOW {
            return;
        }
        let ended = self.sum(true);
        windows.previous = Some((windows.began, ended));
        windows.began = now;
    }

    /// Returns the sum of the current window's shares. `take` empties them.
    fn sum(&self, take: bool) -> TrafficSum {
        let mut sum = TrafficSum::default();
        for share in self.shares.iter().filter_map(OnceLock::get) {
            let mut share = lock(share);
            sum.counts.add(&share.counts);
            sum.pages.extend_from_slice(share.pages.pages());
            if take {
                *share = TrafficShare {
                    counts: TrafficCounts::default(),
                    pages: PageTable::new(self.max_pages),
                };
            }
        }
        sum.pages = page_table::merge(sum.pages, self.max_pages);
        sum
    }

    /// Returns the requests of the last hour for the site's name.
    pub fn status(&self, site: &str) -> SiteStatus {
        let windows = lock(&self.windows);
        let mut sum = self.sum(false);
        let mut since = windows.began;
        if let Some((began, previous)) = &windows.previous {
            since = *began;
            sum.counts.add(&previous.counts);
            sum.pages.extend_from_slice(&previous.pages);
            sum.pages = page_table::merge(sum.pages, self.max_pages);
        }
        drop(windows);
        let mut pages: Vec<PageTraffic> = sum.pages.into_iter().map(PageTraffic::from).collect();
        pages.sort_by(|a, b| {
            b.requests
                .cmp(&a.requests)
                .then_with(|| a.path.cmp(&b.path))
        });
        sum.counts.statuses.sort_unstable();
        SiteStatus {
            site: site.to_owned(),
            period: clock::now().duration_since(since).as_secs(),
            requests: sum.counts.requests,
            errors: sum.counts.errors,
            cache_hits: sum.counts.cache_hits,
            seconds: sum.counts.microseconds as f64 / 1e6,
            statuses: sum.counts.statuses,
            pages,
        }
    }
}

/// The counters of all sites of all configurations, by the sites' names.
#[derive(Default)]
pub struct TrafficRegistry(Mutex<BTreeMap<String, Weak<SiteTraffic>>>);

impl TrafficRegistry {
    /// Returns the counters of the named site of a configuration that has `sites` sites. A configuration that a reload
    /// replaces passes its sites' counters on to the next one.
    pub fn site(&self, name: &str, sites: usize) -> Arc<SiteTraffic> {
        let mut known = lock(&self.0);
        if let Some(traffic) = known.get(name).and_then(Weak::upgrade) {
            return traffic;
        }
        known.retain(|_, traffic| traffic.strong_count() > 0);
        let max_pages = (MAX_PAGES / sites.max(1)).clamp(8, MAX_PAGES_PER_SITE);
        let traffic = Arc::new(SiteTraffic::new(max_pages));
        known.insert(name.to_owned(), Arc::downgrade(&traffic));
        traffic
    }

    /// Begins another window for every site whose current one has lasted long enough. Call it every few seconds.
    pub fn turn_over(&self, now: Instant) {
        let all: Vec<_> = lock(&self.0).values().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|traffic| traffic.turn_over(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(traffic: &SiteTraffic, path: &str, status: u16, from_cache: bool) {
        let request = CountedRequest {
            path: path.as_bytes(),
            status,
            from_cache,
        };
        traffic.count(&request, Duration::from_millis(2));
    }

    #[test]
    fn requests_of_all_threads_are_in_the_status_of_their_site() {
        let registry = TrafficRegistry::default();
        let (shop, blog) = (registry.site("shop", 2), registry.site("blog", 2));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    count(&shop, "/product/17", 200, true);
                    count(&shop, "/product/18", 503, false);
                    count(&shop, "/cart", 0, false);
                });
            }
        });
        let status = shop.status("shop");
        assert_eq!(
            (status.requests, status.errors, status.cache_hits),
            (12, 4, 4)
        );
        assert_eq!(status.statuses, [(200, 4), (499, 4), (503, 4)]);
        let pages: Vec<_> = status
            .pages
            .iter()
            .map(|p| (&*p.path, p.requests))
            .collect();
        assert_eq!(pages, [("/product/*", 8), ("/cart", 4)]);
        assert!((status.seconds - 0.024).abs() < 1e-9, "{status:?}");
        assert_eq!(blog.status("blog").requests, 0);
    }

    #[test]
    fn counts_last_for_two_windows_and_survive_a_reload() {
        let registry = TrafficRegistry::default();
        let traffic = registry.site("shop", 1);
        let began = lock(&traffic.windows).began;
        count(&traffic, "/a", 200, false);
        registry.turn_over(began + WINDOW / 2);
        assert!(lock(&traffic.windows).previous.is_none());
        registry.turn_over(began + WINDOW);
        count(&registry.site("shop", 1), "/b", 200, false);
        let paths = |traffic: &SiteTraffic| -> Vec<String> {
            let pages = traffic.status("shop").pages;
            pages.into_iter().map(|page| page.path).collect()
        };
        assert_eq!(paths(&traffic), ["/a", "/b"]);
        registry.turn_over(began + WINDOW * 2);
        assert_eq!(paths(&traffic), ["/b"]);
    }
}
