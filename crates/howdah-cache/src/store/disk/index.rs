//! Which pages are on disk and how many bytes they take: bounded, evicted as the pages in memory are
//! (S3-FIFO), so that a crawler does not push out what people read. Touches no file: it gives
//! the names of what is evicted, and the writer removes those files.

use std::hash::RandomState;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use super::directory::FileName;
use super::format::Summary;
use crate::Millis;

/// Bytes of a block of the file system: files take whole blocks.
const BLOCK: u64 = 4096;

/// What the index knows of one file.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Bytes the file takes on disk, in whole blocks.
    pub bytes: u64,
    /// See [`Summary::born`].
    pub born: Option<u64>,
    /// See [`Summary::useless_at`].
    pub useless_at: Millis,
}

impl From<&Summary> for Entry {
    fn from(summary: &Summary) -> Entry {
        Entry {
            bytes: blocks(summary.length),
            born: summary.born,
            useless_at: summary.useless_at,
        }
    }
}

/// Bytes on disk of a file of that length.
fn blocks(length: u64) -> u64 {
    length.div_ceil(BLOCK).max(1) * BLOCK
}

#[derive(Clone, Debug)]
struct Blocks;

impl Weighter<FileName, Entry> for Blocks {
    fn weight(&self, _: &FileName, entry: &Entry) -> u64 {
        entry.bytes
    }
}

#[derive(Clone, Debug)]
struct Evicted;

impl Lifecycle<FileName, Entry> for Evicted {
    type RequestState = Vec<FileName>;

    fn begin_request(&self) -> Vec<FileName> {
        Vec::new()
    }

    /// Not `on_evict`, which is called for what is replaced as well.
    fn before_evict(&self, evicted: &mut Vec<FileName>, name: &FileName, _: &mut Entry) {
        evicted.push(*name);
    }
}

/// The files of the directory, bounded by the bytes they take.
#[derive(Debug)]
pub struct Index {
    files: Cache<FileName, Entry, Blocks, RandomState, Evicted>,
    evictions: AtomicU64,
}

impl Index {
    /// An empty index for files of at most `capacity` bytes together.
    pub fn new(capacity: u64) -> Index {
        let options = OptionsBuilder::new()
            .estimated_items_capacity((capacity / 32_768).clamp(64, 1 << 18) as usize)
            .weight_capacity(capacity)
            // Asked only when memory has nothing; and a large page must fit a shard.
            .shards(1)
            .build();
        let options = options.unwrap_or_else(|_| unreachable!("capacity and items are given"));
        Index {
            files: Cache::with_options(options, Blocks, RandomState::new(), Evicted),
            evictions: AtomicU64::new(0),
        }
    }

    /// What is known of a file; counts as a visit.
    pub fn get(&self, name: FileName) -> Option<Entry> {
        self.files.get(&name)
    }

    /// Whether there is such a file.
    pub fn has(&self, name: FileName) -> bool {
        self.files.peek(&name).is_some()
    }

    /// Adds a file. Returns the files that are evicted for it, itself among them if it is too large.
    pub fn put(&self, name: FileName, entry: Entry) -> Vec<FileName> {
        let evicted = self.files.insert_with_lifecycle(name, entry);
        let count = evicted.len() as u64;
        self.evictions.fetch_add(count, Ordering::Relaxed);
        evicted
    }

    /// Sets a new limit of bytes.
    pub fn resize(&self, capacity: u64) {
        self.files.set_capacity(capacity);
    }

    /// Forgets a file that is no longer there.
    pub fn remove(&self, name: FileName) {
        self.files.remove(&name);
    }

    /// The number of files, their bytes, the limit of bytes, and how many files were evicted.
    pub fn usage(&self) -> (u64, u64, u64, u64) {
        (
            self.files.len() as u64,
            self.files.weight(),
            self.files.capacity(),
            self.evictions.load(Ordering::Relaxed),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::disk::format::Owner;

    fn entry(length: u64) -> Entry {
        Entry::from(&Summary {
            owner: Owner {
                site: [0; 16],
                policy: [0; 16],
            },
            born: Some(1),
            useless_at: 0,
            received: 0,
            length,
        })
    }

    #[test]
    fn what_has_to_go_is_told_and_the_bytes_are_bounded() {
        let index = Index::new(100 * BLOCK);
        let mut there = std::collections::HashSet::new();
        for n in 0..1000u128 {
            let name = FileName::of_file(&format!("{n:032x}")).unwrap();
            there.insert(name);
            for gone in index.put(name, entry(5000)) {
                assert!(there.remove(&gone), "{gone:?} was not there, or went twice");
            }
        }
        let (files, bytes, capacity, evictions) = index.usage();
        assert_eq!((capacity, files + evictions), (100 * BLOCK, 1000));
        assert!(bytes <= capacity && bytes == files * 2 * BLOCK);
        assert!(there.len() as u64 == files && there.iter().all(|name| index.has(*name)));
    }

    #[test]
    fn a_file_written_anew_has_nothing_to_go() {
        let index = Index::new(100 * BLOCK);
        let name = FileName::of_file(&format!("{:032x}", 1)).unwrap();
        assert!(index.put(name, entry(1)).is_empty());
        assert!(index.put(name, entry(5000)).is_empty());
        assert_eq!(index.usage(), (1, 2 * BLOCK, 100 * BLOCK, 0));
    }

    #[test]
    fn what_is_larger_than_all_is_not_kept() {
        let index = Index::new(10 * BLOCK);
        let name = FileName::of_file(&format!("{:032x}", 1)).unwrap();
        assert_eq!(index.put(name, entry(11 * BLOCK)), [name]);
        assert!(!index.has(name));
    }
}
