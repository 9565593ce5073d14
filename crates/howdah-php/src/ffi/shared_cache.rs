//! The functions by which the shim uses the shared cache; see `shim/effects/internal.h`.

use std::time::Duration;

use super::text::bytes;
use crate::shared_cache::{self, StoreResult};

/// Bytes that C lends for the duration of a call.
#[repr(C)]
#[derive(Debug)]
struct Span {
    at: *const u8,
    len: usize,
}

#[unsafe(no_mangle)]
extern "C" fn howdah_shared_cache_begin() {
    shared_cache::begin_request();
}

#[unsafe(no_mangle)]
extern "C" fn howdah_shared_cache_exists() -> bool {
    shared_cache::cache().is_some()
}

/// # Safety
/// `key` and `len` meet the requirements of [`bytes`]. The bytes that `found` and `found_len` describe afterwards are
/// valid until the next call.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_shared_cache_get(
    key: *const u8,
    len: usize,
    found: &mut *const u8,
    found_len: &mut usize,
) -> bool {
    // SAFETY: as this function demands.
    let key = unsafe { bytes(key, len) };
    shared_cache::cache().is_some_and(|cache| {
        cache.get(key, |value| {
            *found = value.as_ptr();
            *found_len = value.len();
        })
    })
}

/// # Safety
/// `key` and `len`, `value` and `value_len`, and each of the `tag_count` spans meet the requirements of [`bytes`].
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_shared_cache_keep(
    key: *const u8,
    len: usize,
    value: *const u8,
    value_len: usize,
    ttl: u64,
    tags: *const Span,
    tag_count: usize,
    only_new: bool,
) -> bool {
    // SAFETY: as this function demands.
    let (key, value) = unsafe { (bytes(key, len), bytes(value, value_len)) };
    let tags = match tag_count {
        0 => &[],
        // SAFETY: as this function demands.
        _ => unsafe { std::slice::from_raw_parts(tags, tag_count) },
    };
    // SAFETY: as this function demands.
    let tags = tags.iter().map(|tag| unsafe { bytes(tag.at, tag.len) });
    let ttl = (ttl > 0).then(|| Duration::from_secs(ttl));
    shared_cache::cache()
        .is_some_and(|cache| cache.set(key, value, ttl, tags, only_new) == StoreResult::Stored)
}

/// # Safety
/// `key` and `len` meet the requirements of [`bytes`].
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_shared_cache_delete(key: *const u8, len: usize) -> bool {
    // SAFETY: as this function demands.
    let key = unsafe { bytes(key, len) };
    shared_cache::cache().is_some_and(|cache| cache.delete(key))
}

/// # Safety
/// `key` and `len` meet the requirements of [`bytes`].
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_shared_cache_increment(
    key: *const u8,
    len: usize,
    step: i64,
    sum: &mut i64,
) -> bool {
    // SAFETY: as this function demands.
    let key = unsafe { bytes(key, len) };
    let added = shared_cache::cache().and_then(|cache| cache.increment(key, step));
    *sum = added.unwrap_or_default();
    added.is_some()
}

/// # Safety
/// `tag` and `len` meet the requirements of [`bytes`].
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_shared_cache_delete_tag(tag: *const u8, len: usize) {
    // SAFETY: as this function demands.
    let tag = unsafe { bytes(tag, len) };
    if let Some(cache) = shared_cache::cache() {
        cache.delete_tag(tag);
    }
}

#[unsafe(no_mangle)]
extern "C" fn howdah_shared_cache_info(figures: &mut [u64; 6]) -> bool {
    let info = shared_cache::info();
    let it = info.unwrap_or_default();
    *figures = [it.size, it.used, it.values, it.hits, it.misses, it.evicted];
    info.is_some()
}
