//! Small files in memory, in one cache for each thread. There is no lock, and no response is older than its request,
//! because an entry is used only if `statx`, called for this request, returns the same inode, size and times as when
//! the file was read. A file that changed too recently for the times to prove that is not kept
//! (`validators::is_settled`; git calls this problem "racily clean" entries).
//!
//! For a hot file, the cache saves the calls `open`, `read` and `close`, the construction of the headers, and another
//! compression.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use howdah_http::message::ResponseHead;

use super::validators::Validators;
use crate::docroot::root::FileMeta;
use crate::encoding::Coding;

/// The maximum length in bytes of a file that is kept. Beyond it `sendfile` copies less than a write from memory.
pub const MAX_CACHED_FILE_BYTES: u64 = 32 * 1024;

/// The maximum number of bytes that a thread keeps, including headers and names.
pub const MAX_CACHE_BYTES: usize = 8 * 1024 * 1024;

/// A file whose content is kept in memory.
#[derive(Debug)]
pub struct CachedFile {
    /// The state of the file when it was read, from `statx`.
    pub meta: FileMeta,
    /// The whole content of the file.
    pub body: Bytes,
    /// The file's `ETag` and `Last-Modified`.
    pub validators: Validators,
    /// The header of a 200 without a content coding.
    pub head: ResponseHead,
    /// The compressed content, once it has been requested.
    pub coded: CodedForms,
}

/// Compressed forms of a content, one for each coding, made at most once.
#[derive(Debug, Default)]
pub struct CodedForms([OnceLock<Bytes>; 3]);

impl CodedForms {
    /// Returns the content in `coding`, if it has been made.
    pub fn ready(&self, coding: Coding) -> Option<Bytes> {
        self.0[coding as usize].get().cloned()
    }

    /// Stores a form that was made elsewhere.
    pub fn put(&self, coding: Coding, form: Bytes) {
        // The first form is kept.
        let _ = self.0[coding as usize].set(form);
    }

    /// Returns the content in `coding`. If it has not been made yet, `make` makes it.
    pub fn get(
        &self,
        coding: Coding,
        make: impl FnOnce() -> io::Result<Vec<u8>>,
    ) -> io::Result<Bytes> {
        let place = &self.0[coding as usize];
        match place.get() {
            Some(bytes) => Ok(bytes.clone()),
            None => {
                let bytes = Bytes::from(make()?);
                Ok(place.get_or_init(|| bytes).clone())
            }
        }
    }
}

/// A bounded map from root and name to entry. The oldest entry is evicted first: a hot file that was evicted is soon
/// cached again, and a hit needs no bookkeeping.
#[derive(Debug, Default)]
pub struct FileCache {
    roots: HashMap<u64, HashMap<Box<[u8]>, Arc<CachedFile>>>,
    order: VecDeque<(u64, Box<[u8]>)>,
    bytes: usize,
}

impl FileCache {
    /// Returns the file, if its state is still `meta`.
    pub fn get(&self, root: u64, name: &[u8], meta: &FileMeta) -> Option<Arc<CachedFile>> {
        let entry = self.roots.get(&root)?.get(name)?;
        (entry.meta == *meta).then(|| entry.clone())
    }

    /// Stores a file, replacing an older state of it.
    pub fn put(&mut self, root: u64, name: &[u8], entry: Arc<CachedFile>) {
        let weight = weight(name, &entry);
        if weight > MAX_CACHE_BYTES {
            return;
        }
        let files = self.roots.entry(root).or_default();
        match files.insert(name.into(), entry) {
            Some(old) => self.bytes -= self::weight(name, &old),
            None => self.order.push_back((root, name.into())),
        }
        self.bytes += weight;
        while self.bytes > MAX_CACHE_BYTES
            && let Some((root, name)) = self.order.pop_front()
        {
            let Some(files) = self.roots.get_mut(&root) else {
                continue;
            };
            if let Some(old) = files.remove(&name) {
                self.bytes -= self::weight(&name, &old);
            }
            if files.is_empty() {
                self.roots.remove(&root);
            }
        }
    }
}

