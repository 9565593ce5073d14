//! Turns a file found by routing into a response: decides which representation is sent, whether it is sent at all (304,
//! 412), which part (206, 416), and from where (memory, or `sendfile`).
//!
//! A hot small file costs the `statx` that routing has made, and copies of its headers and of a reference to its
//! content. Reading from disk happens on the calling thread, as in nginx without `aio`. Files larger than
//! [`cache::MAX_CACHED_FILE_BYTES`] are only opened here.

use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use howdah_http::message::{RequestHead, ResponseHead};

use super::cache::{self, CachedFile, CodedForms};
use super::range::{SelectedRanges, select};
use super::validators::{PreconditionResult, Preconditions, Validators, is_settled};
use crate::docroot::root::{FileKind, FileMeta, RootDir, read_exact};
use crate::encoding::negotiate::{Coding, choose_coding};
use crate::encoding::policy::is_text_type;
use crate::refusal::Refusal;

/// A file to send, found by routing. It is not open yet.
#[derive(Clone, Debug)]
pub struct StaticPlan {
    /// The document root that the file lies below.
    pub root: Arc<RootDir>,
    /// The path below the root, without a leading slash.
    pub relative: Vec<u8>,
    pub(crate) meta: FileMeta,
    /// The value of `Content-Type`.
    pub(crate) content_type: Bytes,
    /// The value of `Cache-Control`, if a rule sets one.
    pub(crate) cache_control: Option<Bytes>,
    /// Whether to look for `.br`, `.zst` and `.gz` files next to it.
    pub(crate) precompressed: bool,
    /// Whether a script names the file (`X-Accel-Redirect`): its content type may differ from the
    /// file's own.
    pub(crate) accelerated: bool,
}

/// The headers and the body of a response, ready to be sent.
#[derive(Debug)]
pub struct StaticResponse {
    /// Status and headers, without framing.
    pub head: ResponseHead,
    /// The body. A HEAD response contains only its length.
    pub body: StaticBody,
    /// Set if the body is this content as a whole.
    pub cached: Option<Arc<CachedFile>>,
    /// Set if the body is this file as a whole. Boxed because every idle connection reserves the room for it.
    whole_file: Option<Box<FileMeta>>,
    /// For a 304, what a 200 would send; otherwise `None`.
    pub unsent: Option<UnsentFile>,
}

/// What would be sent if the response were a 200 instead of a 304. The 304's header does not contain it (RFC 9110
/// §15.4.5), but it determines whether the 200 would be compressed.
#[derive(Clone, Debug)]
pub struct UnsentFile {
    /// The `Content-Type` that a 200 would have.
    pub content_type: Bytes,
    /// Whether the file that would be sent is a compressed one.
    pub coded: bool,
    /// The length in bytes of the body that a 200 would have.
    pub size: u64,
}

impl StaticResponse {
    fn new(head: ResponseHead, body: StaticBody) -> StaticResponse {
        StaticResponse {
            head,
            body,
            cached: None,
            whole_file: None,
            unsent: None,
        }
    }

    /// Returns the state of the file that is the body as a whole.
    pub fn whole_file_meta(&self) -> Option<FileMeta> {
        match &self.cached {
            Some(entry) => Some(entry.meta),
            None => self.whole_file.as_deref().copied(),
        }
    }
}

/// The source of a response body.
#[derive(Debug)]
pub enum StaticBody {
    /// There is no body (304, 412, 416).
    Empty,
    /// Bytes in memory.
    Bytes(Bytes),
    /// `len` bytes of a file from `offset`.
    File {
        /// A regular file, open for reading.
        file: File,
        /// The offset of the first byte in the file.
        offset: u64,
        /// How many bytes of the file are sent.
        len: u64,
    },
    /// The pieces of a `multipart/byteranges` body.
    Multipart {
        /// The file that the ranges belong to.
        file: File,
        /// The pieces in the order in which they are sent.
        pieces: Vec<BodyPiece>,
    },
}

/// A piece of a multipart body.
#[derive(Clone, Debug)]
pub enum BodyPiece {
    /// A delimiter and the headers of the part after it.
    Text(Bytes),
    /// `len` bytes of the file from `offset`.
    Range {
        /// The offset of the first byte in the file.
        offset: u64,
        /// How many bytes of the file are sent.
        len: u64,
    },
}

