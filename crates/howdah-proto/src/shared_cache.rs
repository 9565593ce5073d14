//! The shared cache of a pool (`howdah_cache_set()`): its limits, which the Rust code and the C shim of `howdah-php`
//! both use, and the layout of its parts in the pool's memory, for every process that reads it.

use std::iter::Sum;
use std::sync::atomic::{AtomicU64, Ordering};

/// The maximum length of a key in bytes.
pub const MAX_KEY_BYTES: usize = 1024;
/// The maximum length of a tag in bytes.
pub const MAX_TAG_BYTES: usize = 255;
/// The maximum number of tags of a value.
pub const MAX_TAGS: usize = 8;

/// The number of counters for changes of values. Several keys share one counter.
pub const CHANGE_COUNTERS: usize = 8192;
/// The number of counters for invalidations by tag. Tags that share a counter are invalidated together.
pub const TAG_COUNTERS: usize = 4096;
/// The maximum number of shards. Processes that use different shards do not wait for each other.
const MAX_SHARDS: usize = 8;
/// The minimum size of a shard in bytes when there are several. A value takes at most half a shard.
const MIN_SHARD_BYTES: usize = 8 << 20;
/// Words of a shard's ring for each hash chain.
const RING_WORDS_PER_CHAIN: usize = 32;

/// The contents and counters of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedCacheInfo {
    /// Capacity for values, in bytes.
    pub size: u64,
    /// The part of `size` that is in use, in bytes.
    pub used: u64,
    /// The number of values, including expired ones whose room has not been reused yet.
    pub values: u64,
    /// The number of lookups that found a value.
    pub hits: u64,
    /// The number of lookups that found no value.
    pub misses: u64,
    /// The number of values that were evicted before they expired.
    pub evicted: u64,
}

impl Sum for SharedCacheInfo {
    fn sum<I: Iterator<Item = SharedCacheInfo>>(all: I) -> SharedCacheInfo {
        // Saturating, because a faulty process may have written any number.
        all.fold(SharedCacheInfo::default(), |sum, one| SharedCacheInfo {
            size: sum.size.saturating_add(one.size),
            used: sum.used.saturating_add(one.used),
            values: sum.values.saturating_add(one.values),
            hits: sum.hits.saturating_add(one.hits),
            misses: sum.misses.saturating_add(one.misses),
            evicted: sum.evicted.saturating_add(one.evicted),
        })
    }
}

/// The parts of the cache's memory, in this order. All consist of 64-bit words.
#[derive(Debug)]
pub struct SharedCacheParts<'m> {
    /// Incremented when a value could not be changed, which invalidates all values.
    pub failed_changes: &'m AtomicU64,
    /// The seed of the hashes. 0 means that no process has chosen it yet.
    pub seed: &'m AtomicU64,
    /// How often values were invalidated by a tag.
    pub flushes: &'m AtomicU64,
    /// How often the values of each counter were changed (see [`CHANGE_COUNTERS`]).
    pub changes: &'m [AtomicU64],
    /// How often the tags of each counter were invalidated (see [`TAG_COUNTERS`]).
    pub tags: &'m [AtomicU64],
    /// The shards, which hold the values.
    pub shards: Vec<ShardParts<'m>>,
}

/// A part of the memory with its own lock: `head | chains | ring`.
#[derive(Clone, Copy, Debug)]
pub struct ShardParts<'m> {
    /// The words that [`head`] names.
    pub head: &'m [AtomicU64],
    /// For each remainder of a hash, the position in the ring at which the chain of its entries begins.
    pub chains: &'m [AtomicU64],
    /// The entries, one after the other, from the oldest to the newest.
    pub ring: &'m [AtomicU64],
}

/// The words of a shard's head.
pub mod head {
    /// The process that has locked the shard.
    pub const LOCK: usize = 0;
    /// The position of the next entry.
    pub const HEAD: usize = 1;
    /// The position of the oldest entry.
    pub const TAIL: usize = 2;
    /// The number of [`values`](super::SharedCacheInfo::values).
    pub const VALUES: usize = 3;
    /// The number of [`hits`](super::SharedCacheInfo::hits).
    pub const HITS: usize = 4;
    /// The number of [`misses`](super::SharedCacheInfo::misses).
    pub const MISSES: usize = 5;
    /// The number of [`evicted`](super::SharedCacheInfo::evicted) values.
    pub const EVICTED: usize = 6;
    /// The number of words that entries use.
    pub const USED: usize = 7;
    /// The number of words in a head.
    pub const WORDS: usize = 8;
}

impl<'m> SharedCacheParts<'m> {
    /// Divides this memory into the parts. Returns `None` if the memory is too small.
    pub fn of(words: &'m [AtomicU64]) -> Option<SharedCacheParts<'m>> {
        let (lost, words) = words.split_first()?;
        let (seed, words) = words.split_first()?;
        let (flushes, words) = words.split_first()?;
        let (changes, words) = words.split_at_checked(CHANGE_COUNTERS)?;
        let (tags, words) = words.split_at_checked(TAG_COUNTERS)?;
        let count = (size_of_val(words) / MIN_SHARD_BYTES).clamp(1, MAX_SHARDS);
        let shards = words.chunks_exact(words.len() / count);
        let shards = shards.map(ShardParts::of).collect::<Option<Vec<_>>>()?;
        Some(SharedCacheParts {
            failed_changes: lost,
            seed,
            flushes,
            changes,
            tags,
            shards,
        })
    }

    /// Returns the contents and counters of the cache. It takes no lock, so the figures may be from different moments.
    pub fn info(&self) -> SharedCacheInfo {
        self.shards.iter().map(ShardParts::info).sum()
    }
}

impl<'m> ShardParts<'m> {
    fn of(words: &'m [AtomicU64]) -> Option<ShardParts<'m>> {
        let (head, rest) = words.split_at_checked(head::WORDS)?;
        let (chains, ring) = rest.split_at_checked(rest.len() / (RING_WORDS_PER_CHAIN + 1))?;
        let enough = !chains.is_empty();
        enough.then_some(ShardParts { head, chains, ring })
    }

    /// Returns the contents and counters of this shard, as [`SharedCacheParts::info`] does for all.
    pub fn info(&self) -> SharedCacheInfo {
        let word = |at: usize| self.head[at].load(Ordering::Relaxed);
        SharedCacheInfo {
            size: (self.ring.len() * 8) as u64,
            used: word(head::USED).saturating_mul(8),
            values: word(head::VALUES),
            hits: word(head::HITS),
            misses: word(head::MISSES),
            evicted: word(head::EVICTED),
        }
    }
}
