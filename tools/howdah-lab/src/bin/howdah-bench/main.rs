//! `howdah-bench`: the load tester (`bench`) and the comparison of servers (`compare`) on the command line. `howdah
//! bench` and `howdah compare` execute this program. The libraries `howdah-bench` and `howdah-lab` do the work; this
//! program contains options, signals, progress, exit codes and the places where results are written.
//!
//! - [`bench`]: the load tester; [`compare`]: the comparison on benchmarks; [`compare_app`]: the comparison on a user's
//!   own application.
//! - [`suites`]: the suites that `compare` measures; [`progress`]: its progress.
//! - [`interrupt`]: Ctrl-C; [`exit`]: exit codes.

#![forbid(unsafe_code)]

mod bench;
mod compare;
mod compare_app;
mod exit;
mod interrupt;
mod progress;
mod suites;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures web servers: one with `bench`, several side by side with `compare`.
#[derive(Debug, Parser)]
#[command(name = "howdah-bench", version, max_term_width = 100)]
struct ProgramArguments {
    /// The command to execute.
    #[command(subcommand)]
    command: ProgramCommand,
}

/// The commands. `howdah --help` lists them with the same sentences.
#[derive(Debug, Subcommand)]
enum ProgramCommand {
    /// Measure a web server, and report how reliable the figures are (takes ab's options).
    #[command(version, disable_version_flag = true)]
    Bench(Box<howdah_bench::command::BenchArguments>),
    /// Compare Howdah with other servers on this machine, in benchmarks or with your own application.
    Compare(Box<compare::CompareArguments>),
}

fn main() -> ExitCode {
    match ProgramArguments::parse().command {
        ProgramCommand::Bench(bench) => bench::run(&bench),
        ProgramCommand::Compare(compare) => compare::run(&compare),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The program `howdah` has the same test; it lists these commands and leaves their help to this program.
    #[test]
    fn help_of_every_command_has_an_example() {
        fn look(command: &clap::Command, name: &str, without: &mut Vec<String>) {
            for command in command.get_subcommands() {
                let name = format!("{name} {}", command.get_name());
                let after = command.get_after_help().map(ToString::to_string);
                if !after.is_some_and(|after| after.contains(&format!("\n  {name}"))) {
                    without.push(name.clone());
                }
                look(command, &name, without);
            }
        }
        let mut without = Vec::new();
        look(&ProgramArguments::command(), "howdah", &mut without);
        assert!(without.is_empty(), "{without:?}");
    }
}
