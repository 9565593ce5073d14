//! Exit codes. Documented in `docs/operations.md` and `howdah --help`.

use std::process::ExitCode;

/// Done.
pub fn done() -> ExitCode {
    ExitCode::SUCCESS
}

/// What was asked for could not be done.
pub fn failed() -> ExitCode {
    ExitCode::from(1)
}

/// The configuration has mistakes. (2 is clap's: the command line has.)
pub fn configuration() -> ExitCode {
    ExitCode::from(3)
}

/// PHP is missing or unfit.
pub fn php() -> ExitCode {
    ExitCode::from(4)
}

/// An address, control socket or pid file is in use, or not permitted.
pub fn address() -> ExitCode {
    ExitCode::from(5)
}

/// No server to talk to.
pub fn no_server() -> ExitCode {
    ExitCode::from(6)
}

/// `howdah-bench`, whose command was typed, is missing or does not start.
pub fn external() -> ExitCode {
    ExitCode::from(7)
}
