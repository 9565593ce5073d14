//! `howdah-takeover`: the program behind `howdah takeover`.
//!
//! - [`arguments`]: the command line, which the program `howdah` compiles as well; [`exit`]: exit codes.
//! - [`plan`]: `howdah takeover plan`; [`trial`]: `howdah takeover try`.

#![forbid(unsafe_code)]

mod arguments;
mod exit;
mod plan;
mod trial;

use std::process::ExitCode;

use clap::Parser;

use arguments::{TakeoverArguments, TakeoverCommand};

/// Moves this machine from nginx, Apache and php-fpm to Howdah.
#[derive(Debug, Parser)]
#[command(name = "howdah-takeover", version, max_term_width = 100)]
struct ProgramArguments {
    #[command(flatten)]
    takeover: TakeoverArguments,
}

fn main() -> ExitCode {
    match ProgramArguments::parse().takeover.command {
        TakeoverCommand::Plan(arguments) => plan::run(&arguments),
        TakeoverCommand::Try(arguments) => trial::run(&arguments),
        TakeoverCommand::Switch(_) => exit::failed(),
        TakeoverCommand::Rollback(_) => exit::failed(),
        TakeoverCommand::Status(_) => exit::failed(),
    }
}
