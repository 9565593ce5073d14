//! Programs that tests need and Debian does not package; `scripts/setup-tools.sh` installs them.

use std::path::PathBuf;
use std::process::Command;

/// Returns a command that runs the program at this path below the directory of tools.
///
/// # Panics
/// If the program is not installed; the message says how to install it.
pub fn tool(path: &str) -> Command {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let cache = || variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let tools = variable("HOWDAH_TOOLS").or_else(|| Some(cache()?.join("howdah")));
    let tool = tools.expect("$HOME is set").join(path);
    assert!(
        tool.is_file(),
        "there is no {}: run scripts/setup-tools.sh",
        tool.display()
    );
    Command::new(tool)
}
