//! See `trace_checks`.
#![no_main]

#[path = "../trace_checks.rs"]
#[allow(dead_code)]
mod trace_checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| trace_checks::trace_context(data));
