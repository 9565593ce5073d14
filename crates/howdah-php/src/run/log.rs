//! The log of a Swoole server: one line per message, appended in one write, so the lines of several processes do not
//! mix. It goes to standard error or to the script's `log_file`.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use howdah_http1::date::imf_fixdate;

use super::sys;

static LOG_FILE: Mutex<Option<File>> = Mutex::new(None);
/// Whether the script's `log_level` lets informational messages through.
static LOGS_INFO: AtomicBool = AtomicBool::new(true);

/// Redirects the log to a file, to which it appends.
pub fn open_file(path: &Path) -> std::io::Result<()> {
    let file = File::options().append(true).create(true).open(path)?;
    *LOG_FILE.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
    Ok(())
}

/// Sets whether [`info`] writes anything.
pub fn set_logs_info(talks: bool) {
    LOGS_INFO.store(talks, Ordering::Relaxed);
}

/// Logs something that the administrator should know.
pub fn warn(text: &str) {
    write("warning", text);
}

/// Logs a normal event.
pub fn info(text: &str) {
    if LOGS_INFO.load(Ordering::Relaxed) {
        write("info", text);
    }
}

fn write(level: &str, text: &str) {
    let date = imf_fixdate(sys::wall_seconds());
    // Control characters in text from a client or a path must not forge lines.
    let clean: String = text
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    let line = format!(
        "howdah run: [{} #{}] {level}: {clean}\n",
        String::from_utf8_lossy(&date),
        crate::sys::own_pid()
    );
    let mut file = LOG_FILE.lock().unwrap_or_else(PoisonError::into_inner);
    // If the log cannot be written, there is no other place to report that.
    let _ = match &mut *file {
        Some(file) => file.write_all(line.as_bytes()),
        None => std::io::stderr().write_all(line.as_bytes()),
    };
}
