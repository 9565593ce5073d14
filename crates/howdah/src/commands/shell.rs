//! `howdah completion` and `howdah man`: shell completions and manual pages, generated from the definition of the
//! command line.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;

use super::print_output;
use crate::exit;
use howdah_config::arguments::{CommandLineArguments, CompletionArguments, ManArguments};

/// Runs `howdah completion SHELL`.
pub fn complete(arguments: &CompletionArguments) -> ExitCode {
    let mut text = Vec::new();
    let mut command = CommandLineArguments::command();
    clap_complete::generate(arguments.shell, &mut command, "howdah", &mut text);
    print_output(&String::from_utf8_lossy(&text))
}

/// Runs `howdah man DIRECTORY`, which writes a page for the program and one for each command, such as `howdah-serve.1`.
pub fn manual(arguments: &ManArguments) -> ExitCode {
    match write_pages(&arguments.directory) {
        Ok(()) => exit::done(),
        Err(error) => {
            let directory = arguments.directory.display();
            eprintln!("howdah: cannot write the manual to {directory}: {error}");
            exit::failed()
        }
    }
}

fn write_pages(directory: &Path) -> io::Result<()> {
    let command = CommandLineArguments::command().version(env!("CARGO_PKG_VERSION"));
    clap_mangen::generate_to(command.disable_help_subcommand(true), directory)
}
