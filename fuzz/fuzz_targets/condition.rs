//! See `access_checks`.
#![no_main]

#[path = "../access_checks.rs"]
#[allow(dead_code)]
mod access_checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| access_checks::condition(data));
