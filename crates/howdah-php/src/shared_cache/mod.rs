//! The shared cache of a pool: values that PHP keeps from one request to the next, in memory that the zygote's children
//! share (`howdah_cache_get()` and the like; `shim/effects/shared_cache.c` converts PHP values to bytes and back).
//!
//! - this file: the operations, and what invalidates all values at once.
//! - [`shard`]: a part of the memory with its own lock; it stores values and evicts old ones for new ones.
//! - [`lock`]: no process waits for one that hangs, and a shard that a killed process left inconsistent is emptied.
//!
//! A lost update cannot make a value stale: a write counts only if no other process has changed the value since this
//! request last read it. So a value that was computed from an old value, or from an old state of the database, never
//! replaces one that was written meanwhile.
//!
//! A child that does not get a lock in time continues without the cache: a reader finds nothing, and a writer
//! invalidates all values, so no wrong value remains.

mod lock;
mod shard;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use howdah_proto::shared_cache::{
    CHANGE_COUNTERS, MAX_TAGS, SharedCacheInfo, SharedCacheParts, TAG_COUNTERS,
};
use howdah_proto::shm::Region;

use crate::sys;
use shard::{Shard, ShardEntry};

/// The maximum number of values for which a request remembers the version that it read.
const MAX_TRACKED_READS: usize = 100_000;

/// The result of storing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreResult {
    /// The value is in the cache.
    Stored,
    /// `howdah_cache_add()` did not store the value because there is one already, or because another process has
    /// changed it since this request read it.
    AlreadyPresent,
    /// The value was not stored: there is no room, the cache is not available now, or another process has changed the
    /// value since this request read it. Except in `howdah_cache_add()`, a former value is gone, too.
    NotStored,
}

/// The shared cache of a pool.
#[derive(Debug)]
pub struct SharedCache {
    /// These four fields are those of [`SharedCacheParts`].
    failed_changes: &'static AtomicU64,
    flushes: &'static AtomicU64,
    changes: &'static [AtomicU64],
    tags: &'static [AtomicU64],
    shards: Vec<Shard>,
    /// The seed of all hashes, the same in all processes.
    seed: u64,
    /// The pool's memory, through which the front invalidates all values; `None` in tests.
    pool: Option<&'static Region>,
}

static CACHE: OnceLock<SharedCache> = OnceLock::new();

thread_local! {
    /// The buffer into which a value is copied, so PHP's allocator is not called while other processes wait for a lock.
    static COPY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// The reads of this request: hash of the key, and [`SharedCache::version`] at the time of the read.
    static READ: RefCell<NumberMap> = RefCell::new(NumberMap::default());
    /// How often this request has incremented each counter of [`SharedCache::changes`].
    static OWN_CHANGES: RefCell<NumberMap> = RefCell::new(NumberMap::default());
    /// How often this request has incremented [`SharedCache::flushes`].
    static OWN_FLUSHES: Cell<u64> = const { Cell::new(0) };
    /// See [`own_pid`].
    static PID: Cell<u32> = const { Cell::new(0) };
}

/// Notes that this process is now a child of the zygote.
pub fn enter_child() {
    PID.set(sys::own_pid() as u32);
}

/// Begins a request, which has read nothing yet.
pub fn begin_request() {
    if CACHE.get().is_some() {
        clear_reads();
    }
}

fn clear_reads() {
    READ.with_borrow_mut(HashMap::clear);
    OWN_CHANGES.with_borrow_mut(HashMap::clear);
    OWN_FLUSHES.set(0);
}

/// Returns this process's id. A child asks the system for it only once, since that takes longer than a cache read.
fn own_pid() -> u32 {
    match PID.get() {
        0 => sys::own_pid() as u32,
        pid => pid,
    }
}

/// Numbers by hash, or by an index below [`CHANGE_COUNTERS`].
type NumberMap = HashMap<u64, u64, BuildHasherDefault<IdentityHasher>>;

/// A hasher for keys that are hashes themselves.
#[derive(Debug, Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes
            .iter()
            .fold(self.0, |hash, byte| hash << 8 | u64::from(*byte));
    }

    fn write_u64(&mut self, number: u64) {
        // The hash table also uses the highest bits.
        self.0 = number ^ number.rotate_left(51);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Opens the cache in the pool's memory, if the pool has one. The zygote's children inherit it. Values that the
/// children of an earlier zygote stored are still there.
pub fn open(pool: &'static Region) {
    if let Some(cache) = SharedCache::open(pool.shared_cache(), Some(pool)) {
        // Called only once, when the zygote starts.
        let _ = CACHE.set(cache);
    }
}

/// Returns the pool's cache, or `None` if it has none or must not be used now.
pub fn cache() -> Option<&'static SharedCache> {
    CACHE
        .get()
        .filter(|cache| cache.pool.is_none_or(Region::shared_cache_is_open))
}

