//! Lines that several processes write to one file.

use std::io::{self, Write};

/// Writes a line to the standard error with a single write. `eprintln!` writes each part of its text separately, and
/// the output of other processes can get between the parts.
pub fn write_stderr_line(text: &str) {
    let line = format!("{text}\n");
    // The process continues if no process reads the standard error any more.
    let _ = io::stderr().write_all(line.as_bytes());
}
