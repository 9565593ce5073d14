//! See `bench_checks::bench_log`.
#![no_main]

#[path = "../bench_checks.rs"]
#[allow(dead_code)]
mod bench_checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bench_checks::bench_log(data));
