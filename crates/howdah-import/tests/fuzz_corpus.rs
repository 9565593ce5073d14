//! Replays the seeds of the fuzz target, whole and with pieces removed, duplicated or exchanged, on the stable
//! compiler.

use std::path::Path;

#[path = "../../../fuzz/import_checks.rs"]
mod import_checks;

#[test]
fn import_configuration() {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/import_configuration");
    let mut seeds = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let seed = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        seeds += 1;
        import_checks::import_configuration(seed.as_bytes());
        for end in seed.char_indices().map(|(at, _)| at).step_by(97) {
            import_checks::import_configuration(&seed.as_bytes()[..end]);
        }
        let words: Vec<&str> = seed.split_inclusive([' ', ';', '{', '}', '\n']).collect();
        for at in (0..words.len()).step_by(9) {
            let without = [&words[..at], &words[at + 1..]].concat().concat();
            import_checks::import_configuration(without.as_bytes());
            let (before, after) = words.split_at(at);
            let doubled = [before, &words[at..=at], after].concat().concat();
            import_checks::import_configuration(doubled.as_bytes());
            let exchanged = words[(at * 7 + 3) % words.len()];
            let other = [before, &[exchanged], &words[at + 1..]].concat().concat();
            import_checks::import_configuration(other.as_bytes());
        }
    }
    assert!(seeds >= 6, "{seeds} seeds");
}
