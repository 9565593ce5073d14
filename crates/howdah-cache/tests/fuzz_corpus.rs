//! Replays the fuzz corpus with the stable compiler: what once went wrong stays right.

#[path = "../../../fuzz/cache_checks.rs"]
mod cache_checks;

use std::path::Path;

#[test]
fn every_seed_and_all_its_prefixes_hold() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/cache_fields");
    let mut seeds = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let seed = std::fs::read(entry.unwrap().path()).unwrap();
        for end in 0..=seed.len() {
            cache_checks::cache_fields(&seed[..end]);
        }
        seeds += 1;
    }
    assert!(seeds >= 3, "{seeds}");
}
