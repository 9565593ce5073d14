//! Exit codes of `howdah-bench`, the same as `howdah`'s where they have the same meaning. They are documented in
//! `docs/bench.md` and `docs/compare.md`; those of `bench` come from `howdah_bench::command`.

use std::process::ExitCode;

/// The command was carried out.
pub fn done() -> ExitCode {
    ExitCode::SUCCESS
}

/// The command failed.
pub fn failed() -> ExitCode {
    ExitCode::from(1)
}

/// The options do not make sense together. (clap exits with 2 if it cannot parse the command line.)
pub fn configuration() -> ExitCode {
    ExitCode::from(3)
}

/// Ctrl-C ended the command: 128 plus the signal's number, as in shells.
pub fn interrupted() -> ExitCode {
    ExitCode::from(130)
}
