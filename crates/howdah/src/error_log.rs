//! Opens the logs of a process according to the configuration. The master opens the files, because the other processes
//! may lack the permission.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use howdah_log::log::{ErrorLog, ErrorStyle, LogSink, LogTarget};
use howdah_proto::level::LogLevel;

/// Opens the error log of this process.
///
/// # Errors
/// Fails with the error of the operating system.
pub fn open(target: &LogTarget, level: LogLevel, file: Option<OwnedFd>) -> io::Result<ErrorLog> {
    let sink = sink("error", target, Duration::ZERO, file)?;
    Ok(ErrorLog::new(sink, style(target), level))
}

/// Returns the format of the beginning of a line in this target.
pub fn style(target: &LogTarget) -> ErrorStyle {
    match target {
        LogTarget::File(_) => ErrorStyle::File,
        LogTarget::Stdout | LogTarget::Stderr => ErrorStyle::Terminal,
        LogTarget::Daemon(_) if target.takes_fields() => ErrorStyle::Journal,
        LogTarget::Daemon(_) => ErrorStyle::Syslog,
    }
}

/// Opens a log; it writes to `file` if there is one.
///
/// # Errors
/// Fails with the error of the operating system.
pub fn sink(
    log: &'static str,
    target: &LogTarget,
    delay: Duration,
    file: Option<OwnedFd>,
) -> io::Result<LogSink> {
    match file {
        Some(file) => {
            let sink = LogSink::start(log, LogTarget::Stderr, delay)?;
            sink.move_to(target.clone(), Some(File::from(file)))?;
            Ok(sink)
        }
        None => LogSink::start(log, target.clone(), delay),
    }
}
