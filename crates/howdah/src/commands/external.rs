//! Commands of other programs: `howdah bench` and `howdah compare` are commands of `howdah-bench`, `howdah import` is the
//! program `howdah-import`, and `howdah takeover` is `howdah-takeover`. The server therefore links neither a load tester, nor code that starts rival
//! servers, nor the grammars of other servers' configurations.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::exit;
use howdah_config::installed;

/// A program that implements commands of this one.
pub struct ExternalProgram {
    name: &'static str,
    /// The package that contains it.
    package: &'static str,
    /// The names of the errors if it is missing, and if it does not start.
    missing: &'static str,
    does_not_start: &'static str,
}

/// The load tester and the comparison of servers.
pub const BENCH: ExternalProgram = ExternalProgram {
    name: "howdah-bench",
    package: "howdah-bench",
    missing: "BenchMissing",
    does_not_start: "BenchDoesNotStart",
};

/// The import of other servers' configurations.
pub const IMPORT: ExternalProgram = ExternalProgram {
    name: "howdah-import",
    package: "howdah",
    missing: "ImportMissing",
    does_not_start: "ImportDoesNotStart",
};

/// The move of a machine from other servers to Howdah.
pub const TAKEOVER: ExternalProgram = ExternalProgram {
    name: "howdah-takeover",
    package: "howdah",
    missing: "TakeoverMissing",
    does_not_start: "TakeoverDoesNotStart",
};

/// The commands of `howdah-bench`.
const BENCH_COMMANDS: [&str; 2] = ["bench", "compare"];

/// Returns the arguments of `howdah-bench`, if `arguments` (those of `howdah`, without its name) are meant for it.
pub fn arguments(mut arguments: Vec<OsString>) -> Option<Vec<OsString>> {
    let is_ours = |word: Option<&OsString>| {
        word.is_some_and(|word| BENCH_COMMANDS.iter().any(|command| word == command))
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

impl ExternalProgram {
    /// Replaces this process with the program, as git does with its external commands. Returns only if that fails.
    pub fn execute<A: Into<OsString>>(&self, arguments: impl IntoIterator<Item = A>) -> ExitCode {
        let mut command = self.command();
        // The name as it was entered, because usage and reports repeat the command line.
        if let Some(name) = std::env::args_os().next() {
            command.arg0(name);
        }
        let error = command.args(arguments.into_iter().map(Into::into)).exec();
        self.report(&error)
    }

    /// Returns a command that starts the program: the one that is installed with this program, or else the one in
    /// `PATH`.
    pub fn command(&self) -> Command {
        let places = installed::candidate_paths(self.name);
        let program = places.iter().find(|path| path.is_file());
        Command::new(program.map_or(Path::new(self.name), |path| path))
    }

    /// Prints why the program could not be started.
    pub fn report(&self, error: &io::Error) -> ExitCode {
        let ExternalProgram {
            name,
            package,
            missing,
            does_not_start,
        } = self;
        match error.kind() {
            ErrorKind::NotFound => eprintln!(
                "howdah: {missing}: there is no {name} in {} or in PATH; install the package {package}, or build it \
                 (make build) and put it next to howdah",
                installed::candidate_paths(name)[0]
                    .with_file_name("")
                    .display()
            ),
            _ => eprintln!(
                "howdah: {does_not_start}: {}: {error}",
                Path::new(self.command().get_program()).display()
            ),
        }
        exit::external()
    }
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