impl StaticBody {
    /// Returns the length of the whole body in bytes.
    pub fn len(&self) -> u64 {
        match self {
            StaticBody::Empty => 0,
            StaticBody::Bytes(bytes) => bytes.len() as u64,
            StaticBody::File { len, .. } => *len,
            StaticBody::Multipart { pieces, .. } => pieces
                .iter()
                .map(|piece| match piece {
                    BodyPiece::Text(text) => text.len() as u64,
                    BodyPiece::Range { len, .. } => *len,
                })
                .sum(),
        }
    }

    /// Returns whether the body has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The representation of the resource that was chosen.
struct Representation<'a> {
    relative: Cow<'a, [u8]>,
    meta: FileMeta,
    coding: Option<Coding>,
    /// Whether the response varies, because other codings of the file exist.
    varies: bool,
}

impl StaticPlan {
    /// Returns the response to a GET or HEAD request.
    pub fn respond(self, head: &RequestHead) -> Result<StaticResponse, Refusal> {
        self.respond_at(head, SystemTime::now)
    }

    /// Like [`StaticPlan::respond`]. `now` is called only when a file is read or opened.
    fn respond_at(
        self,
        head: &RequestHead,
        now: impl Fn() -> SystemTime,
    ) -> Result<StaticResponse, Refusal> {
        let conditions = Preconditions::of(head);
        let chosen = self.choose_representation(head, &conditions);
        if chosen.meta.size <= cache::MAX_CACHED_FILE_BYTES
            && !self.accelerated
            && let Some(entry) = self.cached_file(&chosen, &now)?
        {
            return Ok(self.respond_from_memory(head, &conditions, &chosen, &entry));
        }
        self.respond_from_file(head, &conditions, &chosen, now())
    }

