//! The lab's errors. A stack that fails loses its own rows, never those of other stacks.

use std::fmt;
use std::io;
use std::path::PathBuf;

use howdah_bench::error::BenchError;
use howdah_machine::ports::NoFreePorts;
use strum::IntoStaticStr;

/// Why the lab has no result. The variant's name is shown as the failure's name on the terminal and in reports.
#[derive(Debug, IntoStaticStr)]
pub enum LabError {
    /// A program this stack needs is not installed: its rows say "not here".
    NotHere {
        /// The program or file that is missing.
        what: String,
        /// The command that installs it.
        install: String,
    },
    /// A program did not start.
    DoesNotStart {
        /// The program's name.
        program: String,
        /// The condition that the lab waited for, or how the program exited.
        why: String,
        /// The last lines it logged.
        log: String,
    },
    /// A program exited by itself while it was needed: the figures that were measured meanwhile are invalid, not slow.
    Died {
        /// The program's name.
        program: String,
        /// The program's exit status.
        how: String,
        /// The last lines it logged.
        log: String,
    },
    /// A file of the lab itself could not be written or read.
    File {
        /// The file's path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A part of a page could not be prepared: its database or its application.
    Site {
        /// The cause, in the words of the program that failed.
        why: String,
    },
    /// A running stack responded with something other than the page.
    WrongPage {
        /// The stack's name.
        stack: String,
        /// The URL that was requested.
        url: String,
        /// The stack's response.
        got: String,
        /// The last lines its programs logged.
        log: String,
    },
    /// The generator could not measure a stack.
    NotMeasured {
        /// The stack's name.
        stack: String,
        /// Why the generator could not measure it.
        why: BenchError,
    },
    /// A benchmark's file has mistakes.
    Suite {
        /// The file's name.
        file: String,
        /// All mistakes found in the file.
        mistakes: Vec<String>,
    },
    /// A file is not a saved result of this version.
    NotAResult {
        /// The file's path.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A document's marks are not in order, so the document is left unchanged.
    Marks {
        /// The document's file name.
        file: String,
        /// What was expected, and what to do.
        wanted: String,
    },
    /// A user's own application cannot be measured as asked.
    OwnApp {
        /// All reasons, each with what to do.
        mistakes: Vec<String>,
    },
    /// A folder holds no comparison to resume, or one that cannot be resumed.
    NotResumable {
        /// What was found, and what to do.
        why: String,
    },
    /// A comparison that was begun belongs to another program, configuration or machine.
    Changed {
        /// What has changed, a sentence each.
        what: Vec<String>,
    },
    /// A preparatory command failed.
    Preparation {
        /// The command as it was run.
        command: String,
        /// What the command printed.
        said: String,
    },
}

impl LabError {
    /// Returns the variant's name, which users see.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Copies the failure, for another row that has no result because of it.
    pub(crate) fn copy_for_row(&self) -> LabError {
        match self {
            LabError::NotHere { what, install } => LabError::NotHere {
                what: what.clone(),
                install: install.clone(),
            },
            other => LabError::Site {
                why: other.to_string(),
            },
        }
    }

    /// Returns a function for `map_err` that turns an error of the file at `path` into a [`LabError`].
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> LabError {
        let path = path.into();
        move |error| LabError::File { path, error }
    }
}

impl From<NoFreePorts> for LabError {
    fn from(NoFreePorts { count, error }: NoFreePorts) -> LabError {
        LabError::file(format!("{count} consecutive free ports on 127.0.0.1"))(error)
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::NotHere { what, install } => {
                write!(f, "NotHere: {what} is not installed: {install}")
            }
            LabError::DoesNotStart { program, why, log } => {
                write!(f, "DoesNotStart: {program}: {why}")?;
                write_log(f, log)
            }
            LabError::Died { program, how, log } => {
                write!(f, "Died: {program} exited unexpectedly ({how})")?;
                write_log(f, log)
            }
            LabError::File { path, error } => write!(f, "File: {}: {error}", path.display()),
            LabError::Site { why } => write!(f, "Site: {why}"),
            LabError::WrongPage {
                stack,
                url,
                got,
                log,
            } => {
                write!(f, "WrongPage: {stack}: {url} gave {got}")?;
                write_log(f, log)
            }
            LabError::NotMeasured { stack, why } => write!(f, "NotMeasured: {stack}: {why}"),
            LabError::Suite { file, mistakes } => {
                write!(f, "Suite: {file} has mistakes")?;
                write_log(f, &mistakes.join("\n"))
            }
            LabError::NotAResult { path, why } => write!(
                f,
                "NotAResult: {}: {why}; expected a file that `howdah compare` wrote, or a directory of its --out",
                path.display()
            ),
            LabError::Marks { file, wanted } => {
                write!(f, "Marks: {file} was not changed: expected {wanted}")
            }
            LabError::OwnApp { mistakes } => {
                f.write_str("OwnApp: the application cannot be measured like this")?;
                write_log(f, &mistakes.join("\n"))
            }
            LabError::NotResumable { why } => write!(f, "NotResumable: {why}"),
            LabError::Changed { what } => {
                f.write_str(
                    "Changed: a comparison cannot be continued after the set-up has changed, so start a new one. These things have changed",
                )?;
                write_log(f, &what.join("\n"))
            }
            LabError::Preparation { command, said } => {
                write!(f, "Preparation: {command}")?;
                write_log(f, said)
            }
        }
    }
}

fn write_log(f: &mut fmt::Formatter<'_>, log: &str) -> fmt::Result {
    for line in log.lines() {
        write!(f, "\n    | {line}")?;
    }
    Ok(())
}

impl std::error::Error for LabError {}
