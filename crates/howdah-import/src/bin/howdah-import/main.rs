//! `howdah-import`: translates the configuration of another server for Howdah, or compares the responses of two servers
//! to the requests of an access log. `howdah import` executes this program and then checks what it has written, which
//! needs the server's code. The library `howdah-import` translates; this program contains the arguments, the files that
//! are written, and the output.
//!
//! - [`arguments`]: the command line; [`translate`]: the import; [`verify`]: the comparison.
//! - [`exit`]: exit codes.

#![forbid(unsafe_code)]

mod arguments;
mod exit;
mod translate;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use arguments::ImportArguments;

/// Writes a howdah.toml from the configuration of nginx and php-fpm, or compares two servers.
#[derive(Debug, Parser)]
#[command(name = "howdah-import", version, max_term_width = 100)]
struct ProgramArguments {
    #[command(flatten)]
    import: ImportArguments,
}

fn main() -> ExitCode {
    let ImportArguments { command, verify } = ProgramArguments::parse().import;
    match command {
        None => verify::run(&verify),
        Some(command) => translate::run(command),
    }
}

/// Prints the output of the program and returns the exit code.
fn print_output(text: &str) -> ExitCode {
    match howdah_os::output::write_stdout(text) {
        Ok(()) => exit::done(),
        Err(error) => {
            eprintln!("howdah: cannot write the output: {error}");
            exit::failed()
        }
    }
}
