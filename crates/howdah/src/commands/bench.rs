//! `howdah bench`: the load tester's command line, with this program's signals. The rest is
//! `howdah-bench`, which shares no code with the server.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::interrupt;
use crate::exit;
use howdah_bench::command::{self, Bench};

/// Measures, or reports on what was measured. The first Ctrl-C ends the measurement and prints what there
/// is; the second ends the program.
pub fn run(bench: &Bench) -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    // Blocked here first, so that no thread of the load tester is ended by one.
    let signals = [libc::SIGINT, libc::SIGTERM];
    if let Err(error) = interrupt::watch(&signals, stop.clone(), || {}) {
        let _ = writeln!(
            std::io::stderr(),
            "howdah bench: watching for signals: {error}"
        );
        return exit::failed();
    }
    let command = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    ExitCode::from(command::run(bench, stop, command))
}
