//! A part of the shared cache: a ring of entries behind one lock, in the order they came, and chains to find
//! them by. A new entry takes the place of the oldest; of these, such as have been asked for meanwhile move to
//! the front once more.
//!
//! ```text
//! lock | head | tail | values | hits | misses | evicted | used | chains[n] | ring
//! entry = words | hash | next | expires | epoch | lengths | tags[n] | key | value
//! ```
//! All are words of 64 bits. Positions in the ring only grow; a place is a position modulo its length, and
//! an entry never goes around the ring's end. Whatever is read here may be what a broken process wrote: no
//! number is believed that leads out of the ring, and a shard with such a number is emptied.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use howdah_proto::shared_cache::head::{EVICTED, HEAD, HITS, LOCK, MISSES, TAIL, USED, VALUES};
use howdah_proto::shared_cache::{Info, MAX_TAGS, ShardParts};

use super::lock;
use crate::sys;

/// The bits of a tag's version that an entry keeps.
pub const VERSION_MASK: u64 = (1 << 48) - 1;

/// The words of an entry in front of its tags.
const WORDS: usize = 0;
const HASH: usize = 1;
const NEXT: usize = 2;
const EXPIRES: usize = 3;
const EPOCH: usize = 4;
const LENGTHS: usize = 5;
const TAGS: usize = 6;

/// Bits of an entry's first word above its length.
const LIVE: u64 = 1 << 32;
const ASKED_FOR: u64 = 1 << 33;

/// Most entries that move to the front for one that is added.
const MOST_MOVES: usize = 8;

/// What an integer is encoded as (`shim/shared_cache.c`): this byte, and eight in this machine's order.
pub const INTEGER: u8 = b'i';

/// A tag as an entry keeps it: its number, and how often it had been made old.
pub fn tag(number: u16, version: u64) -> u64 {
    u64::from(number) << 48 | (version & VERSION_MASK)
}

/// A part of the cache, in memory that all processes of the pool have mapped.
#[derive(Debug)]
pub struct Shard {
    parts: ShardParts<'static>,
}

/// An entry to be added.
#[derive(Debug)]
pub struct New<'a> {
    pub hash: u64,
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// In milliseconds of CLOCK_MONOTONIC; 0: never.
    pub expires: u64,
    pub epoch: u64,
    /// As of [`tag`].
    pub tags: &'a [u64],
}

/// A shard whose lock this process has.
#[derive(Debug)]
pub struct HeldShard<'a> {
    shard: &'a Shard,
    _lock: lock::Held<'a>,
}

/// An entry whose lengths fit where it is.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its words, all of them.
    words: &'a [AtomicU64],
    tags: usize,
    key: usize,
    value: usize,
}

impl Shard {
    /// The shard in this memory, which is zeroed when it is new.
    pub fn new(parts: ShardParts<'static>) -> Shard {
        Shard { parts }
    }

    /// Takes the lock; none: a process holds it that hangs, or has been killed a moment ago.
    pub fn lock(&self) -> Option<HeldShard<'_>> {
        match lock::take(
            &self.parts.head[LOCK],
            super::own_pid(),
            sys::process_exists,
        ) {
            Ok(lock) => Some(HeldShard {
                shard: self,
                _lock: lock?,
            }),
            Err(gone) => {
                self.recover(gone);
                None
            }
        }
    }

    /// Gives back the lock that process `pid` held when it ended, and forgets what it may have left half done.
    pub fn recover(&self, pid: u32) {
        if let Some(lock) = lock::take_over(&self.parts.head[LOCK], pid, super::own_pid()) {
            HeldShard {
                shard: self,
                _lock: lock,
            }
            .empty();
        }
    }

    /// What it holds.
    pub fn info(&self) -> Info {
        self.parts.info()
    }

    fn chain(&self, hash: u64) -> &AtomicU64 {
        &self.parts.chains[hash as usize % self.parts.chains.len()]
    }

    /// The entry at a position; none if what is there makes no sense.
    fn entry(&self, position: u64) -> Option<Entry<'_>> {
        let at = (position % self.parts.ring.len() as u64) as usize;
        let rest = self.parts.ring.get(at..)?;
        let words = rest.first()?.load(Relaxed) as u32 as usize;
        let words = rest.get(..words)?;
        let lengths = words.get(LENGTHS)?.load(Relaxed);
        let entry = Entry {
            words,
            tags: (lengths >> 56) as usize,
            key: (lengths >> 32) as usize & 0xff_ffff,
            value: lengths as u32 as usize,
        };
        let fits =
            entry.tags <= MAX_TAGS && words_of(entry.tags, entry.key, entry.value) <= words.len();
        fits.then_some(entry)
    }
}

/// Words of an entry with so many tags, and bytes of key and value.
fn words_of(tags: usize, key: usize, value: usize) -> usize {
    TAGS + tags + key.div_ceil(8) + value.div_ceil(8)
}

