//! A part of the shared cache: a ring of entries behind one lock, in the order in which they were added, and hash
//! chains to find them. A new entry replaces the oldest ones; those among them that have been read meanwhile are added
//! again as new entries.
//!
//! ```text
//! lock | head | tail | values | hits | misses | evicted | used | chains[n] | ring
//! entry = words | hash | next | expires | epoch | lengths | tags[n] | key | value
//! ```
//! All fields are words of 64 bits. Positions in the ring only grow; the index of a position is the position modulo the
//! ring's length, and an entry never wraps around the ring's end. Everything read here may have been written by a
//! broken process: a number that points out of the ring is not trusted, and a shard with such a number is emptied.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use howdah_proto::shared_cache::head::{EVICTED, HEAD, HITS, LOCK, MISSES, TAIL, USED, VALUES};
use howdah_proto::shared_cache::{MAX_TAGS, ShardParts, SharedCacheInfo};

use super::lock;
use crate::sys;

/// The bits of a tag's version that an entry stores.
pub const VERSION_MASK: u64 = (1 << 48) - 1;

/// The positions of an entry's words before its tags.
const WORDS: usize = 0;
const HASH: usize = 1;
const NEXT: usize = 2;
const EXPIRES: usize = 3;
const EPOCH: usize = 4;
const LENGTHS: usize = 5;
const TAGS: usize = 6;

/// Flag bits of an entry's first word, above its length.
const LIVE: u64 = 1 << 32;
const WAS_READ: u64 = 1 << 33;

/// Maximum number of entries that are added again for one new entry.
const MAX_READDED_ENTRIES: usize = 8;

/// The first byte of an encoded integer (`shim/effects/shared_cache.c`). Eight bytes in this machine's byte order
/// follow.
pub const INTEGER_TYPE: u8 = b'i';

/// Encodes a tag as an entry stores it: its number, and the version that it had at that time.
pub fn encode_tag(number: u16, version: u64) -> u64 {
    u64::from(number) << 48 | (version & VERSION_MASK)
}

/// A part of the cache, in memory that all processes of the pool have mapped.
#[derive(Debug)]
pub struct Shard {
    parts: ShardParts<'static>,
}

/// An entry to add.
#[derive(Debug)]
pub struct NewEntry<'a> {
    pub hash: u64,
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// In milliseconds of CLOCK_MONOTONIC; 0 means never.
    pub expires: u64,
    pub epoch: u64,
    /// Tags encoded by [`encode_tag`].
    pub tags: &'a [u64],
}

/// A shard whose lock this process holds.
#[derive(Debug)]
pub struct LockedShard<'a> {
    shard: &'a Shard,
    _lock: lock::SharedLockGuard<'a>,
}

/// An entry whose lengths have been checked against its words.
#[derive(Clone, Copy, Debug)]
pub struct ShardEntry<'a> {
    /// All words of the entry.
    words: &'a [AtomicU64],
    tags: usize,
    key: usize,
    value: usize,
}

impl Shard {
    /// Creates the shard in this memory, which is zeroed when it is new.
    pub fn new(parts: ShardParts<'static>) -> Shard {
        Shard { parts }
    }

    /// Takes the lock. Returns `None` if the process that holds it hangs or was killed a moment ago.
    pub fn lock(&self) -> Option<LockedShard<'_>> {
        match lock::acquire(
            &self.parts.head[LOCK],
            super::own_pid(),
            sys::process_exists,
        ) {
            Ok(lock) => Some(LockedShard {
                shard: self,
                _lock: lock?,
            }),
            Err(gone) => {
                self.recover(gone);
                None
            }
        }
    }

    /// If process `pid` held the lock when it exited, empties the shard, which may be inconsistent, and releases the
    /// lock.
    pub fn recover(&self, pid: u32) {
        if let Some(lock) = lock::take_over(&self.parts.head[LOCK], pid, super::own_pid()) {
            LockedShard {
                shard: self,
                _lock: lock,
            }
            .clear();
        }
    }

    /// Returns the statistics of this shard.
    pub fn info(&self) -> SharedCacheInfo {
        self.parts.info()
    }

    fn chain(&self, hash: u64) -> &AtomicU64 {
        &self.parts.chains[hash as usize % self.parts.chains.len()]
    }

    /// Returns the entry at a position, or `None` if the words there are not a valid entry.
    fn entry(&self, position: u64) -> Option<ShardEntry<'_>> {
        let at = (position % self.parts.ring.len() as u64) as usize;
        let rest = self.parts.ring.get(at..)?;
        let words = rest.first()?.load(Relaxed) as u32 as usize;
        let words = rest.get(..words)?;
        let lengths = words.get(LENGTHS)?.load(Relaxed);
        let entry = ShardEntry {
            words,
            tags: (lengths >> 56) as usize,
            key: (lengths >> 32) as usize & 0xff_ffff,
            value: lengths as u32 as usize,
        };
        let fits = entry.tags <= MAX_TAGS
            && entry_words(entry.tags, entry.key, entry.value) <= words.len();
        fits.then_some(entry)
    }
}

