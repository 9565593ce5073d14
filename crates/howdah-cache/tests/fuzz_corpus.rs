//! Replays the fuzz corpus with the stable compiler, so that fixed mistakes stay fixed.

#[path = "../../../fuzz/cache_checks.rs"]
mod cache_checks;
#[path = "../../../fuzz/cache_file_checks.rs"]
mod cache_file_checks;
#[path = "../../../fuzz/esi_checks.rs"]
mod esi_checks;

use std::path::Path;

fn replay(target: &str, check: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut seeds = 0;
    for entry in std::fs::read_dir(corpus.join(target)).unwrap() {
        let seed = std::fs::read(entry.unwrap().path()).unwrap();
        for end in 0..=seed.len() {
            check(&seed[..end]);
        }
        seeds += 1;
    }
    assert!(seeds >= 3, "{seeds}");
}

#[test]
fn every_seed_of_fields_and_all_its_prefixes_hold() {
    replay("cache_fields", cache_checks::cache_fields);
}

#[test]
fn every_seed_of_files_and_all_its_prefixes_hold() {
    replay("cache_file", cache_file_checks::cache_file);
}

#[test]
fn every_seed_of_esi_pages_and_all_its_prefixes_hold() {
    replay("esi_page", esi_checks::esi_page);
}
