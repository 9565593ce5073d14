//! `howdah import`: writes a configuration that is made from another server's, and beside it the list of what was not
//! translated. The result is checked as `howdah check` does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use howdah_import::ledger::{Entry, Fate};
use howdah_import::{EMPTY_ROOT, Format, Import, Request};
use howdah_server::static_file::mime;

use super::check;
use super::import_answers::{self, SiteAnswers};
use super::new_files::{self, NewFile};
use crate::arguments::{self, ImportCommand, ImportOutput, ImportServer};
use crate::config::identity::web_user;
use crate::{exit, sys};

/// Runs `howdah import`.
pub fn run(import: arguments::Import) -> ExitCode {
    let (format, server) = match import.command {
        None => return super::import_verify::run(&import.verify),
        Some(ImportCommand::Nginx(server)) => (Format::Nginx, server),
        Some(ImportCommand::Apache(server)) => (Format::Apache, server),
        Some(ImportCommand::PhpFpm(fpm)) => {
            let server = ImportServer {
                paths: fpm.paths,
                php_fpm: Vec::new(),
                prefix: None,
                output: fpm.output,
            };
            (Format::PhpFpm, server)
        }
    };
    let output = server.output;
    let list = list_beside(&output.file);
    if let Err(why) = new_files::refuse_existing(&[&output.file, &list], output.force) {
        eprintln!("howdah: {why}");
        return exit::failed();
    }
    let request = Request {
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
    let sites = import_answers::ask(&output.file);
    let code = match output.json {
        true => super::answer(&json(&output.file, &list, &import, &mistakes, &sites)),
        false => {
            let answers = import_answers::table(&sites, &output.file);
            super::answer(&(summary(&output.file, &list, &import) + &answers))
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
                "howdah: {} does not work as it was written. What names a missing file, user or certificate is about \
                 this machine; anything else is a fault of `howdah import`: please report it with the lines above",
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

fn write(output: &ImportOutput, list: &Path, import: &Import) -> Result<(), String> {
    if import.needs_empty_root {
        let beside = output.file.parent().unwrap_or(Path::new(""));
        let root = beside.join(EMPTY_ROOT);
        fs::create_dir_all(&root)
            .map_err(|error| format!("cannot write {}: {error}", root.display()))?;
    }
    // The configuration is last, so whoever finds it also finds the list.
    let files: [NewFile<'_>; 2] = [(list, &import.list), (&output.file, &import.configuration)];
    new_files::write(&files, None, output.force)
}

fn summary(file: &Path, list: &Path, import: &Import) -> String {
    let counts = import.counts;
    let mut text = format!(
        "{}: {} and {}\n{} directives: {} carried over ({} with a difference), {} without a meaning here, {} not carried over\n",
        file.display(),
        check::counted(import.sites, "site"),
        check::counted(import.pools, "pool"),
        counts.total(),
        counts.carried,
        counts.remarks,
        counts.moot,
        counts.listed,
    );
    if counts.protecting > 0 {
        text += &format!(
            "{} of these closed or limited something: see to them before you go live\n",
            counts.protecting
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
    import: &Import,
    mistakes: &[String],
    sites: &[SiteAnswers],
) -> String {
    let entry = |entry: &Entry| {
        let outcome = &entry.outcome;
        let (word, notes): (_, Vec<&str>) = match outcome.fate() {
            Fate::Carried => ("carried", Vec::new()),
            Fate::Different => ("different", borrowed(&outcome.remarks)),
            Fate::Listed => ("listed", borrowed(&outcome.needs)),
            Fate::Moot => ("moot", outcome.moot.into_iter().collect()),
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
    let answers = |site: &SiteAnswers| {
        let urls = site.answers.iter().map(
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
        "different": counts.remarks,
        "moot": counts.moot,
        "listed": counts.listed,
        "protecting": counts.protecting,
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

    use crate::arguments::Serve;
    use crate::config::{self, Source, Validation};

    /// Checks that a written configuration has no mistakes, even if parts of the input are missing or doubled.
    #[test]
    fn what_is_written_has_no_mistakes() {
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
        use howdah_import::Format;
        for format in [Format::Nginx, Format::Apache, Format::PhpFpm] {
            let Ok(import) = howdah_import::import_text(format, text) else {
                continue;
            };
            let source = Source::of("howdah.toml", import.configuration.clone());
            // The roots, users and sockets of this machine are not checked.
            let loaded = config::load(&Serve::default(), Some(&source), Validation::Trusted);
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
