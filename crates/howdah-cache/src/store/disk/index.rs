//! The pages on disk and the bytes that they use. They are bounded and evicted like the pages in memory (S3-FIFO), so a
//! crawler does not evict the pages that people read. The index touches no file: it returns the names of evicted files,
//! and the writer removes them.

use std::hash::RandomState;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use super::directory::FileName;
use super::format::FileSummary;
use crate::Millis;

/// Bytes of a block of the file system, since files use whole blocks.
const BLOCK_BYTES: u64 = 4096;

/// The entry of one file in the index.
#[derive(Clone, Copy, Debug)]
pub struct IndexEntry {
    /// Bytes that the file uses on disk, in whole blocks.
    pub bytes: u64,
    /// See [`FileSummary::born`].
    pub born: Option<u64>,
    /// See [`FileSummary::expires_at`].
    pub expires_at: Millis,
}

impl From<&FileSummary> for IndexEntry {
    fn from(summary: &FileSummary) -> IndexEntry {
        IndexEntry {
            bytes: disk_bytes(summary.length),
            born: summary.born,
            expires_at: summary.expires_at,
        }
    }
}

/// Returns the bytes on disk of a file of that length.
fn disk_bytes(length: u64) -> u64 {
    length.div_ceil(BLOCK_BYTES).max(1) * BLOCK_BYTES
}

#[derive(Clone, Debug)]
struct BlockWeighter;

impl Weighter<FileName, IndexEntry> for BlockWeighter {
    fn weight(&self, _: &FileName, entry: &IndexEntry) -> u64 {
        entry.bytes
    }
}

#[derive(Clone, Debug)]
struct EvictedFiles;

impl Lifecycle<FileName, IndexEntry> for EvictedFiles {
    type RequestState = Vec<FileName>;

    fn begin_request(&self) -> Vec<FileName> {
        Vec::new()
    }

    /// This is not `on_evict`, because that is also called for replaced entries.
    fn before_evict(&self, evicted: &mut Vec<FileName>, name: &FileName, _: &mut IndexEntry) {
        evicted.push(*name);
    }
}

/// The files of the directory, bounded by the bytes that they use.
#[derive(Debug)]
pub struct Index {
    files: Cache<FileName, IndexEntry, BlockWeighter, RandomState, EvictedFiles>,
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
            files: Cache::with_options(options, BlockWeighter, RandomState::new(), EvictedFiles),
            evictions: AtomicU64::new(0),
        }
    }

    /// Returns the entry of a file; counts as a visit.
    pub fn get(&self, name: FileName) -> Option<IndexEntry> {
        self.files.get(&name)
    }

    /// Returns whether there is such a file.
    pub fn contains(&self, name: FileName) -> bool {
        self.files.peek(&name).is_some()
    }

    /// Adds a file. Returns the files that are evicted for it, including the file itself if it is too large.
    pub fn insert(&self, name: FileName, entry: IndexEntry) -> Vec<FileName> {
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

    fn entry(length: u64) -> IndexEntry {
        IndexEntry::from(&FileSummary {
            owner: Owner {
                site: [0; 16],
                policy: [0; 16],
            },
            born: Some(1),
            expires_at: 0,
            received: 0,
            length,
        })
    }

    #[test]
    fn index_returns_evicted_files_and_bounds_the_bytes() {
        let index = Index::new(100 * BLOCK_BYTES);
        let mut there = std::collections::HashSet::new();
        for n in 0..1000u128 {
            let name = FileName::parse(&format!("{n:032x}")).unwrap();
            there.insert(name);
            for gone in index.insert(name, entry(5000)) {
                assert!(there.remove(&gone), "{gone:?} was not there, or went twice");
            }
        }
        let (files, bytes, capacity, evictions) = index.usage();
        assert_eq!((capacity, files + evictions), (100 * BLOCK_BYTES, 1000));
        assert!(bytes <= capacity && bytes == files * 2 * BLOCK_BYTES);
        assert!(there.len() as u64 == files && there.iter().all(|name| index.contains(*name)));
    }

    #[test]
    fn rewritten_file_evicts_nothing() {
        let index = Index::new(100 * BLOCK_BYTES);
        let name = FileName::parse(&format!("{:032x}", 1)).unwrap();
        assert!(index.insert(name, entry(1)).is_empty());
        assert!(index.insert(name, entry(5000)).is_empty());
        assert_eq!(index.usage(), (1, 2 * BLOCK_BYTES, 100 * BLOCK_BYTES, 0));
    }

    #[test]
    fn file_larger_than_the_limit_is_not_indexed() {
        let index = Index::new(10 * BLOCK_BYTES);
        let name = FileName::parse(&format!("{:032x}", 1)).unwrap();
        assert_eq!(index.insert(name, entry(11 * BLOCK_BYTES)), [name]);
        assert!(!index.contains(name));
    }
}
