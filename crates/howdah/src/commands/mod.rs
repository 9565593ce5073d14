//! The commands. Some communicate with a running server, and some do not.

pub mod cache;
pub mod cert;
pub mod check;
mod check_access;
mod check_directory;
mod check_files;
mod check_object_cache;
mod check_sessions;
mod client;
pub mod command_line;
pub mod dashboard;
pub mod explain;
pub mod external;
pub mod import;
mod import_responses;
pub mod init;
pub mod job;
pub mod lifecycle;
pub mod modes;
pub mod run;
mod served_php;
pub mod shell;
pub mod status;
pub mod warm;
mod watch;

use std::path::Path;
use std::process::ExitCode;

use crate::exit;
use crate::master::control::ControlResponse;
use howdah_config::environment::EnvironmentOptions;
use howdah_config::php::{self, PhpUse};
use howdah_config::php_variables;
use howdah_executor::PhpProgram;

/// Prints the output of a command and returns the exit code.
fn print_output(text: &str) -> ExitCode {
    match howdah_os::output::write_stdout(text) {
        Ok(()) => exit::done(),
        Err(error) => {
            eprintln!("howdah: cannot write the output: {error}");
            exit::failed()
        }
    }
}

/// Prints what a server has done, or why it has failed.
fn print_outcome(answered: Result<ControlResponse, String>) -> ExitCode {
    match answered {
        Ok(done) if done.ok => print_output(&done.message),
        Ok(refused) => {
            eprintln!("howdah: {}", refused.message);
            exit::failed()
        }
        Err(why) => {
            eprintln!("howdah: {why}");
            exit::no_server()
        }
    }
}

/// Returns the settings from a container's `PHP_…` variables for the PHP that a command starts, and prints advice about
/// them.
fn settings_of_variables(
    command: &str,
    program: &PhpProgram,
    php_ini: Option<&Path>,
) -> Result<Vec<(String, String)>, String> {
    let variables = EnvironmentOptions::of_process().php;
    let meaning = php_variables::settings_of_variables(&variables, program, php_ini)?;
    for advice in meaning.advice {
        eprintln!("howdah {command}: {advice}");
    }
    Ok(meaning.settings)
}

/// Runs `howdah version`.
pub fn version() -> ExitCode {
    // `howdah compare` looks for `(not optimised)`, because such a program needs several times the CPU time.
    let ours = if cfg!(debug_assertions) {
        concat!("howdah ", env!("CARGO_PKG_VERSION"), " (not optimised)")
    } else {
        concat!("howdah ", env!("CARGO_PKG_VERSION"))
    };
    let found = php::find(None, PhpUse::Serve).and_then(|program| {
        let version = php::version(&program)?;
        Ok((program, version))
    });
    match found {
        Ok((program, version)) => print_output(&format!(
            "{ours}\nphp {} {} ({program})\nlibrary {}",
            version.php,
            version.thread_safety,
            program.library.display()
        )),
        Err(why) => {
            print_output(ours);
            eprintln!("howdah: {why}");
            exit::php()
        }
    }
}
