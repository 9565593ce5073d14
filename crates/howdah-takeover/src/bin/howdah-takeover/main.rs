//! `howdah-takeover`: the program behind `howdah takeover`.
//!
//! - [`arguments`]: the command line, which the program `howdah` compiles as well; [`exit`]: exit codes.
//! - [`plan`]: `howdah takeover plan`; [`trial`]: `howdah takeover try`.
//! - [`switch_commands`]: `switch`, `rollback`, `status` and `resume`.

#![forbid(unsafe_code)]

mod arguments;
mod exit;
mod plan;
mod switch_commands;
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
        TakeoverCommand::Switch(arguments) => switch_commands::switch(&arguments),
        TakeoverCommand::Rollback(arguments) => switch_commands::roll_back(&arguments),
        TakeoverCommand::Status(arguments) => switch_commands::status(&arguments),
        TakeoverCommand::Resume(arguments) => switch_commands::resume(&arguments),
    }
}
