//! `howdah bench` and `howdah compare`: commands of another program, `howdah-bench`, so the server links neither a load
//! tester nor code that starts rival servers. This process becomes that program, with its arguments unchanged, as git
//! does with its external commands.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::{exit, installed};

/// The program that implements these commands.
const PROGRAM: &str = "howdah-bench";
/// Its commands.
const COMMANDS: [&str; 2] = ["bench", "compare"];

/// Returns the arguments of `howdah-bench`, if `arguments` (those of `howdah`, without its name) are meant for it.
pub fn arguments(mut arguments: Vec<OsString>) -> Option<Vec<OsString>> {
    let is_ours = |word: Option<&OsString>| {
        word.is_some_and(|word| COMMANDS.iter().any(|command| word == command))
    };
    if is_ours(arguments.first()) {
        return Some(arguments);
    }
    if arguments.first().is_some_and(|word| word == "help") && is_ours(arguments.get(1)) {
        arguments.remove(0);
        arguments.truncate(1);
        arguments.push("--help".into());
        return Some(arguments);
    }
    None
}

/// Replaces this process with `howdah-bench`: the one that is installed with this program, or else the one in `PATH`.
/// Returns only if that fails.
pub fn run<A: Into<OsString>>(arguments: impl IntoIterator<Item = A>) -> ExitCode {
    let places = installed::candidate_paths(PROGRAM);
    let program = places.iter().find(|path| path.is_file());
    let program = program.map_or(Path::new(PROGRAM), |path| path);
    let mut command = Command::new(program);
    // The name as it was entered, because usage and reports repeat the command line.
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    let error = command.args(arguments.into_iter().map(Into::into)).exec();
    match error.kind() {
        ErrorKind::NotFound => eprintln!(
            "howdah: BenchMissing: there is no {PROGRAM} in {} or in PATH; install the package {PROGRAM}, or build it (cargo build --release -p howdah-lab) and put it next to howdah",
            places[0].with_file_name("").display()
        ),
        _ => eprintln!("howdah: BenchDoesNotStart: {}: {error}", program.display()),
    }
    exit::external()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Option<String> {
        let words = line.split(' ').map(OsString::from).collect();
        let arguments = arguments(words)?;
        Some(arguments.join(" ".as_ref()).into_string().unwrap())
    }

    #[test]
    fn external_arguments_are_passed_on_unchanged() {
        let same = ["bench -n 5 -- http://host/", "compare --help", "bench -V"];
        for line in same {
            assert_eq!(asked(line).unwrap(), line);
        }
        assert_eq!(asked("help compare").unwrap(), "compare --help");
        for line in ["serve bench", "help serve", "help", "--version"] {
            assert_eq!(asked(line), None, "{line}");
        }
    }
}