impl<'a> Entry<'a> {
    fn word(&self, at: usize) -> u64 {
        self.words[at].load(Relaxed)
    }

    fn is_live(&self) -> bool {
        self.word(WORDS) & LIVE != 0
    }

    /// The number that makes all values old when it changes, as it was when this was kept.
    pub fn epoch(&self) -> u64 {
        self.word(EPOCH)
    }

    /// When its time is over, in milliseconds of CLOCK_MONOTONIC.
    pub fn expires(&self) -> Option<u64> {
        Some(self.word(EXPIRES)).filter(|end| *end != 0)
    }

    /// Its tags: a number, and how often that had been made old.
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
        self.key == key.len() && same(self.key_words(), key)
    }

    /// Puts its value in place of what is in `to`.
    pub fn copy_value(&self, to: &mut Vec<u8>) {
        let words = self.value_words();
        // Not zeroed where there were bytes before: most of the copy's time.
        to.resize(words.len() * 8, 0);
        let (places, _) = to.as_chunks_mut::<8>();
        for (place, word) in places.iter_mut().zip(words) {
            *place = word.load(Relaxed).to_ne_bytes();
        }
        to.truncate(self.value);
    }

    /// Whether this is its value.
    pub fn has_value(&self, value: &[u8]) -> bool {
        self.value == value.len() && same(self.value_words(), value)
    }

    /// Its value, if that is an integer.
    pub fn integer(&self) -> Option<i64> {
        if self.value != 9 {
            return None;
        }
        let mut bytes = Vec::with_capacity(16);
        self.copy_value(&mut bytes);
        let (kind, number) = bytes.split_first()?;
        (*kind == INTEGER).then(|| i64::from_ne_bytes(number.try_into().unwrap_or_default()))
    }

    /// Gives it another integer for a value; it must be one.
    pub fn set_integer(&self, number: i64) {
        let mut bytes = [INTEGER; 9];
        bytes[1..].copy_from_slice(&number.to_ne_bytes());
        write(self.value_words(), &bytes);
    }
}

/// Whether words have these bytes, the last filled up with zeroes.
fn same(words: &[AtomicU64], bytes: &[u8]) -> bool {
    let (whole, rest) = bytes.as_chunks::<8>();
    let (front, last) = words.split_at(whole.len().min(words.len()));
    let equal =
        |(word, bytes): (&AtomicU64, &[u8; 8])| word.load(Relaxed) == u64::from_ne_bytes(*bytes);
    front.iter().zip(whole).all(equal)
        && last.first().map(|word| word.load(Relaxed)) == last_word(rest)
}

/// The last, incomplete word of some bytes.
fn last_word(rest: &[u8]) -> Option<u64> {
    let mut word = [0; 8];
    word[..rest.len()].copy_from_slice(rest);
    (!rest.is_empty()).then_some(u64::from_ne_bytes(word))
}

fn write(to: &[AtomicU64], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<8>();
    let (front, last) = to.split_at(whole.len().min(to.len()));
    for (word, bytes) in front.iter().zip(whole) {
        word.store(u64::from_ne_bytes(*bytes), Relaxed);
    }
    if let (Some(word), Some(value)) = (last.first(), last_word(rest)) {
        word.store(value, Relaxed);
    }
}

impl<'a> HeldShard<'a> {
    fn word(&self, at: usize) -> u64 {
        self.shard.parts.head[at].load(Relaxed)
    }

    fn set(&self, at: usize, value: u64) {
        self.shard.parts.head[at].store(value, Relaxed);
    }

    fn add_to(&self, at: usize, by: i64) {
        self.set(at, self.word(at).saturating_add_signed(by));
    }

    /// Counts an answer.
    pub fn count(&mut self, hit: bool) {
        self.add_to(if hit { HITS } else { MISSES }, 1);
    }

    /// Forgets everything.
    fn empty(&mut self) {
        for chain in self.shard.parts.chains {
            chain.store(0, Relaxed);
        }
        for at in [HEAD, TAIL, VALUES, USED] {
            self.set(at, 0);
        }
    }

