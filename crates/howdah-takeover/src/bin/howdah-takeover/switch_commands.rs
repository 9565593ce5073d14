//! `howdah takeover switch`, `rollback`, `status` and `resume`: prints results, and chooses the exit code.

use std::path::Path;
use std::process::ExitCode;

use howdah_os::output::{write_stderr_line, write_stdout};
use howdah_takeover::switch::failure::SwitchFailure;
use howdah_takeover::switch::state::{Phase, SwitchState};
use howdah_takeover::switch::status::TakeoverStatus;
use howdah_takeover::switch::steps;

use crate::arguments::{
    ResumeArguments, RollbackArguments, StatusArguments, SwitchArguments, TakeoverDirectory,
};
use crate::exit;

/// Runs `switch`. Succeeds if Howdah serves at the end.
pub fn switch(arguments: &SwitchArguments) -> ExitCode {
    match steps::switch(&arguments.directory.dir, arguments.watch) {
        Ok(state) => print_end(&arguments.directory, &state, Phase::Kept),
        Err(failures) => print_failures(&failures),
    }
}

/// Runs `rollback`. Succeeds if the old servers serve at the end.
pub fn roll_back(arguments: &RollbackArguments) -> ExitCode {
    match steps::roll_back(&arguments.directory.dir) {
        Ok(state) => print_end(&arguments.directory, &state, Phase::RolledBack),
        Err(failure) => print_failures(&[failure]),
    }
}

/// Runs `resume`. Succeeds if every step did, whichever server serves at the end: the init system starts it again
/// otherwise.
pub fn resume(arguments: &ResumeArguments) -> ExitCode {
    match steps::resume(&arguments.directory.dir) {
        Ok(Some(state)) => print_end(&arguments.directory, &state, state.phase),
        Ok(None) => exit::done(),
        Err(failure) => print_failures(&[failure]),
    }
}

/// Runs `status`.
pub fn status(arguments: &StatusArguments) -> ExitCode {
    print_status(&arguments.directory, exit::done())
}

fn print_end(directory: &TakeoverDirectory, state: &SwitchState, success: Phase) -> ExitCode {
    print_status(
        directory,
        match state.phase == success {
            true => exit::done(),
            false => exit::failed(),
        },
    )
}

fn print_status(directory: &TakeoverDirectory, code: ExitCode) -> ExitCode {
    let dir: &Path = &directory.dir;
    let text = TakeoverStatus::read(dir).map(|status| match directory.json {
        true => serde_json::to_string_pretty(&status).unwrap_or_default(),
        false => status.text(),
    });
    match text.map(|text| write_stdout(&text)) {
        Ok(Ok(())) => code,
        Ok(Err(error)) => {
            write_stderr_line(&format!("howdah: cannot write the output: {error}"));
            exit::failed()
        }
        Err(failure) => print_failures(&[failure]),
    }
}

fn print_failures(failures: &[SwitchFailure]) -> ExitCode {
    for failure in failures {
        write_stderr_line(&format!("howdah: {failure}"));
    }
    exit::failed()
}
