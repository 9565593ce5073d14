//! See `htaccess_live_checks`.
#![no_main]

#[path = "../htaccess_live_checks.rs"]
mod htaccess_live_checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| htaccess_live_checks::htaccess_live(data));
