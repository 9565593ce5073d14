//! The pages on disk and the bytes that they use. They are bounded and evicted like the pages in memory (S3-FIFO), so a
//! crawler does not evict the pages that people read. The index touches no file: it returns the names of evicted files,
//! and the writer removes them.

use std::hash::RandomState;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use super::directory::FileName;
use super::format::Summary;
use crate::Millis;

/// Bytes of a block of the file system, since files use whole blocks.
const BLOCK: u64 = 4096;

/// The entry of one file in the index.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Bytes that the file uses on disk, in whole blocks.
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

/// Returns the bytes on disk of a file of that length.
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

    /// Not `on_evict`, which is also called for replaced entries.
    fn before_evict(&self, evicted: &mut Vec<FileName>, name: &FileName, _: &mut Entry) {
        evicted.push(*name);
    }
}

/// The files of the directory, bounded by the bytes that they use.
#[derive(Debug)]
pub struct Index {
    files: Cache<FileName, Entry, Blocks, RandomState, Evicted>,
    evictions: AtomicU64,
}

impl Index {
    /// Creates an empty index for files of at most `capacity` bytes in total.
    pub fn new(capacity: u64) -> Index {
        let options = OptionsBuilder::new()
            .estimated_items_capacity((capacity / 32_768).clamp(64, 1 << 18) as usize)
            .weight_capacity(capacity)
            // One shard suffices because the index is queried only when memory has nothing; and a large page must fit
            // into a shard.
            .shards(1)
            .build();
        let options = options.unwrap_or_else(|_| unreachable!("capacity and items are given"));
        Index {
            files: Cache::with_options(options, Blocks, RandomState::new(), Evicted),
            evictions: AtomicU64::new(0),
        }
    }

    /// Returns the entry of a file; counts as a visit.
    pub fn get(&self, name: FileName) -> Option<Entry> {
        self.files.get(&name)
    }

    /// Returns whether there is such a file.
    pub fn has(&self, name: FileName) -> bool {
        self.files.peek(&name).is_some()
    }

    /// Adds a file. Returns the files that are evicted for it, including the file itself if it is too large.
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

    /// Removes a file that no longer exists.
    pub fn remove(&self, name: FileName) {
        self.files.remove(&name);
    }

    /// Returns the number of files, their bytes, the limit of bytes, and how many files were evicted.
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
