//! See `htaccess_checks`.
#![no_main]

#[path = "../htaccess_checks.rs"]
mod htaccess_checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| htaccess_checks::htaccess(data));
