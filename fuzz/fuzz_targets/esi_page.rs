//! See `esi_checks::esi_page`.
#![no_main]

#[path = "../esi_checks.rs"]
mod esi_checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| esi_checks::esi_page(data));
