//! Exit codes, which are documented in `docs/operations.md` and `howdah --help`.

use std::process::ExitCode;

/// The command succeeded.
pub fn done() -> ExitCode {
    ExitCode::SUCCESS
}

/// The command failed.
pub fn failed() -> ExitCode {
    ExitCode::from(1)
}

/// The configuration has mistakes. (Code 2 is clap's, for mistakes on the command line.)
pub fn configuration() -> ExitCode {
    ExitCode::from(3)
}

/// PHP is missing or not suitable.
pub fn php() -> ExitCode {
    ExitCode::from(4)
}

/// An address, control socket or pid file is in use, or not permitted.
pub fn address() -> ExitCode {
    ExitCode::from(5)
}

/// No server responds on the control socket.
pub fn no_server() -> ExitCode {
    ExitCode::from(6)
}

/// `howdah-bench`, `howdah-import` or `howdah-takeover`, whose command was entered, is missing or does not start.
pub fn external() -> ExitCode {
    ExitCode::from(7)
}
