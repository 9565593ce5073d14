//! Runs simulations of one seed after the other until the time is up, or until one finds a violation.
//!
//! ```text
//! howdah-simulate --seconds 300        new seeds, the first one from the time of day
//! howdah-simulate --seed 7             this seed alone, with its trace
//! ```
//! Exits with 1 after a violation, whose seed and trace it has printed.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime};

use howdah_simulation::{Record, simulate};

/// How many simulations one process runs. Their memory is returned when the process exits.
const SEEDS_PER_PROCESS: u64 = 50;
/// The exit code of a process that has found a violation.
const VIOLATION: u8 = 1;
/// The exit code for unusable arguments, or a simulation that cannot be run.
const UNUSABLE: u8 = 2;

const USAGE: &str = "usage: howdah-simulate --seconds SECONDS | --seed SEED [--count COUNT]";

enum Task {
    /// Run new seeds for this time.
    Search(Duration),
    /// Run `count` seeds from this one on.
    Run { seed: u64, count: u64 },
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match parse(&arguments) {
        Some(Task::Search(time)) => search(time),
        Some(Task::Run { seed, count: 1 }) => run_one(seed),
        Some(Task::Run { seed, count }) => run_all(seed, count),
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(UNUSABLE)
        }
    }
}

fn parse(arguments: &[String]) -> Option<Task> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--seconds", seconds] => Some(Task::Search(Duration::from_secs(seconds.parse().ok()?))),
        ["--seed", seed] => Some(Task::Run {
            seed: seed.parse().ok()?,
            count: 1,
        }),
        ["--seed", seed, "--count", count] => Some(Task::Run {
            seed: seed.parse().ok()?,
            count: count.parse().ok()?,
        }),
        _ => None,
    }
}

/// Runs one seed, and prints its trace.
fn run_one(seed: u64) -> ExitCode {
    let record = simulate(seed);
    for line in &record.lines {
        println!("{line}");
    }
    match record.failure {
        None => {
            println!("seed {seed}: no violation");
            ExitCode::SUCCESS
        }
        Some(failure) => {
            println!("seed {seed}: VIOLATION: {failure}");
            ExitCode::from(VIOLATION)
        }
    }
}

/// Runs several seeds, and prints the trace of the first one with a violation.
fn run_all(first: u64, count: u64) -> ExitCode {
    for seed in first..first.saturating_add(count) {
        let record = simulate(seed);
        if record.failure.is_some() {
            print_violation(seed, &record);
            return ExitCode::from(VIOLATION);
        }
    }
    ExitCode::SUCCESS
}

fn print_violation(seed: u64, record: &Record) {
    for line in &record.lines {
        println!("{line}");
    }
    let failure = record.failure.as_deref().unwrap_or_default();
    println!("\nseed {seed}: VIOLATION: {failure}\nreproduce it with: make simulate SEED={seed}");
}

/// Runs new seeds in processes of their own until the time is up.
fn search(time: Duration) -> ExitCode {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let first = since.map_or(0, |since| since.as_millis() as u64);
    println!("simulate: seeds from {first} on, for {} s", time.as_secs());
    let (begun, mut seed) = (Instant::now(), first);
    while begun.elapsed() < time {
        let status = std::env::current_exe().and_then(|program| {
            let (seed, count) = (seed.to_string(), SEEDS_PER_PROCESS.to_string());
            let arguments = ["--seed", &seed, "--count", &count];
            Command::new(program).args(arguments).status()
        });
        match status {
            Ok(status) if status.success() => seed += SEEDS_PER_PROCESS,
            Ok(status) if status.code() == Some(i32::from(VIOLATION)) => {
                return ExitCode::from(VIOLATION);
            }
            Ok(status) => {
                println!("simulate: the process of the seeds from {seed} on ended: {status}");
                return ExitCode::from(VIOLATION);
            }
            Err(error) => {
                eprintln!("simulate: cannot start a process for the seeds: {error}");
                return ExitCode::from(UNUSABLE);
            }
        }
    }
    println!(
        "simulate: {} seeds in {:.0} s, no violation",
        seed - first,
        begun.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}
