//! What PHP may ask of a pool's shared cache (`howdah_cache_set()`), for `howdah-php`'s Rust and its shim.

/// Most bytes of a key.
pub const MAX_KEY: usize = 1024;
/// Most bytes of a tag.
pub const MAX_TAG: usize = 255;
/// Most tags of a value.
pub const MAX_TAGS: usize = 8;
