//! Lets the program `howdah` check the configuration of the plan. It knows what the server needs to start: PHP and its
//! extensions, certificates, users and directories.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::command::run;
use super::findings::{Findings, finding};
use super::staging::StagedDirectory;
use crate::plan::{CONFIGURATION, Finding, Severity};

/// How long the check may take. It starts the PHP of each pool.
const CHECK_TIMEOUT: Duration = Duration::from_secs(300);

/// Adds what `howdah check` says about the configuration. Its mistakes prevent the switch.
pub fn report(staged: &StagedDirectory, findings: &mut Findings) {
    let mut command = Command::new(howdah_program());
    command
        .arg("check")
        .arg("--config")
        .arg(staged.path().join(CONFIGURATION));
    let output = match run(&mut command, CHECK_TIMEOUT) {
        Ok(output) => output,
        Err(error) => {
            findings.add(
                Severity::Risk,
                "ConfigurationNotChecked",
                format!("`howdah check` cannot be run: {error}"),
                "Install the package howdah, then make the plan again.",
            );
            return;
        }
    };
    let now = staged.path().display().to_string();
    let later = staged.target().display().to_string();
    let text = output.stderr.replace(&now, &later);
    for found in parse(&text, output.status.success()) {
        findings.push(found);
    }
}

/// Returns the path of `howdah`, which is installed beside this program.
pub fn howdah_program() -> PathBuf {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|own| Some(own.parent()?.join("howdah")));
    beside
        .filter(|path| path.is_file())
        .unwrap_or_else(|| "howdah".into())
}

/// Returns the findings in the messages of the check.
fn parse(text: &str, succeeded: bool) -> Vec<Finding> {
    text.lines()
        .filter_map(|line| message(line, succeeded))
        .collect()
}

fn message(line: &str, succeeded: bool) -> Option<Finding> {
    if let Some(advice) = line.strip_prefix("advice: ") {
        let reports = advice.contains("PHP reports");
        let (severity, name) = match reports {
            true => (Severity::Risk, "PhpReports"),
            false => (Severity::Note, "HowdahAdvises"),
        };
        return Some(match split_place(advice) {
            Some((place, message)) => finding(severity, name, message.to_owned(), "").at(place),
            None => finding(severity, name, advice.to_owned(), ""),
        });
    }
    // The line of the file is shown below its message.
    if succeeded || line.starts_with(' ') || line.is_empty() {
        return None;
    }
    let remedy = "Howdah does not start with this configuration: correct what the message names, then make the plan again.";
    if let Some(message) = line.strip_prefix("howdah: ") {
        let is_count = message.ends_with(" mistake") || message.ends_with(" mistakes");
        let found = finding(
            Severity::Blocks,
            "HowdahRefuses",
            message.to_owned(),
            remedy,
        );
        return (!is_count).then_some(found);
    }
    let found = |message: &str| {
        finding(
            Severity::Blocks,
            "HowdahRefuses",
            message.to_owned(),
            remedy,
        )
    };
    Some(match split_place(line) {
        Some((place, message)) => found(message).at(place),
        None => found(line),
    })
}

/// Splits `FILE:LINE:COLUMN: message`.
fn split_place(line: &str) -> Option<(&str, &str)> {
    let (place, message) = line.split_once(": ")?;
    let mut parts = place.rsplitn(3, ':');
    let is_number = |part: Option<&str>| part.is_some_and(|part| part.parse::<u32>().is_ok());
    let is_place = is_number(parts.next()) && is_number(parts.next());
    (is_place && Path::new(parts.next()?).is_absolute()).then_some((place, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_check_become_findings() {
        let text = "advice: pool.www: PHP reports: Unable to load x.so\n\
            /d/sites.d/001-a.toml:6:8: root: cannot serve the directory /x\n  6 | root = \"/x\"\n    |        ^^^\n\
            howdah: the file /d/howdah.toml has 1 mistake\n";
        let found = parse(text, false);
        let names: Vec<(&str, Option<&str>)> = found
            .iter()
            .map(|found| (found.name.as_str(), found.place.as_deref()))
            .collect();
        let place = Some("/d/sites.d/001-a.toml:6:8");
        assert_eq!(names, [("PhpReports", None), ("HowdahRefuses", place)]);
        assert_eq!(found[1].message, "root: cannot serve the directory /x");
        assert_eq!(parse(text, true).len(), 1);
    }
}
