//! The shared cache of a pool (`howdah_cache_set()`): what PHP may ask of it, for `howdah-php`'s Rust and its shim,
//! and where its parts are in the pool's memory, for all who look into it.

use std::iter::Sum;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most bytes of a key.
pub const MAX_KEY: usize = 1024;
/// Most bytes of a tag.
pub const MAX_TAG: usize = 255;
/// Most tags of a value.
pub const MAX_TAGS: usize = 8;

/// Changes of values are counted by a number below this, which keys share.
pub const CHANGE_NUMBERS: usize = 8192;
/// Tags are told apart by a number below this; two with one number grow old together.
pub const TAG_NUMBERS: usize = 4096;
/// Most shards: processes that use different ones do not wait for each other.
const MAX_SHARDS: usize = 8;
/// Bytes that a shard has at least before there is another: a value takes half a shard at most.
const SHARD_BYTES: usize = 8 << 20;
/// Words of a shard's ring for each chain.
const PER_CHAIN: usize = 32;

/// What the cache holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Bytes for values.
    pub size: u64,
    /// Of them, in use.
    pub used: u64,
    /// Values, also such as have expired and made no room yet.
    pub values: u64,
    /// Questions that were answered with a value.
    pub hits: u64,
    /// Questions that were not.
    pub misses: u64,
    /// Values that made room for others before they expired.
    pub evicted: u64,
}

impl Sum for Info {
    fn sum<I: Iterator<Item = Info>>(all: I) -> Info {
        // Any number may be what a broken process wrote.
        all.fold(Info::default(), |sum, one| Info {
            size: sum.size.saturating_add(one.size),
            used: sum.used.saturating_add(one.used),
            values: sum.values.saturating_add(one.values),
            hits: sum.hits.saturating_add(one.hits),
            misses: sum.misses.saturating_add(one.misses),
            evicted: sum.evicted.saturating_add(one.evicted),
        })
    }
}

/// The parts of the cache's memory, in this order; all are words of 64 bits.
#[derive(Debug)]
pub struct Parts<'m> {
    /// Raised when a value could not be changed: all values are old.
    pub lost: &'m AtomicU64,
    /// What hashes depend on; 0: nobody has chosen it yet.
    pub seed: &'m AtomicU64,
    /// How often values were made old by a tag.
    pub flushes: &'m AtomicU64,
    /// How often the values of each number were changed.
    pub changes: &'m [AtomicU64],
    /// How often each number of a tag has been made old.
    pub tags: &'m [AtomicU64],
    /// Where the values are.
    pub shards: Vec<ShardParts<'m>>,
}

/// A part of the memory with a lock of its own: `head | chains | ring`.
#[derive(Clone, Copy, Debug)]
pub struct ShardParts<'m> {
    /// By [`head`].
    pub head: &'m [AtomicU64],
    /// Where the entries of each remainder of a hash begin in the ring.
    pub chains: &'m [AtomicU64],
    /// Where the entries follow each other, the oldest first.
    pub ring: &'m [AtomicU64],
}

/// The words of a shard's head.
pub mod head {
    /// Who has locked the shard.
    pub const LOCK: usize = 0;
    /// Where the next entry goes.
    pub const HEAD: usize = 1;
    /// The oldest entry.
    pub const TAIL: usize = 2;
    /// How many [`values`](super::Info::values) there are.
    pub const VALUES: usize = 3;
    /// How many [`hits`](super::Info::hits) there were.
    pub const HITS: usize = 4;
    /// How many [`misses`](super::Info::misses) there were.
    pub const MISSES: usize = 5;
    /// How many values were [`evicted`](super::Info::evicted).
    pub const EVICTED: usize = 6;
    /// Words of entries.
    pub const USED: usize = 7;
    /// How many words a head has.
    pub const WORDS: usize = 8;
}

impl<'m> Parts<'m> {
    /// The parts of this memory; none if there is too little.
    pub fn of(words: &'m [AtomicU64]) -> Option<Parts<'m>> {
        let (lost, words) = words.split_first()?;
        let (seed, words) = words.split_first()?;
        let (flushes, words) = words.split_first()?;
        let (changes, words) = words.split_at_checked(CHANGE_NUMBERS)?;
        let (tags, words) = words.split_at_checked(TAG_NUMBERS)?;
        let count = (size_of_val(words) / SHARD_BYTES).clamp(1, MAX_SHARDS);
        let shards = words.chunks_exact(words.len() / count);
        let shards = shards.map(ShardParts::of).collect::<Option<Vec<_>>>()?;
        Some(Parts {
            lost,
            seed,
            flushes,
            changes,
            tags,
            shards,
        })
    }

    /// What the cache holds; read without a lock, so that the figures may be of different moments.
    pub fn info(&self) -> Info {
        self.shards.iter().map(ShardParts::info).sum()
    }
}

impl<'m> ShardParts<'m> {
    fn of(words: &'m [AtomicU64]) -> Option<ShardParts<'m>> {
        let (head, rest) = words.split_at_checked(head::WORDS)?;
        let (chains, ring) = rest.split_at_checked(rest.len() / (PER_CHAIN + 1))?;
        let enough = !chains.is_empty();
        enough.then_some(ShardParts { head, chains, ring })
    }

    /// What it holds, as of [`Parts::info`].
    pub fn info(&self) -> Info {
        let word = |at: usize| self.head[at].load(Ordering::Relaxed);
        Info {
            size: (self.ring.len() * 8) as u64,
            used: word(head::USED).saturating_mul(8),
            values: word(head::VALUES),
            hits: word(head::HITS),
            misses: word(head::MISSES),
            evicted: word(head::EVICTED),
        }
    }
}
