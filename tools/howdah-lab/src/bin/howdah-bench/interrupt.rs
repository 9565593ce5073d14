//! Ctrl-C: the first one ends the measurement and prints the results so far, the second one ends the program.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use howdah_lab::LabError;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Sets `interrupt` at the first of `signals` and calls `first`; ends the program at the second, with 128 plus the
/// number of the signal, as shells do. Call it before any thread is started, because threads inherit the blocked
/// signals.
pub fn watch(signals: &[Signal], interrupt: Arc<AtomicBool>, first: fn()) -> io::Result<()> {
    let signals: SigSet = signals.iter().copied().collect();
    signals.thread_block()?;
    let descriptor = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            while let Ok(Some(signal)) = descriptor.read_signal() {
                if interrupt.swap(true, Ordering::Relaxed) {
                    std::process::exit(128 + signal.ssi_signo as i32);
                }
                first();
            }
        })
        .map(drop)
}

/// Starts to handle signals. The first one ends the run after its window and prints the results so far, the second one
/// ends it at once. Both also end the started programs.
pub fn listen() -> Result<Arc<AtomicBool>, LabError> {
    let stop = Arc::new(AtomicBool::new(false));
    let signals = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
    let first =
        || eprintln!("howdah: stopping after this window; press Ctrl-C again to stop at once");
    match watch(&signals, stop.clone(), first) {
        Ok(()) => Ok(stop),
        Err(error) => Err(LabError::File {
            path: PathBuf::from("signalfd"),
            error,
        }),
    }
}
