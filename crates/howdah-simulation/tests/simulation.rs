//! A seed decides everything that happens in a simulation, and the program reports it.

use std::process::{Command, Output};

use howdah_simulation::simulate;

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let program = env!("CARGO_BIN_EXE_howdah-simulate");
    let Output { status, stdout, .. } = Command::new(program).args(arguments).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap())
}

#[test]
fn simulation_of_the_same_seed_has_the_same_trace() {
    for seed in 1..=6 {
        let (first, second) = (simulate(seed), simulate(seed));
        assert_eq!(first.failure, None, "seed {seed}: {:#?}", first.lines);
        let differ = first.lines.iter().zip(&second.lines).find(|(a, b)| a != b);
        assert_eq!(differ, None, "seed {seed}");
        assert_eq!(first.lines.len(), second.lines.len(), "seed {seed}");
        assert!(first.lines.len() > 20, "seed {seed}: {:#?}", first.lines);
    }
}

#[test]
fn program_prints_the_trace_that_a_seed_has_in_another_process() {
    let record = simulate(7);
    assert_eq!(record.failure, None, "{:#?}", record.lines);
    let printed = record.lines.join("\n") + "\nseed 7: no violation\n";
    assert_eq!(run(&["--seed", "7"]), (Some(0), printed));
    assert_eq!(run(&["--seed", "x"]), (Some(2), String::new()));
}
