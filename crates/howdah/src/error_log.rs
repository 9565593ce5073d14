//! Logs of the processes that write them, opened by the configuration. A file was opened by the master,
//! which may where they may not.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use howdah_proto::level::Level;
use howdah_server::log::{ErrorLog, ErrorStyle, LogTarget, Sink};

/// The error log of this process.
///
/// # Errors
/// What the system says.
pub fn open(target: &LogTarget, level: Level, file: Option<OwnedFd>) -> io::Result<ErrorLog> {
    let sink = sink("error", target, Duration::ZERO, file)?;
    Ok(ErrorLog::new(sink, style(target), level))
}

/// How lines begin there.
pub fn style(target: &LogTarget) -> ErrorStyle {
    match target {
        LogTarget::File(_) => ErrorStyle::File,
        LogTarget::Stdout | LogTarget::Stderr => ErrorStyle::Terminal,
        LogTarget::Daemon(_) if target.takes_fields() => ErrorStyle::Journal,
        LogTarget::Daemon(_) => ErrorStyle::Syslog,
    }
}

/// A log, in the file if there is one.
///
/// # Errors
/// What the system says.
pub fn sink(
    log: &'static str,
    target: &LogTarget,
    delay: Duration,
    file: Option<OwnedFd>,
) -> io::Result<Sink> {
    match file {
        Some(file) => {
            let sink = Sink::start(log, LogTarget::Stderr, delay)?;
            sink.move_to(target.clone(), Some(File::from(file)))?;
            Ok(sink)
        }
        None => Sink::start(log, target.clone(), delay),
    }
}