/// Returns the number of words of an entry with `tags` tags and a key and value of these lengths in bytes.
fn entry_words(tags: usize, key: usize, value: usize) -> usize {
    TAGS + tags + key.div_ceil(8) + value.div_ceil(8)
}

impl<'a> ShardEntry<'a> {
    fn word(&self, at: usize) -> u64 {
        self.words[at].load(Relaxed)
    }

    fn is_live(&self) -> bool {
        self.word(WORDS) & LIVE != 0
    }

    /// Returns the epoch at which the entry was stored. Entries of another epoch are invalid.
    pub fn epoch(&self) -> u64 {
        self.word(EPOCH)
    }

    /// Returns when the entry expires, in milliseconds of CLOCK_MONOTONIC.
    pub fn expires(&self) -> Option<u64> {
        Some(self.word(EXPIRES)).filter(|end| *end != 0)
    }

    /// Returns the entry's tags: each tag's number, and the version it had when the entry was stored.
    pub fn tags(&self) -> impl Iterator<Item = (u16, u64)> + use<'a> {
        let tags = &self.words[TAGS..TAGS + self.tags];
        tags.iter().map(|tag| {
            let tag = tag.load(Relaxed);
            ((tag >> 48) as u16, tag & VERSION_MASK)
        })
    }

    fn key_words(&self) -> &'a [AtomicU64] {
        let from = TAGS + self.tags;
        &self.words[from..from + self.key.div_ceil(8)]
    }

    fn value_words(&self) -> &'a [AtomicU64] {
        let from = TAGS + self.tags + self.key.div_ceil(8);
        &self.words[from..from + self.value.div_ceil(8)]
    }

    fn has_key(&self, key: &[u8]) -> bool {
        self.key == key.len() && equals_bytes(self.key_words(), key)
    }

    /// Replaces the contents of `to` by the value.
    pub fn copy_value(&self, to: &mut Vec<u8>) {
        let words = self.value_words();
        // `resize` does not zero bytes that the buffer already has, which would take most of the copy's time.
        to.resize(words.len() * 8, 0);
        let (places, _) = to.as_chunks_mut::<8>();
        for (place, word) in places.iter_mut().zip(words) {
            *place = word.load(Relaxed).to_ne_bytes();
        }
        to.truncate(self.value);
    }

    /// Returns whether the entry has this value.
    pub fn has_value(&self, value: &[u8]) -> bool {
        self.value == value.len() && equals_bytes(self.value_words(), value)
    }

    /// Returns the value if it is an integer.
    pub fn integer(&self) -> Option<i64> {
        if self.value != 9 {
            return None;
        }
        let mut bytes = Vec::with_capacity(16);
        self.copy_value(&mut bytes);
        let (kind, number) = bytes.split_first()?;
        (*kind == INTEGER_TYPE).then(|| i64::from_ne_bytes(number.try_into().unwrap_or_default()))
    }

    /// Replaces the value, which must be an integer, by another integer.
    pub fn set_integer(&self, number: i64) {
        let mut bytes = [INTEGER_TYPE; 9];
        bytes[1..].copy_from_slice(&number.to_ne_bytes());
        write_bytes(self.value_words(), &bytes);
    }
}

/// Returns whether words contain these bytes, with the last word padded with zeroes.
fn equals_bytes(words: &[AtomicU64], bytes: &[u8]) -> bool {
    let (whole, rest) = bytes.as_chunks::<8>();
    let (front, last) = words.split_at(whole.len().min(words.len()));
    let equal =
        |(word, bytes): (&AtomicU64, &[u8; 8])| word.load(Relaxed) == u64::from_ne_bytes(*bytes);
    front.iter().zip(whole).all(equal)
        && last.first().map(|word| word.load(Relaxed)) == last_word(rest)
}

/// Returns the last, incomplete word of a byte sequence, whose remainder is `rest`.
fn last_word(rest: &[u8]) -> Option<u64> {
    let mut word = [0; 8];
    word[..rest.len()].copy_from_slice(rest);
    (!rest.is_empty()).then_some(u64::from_ne_bytes(word))
}

