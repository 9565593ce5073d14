//! See `front_checks::whole_front`.
#![no_main]

#[path = "../front_checks.rs"]
mod front_checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| front_checks::whole_front(data));
