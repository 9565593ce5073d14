//! Compresses a body as a whole on another thread, once for all requests that want it. They wait for the result or send
//! the body uncompressed. This module caches nothing: the caller that starts the work decides what happens to the
//! result.

use std::collections::HashMap;
use std::fs::File;
use std::hash::Hash;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use super::codec::Encoder;
use super::negotiate::Coding;
use super::worker::{self, CompressionWork, SLICE_BYTES};

/// How long a response waits for its compressed form before it is sent uncompressed. Most forms are ready in 30 ms,
/// which is worth waiting for, because they have a quarter of the bytes. A longer wait behind other work is not.
const MAX_FORM_WAIT: Duration = Duration::from_millis(250);

/// A body to compress.
pub enum PlainBody {
    /// Bytes that are in memory.
    Bytes(Bytes),
    /// This many bytes from the start of a file.
    File(File, u64),
}

impl PlainBody {
    fn len(&self) -> u64 {
        match self {
            PlainBody::Bytes(bytes) => bytes.len() as u64,
            PlainBody::File(_, len) => *len,
        }
    }
}

/// The result; `None` if the body is to be sent uncompressed.
type WholeForm = Option<Bytes>;

/// The outcome of a compression, for all requests that wait for it.
#[derive(Default)]
struct CompressionOutcome {
    outcome: OnceLock<WholeForm>,
    completed: Notify,
}

impl CompressionOutcome {
    fn complete(&self, outcome: WholeForm) {
        // The first outcome counts.
        let _ = self.outcome.set(outcome);
        self.completed.notify_waiters();
    }

    async fn wait(&self) -> WholeForm {
        loop {
            let completed = self.completed.notified();
            if let Some(outcome) = self.outcome.get() {
                return outcome.clone();
            }
            completed.await;
        }
    }
}

/// The bodies that are being compressed now, by a key that the caller chooses.
pub struct CompressionsInProgress<K>(LazyLock<Mutex<HashMap<K, Arc<CompressionOutcome>>>>);

impl<K: Copy + Eq + Hash + Send> CompressionsInProgress<K> {
    /// Returns an empty set, for a static.
    pub const fn empty() -> CompressionsInProgress<K> {
        CompressionsInProgress(LazyLock::new(Mutex::default))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Arc<CompressionOutcome>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `key`'s body in `coding`, which is made from `plain` unless it is being made already. `keep` is called
    /// with the result, on another thread, before the entry is removed here. Returns `None` if the body is to be sent
    /// uncompressed, because that is shorter, or because too much is being compressed.
    pub async fn wait_for_form(
        &'static self,
        key: K,
        coding: Coding,
        plain: impl FnOnce() -> io::Result<PlainBody>,
        keep: impl FnOnce(&PlainBody, &WholeForm) + Send + 'static,
    ) -> io::Result<WholeForm> {
        let completion = {
            let mut words = self.lock();
            match words.get(&key) {
                Some(completion) => completion.clone(),
                None => {
                    let plain = plain()?;
                    let length = plain.len();
                    let completion = Arc::<CompressionOutcome>::default();
                    let making = WholeBodyWork {
                        encoder: Some(Encoder::new(coding, Some(length))?),
                        plain,
                        at: 0,
                        coded: Vec::new(),
                        end: Some(Box::new(WholeBodyEnd {
                            under_way: self,
                            key,
                            completion: completion.clone(),
                            keep: Some(Box::new(keep)),
                        })),
                    };
                    words.insert(key, completion.clone());
                    drop(words);
                    // Refused work is dropped, which completes its waiters.
                    drop(worker::try_enqueue(Box::new(making), length));
                    completion
                }
            }
        };
        let waited = tokio::time::timeout(MAX_FORM_WAIT, completion.wait()).await;
        Ok(waited.unwrap_or(None))
    }
}

/// Delivers the outcome of a compression.
trait CompressionEnd: Send {
    fn end(&mut self, plain: &PlainBody, outcome: WholeForm);
}

type KeepForm = Box<dyn FnOnce(&PlainBody, &WholeForm) + Send>;

struct WholeBodyEnd<K: Copy + Eq + Hash + Send + 'static> {
    under_way: &'static CompressionsInProgress<K>,
    key: K,
    completion: Arc<CompressionOutcome>,
    keep: Option<KeepForm>,
}

impl<K: Copy + Eq + Hash + Send> CompressionEnd for WholeBodyEnd<K> {
    fn end(&mut self, plain: &PlainBody, outcome: WholeForm) {
        if let Some(keep) = self.keep.take() {
            keep(plain, &outcome);
        }
        self.completion.complete(outcome);
    }
}

impl<K: Copy + Eq + Hash + Send + 'static> Drop for WholeBodyEnd<K> {
    fn drop(&mut self) {
        self.under_way.lock().remove(&self.key);
        self.completion.complete(None);
    }
}

struct WholeBodyWork {
    encoder: Option<Encoder>,
    plain: PlainBody,
    at: u64,
    coded: Vec<u8>,
    end: Option<Box<dyn CompressionEnd>>,
}

impl WholeBodyWork {
    /// Compresses the next slice. Returns true when everything is compressed.
    fn slice(&mut self) -> io::Result<bool> {
        let Some(encoder) = &mut self.encoder else {
            return Ok(true);
        };
        let length = self.plain.len();
        let take = (length - self.at).min(SLICE_BYTES as u64) as usize;
        let mut coded = match &self.plain {
            PlainBody::Bytes(bytes) => encoder.write(&bytes[self.at as usize..][..take])?,
            PlainBody::File(file, _) => {
                let mut slice = vec![0; take];
                file.read_exact_at(&mut slice, self.at)?;
                encoder.write(&slice)?
            }
        };
        self.coded.append(&mut coded);
        self.at += take as u64;
        if self.at < length {
            return Ok(false);
        }
        if let Some(encoder) = self.encoder.take() {
            self.coded.append(&mut encoder.finish()?);
        }
        Ok(true)
    }
}

impl CompressionWork for WholeBodyWork {
    fn step(&mut self) -> bool {
        let outcome = match self.slice() {
            Ok(false) => return false,
            Ok(true) if (self.coded.len() as u64) < self.plain.len() => {
                // `Bytes` would keep the whole capacity of a vector.
                let coded = std::mem::take(&mut self.coded).into_boxed_slice();
                Some(Bytes::from(coded))
            }
            // The result is longer than the original, or the file cannot be read. In the latter case sending it reports
            // the error.
            Ok(true) | Err(_) => None,
        };
        if let Some(mut end) = self.end.take() {
            end.end(&self.plain, outcome);
        }
        true
    }
}