/// Returns the approximate memory of an entry: content and its compressed forms (which together are rarely longer),
/// header, the name twice, and the overhead of the maps.
fn weight(name: &[u8], entry: &CachedFile) -> usize {
    2 * entry.body.len() + entry.head.lines().len() + 2 * name.len() + 512
}

thread_local! {
    static CACHE: RefCell<FileCache> = RefCell::new(FileCache::default());
}

/// Calls `use_it` with the calling thread's cache.
pub fn with_thread_cache<T>(use_it: impl FnOnce(&mut FileCache) -> T) -> T {
    CACHE.with(|cache| use_it(&mut cache.borrow_mut()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docroot::root::FileKind;

    fn entry(len: usize, mtime: i64) -> (FileMeta, Arc<CachedFile>) {
        let meta = FileMeta {
            kind: FileKind::File,
            size: len as u64,
            mtime: (mtime, 0),
            ctime: (mtime, 0),
            inode: (0, 0, 1),
        };
        let entry = CachedFile {
            meta,
            body: Bytes::from(vec![0; len]),
            validators: Validators {
                etag: None,
                last_modified: 0,
            },
            head: ResponseHead::new(200),
            coded: CodedForms::default(),
        };
        (meta, Arc::new(entry))
    }

    #[test]
    fn file_cache_entry_matches_only_the_same_state_of_the_same_file() {
        let mut cache = FileCache::default();
        let (old, old_entry) = entry(10, 1);
        let (new, new_entry) = entry(10, 2);
        cache.put(1, b"a", old_entry);
        assert!(cache.get(1, b"a", &old).is_some());
        assert!(cache.get(1, b"a", &new).is_none());
        assert!(cache.get(2, b"a", &old).is_none());
        assert!(cache.get(1, b"b", &old).is_none());
        cache.put(1, b"a", new_entry);
        assert!(cache.get(1, b"a", &new).is_some());
        assert_eq!(cache.order.len(), 1);
    }

    #[test]
    fn coded_form_is_kept_once_it_was_made_or_stored() {
        let forms = CodedForms::default();
        let make = |text: &'static str| move || Ok(text.as_bytes().to_vec());
        assert_eq!(forms.ready(Coding::Brotli), None);
        forms.put(Coding::Brotli, Bytes::from_static(b"stored"));
        forms.put(Coding::Brotli, Bytes::from_static(b"stored later"));
        assert_eq!(forms.ready(Coding::Brotli).unwrap(), "stored");
        assert_eq!(forms.get(Coding::Brotli, make("made")).unwrap(), "stored");
        assert_eq!(forms.ready(Coding::Gzip), None);
        assert_eq!(forms.get(Coding::Gzip, make("made")).unwrap(), "made");
        assert_eq!(forms.ready(Coding::Gzip).unwrap(), "made");
    }

    #[test]
    fn file_cache_memory_is_bounded_and_accounted_for() {
        let mut cache = FileCache::default();
        for number in 0..2000u64 {
            let (_, entry) = entry(MAX_CACHED_FILE_BYTES as usize, number as i64);
            cache.put(number % 3, &number.to_ne_bytes(), entry);
            assert!(cache.bytes <= MAX_CACHE_BYTES);
        }
        let files = cache.roots.values().flat_map(HashMap::iter);
        let held: usize = files.map(|(name, entry)| weight(name, entry)).sum();
        assert_eq!(held, cache.bytes);
        assert!(held > MAX_CACHE_BYTES / 2);
        assert_eq!(
            cache.order.len(),
            cache.roots.values().map(HashMap::len).sum::<usize>()
        );
    }

    #[test]
    fn coded_forms_are_made_once() {
        let coded = CodedForms::default();
        let make = || Ok(b"short".to_vec());
        assert!(
            coded
                .get(Coding::Gzip, || Err(io::ErrorKind::Other.into()))
                .is_err()
        );
        assert_eq!(coded.get(Coding::Gzip, make).unwrap(), "short");
        assert_eq!(
            coded.get(Coding::Gzip, || panic!("made twice")).unwrap(),
            "short"
        );
        assert_eq!(
            coded.get(Coding::Brotli, || Ok(b"br".to_vec())).unwrap(),
            "br"
        );
    }
}
