//! Makes programs executable that a test has written itself and then starts.

use std::path::Path;
use std::process::Command;

/// Turns a file that this process has written into one that can be executed immediately. Setting its permissions is not
/// enough: if another test starts a program while our file is open for writing, the new process inherits the descriptor
/// until its own `exec`, and until then no process may execute the file (`ETXTBSY`, execve(2)). Therefore another
/// program writes the file.
pub fn make_executable(path: &Path) {
    let script = "install -m 755 \"$1\" \"$1.new\" && mv \"$1.new\" \"$1\"";
    let status = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(path)
        .status()
        .unwrap_or_else(|error| panic!("cannot run sh: {error}"));
    assert!(status.success(), "{}: {status}", path.display());
}
