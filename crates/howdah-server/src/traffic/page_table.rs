//! The busiest and slowest pages of a site, in a table of bounded size. This is the space-saving algorithm of Metwally,
//! Agrawal and El Abbadi ("Efficient Computation of Frequent and Top-k Elements in Data Streams", 2005) with weights: a
//! new page replaces the page of the least weight and inherits its weight, so a page that has a large part of the weight
//! is in the table, whatever else is requested. The counts themselves begin at zero: they are never overstated.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::page_name::PageName;
use super::{CountedRequest, PageTraffic};

/// The weight that a request adds to a page besides its duration, so frequent pages and slow ones both have a large
/// weight.
const REQUEST_WEIGHT_MICROSECONDS: u64 = 1000;

/// The pages that one thread has counted.
pub(super) struct PageTable {
    capacity: usize,
    /// A random number, so that no client can choose paths with the same hash.
    seed: u64,
    /// The hashes of the pages' names, at the same positions as `pages`: a page is found by comparing these. Two names
    /// with one hash would be counted together, which hardly ever happens.
    hashes: Vec<u64>,
    pages: Vec<PageCounts>,
}

/// What is counted of one page.
#[derive(Clone, Debug)]
pub(super) struct PageCounts {
    name: Box<[u8]>,
    requests: u64,
    errors: u64,
    cache_hits: u64,
    microseconds: u64,
    longest: u64,
    weight: u64,
}

impl PageTable {
    /// Returns an empty table for this many pages, at least one.
    pub(super) fn new(capacity: usize) -> PageTable {
        PageTable {
            capacity: capacity.max(1),
            seed: RandomState::new().hash_one(()),
            hashes: Vec::new(),
            pages: Vec::new(),
        }
    }

    /// Counts a request of the page at this path.
    pub(super) fn count(&mut self, request: &CountedRequest<'_>, microseconds: u64) {
        let name = PageName::of(request.path);
        let hash = hash(self.seed, name.as_bytes());
        let known = self.hashes.iter().position(|known| *known == hash);
        let place = known.unwrap_or_else(|| self.insert(hash, &name));
        let page = &mut self.pages[place];
        page.requests += 1;
        page.errors += u64::from(request.is_error());
        page.cache_hits += u64::from(request.from_cache);
        page.microseconds += microseconds;
        page.longest = page.longest.max(microseconds);
        page.weight += microseconds + REQUEST_WEIGHT_MICROSECONDS;
    }

    /// Makes room for a page that is not in the table, and returns its position.
    fn insert(&mut self, hash: u64, name: &PageName) -> usize {
        let mut page = PageCounts {
            name: name.as_bytes().into(),
            requests: 0,
            errors: 0,
            cache_hits: 0,
            microseconds: 0,
            longest: 0,
            weight: 0,
        };
        if self.pages.len() < self.capacity {
            self.hashes.push(hash);
            self.pages.push(page);
            return self.pages.len() - 1;
        }
        let places = self.pages.iter().enumerate();
        let least = places.min_by_key(|(_, page)| page.weight);
        // The table is full, and its capacity is at least one.
        let (place, weight) = least.map_or((0, 0), |(place, page)| (place, page.weight));
        page.weight = weight;
        self.hashes[place] = hash;
        self.pages[place] = page;
        place
    }

    /// Returns the pages of the table.
    pub(super) fn pages(&self) -> &[PageCounts] {
        &self.pages
    }
}

/// Returns a hash that takes a fraction of the time of std's, because every request needs one and names are short.
fn hash(seed: u64, name: &[u8]) -> u64 {
    // The odd multiplier of Knuth's MMIX generator.
    const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
    let mut hash = seed ^ name.len() as u64;
    let (words, rest) = name.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    for word in words.iter().chain([&last]) {
        hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(MULTIPLIER);
        hash ^= hash >> 29;
    }
    hash
}

/// Adds up the pages of several tables, and returns the `capacity` pages with the largest weights.
pub(super) fn merge(
    pages: impl IntoIterator<Item = PageCounts>,
    capacity: usize,
) -> Vec<PageCounts> {
    let mut sums: HashMap<Box<[u8]>, PageCounts> = HashMap::new();
    for page in pages {
        match sums.get_mut(&page.name) {
            Some(sum) => {
                sum.requests += page.requests;
                sum.errors += page.errors;
                sum.cache_hits += page.cache_hits;
                sum.microseconds += page.microseconds;
                sum.longest = sum.longest.max(page.longest);
                sum.weight += page.weight;
            }
            None => drop(sums.insert(page.name.clone(), page)),
        }
    }
    let mut merged: Vec<PageCounts> = sums.into_values().collect();
    merged.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| a.name.cmp(&b.name)));
    merged.truncate(capacity);
    merged
}

impl From<PageCounts> for PageTraffic {
    fn from(page: PageCounts) -> PageTraffic {
        PageTraffic {
            path: String::from_utf8_lossy(&page.name).into_owned(),
            requests: page.requests,
            errors: page.errors,
            cache_hits: page.cache_hits,
            seconds: page.microseconds as f64 / 1e6,
            longest: page.longest as f64 / 1e6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(path: &str) -> CountedRequest<'_> {
        CountedRequest {
            path: path.as_bytes(),
            status: 200,
            from_cache: false,
        }
    }

    fn names(table: &PageTable) -> Vec<String> {
        let merged = merge(table.pages().to_vec(), 3);
        let traffic = merged.into_iter().map(PageTraffic::from);
        traffic.map(|page| page.path).collect()
    }

    #[test]
    fn frequent_and_slow_pages_stay_in_the_table_whatever_else_is_requested() {
        let mut table = PageTable::new(8);
        table.count(&request("/export"), 9_000_000);
        for n in 0..10_000u32 {
            table.count(&request("/"), 200);
            table.count(&request("/shop/17"), 300);
            // A scanner asks for names that nothing else asks for.
            let letters: String = n.to_string().bytes().map(|b| (b + 49) as char).collect();
            table.count(&request(&format!("/wp-{letters}.php")), 100);
        }
        assert_eq!(table.pages().len(), 8);
        assert_eq!(names(&table), ["/shop/*", "/", "/export"]);
        let home = table.pages().iter().find(|page| &*page.name == b"/");
        assert_eq!(home.map(|page| page.requests), Some(10_000));
    }

    #[test]
    fn pages_of_two_tables_add_up() {
        let (mut one, mut two) = (PageTable::new(8), PageTable::new(8));
        one.count(&request("/a"), 1_000);
        two.count(&request("/a"), 3_000);
        two.count(
            &CountedRequest {
                status: 503,
                ..request("/a")
            },
            2_000,
        );
        let both = [one.pages(), two.pages()].concat();
        let page = PageTraffic::from(merge(both, 8).remove(0));
        assert_eq!((page.requests, page.errors), (3, 1));
        assert_eq!((page.seconds, page.longest), (0.006, 0.003));
    }
}
