//! Lines that several processes write to one file.

use std::io::{self, Write};

/// Writes a line to the standard error, all of it at once: `eprintln!` writes each part of its text by
/// itself, and what another process writes meanwhile gets between them.
pub fn line_to_stderr(text: &str) {
    let line = format!("{text}\n");
    // A standard error that nobody reads any more is no reason to end.
    let _ = io::stderr().write_all(line.as_bytes());
}