/// Returns the statistics of the pool's cache, even while it must not be used, or `None` if the pool has none.
pub fn info() -> Option<SharedCacheInfo> {
    CACHE.get().map(SharedCache::info)
}

/// Empties the shards that process `pid` had locked when it exited.
pub fn child_ended(pid: u32) {
    if let Some(cache) = CACHE.get() {
        cache.child_ended(pid);
    }
}

impl SharedCache {
    /// Opens the cache in this memory, which is zeroed when it is new. Returns `None` if the memory is too small.
    fn open(words: &'static [AtomicU64], pool: Option<&'static Region>) -> Option<SharedCache> {
        let parts = SharedCacheParts::of(words)?;
        // The seed is random, so no client can know which keys share a chain.
        let own = RandomState::new().hash_one("howdah") | 1;
        let seed = match parts
            .seed
            .compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => own,
            Err(former) => former,
        };
        Some(SharedCache {
            failed_changes: parts.failed_changes,
            flushes: parts.flushes,
            changes: parts.changes,
            tags: parts.tags,
            shards: parts.shards.into_iter().map(Shard::new).collect(),
            seed,
            pool,
        })
    }

    fn child_ended(&self, pid: u32) {
        for shard in &self.shards {
            shard.recover(pid);
        }
    }

    /// Returns a number that changes when all values are invalidated.
    fn epoch(&self) -> u64 {
        let front = self.pool.map_or(0, Region::shared_cache_epoch);
        // Both numbers only increase, and the second one does so far less often.
        front.wrapping_add(self.failed_changes.load(Ordering::Acquire) << 32)
    }

    fn invalidate_all(&self) {
        self.failed_changes.fetch_add(1, Ordering::AcqRel);
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        hasher.write(bytes);
        hasher.finish()
    }

    fn shard_of(&self, key: &[u8]) -> (u64, &Shard) {
        let hash = self.hash(key);
        let at = (hash >> 32) as usize % self.shards.len();
        (hash, &self.shards[at])
    }

    /// Returns a number that changes when another process may have changed the value.
    fn version(&self, hash: u64) -> u64 {
        let number = hash % CHANGE_COUNTERS as u64;
        let own = OWN_CHANGES.with_borrow(|own| own.get(&number).copied().unwrap_or_default());
        let flushes = self.flushes.load(Ordering::Acquire);
        let flushes = flushes.wrapping_sub(OWN_FLUSHES.get());
        self.changes[number as usize]
            .load(Ordering::Acquire)
            .wrapping_sub(own)
            .wrapping_add(flushes << 32)
            .wrapping_add(self.epoch())
    }

    /// Notes the version of the value that this request reads now.
    fn note_read(&self, hash: u64) {
        let version = self.version(hash);
        READ.with_borrow_mut(|read| {
            if read.len() < MAX_TRACKED_READS {
                read.insert(hash, version);
            } else if let Some(known) = read.get_mut(&hash) {
                *known = version;
            }
        });
    }

    /// Returns whether no other process has changed the value since this request read it. Also true if the request has
    /// not read it, unless it has read too many values to remember them all.
    fn is_unchanged_since_read(&self, hash: u64) -> bool {
        READ.with_borrow(|read| match read.get(&hash) {
            Some(version) => *version == self.version(hash),
            None => read.len() < MAX_TRACKED_READS,
        })
    }

    /// Notes that this request has changed the value.
    fn note_change(&self, hash: u64) {
        let number = hash % CHANGE_COUNTERS as u64;
        OWN_CHANGES.with_borrow_mut(|own| *own.entry(number).or_default() += 1);
        self.changes[number as usize].fetch_add(1, Ordering::AcqRel);
    }

    fn tag(&self, tag: &[u8]) -> u16 {
        (self.hash(tag) as usize % TAG_COUNTERS) as u16
    }

    fn tag_version(&self, number: u16) -> u64 {
        let version = self.tags.get(usize::from(number));
        version.map_or(u64::MAX, |version| version.load(Ordering::Acquire)) & shard::VERSION_MASK
    }

    /// Returns whether a value is valid: it has not expired, and neither its tags nor all values have been invalidated.
    fn is_current(&self, entry: &ShardEntry<'_>) -> bool {
        entry.epoch() == self.epoch()
            && entry.expires().is_none_or(|end| sys::monotonic_ms() < end)
            && entry
                .tags()
                .all(|(number, version)| self.tag_version(number) == version)
    }

    /// Passes the value of a key to `take`. Returns whether there is one.
    pub fn get(&self, key: &[u8], take: impl FnOnce(&[u8])) -> bool {
        let (hash, shard) = self.shard_of(key);
        self.note_read(hash);
        COPY.with_borrow_mut(|copy| {
            let found = shard.lock().is_some_and(|mut held| {
                let found = held.find(hash, key).filter(|entry| self.is_current(entry));
                let found = found.map(|entry| entry.copy_value(copy));
                held.count_lookup(found.is_some());
                found.is_some()
            });
            if found {
                take(copy);
            }
            found
        })
    }

    /// Stores a value for `ttl`; without `ttl`, for as long as there is room.
    pub fn set<'t>(
        &self,
        key: &[u8],
        value: &[u8],
        ttl: Option<Duration>,
        tags: impl Iterator<Item = &'t [u8]>,
        only_new: bool,
    ) -> StoreResult {
        let (hash, shard) = self.shard_of(key);
        let mut numbers = [0; MAX_TAGS];
        let mut count = 0;
        for (to, tag) in numbers.iter_mut().zip(tags) {
            let number = self.tag(tag);
            *to = shard::encode_tag(number, self.tag_version(number));
            count += 1;
        }
        let epoch = self.epoch();
        let Some(mut held) = shard.lock() else {
            if !only_new {
                self.invalidate_all();
            }
            return StoreResult::NotStored;
        };
        let present = held.find(hash, key);
        let present = present.filter(|entry| self.is_current(entry));
        if !self.is_unchanged_since_read(hash) {
            // Another process that stored the same value does no harm.
            return match (present, only_new) {
                (_, true) => StoreResult::AlreadyPresent,
                (Some(entry), false) if entry.has_value(value) => StoreResult::Stored,
                (_, false) => {
                    held.remove(hash, key);
                    self.note_change(hash);
                    StoreResult::NotStored
                }
            };
        }
        if only_new && present.is_some() {
            return StoreResult::AlreadyPresent;
        }
        held.remove(hash, key);
        self.note_change(hash);
        let ttl = ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        let new = shard::NewEntry {
            hash,
            key,
            value,
            expires: ttl.map_or(0, |ttl| sys::monotonic_ms().saturating_add(ttl).max(1)),
            epoch,
            tags: &numbers[..count],
        };
        if held.add(&new, |entry| self.is_current(entry)) {
            StoreResult::Stored
        } else {
            StoreResult::NotStored
        }
    }

    /// Removes a value. Returns whether there was one.
    pub fn delete(&self, key: &[u8]) -> bool {
        let (hash, shard) = self.shard_of(key);
        let Some(mut held) = shard.lock() else {
            self.invalidate_all();
            return true;
        };
        let was = held
            .find(hash, key)
            .is_some_and(|entry| self.is_current(&entry));
        held.remove(hash, key);
        self.note_change(hash);
        was
    }

    /// Adds `step` to an integer and returns its new value, or `None` if the value is not an integer or the sum
    /// overflows.
    pub fn increment(&self, key: &[u8], step: i64) -> Option<i64> {
        let (hash, shard) = self.shard_of(key);
        let Some(mut held) = shard.lock() else {
            self.invalidate_all();
            return None;
        };
        let entry = held
            .find(hash, key)
            .filter(|entry| self.is_current(entry))?;
        let sum = entry.integer()?.checked_add(step)?;
        entry.set_integer(sum);
        self.note_change(hash);
        Some(sum)
    }

    /// Invalidates all values with this tag.
    pub fn delete_tag(&self, tag: &[u8]) {
        // Incremented first, so a process that sees the tag's new version also sees this change.
        OWN_FLUSHES.set(OWN_FLUSHES.get() + 1);
        self.flushes.fetch_add(1, Ordering::AcqRel);
        if let Some(version) = self.tags.get(usize::from(self.tag(tag))) {
            version.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns the statistics of the cache.
    pub fn info(&self) -> SharedCacheInfo {
        self.shards.iter().map(Shard::info).sum()
    }
}
