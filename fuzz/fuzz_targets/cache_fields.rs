//! See `cache_checks::cache_fields`.
#![no_main]

#[path = "../cache_checks.rs"]
mod cache_checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| cache_checks::cache_fields(data));
