//! Programs that tests write and then start. Part of every crate whose tests do so.

use std::path::Path;
use std::process::Command;

/// Makes a file that we have written one that can be executed at once. Not by its permissions
/// alone: a program that another test started while we had it open for writing has it so, too,
/// until its own `exec`, and as long nobody may execute the file (`ETXTBSY`, execve(2)). So another
/// program writes it.
pub fn make_executable(path: &Path) {
    let script = "install -m 755 \"$1\" \"$1.new\" && mv \"$1.new\" \"$1\"";
    let status = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(path)
        .status()
        .unwrap_or_else(|error| panic!("sh: {error}"));
    assert!(status.success(), "{}: {status}", path.display());
}
