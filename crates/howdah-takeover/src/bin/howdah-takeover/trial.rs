//! `howdah takeover try`: runs the trial, shows its progress on a terminal, and prints the result.

use std::io::IsTerminal;
use std::process::ExitCode;

use howdah_takeover::trial::report::report;
use howdah_takeover::trial::run::{self, TrialError, TrialOptions};
use howdah_takeover::trial::site::TrialLimits;

use crate::arguments::TryArguments;
use crate::exit;

/// Runs `howdah takeover try`. The exit code is 0 if all sites are equal.
pub fn run(arguments: &TryArguments) -> ExitCode {
    let options = TrialOptions {
        directory: arguments.directory.dir.clone(),
        limits: TrialLimits {
            most: arguments.most,
            pause: arguments.pause,
            time: arguments.time_limit,
        },
        first_port: arguments.first_port,
    };
    let is_terminal = std::io::stderr().is_terminal();
    let progress = |done: usize, all: usize| {
        if is_terminal {
            // Returns to the beginning of the line and clears it (ECMA-48 §8.3.41).
            eprint!("\r\x1b[Khowdah: {done} of {all} sites compared");
        }
    };
    let result = run::run(&options, &progress);
    if is_terminal {
        eprint!("\r\x1b[K");
    }
    match result {
        Ok(trial) => {
            let text = match arguments.directory.json {
                true => serde_json::to_string_pretty(&trial).expect("a trial is JSON"),
                false => report(&trial),
            };
            print_result(&text, trial.all_equal())
        }
        Err(error) => {
            eprintln!("howdah: {error}");
            exit_code(&error)
        }
    }
}

fn print_result(text: &str, all_equal: bool) -> ExitCode {
    match howdah_os::output::write_stdout(text) {
        Ok(()) if all_equal => exit::done(),
        Ok(()) => exit::failed(),
        Err(error) => {
            eprintln!("howdah: cannot write the output: {error}");
            exit::failed()
        }
    }
}

fn exit_code(error: &TrialError) -> ExitCode {
    match error {
        TrialError::PlanUnreadable(_)
        | TrialError::ConfigurationUnreadable(_)
        | TrialError::PreviewDoesNotStart(_) => exit::configuration(),
        TrialError::OldServerUnreachable(_) => exit::no_server(),
        TrialError::TrialInProgress(_)
        | TrialError::PreviewExited(_)
        | TrialError::ResultNotWritten(_) => exit::failed(),
    }
}
