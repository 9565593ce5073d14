//! The command `bench`: runs the load tester (`howdah_bench::command`). This program adds the handling of signals, and
//! the lab's comparison for `--vs`.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use howdah_bench::command::{self, BenchArguments};
use howdah_lab::url_compare;
use nix::sys::signal::Signal;

use crate::{exit, interrupt};

/// Measures, or reports saved measurements. The first Ctrl-C ends the measurement and prints the results so far; the
/// second ends the program.
pub fn run(bench: &BenchArguments) -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    if let Err(error) = interrupt::watch(&[Signal::SIGINT, Signal::SIGTERM], stop.clone(), || {}) {
        // Standard error may be closed; in that case the message cannot be shown.
        let _ = writeln!(
            std::io::stderr(),
            "howdah bench: cannot watch for signals: {error}"
        );
        return exit::failed();
    }
    let command = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    ExitCode::from(command::run(bench, stop, command, url_compare::compare))
}
