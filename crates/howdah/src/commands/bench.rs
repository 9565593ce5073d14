//! `howdah bench`: the load tester's command line, with this program's signals. The rest is
//! `howdah-bench`, which shares no code with the server.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use howdah_bench::command::{self, Bench};
use rustix::event::{PollFd, PollFlags, poll};

use crate::{exit, sys};

/// Measures, or reports on what was measured. The first Ctrl-C ends the measurement and prints what there
/// is; the second ends the program.
pub fn run(bench: &Bench) -> ExitCode {
    let interrupt = Arc::new(AtomicBool::new(false));
    if let Err(error) = watch_signals(interrupt.clone()) {
        let _ = writeln!(
            std::io::stderr(),
            "howdah bench: watching for signals: {error}"
        );
        return exit::failed();
    }
    let command = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    ExitCode::from(command::run(bench, interrupt, command))
}

fn watch_signals(interrupt: Arc<AtomicBool>) -> std::io::Result<()> {
    // Blocked here first, so that no thread of the load tester is ended by one.
    let signals = sys::signal_descriptor(&[libc::SIGINT, libc::SIGTERM])?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            loop {
                let mut ready = [PollFd::new(&signals, PollFlags::IN)];
                if poll(&mut ready, None).is_err() {
                    continue;
                }
                for signal in sys::pending_signals(&signals) {
                    if interrupt.swap(true, Ordering::Relaxed) {
                        std::process::exit(128 + signal);
                    }
                }
            }
        })
        .map(|_| ())
}
