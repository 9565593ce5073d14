//! Exit codes, which are those of `howdah`.

use std::process::ExitCode;

/// The program succeeded.
pub fn done() -> ExitCode {
    ExitCode::SUCCESS
}

/// The program failed, or the servers differ.
pub fn failed() -> ExitCode {
    ExitCode::from(1)
}

/// The configuration that is read has mistakes.
pub fn configuration() -> ExitCode {
    ExitCode::from(3)
}

/// One of the servers does not respond.
pub fn no_server() -> ExitCode {
    ExitCode::from(6)
}
