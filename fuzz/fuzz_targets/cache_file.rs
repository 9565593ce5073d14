//! See `cache_file_checks::cache_file`.
#![no_main]

#[path = "../cache_file_checks.rs"]
mod cache_file_checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| cache_file_checks::cache_file(data));
