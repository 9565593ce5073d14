//! PHP's command line for servers written in PHP, with the ini that every other stack has.

use std::path::Path;
use std::process::Command;

use super::StackJob;
use crate::LabError;
use crate::folder::run_command;
use crate::need;

/// Returns PHP's command line with the job's settings. It turns the opcode cache on, which is off on the command line
/// by default.
pub fn command(job: &StackJob) -> Result<Command, LabError> {
    let mut command = Command::new(need::PHP_CLI.find()?);
    command
        .args(arguments(job))
        .env("PHP_INI_SCAN_DIR", &job.ini.scan_directory);
    Ok(command)
}

/// Returns the arguments of [`command`].
pub fn arguments(job: &StackJob) -> [String; 4] {
    let ini = job.ini.file.display().to_string();
    [
        "-c".to_owned(),
        ini,
        "-d".to_owned(),
        "opcache.enable_cli=1".to_owned(),
    ]
}

/// Returns the arguments that load an extension; none if the settings load it already, because PHP would warn.
pub fn extension_arguments(
    job: &StackJob,
    name: &str,
    file: &Path,
) -> Result<Vec<String>, LabError> {
    let modules = run_command(command(job)?.arg("-m"))?;
    Ok(if modules.lines().any(|module| module == name) {
        Vec::new()
    } else {
        vec!["-d".to_owned(), format!("extension={}", file.display())]
    })
}
