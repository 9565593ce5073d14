//! Ctrl-C for commands that measure: the first ends the measurement and lets it tell what there is, the
//! second ends the program.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};

use crate::sys;

/// Sets `interrupt` at the first of `signals` and calls `first`; ends the program at the second, with
/// 128 and the signal's number, as shells say. To be called before any thread is started: what is
/// blocked here is blocked there.
pub fn watch(signals: &[libc::c_int], interrupt: Arc<AtomicBool>, first: fn()) -> io::Result<()> {
    let descriptor = sys::signal_descriptor(signals)?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            loop {
                let mut ready = [PollFd::new(&descriptor, PollFlags::IN)];
                if poll(&mut ready, None).is_err() {
                    continue;
                }
                for signal in sys::pending_signals(&descriptor) {
                    if interrupt.swap(true, Ordering::Relaxed) {
                        std::process::exit(128 + signal);
                    }
                    first();
                }
            }
        })
        .map(|_| ())
}