    /// The entry of a key, and that it has been asked for.
    pub fn find(&mut self, hash: u64, key: &[u8]) -> Option<Entry<'a>> {
        let mut found = None;
        let sane = self.walk(hash, |_, entry| {
            let it = entry.word(HASH) == hash && entry.is_live() && entry.has_key(key);
            if it {
                found = Some(entry);
            }
            !it
        });
        if !sane {
            self.empty();
            return None;
        }
        let entry = found?;
        if entry.word(WORDS) & ASKED_FOR == 0 {
            entry.words[WORDS].fetch_or(ASKED_FOR, Relaxed);
        }
        Some(entry)
    }

    /// Shows the entries of a chain with the word that leads to each, as long as `each` wants more; false: the
    /// chain makes no sense.
    fn walk(&self, hash: u64, mut each: impl FnMut(&'a AtomicU64, Entry<'a>) -> bool) -> bool {
        let shard: &'a Shard = self.shard;
        let (head, tail) = (self.word(HEAD), self.word(TAIL));
        let mut link = shard.chain(hash);
        let mut last = u64::MAX;
        loop {
            let next = link.load(Relaxed);
            let Some(position) = next.checked_sub(1) else {
                return true;
            };
            // A chain leads to ever older entries, so that it ends.
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

    /// Takes the entry of a key out of its chain.
    pub fn remove(&mut self, hash: u64, key: &[u8]) {
        let mut removed = 0;
        let sane = self.walk(hash, |link, entry| {
            if entry.word(HASH) != hash || !entry.has_key(key) {
                return true;
            }
            link.store(entry.word(NEXT), Relaxed);
            entry.words[WORDS].fetch_and(!LIVE, Relaxed);
            removed = entry.words.len();
            false
        });
        if !sane {
            self.empty();
        } else if removed > 0 {
            self.gone(removed);
        }
    }

    /// One entry of so many words less.
    fn gone(&self, words: usize) {
        self.add_to(VALUES, -1);
        self.add_to(USED, -(words as i64));
    }

    /// Adds an entry; the oldest make room, of which `is_current` says whether they still count. False: it is
    /// too large.
    pub fn add(&mut self, new: &New<'_>, is_current: impl Fn(&Entry<'_>) -> bool) -> bool {
        let words = words_of(new.tags.len(), new.key.len(), new.value.len());
        if words > self.shard.parts.ring.len() / 2 || new.key.len() > 0xff_ffff {
            return false;
        }
        // What moves to the front needs room there, too.
        let (mut needed, mut kept) = (words, Vec::new());
        while !self.has_room(needed) {
            let may_move = match kept.len() < MOST_MOVES {
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
                    self.empty();
                    kept.clear();
                    break;
                }
            }
        }
        for entry in kept {
            if self.has_room(words + entry.len()) {
                self.append_again(&entry);
            } else {
                self.add_to(EVICTED, 1);
            }
        }
        self.append(new);
        true
    }

    /// Words to skip so that as many as `words` follow before the ring's end.
    fn skip(&self, words: usize) -> usize {
        let length = self.shard.parts.ring.len();
        let left = length - (self.word(HEAD) % length as u64) as usize;
        if left < words { left } else { 0 }
    }

    fn has_room(&self, words: usize) -> bool {
        let taken = self.word(HEAD).saturating_sub(self.word(TAIL));
        taken + (self.skip(words) + words) as u64 <= self.shard.parts.ring.len() as u64
    }

    /// The place of so many words at the front; there must be room.
    fn place(&self, words: usize) -> (u64, &'a [AtomicU64]) {
        let ring: &'a [AtomicU64] = self.shard.parts.ring;
        let skip = self.skip(words);
        let mut head = self.word(HEAD);
        if skip > 0 {
            // A gap, which is like an entry that is gone.
            ring[(head % ring.len() as u64) as usize].store(skip as u64, Relaxed);
            head += skip as u64;
        }
        self.set(HEAD, head + words as u64);
        let at = (head % ring.len() as u64) as usize;
        (head, &ring[at..at + words])
    }

    fn append(&mut self, new: &New<'_>) {
        let words = words_of(new.tags.len(), new.key.len(), new.value.len());
        let (position, to) = self.place(words);
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
        write(key, new.key);
        write(value, new.value);
        self.link(position, to);
    }

    /// Adds an entry with its words as they were.
    fn append_again(&mut self, entry: &[u64]) {
        let (position, to) = self.place(entry.len());
        for (word, value) in to.iter().zip(entry) {
            word.store(*value, Relaxed);
        }
        to[WORDS].fetch_and(!ASKED_FOR, Relaxed);
        self.link(position, to);
    }

    fn link(&self, position: u64, entry: &[AtomicU64]) {
        let chain = self.shard.chain(entry[HASH].load(Relaxed));
        entry[NEXT].store(chain.load(Relaxed), Relaxed);
        chain.store(position + 1, Relaxed);
        self.add_to(VALUES, 1);
        self.add_to(USED, entry.len() as i64);
    }

    /// Takes the oldest entry out of the ring; `Some` of its words, if it has been asked for, still counts and has
    /// no more than `may_move` words. None: there is none, or it makes no sense.
    fn evict(
        &mut self,
        is_current: impl Fn(&Entry<'_>) -> bool,
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
            if current && entry.words.len() <= may_move && first & ASKED_FOR != 0 {
                kept = Some(entry.words.iter().map(|word| word.load(Relaxed)).collect());
            } else if current {
                self.add_to(EVICTED, 1);
            }
            self.unlink(tail, &entry)?;
            self.gone(entry.words.len());
        }
        self.set(TAIL, tail + words);
        Some(kept)
    }

    fn unlink(&self, position: u64, entry: &Entry<'_>) -> Option<()> {
        let mut found = None;
        let sane = self.walk(entry.word(HASH), |link, _| {
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
