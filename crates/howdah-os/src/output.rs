//! The output of commands, and lines that several processes write to one file.

use std::io::{self, Write};

/// Writes the output of a command to the standard output, and ends it with a line break. A reader that closes the pipe
/// early (`| head`) is not an error, but a full disk is.
///
/// # Errors
/// Returns an error if the text cannot be written.
pub fn write_stdout(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let written = write!(out, "{text}{end}").and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Writes a line to the standard error with a single write. `eprintln!` writes each part of its text separately, and
/// the output of other processes can get between the parts.
pub fn write_stderr_line(text: &str) {
    let line = format!("{text}\n");
    // The process continues if no process reads the standard error any more.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Formats a number with a noun: `1 site`, `2 sites`.
pub fn counted(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        many => format!("{many} {noun}s"),
    }
}
