//! See `import_checks`.
#![no_main]

#[path = "../import_checks.rs"]
mod import_checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| import_checks::import_configuration(data));
