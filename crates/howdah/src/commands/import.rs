//! `howdah import`: `howdah-import` translates the configuration of another server. Afterwards this program checks it
//! as `howdah check` does, and shows how its sites respond.

use std::ffi::OsString;
use std::process::{ExitCode, ExitStatus, Stdio};

use serde_json::Value;

use super::external::IMPORT;
use super::import_responses::{self, SiteResponses};
use super::{check, print_output};
use crate::exit;
use howdah_config::arguments::{ImportArguments, ImportCommand};

/// Runs `howdah import`.
pub fn run(import: &ImportArguments) -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(2).collect();
    let output = match &import.command {
        None => return IMPORT.execute(arguments),
        Some(ImportCommand::Nginx(server) | ImportCommand::Apache(server)) => &server.output,
        Some(ImportCommand::PhpFpm(fpm)) => &fpm.output,
    };
    let written = match output.json {
        true => json_of_import(&arguments).map(Some),
        false => write_configuration(&arguments).map(|()| None),
    };
    let document = match written {
        Ok(document) => document,
        Err(code) => return code,
    };
    let mistakes = check::mistakes(&output.file);
    let sites = import_responses::explain_sites_of_file(&output.file);
    let code = match document {
        Some(document) => print_output(&with_check(document, &mistakes, &sites)),
        None => match import_responses::table(&sites, &output.file) {
            table if table.is_empty() => exit::done(),
            table => print_output(&table),
        },
    };
    let problems: Vec<&String> = sites.iter().filter_map(|s| s.problem.as_ref()).collect();
    for problem in &problems {
        eprintln!("howdah: {problem}");
    }
    for mistake in &mistakes {
        eprintln!("{mistake}");
    }
    match mistakes.is_empty() {
        true if problems.is_empty() => code,
        true => exit::failed(),
        false => {
            eprintln!(
                "howdah: the configuration {} that was written does not work. If a mistake is about a missing file, user or certificate, install or create it on this machine; any other mistake is a bug in `howdah import`: please report it with the lines above",
                output.file.display()
            );
            exit::failed()
        }
    }
}

/// Runs `howdah-import`, which prints what it has written. Returns its exit code if it fails.
fn write_configuration(arguments: &[OsString]) -> Result<(), ExitCode> {
    let status = IMPORT.command().args(arguments).status();
    let status = status.map_err(|error| IMPORT.report(&error))?;
    success(status)
}

/// Runs `howdah-import`, and returns the document that it prints. Returns its exit code if it fails.
fn json_of_import(arguments: &[OsString]) -> Result<Value, ExitCode> {
    let mut command = IMPORT.command();
    command.args(arguments).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| IMPORT.report(&error))?;
    success(output.status)?;
    serde_json::from_slice(&output.stdout).map_err(|error| {
        eprintln!("howdah: the output of howdah-import is not JSON, perhaps because it is another version: {error}");
        exit::failed()
    })
}

/// Returns the exit code of a program that has failed.
fn success(status: ExitStatus) -> Result<(), ExitCode> {
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))),
        None => {
            eprintln!("howdah: howdah-import did not finish: {status}");
            Err(exit::failed())
        }
    }
}

/// Returns the document of the import with the result of the check.
fn with_check(mut document: Value, mistakes: &[String], sites: &[SiteResponses]) -> String {
    let answers = |site: &SiteResponses| {
        let urls = site.explanations.iter().map(
            |explained| serde_json::json!({ "url": explained.url, "answer": explained.answer }),
        );
        serde_json::json!({
            "site": site.name,
            "urls": urls.collect::<Vec<_>>(),
            "problem": site.problem,
        })
    };
    document["mistakes"] = mistakes.into();
    document["answers"] = sites.iter().map(answers).collect();
    format!("{document:#}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use howdah_config::arguments::ServeArguments;
    use howdah_config::{self, ConfigSource, Validation};

    /// Checks that a written configuration has no mistakes, even if parts of the input are missing or duplicated.
    #[test]
    fn import_writes_a_configuration_without_mistakes() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = folder.join("../../fuzz/corpus/import_configuration");
        for entry in std::fs::read_dir(folder).unwrap() {
            let seed = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let pieces: Vec<&str> = seed.split_inclusive([';', '}', '\n']).collect();
            for at in (0..=pieces.len()).step_by(3) {
                let (before, after) = pieces.split_at(at);
                let without = after.get(1..).unwrap_or_default();
                let twice = &after[..after.len().min(1)];
                for text in [[before, without].concat(), [before, twice, after].concat()] {
                    check(&text.concat());
                }
            }
        }
    }

    fn check(text: &str) {
        use howdah_import::ConfigFormat;
        for format in [
            ConfigFormat::Nginx,
            ConfigFormat::Apache,
            ConfigFormat::PhpFpm,
        ] {
            let Ok(import) = howdah_import::import_text(format, text) else {
                continue;
            };
            let source = ConfigSource::from_text("howdah.toml", import.configuration.clone());
            // The roots, users and sockets of this machine are not checked.
            let loaded = howdah_config::load(
                &ServeArguments::default(),
                Some(&source),
                Validation::Trusted,
            );
            let of_the_machine = |mistake: &String| mistake.contains("No such file");
            let mut mistakes = loaded.settings.err().unwrap_or_default();
            mistakes.retain(|mistake| !of_the_machine(mistake));
            assert!(
                mistakes.is_empty(),
                "{}\n{text}\n{}",
                mistakes.join("\n"),
                import.configuration
            );
        }
    }
}