    /// Chooses the original, or a precompressed file next to it that the client accepts.
    ///
    /// A precompressed file is used if it is a regular file that is not older than the original (in whole seconds,
    /// since `gzip -k` and most build tools copy the time): an outdated one would serve old content for ever. Ranges
    /// refer to the original, because clients use its offsets.
    fn choose_representation(
        &self,
        head: &RequestHead,
        conditions: &Preconditions<'_>,
    ) -> Representation<'_> {
        let original = |varies| Representation {
            relative: Cow::Borrowed(&self.relative[..]),
            meta: self.meta,
            coding: None,
            varies,
        };
        let end = self.content_type.iter().position(|b| *b == b';');
        let essence = &self.content_type[..end.unwrap_or(self.content_type.len())];
        if !self.precompressed || !conditions.accept_encoding || !is_text_type(essence) {
            return original(false);
        }
        let mut there: Vec<(Coding, Vec<u8>, FileMeta)> = Vec::new();
        // The server's order of preference between codings of equal weight: the smallest first.
        for (coding, suffix) in [
            (Coding::Brotli, &b".br"[..]),
            (Coding::Zstd, b".zst"),
            (Coding::Gzip, b".gz"),
        ] {
            let name = [&self.relative[..], suffix].concat();
            if let Ok(meta) = self.root.stat_relative(&name)
                && meta.kind == FileKind::File
                && meta.mtime.0 >= self.meta.mtime.0
            {
                there.push((coding, name, meta));
            }
        }
        let offered: Vec<Coding> = there.iter().map(|(coding, ..)| *coding).collect();
        let chosen = choose_coding(head.header_all(b"accept-encoding"), &offered)
            .filter(|_| conditions.range.is_none());
        let varies = !there.is_empty();
        match there
            .into_iter()
            .find(|(coding, ..)| Some(*coding) == chosen)
        {
            Some((coding, relative, meta)) => Representation {
                relative: Cow::Owned(relative),
                meta,
                coding: Some(coding),
                varies,
            },
            None => original(varies),
        }
    }

    /// Returns the file from memory, and reads it if it is not there yet. Returns `None` if the file changes meanwhile,
    /// or has become too large, and should be sent from the open file.
    fn cached_file(
        &self,
        chosen: &Representation<'_>,
        now: impl Fn() -> SystemTime,
    ) -> Result<Option<Arc<CachedFile>>, Refusal> {
        let id = self.root.id();
        let kept = cache::with_thread_cache(|cache| cache.get(id, &chosen.relative, &chosen.meta));
        if kept.is_some() {
            return Ok(kept);
        }
        let (file, meta) = self.root.open_file(&chosen.relative)?;
        let now = now();
        if meta != chosen.meta || !is_settled(&meta, now) {
            return Ok(None);
        }
        let Ok(body) = read_exact(&file, meta.size as usize) else {
            return Ok(None);
        };
        // The file was settled when it was read, and its times are still the same, so this is the content that they
        // identify.
        if self.root.stat_relative(&chosen.relative) != Ok(meta) {
            return Ok(None);
        }
        let validators = Validators::of(&meta, etag_suffix(chosen.coding), now);
        let entry = Arc::new(CachedFile {
            meta,
            body: Bytes::from(body),
            head: self.head(200, chosen, &validators),
            validators,
            coded: CodedForms::default(),
        });
        cache::with_thread_cache(|cache| cache.put(id, &chosen.relative, entry.clone()));
        Ok(Some(entry))
    }

    fn respond_from_memory(
        &self,
        head: &RequestHead,
        conditions: &Preconditions<'_>,
        chosen: &Representation<'_>,
        entry: &Arc<CachedFile>,
    ) -> StaticResponse {
        let selected = match conditions.evaluate(head, &entry.validators) {
            PreconditionResult::Send => {
                self.selected(conditions, &entry.validators, entry.meta.size)
            }
            other => return self.without_body(other, chosen, &entry.validators),
        };
        match selected {
            SelectedRanges::All => StaticResponse {
                cached: Some(entry.clone()),
                whole_file: None,
                unsent: None,
                // `varies` may have changed since then, because another precompressed file was added or removed.
                head: if chosen.varies && chosen.coding.is_none() {
                    self.head(200, chosen, &entry.validators)
                } else {
                    entry.head.clone()
                },
                body: StaticBody::Bytes(entry.body.clone()),
            },
            SelectedRanges::One(start, end) => StaticResponse::new(
                self.partial(chosen, &entry.validators, start, end),
                StaticBody::Bytes(entry.body.slice(start as usize..end as usize)),
            ),
            SelectedRanges::Several(ranges) => {
                let (head, pieces) = self.multipart(chosen, &entry.validators, &ranges);
                let mut body = Vec::new();
                for piece in pieces {
                    match piece {
                        BodyPiece::Text(text) => body.extend_from_slice(&text),
                        BodyPiece::Range { offset, len } => {
                            let end = (offset + len) as usize;
                            body.extend_from_slice(&entry.body[offset as usize..end]);
                        }
                    }
                }
                StaticResponse::new(head, StaticBody::Bytes(Bytes::from(body)))
            }
            SelectedRanges::Unsatisfiable => self.unsatisfiable(chosen, &entry.validators),
        }
    }

    fn respond_from_file(
        &self,
        head: &RequestHead,
        conditions: &Preconditions<'_>,
        chosen: &Representation<'_>,
        now: SystemTime,
    ) -> Result<StaticResponse, Refusal> {
        // The metadata comes from the open descriptor, so it describes exactly what will be sent.
        let (file, meta) = self.root.open_file(&chosen.relative)?;
        let validators = Validators::of(&meta, etag_suffix(chosen.coding), now);
        let selected = match conditions.evaluate(head, &validators) {
            PreconditionResult::Send => self.selected(conditions, &validators, meta.size),
            other => return Ok(self.without_body(other, chosen, &validators)),
        };
        let now_chosen = Representation {
            relative: Cow::Borrowed(&chosen.relative),
            meta,
            coding: chosen.coding,
            varies: chosen.varies,
        };
        let size = meta.size;
        Ok(match selected {
            SelectedRanges::All => StaticResponse {
                whole_file: Some(Box::new(meta)),
                ..StaticResponse::new(
                    self.head(200, &now_chosen, &validators),
                    file_body(file, 0, size),
                )
            },
            SelectedRanges::One(start, end) => StaticResponse::new(
                self.partial(&now_chosen, &validators, start, end),
                file_body(file, start, end - start),
            ),
            SelectedRanges::Several(ranges) => {
                let (head, pieces) = self.multipart(&now_chosen, &validators, &ranges);
                StaticResponse::new(head, StaticBody::Multipart { file, pieces })
            }
            SelectedRanges::Unsatisfiable => self.unsatisfiable(&now_chosen, &validators),
        })
    }

    fn selected(
        &self,
        conditions: &Preconditions<'_>,
        validators: &Validators,
        size: u64,
    ) -> SelectedRanges {
        match conditions.range {
            Some(range) if conditions.range_applies(validators) => select(range, size),
            _ => SelectedRanges::All,
        }
    }

    /// Returns the headers of the whole representation.
    fn head(
        &self,
        status: u16,
        chosen: &Representation<'_>,
        validators: &Validators,
    ) -> ResponseHead {
        let mut head = ResponseHead::new(status);
        if status != 304 {
            head.header(b"Content-Type", &self.content_type);
            if let Some(coding) = chosen.coding {
                head.header(b"Content-Encoding", coding.token().as_bytes());
            }
        }
        self.metadata(&mut head, chosen, validators);
        head
    }

    /// Adds the headers that a 200 and a 304 have in common (RFC 9110 §15.4.5).
    fn metadata(
        &self,
        head: &mut ResponseHead,
        chosen: &Representation<'_>,
        validators: &Validators,
    ) {
        if let Some(etag) = &validators.etag {
            head.header(b"ETag", etag);
        }
        head.header(b"Last-Modified", validators.http_date().as_bytes());
        if let Some(cache_control) = &self.cache_control {
            head.header(b"Cache-Control", cache_control);
        }
        if chosen.varies || chosen.coding.is_some() {
            head.header(b"Vary", b"Accept-Encoding");
        }
        if head.status != 304 {
            head.header(b"Accept-Ranges", b"bytes");
        }
    }

    fn without_body(
        &self,
        outcome: PreconditionResult,
        chosen: &Representation<'_>,
        validators: &Validators,
    ) -> StaticResponse {
        let (head, unsent) = match outcome {
            PreconditionResult::NotModified => {
                let unsent = UnsentFile {
                    content_type: self.content_type.clone(),
                    coded: chosen.coding.is_some(),
                    size: chosen.meta.size,
                };
                (self.head(304, chosen, validators), Some(unsent))
            }
            _ => (ResponseHead::new(412), None),
        };
        StaticResponse {
            unsent,
            ..StaticResponse::new(head, StaticBody::Empty)
        }
    }

    fn unsatisfiable(
        &self,
        chosen: &Representation<'_>,
        validators: &Validators,
    ) -> StaticResponse {
        let mut head = ResponseHead::new(416);
        head.header(
            b"Content-Range",
            format!("bytes */{}", chosen.meta.size).as_bytes(),
        );
        self.metadata(&mut head, chosen, validators);
        StaticResponse::new(head, StaticBody::Empty)
    }

    fn partial(
        &self,
        chosen: &Representation<'_>,
        validators: &Validators,
        start: u64,
        end: u64,
    ) -> ResponseHead {
        let mut head = self.head(206, chosen, validators);
        head.header(
            b"Content-Range",
            content_range(start, end, chosen.meta.size).as_bytes(),
        );
        head
    }

    /// Returns header and pieces of a multipart response (RFC 9110 §14.6). The boundary cannot be guessed, so content
    /// cannot contain it on purpose.
    fn multipart(
        &self,
        chosen: &Representation<'_>,
        validators: &Validators,
        ranges: &[(u64, u64)],
    ) -> (ResponseHead, Vec<BodyPiece>) {
        let boundary = boundary();
        let mut pieces = Vec::with_capacity(2 * ranges.len() + 1);
        for (number, (start, end)) in ranges.iter().enumerate() {
            let mut text = Vec::new();
            if number > 0 {
                text.extend_from_slice(b"\r\n");
            }
            let range = content_range(*start, *end, chosen.meta.size);
            text.extend_from_slice(format!("--{boundary}\r\nContent-Type: ").as_bytes());
            text.extend_from_slice(&self.content_type);
            text.extend_from_slice(format!("\r\nContent-Range: {range}\r\n\r\n").as_bytes());
            pieces.push(BodyPiece::Text(Bytes::from(text)));
            pieces.push(BodyPiece::Range {
                offset: *start,
                len: end - start,
            });
        }
        pieces.push(BodyPiece::Text(Bytes::from(format!(
            "\r\n--{boundary}--\r\n"
        ))));
        let mut head = ResponseHead::new(206);
        let media_type = format!("multipart/byteranges; boundary={boundary}");
        head.header(b"Content-Type", media_type.as_bytes());
        self.metadata(&mut head, chosen, validators);
        (head, pieces)
    }
}

fn file_body(file: File, offset: u64, len: u64) -> StaticBody {
    StaticBody::File { file, offset, len }
}

/// Returns a suffix for the entity tag: codings of one resource need different tags (RFC 9110 §8.8.3.3).
fn etag_suffix(coding: Option<Coding>) -> &'static str {
    match coding {
        None => "",
        Some(Coding::Brotli) => "-br",
        Some(Coding::Zstd) => "-zst",
        Some(Coding::Gzip) => "-gz",
    }
}

fn content_range(start: u64, end: u64, size: u64) -> String {
    format!("bytes {start}-{}/{size}", end - 1)
}

fn boundary() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // The boundary is SipHash of a counter, keyed by the system's randomness.
    let keys = RandomState::new();
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!(
        "{:016x}{:016x}",
        keys.hash_one(number),
        keys.hash_one(!number)
    )
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
