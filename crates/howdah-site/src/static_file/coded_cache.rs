//! Compressed forms of files, kept in memory for all threads. Each is made once, on another thread, and used while the
//! file does not change. The memory is bounded; forms that are requested again are kept.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;

use super::validators::is_settled;
use crate::docroot::root::FileMeta;
use crate::encoding::Coding;
use crate::encoding::whole::{CompressionsInProgress, PlainBody};

/// The maximum number of bytes of compressed files that are kept. A form takes about a quarter of its file, so 100 MB
/// of scripts and style sheets fit.
const MAX_CACHE_BYTES: usize = 32 << 20;

/// A file's state, which identifies its content, and the coding.
type CodedKey = (FileMeta, Coding);

/// The compressed file; `None` if the uncompressed file is shorter.
type CodedForm = Option<Bytes>;

#[derive(Default)]
struct CodedCache {
    forms: HashMap<CodedKey, CodedEntry>,
    order: VecDeque<CodedKey>,
    bytes: usize,
}

struct CodedEntry {
    form: CodedForm,
    /// Whether the form was requested since it was last considered for eviction.
    used: bool,
}

static CODED_CACHE: LazyLock<Mutex<CodedCache>> = LazyLock::new(Mutex::default);
static IN_PROGRESS: CompressionsInProgress<CodedKey> = CompressionsInProgress::empty();

fn lock_cache() -> MutexGuard<'static, CodedCache> {
    CODED_CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the file's form in `coding`, if it is in the cache.
pub fn cached_form(meta: &FileMeta, coding: Coding) -> Option<CodedForm> {
    lock_cache().get(&(*meta, coding))
}

/// Returns the file's form in `coding`, made from `plain` unless it is being made already. Returns `None` if the file
/// should be sent uncompressed, because that is shorter, or because too much is being compressed.
pub async fn make_form(
    meta: FileMeta,
    coding: Coding,
    plain: impl FnOnce() -> io::Result<PlainBody>,
) -> io::Result<CodedForm> {
    // The file was settled before it was read, and its state is still the same, so this is the content that the state
    // identifies.
    let settled = is_settled(&meta, SystemTime::now());
    let keep = move |plain: &PlainBody, form: &CodedForm| {
        let same = match plain {
            PlainBody::Bytes(_) => true,
            PlainBody::File(file, _) => is_unchanged(file, &meta),
        };
        if settled && same {
            lock_cache().put((meta, coding), form.clone());
        }
    };
    IN_PROGRESS
        .wait_for_form((meta, coding), coding, plain, keep)
        .await
}

fn is_unchanged(file: &File, meta: &FileMeta) -> bool {
    FileMeta::of(file).is_ok_and(|now| now == *meta)
}

impl CodedCache {
    fn get(&mut self, key: &CodedKey) -> Option<CodedForm> {
        let entry = self.forms.get_mut(key)?;
        entry.used = true;
        Some(entry.form.clone())
    }

    fn put(&mut self, key: CodedKey, form: CodedForm) {
        let weight = weight(&form);
        if weight > MAX_CACHE_BYTES {
            return;
        }
        let entry = CodedEntry { form, used: false };
        match self.forms.insert(key, entry) {
            Some(old) => self.bytes -= self::weight(&old.form),
            None => self.order.push_back(key),
        }
        self.bytes += weight;
        while self.bytes > MAX_CACHE_BYTES
            && let Some(key) = self.order.pop_front()
        {
            if let Some(entry) = self.forms.get_mut(&key)
                && std::mem::take(&mut entry.used)
            {
                self.order.push_back(key);
            } else if let Some(old) = self.forms.remove(&key) {
                self.bytes -= self::weight(&old.form);
            }
        }
    }
}

/// Returns the memory of a form: its bytes, the key twice, and the overhead of the maps.
fn weight(form: &CodedForm) -> usize {
    form.as_ref().map_or(0, Bytes::len) + 2 * size_of::<CodedKey>() + 128
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docroot::root::FileKind;

    fn key(number: u64) -> CodedKey {
        let meta = FileMeta {
            kind: FileKind::File,
            size: 1 << 20,
            mtime: (1, 0),
            ctime: (1, 0),
            inode: (0, 0, number),
        };
        (meta, Coding::Brotli)
    }

    #[test]
    fn coded_cache_is_bounded_and_keeps_requested_forms() {
        let mut kept = CodedCache::default();
        let form = Some(Bytes::from(vec![0; 1 << 20]));
        for number in 0..100 {
            kept.put(key(number), form.clone());
            assert!(kept.bytes <= MAX_CACHE_BYTES);
            assert!(kept.get(&key(0)).is_some(), "{number}");
        }
        assert!(kept.get(&key(1)).is_none());
        assert_eq!(kept.forms.len(), kept.order.len());
        let held: usize = kept.forms.values().map(|entry| weight(&entry.form)).sum();
        assert_eq!(held, kept.bytes);
        // The cache also remembers that a file is not worth compressing.
        kept.put(key(200), None);
        assert_eq!(kept.get(&key(200)), Some(None));
    }

    #[tokio::test]
    async fn coded_form_is_made_once_for_concurrent_requests() {
        let text = b"<p>The elephant carries the howdah.</p>\n".repeat(8000);
        let (meta, coding) = key(1000);
        let made = std::cell::Cell::new(0);
        let ask = || {
            make_form(meta, coding, || {
                made.set(made.get() + 1);
                Ok(PlainBody::Bytes(Bytes::from(text.clone())))
            })
        };
        let (one, other) = tokio::join!(ask(), ask());
        // On a busy machine the callers may stop waiting, but the work continues.
        if let (Some(one), Some(other)) = (one.unwrap(), other.unwrap()) {
            assert_eq!(one, other);
            assert!(one.len() < text.len() / 4);
        }
        assert_eq!(made.get(), 1);
        while cached_form(&meta, coding).is_none() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn coded_form_is_absent_if_it_is_not_shorter() {
        let mut noise = vec![0u8; 100_000];
        let mut state = 1u32;
        for byte in &mut noise {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (state >> 24) as u8;
        }
        let (meta, coding) = key(2000);
        let plain = || Ok(PlainBody::Bytes(Bytes::from(noise)));
        let form = make_form(meta, coding, plain).await;
        assert_eq!(form.unwrap(), None);
    }
}
