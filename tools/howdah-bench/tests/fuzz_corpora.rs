//! Replays the fuzz targets' seeds, and mutations of them, with the stable compiler. Mutations are
//! random but reproducible: a failure prints the bytes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use howdah_bench::plan::template::XorshiftRandom;

#[path = "../../../fuzz/bench_checks.rs"]
mod bench_checks;

/// The number of mutations of every seed.
const MUTATIONS_PER_SEED: u64 = 2000;

fn mutate(random: &mut XorshiftRandom, seed: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.next_between(0, 3) {
        let at = random.next_between(0, bytes.len() as u64) as usize;
        let inside = at < bytes.len();
        match random.next_between(0, 4) {
            0 if inside => bytes[at] = random.next_u64() as u8,
            1 if inside => bytes[at] ^= 1 << random.next_between(0, 7),
            2 if inside => drop(bytes.remove(at)),
            3 => bytes.truncate(at),
            _ => bytes.insert(
                at,
                b"\r\n \t:;,0@[]/{}"[random.next_between(0, 13) as usize],
            ),
        }
    }
    bytes
}

fn exercise(target: &str, check: fn(&[u8])) {
    exercise_with(target, check, MUTATIONS_PER_SEED, 1);
}

/// Replays every seed with this number of mutations, and truncated at every `step`th byte.
fn exercise_with(target: &str, check: fn(&[u8]), mutations: u64, step: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let run = |bytes: &[u8]| {
        if catch_unwind(AssertUnwindSafe(|| check(bytes))).is_err() {
            panic!("{target} fails on {}", bytes.escape_ascii());
        }
    };
    let mut random = XorshiftRandom::new(42, 0);
    let mut seeds = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let seed = std::fs::read(entry.unwrap().path()).unwrap();
        for end in (0..=seed.len()).rev().step_by(step) {
            run(&seed[..end]);
        }
        for _ in 0..mutations {
            run(&mutate(&mut random, &seed));
        }
        seeds += 1;
    }
    assert!(seeds > 3, "{seeds}");
}

#[test]
fn response_corpus() {
    exercise("bench_answer", bench_checks::bench_answer);
}

#[test]
fn target_corpus() {
    exercise("bench_target", bench_checks::bench_target);
}

#[test]
fn access_log_corpus() {
    exercise("bench_log", bench_checks::bench_log);
}

/// A saved run is long, and a report on it takes time, so there are fewer of each.
#[test]
fn saved_run_corpus() {
    exercise_with("bench_saved", bench_checks::bench_saved, 60, 97);
}

#[test]
fn objective_level_and_margin_corpus() {
    exercise("bench_words", bench_checks::bench_words);
}
