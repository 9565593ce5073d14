//! Exit codes of `howdah-bench`, the same as `howdah`'s where they mean the same. Documented in
//! `docs/bench.md` and `docs/compare.md`; those of `bench` come from `howdah_bench::command`.

use std::process::ExitCode;

/// Done.
pub fn done() -> ExitCode {
    ExitCode::SUCCESS
}

/// What was asked for could not be done.
pub fn failed() -> ExitCode {
    ExitCode::from(1)
}

/// What was asked for makes no sense. (2 is clap's: the command line cannot be read.)
pub fn configuration() -> ExitCode {
    ExitCode::from(3)
}

/// Ended by Ctrl-C: 128 plus the signal's number, as shells have it.
pub fn interrupted() -> ExitCode {
    ExitCode::from(130)
}