fn write_bytes(to: &[AtomicU64], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<8>();
    let (front, last) = to.split_at(whole.len().min(to.len()));
    for (word, bytes) in front.iter().zip(whole) {
        word.store(u64::from_ne_bytes(*bytes), Relaxed);
    }
    if let (Some(word), Some(value)) = (last.first(), last_word(rest)) {
        word.store(value, Relaxed);
    }
}

impl<'a> LockedShard<'a> {
    fn word(&self, at: usize) -> u64 {
        self.shard.parts.head[at].load(Relaxed)
    }

    fn set(&self, at: usize, value: u64) {
        self.shard.parts.head[at].store(value, Relaxed);
    }

    fn add_to(&self, at: usize, by: i64) {
        self.set(at, self.word(at).saturating_add_signed(by));
    }

    /// Counts a hit or a miss.
    pub fn count_lookup(&mut self, hit: bool) {
        self.add_to(if hit { HITS } else { MISSES }, 1);
    }

    /// Removes all entries.
    fn clear(&mut self) {
        for chain in self.shard.parts.chains {
            chain.store(0, Relaxed);
        }
        for at in [HEAD, TAIL, VALUES, USED] {
            self.set(at, 0);
        }
    }

    /// Returns the entry of a key and marks it as read.
    pub fn find(&mut self, hash: u64, key: &[u8]) -> Option<ShardEntry<'a>> {
        let mut found = None;
        let sane = self.walk_chain(hash, |_, entry| {
            let it = entry.word(HASH) == hash && entry.is_live() && entry.has_key(key);
            if it {
                found = Some(entry);
            }
            !it
        });
        if !sane {
            self.clear();
            return None;
        }
        let entry = found?;
        if entry.word(WORDS) & WAS_READ == 0 {
            entry.words[WORDS].fetch_or(WAS_READ, Relaxed);
        }
        Some(entry)
    }

    /// Passes each entry of a chain to `each`, with the word that points to it, until `each` returns false. Returns
    /// false if the chain is inconsistent.
    fn walk_chain(
        &self,
        hash: u64,
        mut each: impl FnMut(&'a AtomicU64, ShardEntry<'a>) -> bool,
    ) -> bool {
        let shard: &'a Shard = self.shard;
        let (head, tail) = (self.word(HEAD), self.word(TAIL));
        let mut link = shard.chain(hash);
        let mut last = u64::MAX;
        loop {
            let next = link.load(Relaxed);
            let Some(position) = next.checked_sub(1) else {
                return true;
            };
            // A chain leads only to older entries, so it ends.
            if position < tail || position >= head || position >= last {
                return false;
            }
            last = position;
            let Some(entry) = shard.entry(position) else {
                return false;
            };
            if !each(link, entry) {
                return true;
            }
            link = &entry.words[NEXT];
        }
    }

    /// Removes the entry of a key from its chain.
    pub fn remove(&mut self, hash: u64, key: &[u8]) {
        let mut removed = 0;
        let sane = self.walk_chain(hash, |link, entry| {
            if entry.word(HASH) != hash || !entry.has_key(key) {
                return true;
            }
            link.store(entry.word(NEXT), Relaxed);
            entry.words[WORDS].fetch_and(!LIVE, Relaxed);
            removed = entry.words.len();
            false
        });
        if !sane {
            self.clear();
        } else if removed > 0 {
            self.subtract_entry(removed);
        }
    }

    /// Subtracts an entry of `words` words from the counters.
    fn subtract_entry(&self, words: usize) {
        self.add_to(VALUES, -1);
        self.add_to(USED, -(words as i64));
    }

    /// Adds an entry and evicts the oldest entries to make room for it; `is_current` says whether an evicted entry was
    /// still valid. Returns false if the new entry is too large.
    pub fn add(
        &mut self,
        new: &NewEntry<'_>,
        is_current: impl Fn(&ShardEntry<'_>) -> bool,
    ) -> bool {
        let words = entry_words(new.tags.len(), new.key.len(), new.value.len());
        if words > self.shard.parts.ring.len() / 2 || new.key.len() > 0xff_ffff {
            return false;
        }
        // Entries that are added again need room, too.
        let (mut needed, mut kept) = (words, Vec::new());
        while !self.has_room(needed) {
            let may_move = match kept.len() < MAX_READDED_ENTRIES {
                true => self.shard.parts.ring.len() / 2 - needed,
                false => 0,
            };
            match self.evict(&is_current, may_move) {
                Some(Some(entry)) => {
                    needed += entry.len();
                    kept.push(entry);
                }
                Some(None) => {}
                None => {
                    self.clear();
                    kept.clear();
                    break;
                }
            }
        }
        for entry in kept {
            if self.has_room(words + entry.len()) {
                self.readd(&entry);
            } else {
                self.add_to(EVICTED, 1);
            }
        }
        self.append(new);
        true
    }

    /// Returns how many words to skip so that `words` words follow before the ring's end.
    fn words_to_skip(&self, words: usize) -> usize {
        let length = self.shard.parts.ring.len();
        let left = length - (self.word(HEAD) % length as u64) as usize;
        if left < words { left } else { 0 }
    }

    fn has_room(&self, words: usize) -> bool {
        let taken = self.word(HEAD).saturating_sub(self.word(TAIL));
        taken + (self.words_to_skip(words) + words) as u64 <= self.shard.parts.ring.len() as u64
    }

    /// Reserves `words` words at the ring's head, where there must be room.
    fn reserve(&self, words: usize) -> (u64, &'a [AtomicU64]) {
        let ring: &'a [AtomicU64] = self.shard.parts.ring;
        let skip = self.words_to_skip(words);
        let mut head = self.word(HEAD);
        if skip > 0 {
            // The gap is marked like an entry that was removed.
            ring[(head % ring.len() as u64) as usize].store(skip as u64, Relaxed);
            head += skip as u64;
        }
        self.set(HEAD, head + words as u64);
        let at = (head % ring.len() as u64) as usize;
        (head, &ring[at..at + words])
    }

    fn append(&mut self, new: &NewEntry<'_>) {
        let words = entry_words(new.tags.len(), new.key.len(), new.value.len());
        let (position, to) = self.reserve(words);
        let lengths =
            (new.tags.len() as u64) << 56 | (new.key.len() as u64) << 32 | new.value.len() as u64;
        let fields = [
            words as u64 | LIVE,
            new.hash,
            0,
            new.expires,
            new.epoch,
            lengths,
        ];
        let (front, rest) = to.split_at(TAGS);
        let (tags, rest) = rest.split_at(new.tags.len());
        let (key, value) = rest.split_at(new.key.len().div_ceil(8));
        for (word, field) in front.iter().chain(tags).zip(fields.iter().chain(new.tags)) {
            word.store(*field, Relaxed);
        }
        write_bytes(key, new.key);
        write_bytes(value, new.value);
        self.link(position, to);
    }

    /// Adds an entry again with unchanged words.
    fn readd(&mut self, entry: &[u64]) {
        let (position, to) = self.reserve(entry.len());
        for (word, value) in to.iter().zip(entry) {
            word.store(*value, Relaxed);
        }
        to[WORDS].fetch_and(!WAS_READ, Relaxed);
        self.link(position, to);
    }

    fn link(&self, position: u64, entry: &[AtomicU64]) {
        let chain = self.shard.chain(entry[HASH].load(Relaxed));
        entry[NEXT].store(chain.load(Relaxed), Relaxed);
        chain.store(position + 1, Relaxed);
        self.add_to(VALUES, 1);
        self.add_to(USED, entry.len() as i64);
    }

    /// Removes the oldest entry from the ring. Returns its words (`Some(Some(_))`) if the entry has been read, is still
    /// valid and has at most `may_move` words, and `Some(None)` for any other entry. Returns `None` if the ring is
    /// empty or inconsistent.
    fn evict(
        &mut self,
        is_current: impl Fn(&ShardEntry<'_>) -> bool,
        may_move: usize,
    ) -> Option<Option<Vec<u64>>> {
        let (head, tail) = (self.word(HEAD), self.word(TAIL));
        if tail >= head {
            return None;
        }
        let ring = self.shard.parts.ring;
        let first = ring[(tail % ring.len() as u64) as usize].load(Relaxed);
        let words = u64::from(first as u32);
        if words == 0 || tail + words > head {
            return None;
        }
        let mut kept = None;
        if first & LIVE != 0 {
            let entry = self.shard.entry(tail)?;
            let current = is_current(&entry);
            if current && entry.words.len() <= may_move && first & WAS_READ != 0 {
                kept = Some(entry.words.iter().map(|word| word.load(Relaxed)).collect());
            } else if current {
                self.add_to(EVICTED, 1);
            }
            self.unlink(tail, &entry)?;
            self.subtract_entry(entry.words.len());
        }
        self.set(TAIL, tail + words);
        Some(kept)
    }

    fn unlink(&self, position: u64, entry: &ShardEntry<'_>) -> Option<()> {
        let mut found = None;
        let sane = self.walk_chain(entry.word(HASH), |link, _| {
            if link.load(Relaxed) == position + 1 {
                found = Some(link);
            }
            found.is_none()
        });
        let link = found.filter(|_| sane)?;
        link.store(entry.word(NEXT), Relaxed);
        Some(())
    }
}
