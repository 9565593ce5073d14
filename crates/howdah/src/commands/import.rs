//! `howdah import`: writes a configuration that is made from another server's, and beside it the list of what was not
//! translated. The result is checked as `howdah check` does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use howdah_import::ledger::{LedgerEntry, OutcomeKind};
use howdah_import::{ConfigFormat, EMPTY_ROOT, ImportRequest, ImportResult};
use howdah_site::static_file::mime;

use super::check;
use super::import_responses::{self, SiteResponses};
use super::new_files::{self, NewFile};
use crate::arguments::{self, ImportCommand, ImportOutput, ImportServerArguments};
use crate::config::identity::web_user;
use crate::{exit, sys};

/// Runs `howdah import`.
pub fn run(import: arguments::ImportArguments) -> ExitCode {
    let (format, server) = match import.command {
        None => return super::import_verify::run(&import.verify),
        Some(ImportCommand::Nginx(server)) => (ConfigFormat::Nginx, server),
        Some(ImportCommand::Apache(server)) => (ConfigFormat::Apache, server),
        Some(ImportCommand::PhpFpm(fpm)) => {
            let server = ImportServerArguments {
                paths: fpm.paths,
                php_fpm: Vec::new(),
                prefix: None,
                output: fpm.output,
            };
            (ConfigFormat::PhpFpm, server)
        }
    };
    let output = server.output;
    let list = list_beside(&output.file);
    if let Err(why) = new_files::refuse_existing(&[&output.file, &list], output.force) {
        eprintln!("howdah: {why}");
        return exit::failed();
    }
    let request = ImportRequest {
        format,
        paths: server.paths,
        prefix: server.prefix,
        php_fpm: server.php_fpm,
        list: list.display().to_string(),
        media_type: mime::media_type,
        // A server that root starts needs a user, and a file of a single site names none.
        user: sys::is_root()
            .then(|| web_user().map(str::to_owned))
            .flatten(),
    };
    let import = match howdah_import::import(&request) {
        Ok(import) => import,
        Err(problem) => {
            eprintln!("{problem}");
            return exit::configuration();
        }
    };
    if let Err(why) = write(&output, &list, &import) {
        eprintln!("howdah: {why}");
        return exit::failed();
    }
    let mistakes = check::mistakes(&output.file);
    let sites = import_responses::explain_sites_of_file(&output.file);
    let code = match output.json {
        true => super::print_output(&json(&output.file, &list, &import, &mistakes, &sites)),
        false => {
            let answers = import_responses::table(&sites, &output.file);
            super::print_output(&(summary(&output.file, &list, &import) + &answers))
        }
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
                "howdah: the configuration {} that was written does not work. Mistakes about a missing file, user or certificate are caused by this machine; any other mistake is a bug in `howdah import`: please report it with the lines above",
                output.file.display()
            );
            exit::failed()
        }
    }
}

/// Returns the path of the list: `howdah.toml.notes`.
fn list_beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".notes");
    name.into()
}

fn write(output: &ImportOutput, list: &Path, import: &ImportResult) -> Result<(), String> {
    if import.needs_empty_root {
        let beside = output.file.parent().unwrap_or(Path::new(""));
        let root = beside.join(EMPTY_ROOT);
        fs::create_dir_all(&root)
            .map_err(|error| format!("cannot write {}: {error}", root.display()))?;
    }
    // The configuration is written last, so if it exists, the list exists too.
    let files: [NewFile<'_>; 2] = [(list, &import.list), (&output.file, &import.configuration)];
    new_files::write(&files, None, output.force)
}

fn summary(file: &Path, list: &Path, import: &ImportResult) -> String {
    let counts = import.counts;
    let mut text = format!(
        "{}: {} and {}\n{} directives: {} carried over ({} with a difference), {} without a meaning in Howdah, {} not carried over\n",
        file.display(),
        check::counted(import.sites, "site"),
        check::counted(import.pools, "pool"),
        counts.total(),
        counts.carried,
        counts.different,
        counts.irrelevant,
        counts.missing,
    );
    if counts.missing_protections > 0 {
        text += &format!(
            "{} of these denied or limited access: replace them before you go live\n",
            counts.missing_protections
        );
    }
    text + &format!(
        "read {}, then: howdah check --config {}\n",
        list.display(),
        file.display()
    )
}

fn json(
    file: &Path,
    list: &Path,
    import: &ImportResult,
    mistakes: &[String],
    sites: &[SiteResponses],
) -> String {
    let entry = |entry: &LedgerEntry| {
        let outcome = &entry.outcome;
        let (word, notes): (_, Vec<&str>) = match outcome.kind() {
            OutcomeKind::Carried => ("carried", Vec::new()),
            OutcomeKind::Different => ("different", borrowed(&outcome.remarks)),
            OutcomeKind::Missing => ("listed", borrowed(&outcome.needs)),
            OutcomeKind::Irrelevant => ("moot", outcome.irrelevant.into_iter().collect()),
        };
        serde_json::json!({
            "file": &*entry.place.file,
            "line": entry.place.line,
            "directive": entry.text,
            "outcome": word,
            "protects": outcome.protects,
            "notes": notes,
        })
    };
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
    let counts = import.counts;
    let value = serde_json::json!({
        "configuration": file,
        "notes": list,
        "sites": import.sites,
        "pools": import.pools,
        "carried": counts.carried,
        "different": counts.different,
        "moot": counts.irrelevant,
        "listed": counts.missing,
        "protecting": counts.missing_protections,
        "mistakes": mistakes,
        "answers": sites.iter().map(answers).collect::<Vec<_>>(),
        "directives": import.entries.iter().map(entry).collect::<Vec<_>>(),
    });
    format!("{value:#}")
}

fn borrowed(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::arguments::ServeArguments;
    use crate::config::{self, ConfigSource, Validation};

    /// Checks that a written configuration has no mistakes, even if parts of the input are missing or doubled.
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
            let loaded = config::load(
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
